"""The C++ loop over blocks of keys, proved from its text for any number of intervals.

`skeleton.cpp` turns intervals of keys into disjoint ones in order, visits these in blocks, and asks
for each block (in the backward pass, for each tile of keys) whether it has to be masked. The lines
that call these functions, and the body of the loop, are not proved.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

from ...backends.cpu import native
from .. import terms
from ..given import between
from ..reading.braces import python_of
from ..reading.cpp import Array, CppReader
from ..reading.triton import Module, Record, as_number
from ..reading.values import BOOL, INT32, INT64, Number
from ..terms import Term, number
from .lists import PLACE, Intervals
from .loops import Proof, Walker, inside
from .runs import NOTHING, count_visits

FILE: Final = "skeleton"
_NAMES: Final = ("clip", "listed", "in_order", "joined", "united", "meets", "holds", "may_drop",
                "over_blocks")  # fmt: skip
KEY: Final = terms.variable("t")
_MOST: Final = 2**30  # intervals of a list


@lru_cache(maxsize=1)
def skeleton() -> str:
    return (Path(next(iter(native.__path__))) / "skeleton.cpp").read_text()


class Walk(Walker):
    """A walker with the functions that invariants of the C++ loop use, such as `visits`."""

    language = CppReader

    def __init__(self, text: str, milliseconds: int) -> None:
        module = Module(python_of(text, _NAMES), f"{FILE}.cpp")
        super().__init__(module, milliseconds)
        self.names |= {"t": Number(KEY, INT64), "a": Number(PLACE, INT64)}
        self.words["lies"] = lambda of, place: Number(of.holds(as_number(place).term, KEY), BOOL)
        count_visits(self)

    def count(self, name: str = "count") -> Number:
        return self.number(name, 0, _MOST)

    def number(self, name: str, low: int, high: int) -> Number:
        return self.unknown(name, low, high, INT64)

    def at_any(self, low: int, count: Term, claim: Term) -> Term:
        """The claim for every place low <= a < count."""
        return ~terms.within(number(low), PLACE, count) | claim

    def in_order(self, of: Intervals, count: Term) -> Term:
        before = of.read(PLACE - 1, 0)
        return self.at_any(1, count, of.read(PLACE, 0) >= before)

    def apart(self, of: Intervals, count: Term) -> list[Term]:
        """The intervals have keys, and each ends before the next begins."""
        before = of.read(PLACE - 1, 1)
        some = of.read(PLACE, 1) > of.read(PLACE, 0)
        return [
            self.at_any(0, count, some),
            self.at_any(1, count, of.read(PLACE, 0) > before),
        ]

    def holding(self, of: Intervals, count: Any) -> Term:
        return self.within(of, count, Number(KEY, INT64)).term


# --- lists of intervals ---------------------------------------------------------------------------


def _clip(walk: Walk) -> None:
    count, kv_len = walk.count(), walk.number("kv_len", 0, 2**31 - 1)
    table = walk.intervals("at", count.term)
    is_key = inside((0, kv_len), KEY)

    def in_closed(of: Intervals, place: Any) -> Number:
        first, last = (of.read(as_number(place).term, side) for side in (0, 1))
        return Number((first <= KEY) & (last >= KEY), BOOL)

    walk.names |= {"table": table, "is_key": Number(is_key, BOOL)}
    walk.words["lies_in_closed"] = in_closed
    found = walk.call("clip", table, count, kv_len)
    wanted = is_key & in_closed(table, Number(PLACE, INT64)).term
    walk.claim("the keys of each interval", walk.at_any(
        0, count.term, terms.same(found.holds(PLACE, KEY), wanted)
    ))  # fmt: skip


def _listed(walk: Walk) -> None:
    count, keys = walk.count(), walk.number("keys", 1, 2**31 - 1)
    kv_len = walk.number("kv_len", 0, 2**31 - 1)
    at, masked = (walk.intervals(name, count.term) for name in ("at", "masked"))
    first, end, label = (
        Array(terms.Table(name, "int", 0, 2**31 - 1), "int32_t")
        for name in ("first", "end", "label")
    )

    def in_run(place: Any) -> Number:
        of = as_number(place).term
        begin, stop = (each.at(of).term * keys.term for each in (first, end))
        lies = inside((Number(begin, INT64), Number(stop, INT64)), KEY)
        return Number(lies & (kv_len.term > KEY), BOOL)

    walk.words["lies_in_run"] = in_run
    lists = walk.call("listed", first, end, label, count, keys, kv_len, at, masked)
    for of, chosen in zip(lists, (
        ~terms.equal(label.at(PLACE).term, number(0)),
        terms.equal(label.at(PLACE).term, number(1)),
    ), strict=True):  # fmt: skip
        wanted = in_run(Number(PLACE, INT64)).term & chosen
        walk.claim("the keys of each run", walk.at_any(
            0, count.term, terms.same(of.holds(PLACE, KEY), wanted)
        ))  # fmt: skip


def _in_order(walk: Walk) -> None:
    count = walk.count()
    table = walk.names["table"] = walk.intervals("at", count.term)
    found = walk.call("in_order", table, count)
    walk.claim("in order", walk.in_order(found, count.term))
    walk.claim("the same keys", terms.same(walk.holding(found, count), walk.holding(table, count)))


def _joined(walk: Walk) -> None:
    count = walk.count()
    table = walk.names["table"] = walk.intervals("at", count.term)
    walk.given.append(walk.in_order(table, count.term))
    kept, found = walk.call("joined", table, count)
    _claim_united(walk, (table, count), (found, kept))


def _claim_united(walk: Walk, table: tuple[Any, Any], found: tuple[Any, Any]) -> None:
    of, kept = found
    walk.claim("no more than there were", (kept.term >= 0) & (table[1].term >= kept.term))
    for each in walk.apart(of, kept.term):
        walk.claim("apart", each)
    walk.claim("the same keys", terms.same(walk.holding(of, kept), walk.holding(*table)))


def _united(walk: Walk) -> None:
    """Proof steps for `united`, given the laws proved for `in_order` and `joined`."""
    count = walk.count()
    table = walk.intervals("at", count.term)

    def in_order(of: Intervals, many: Number) -> Intervals:
        walk.claim("all of them", terms.equal(many.term, count.term))
        found = of.unknown()
        same = terms.same(walk.holding(found, many), walk.holding(of, many))
        walk.given += [walk.in_order(found, many.term), same]
        return found

    def joined(of: Intervals, many: Number) -> tuple[Number, Intervals]:
        walk.claim("all of them", terms.equal(many.term, count.term))
        walk.claim("they are in order", walk.in_order(of, many.term))
        found, kept = of.unknown(), walk.count("kept")
        walk.given += [*walk.apart(found, kept.term), many.term >= kept.term]
        walk.given.append(terms.same(walk.holding(found, kept), walk.holding(of, many)))
        return kept, found

    walk.words["in_order"] = in_order
    walk.words["joined"] = joined
    kept, found = walk.call("united", table, count)
    _claim_united(walk, (table, count), (found, kept))


# --- blocks ---------------------------------------------------------------------------------------


def _block(walk: Walk) -> tuple[Number, Number]:
    first = walk.number("first", 0, 2**31)
    return first, walk.number("end", 0, 2**32)


def _met(walk: Walk, found: Any, table: tuple[Any, Any], block: tuple[Any, Any]) -> Term:
    """What `meets` says: if it is false, no key of the block lies in an interval."""
    none = ~(inside(block, KEY) & walk.holding(*table))
    return as_number(found).as_condition | none


def _held(walk: Walk, found: Any, table: tuple[Any, Any], block: tuple[Any, Any]) -> Term:
    """What `holds` says: if it is true, each key of the block lies in an interval."""
    of = as_number(found).as_condition & inside(block, KEY)
    return ~of | walk.holding(*table)


def _says(name: str, law: Callable[..., Term], walk: Walk) -> None:
    count = walk.count()
    table, block = walk.intervals("at", number(0)), _block(walk)
    found = walk.call(name, table, count, *block)
    walk.claim("each key of the block", law(walk, found, (table, count), block))


_meets, _holds = partial(_says, "meets", _met), partial(_says, "holds", _held)


def _spans(walk: Walk) -> Any:
    """Two lists of intervals that no store changes; `meets` and `holds` are known by their laws."""

    def says(law: Callable[..., Term], of: Intervals, count: Any, *block: Any) -> Number:
        found = walk.fresh("said", BOOL)
        walk.given.append(law(walk, found, (of, count), block))
        return found

    walk.words["meets"] = partial(says, _met)
    walk.words["holds"] = partial(says, _held)
    lists = {name: walk.intervals(name, number(0)) for name in ("at", "masked")}
    return Record.made(touched=walk.count("touched"), unfull=walk.count("unfull"), **lists)


def _may_drop(walk: Walk) -> None:
    s, block = _spans(walk), _block(walk)
    found = as_number(walk.call("may_drop", s, *block)).as_condition
    walk.given += [inside(block, KEY), ~found]
    walk.claim("its keys are kept by some query", walk.holding(s.at, s.touched))
    walk.claim("and dropped by none", ~walk.holding(s.masked, s.unfull))


def _blocks(walk: Walk) -> None:
    """Proof steps for `over_blocks`, on lists from `united`: apart, in order, within the length."""
    s = _spans(walk)
    walk.given += walk.apart(s.at, s.touched.term)
    for side in (0, 1):
        ends = between(0, s.at.read(PLACE, side), 2**31 - 1)
        walk.given.append(walk.at_any(0, s.touched.term, terms.both(*ends)))
    state = walk.call("over_blocks", s, _visit, NOTHING)
    visits, bare = state
    wanted = terms.choice(walk.holding(s.at, s.touched), number(1), number(0))
    walk.claim("every key to keep once, no other", terms.equal(visits.term, wanted))
    dropped = walk.holding(s.masked, s.unfull)
    walk.claim("none to drop without the mask", ~bare.term | ~dropped)


def _visit(state: Any, first: Any, count: Any, masked: Any) -> Any:
    """The state after a visit to a block of `count` keys, which counts if key t is among them."""
    visits, bare = state
    begin, many = (as_number(part).term for part in (first, count))
    mine = terms.within(begin, KEY, begin + many)
    once = terms.choice(mine, number(1), number(0))
    unmasked = mine & ~as_number(masked).as_condition
    return (Number(visits.term + once, INT32), Number(bare.term | unmasked, BOOL))


LEMMAS: Final[tuple[Proof, ...]] = (
    ("skeleton.clip", "returns the keys of each interval, and no other", _clip),
    ("skeleton.listed", "returns the keys of each run, and of runs that need the mask", _listed),
    ("skeleton.in_order", "returns the same keys, with intervals in order", _in_order),
    ("skeleton.joined", "returns the same keys, in disjoint intervals", _joined),
    ("skeleton.united", "returns the same keys, in disjoint intervals in order", _united),
    ("skeleton.meets", "if false, no key of the block lies in an interval", _meets),
    ("skeleton.holds", "if true, all keys of the block lie in intervals", _holds),
    ("skeleton.may_drop",
     "if false, all keys of the block are kept and none is dropped", _may_drop),
    ("skeleton.over_blocks",
     "visits each kept key once and no other, masked unless no key is dropped", _blocks),
)  # fmt: skip
