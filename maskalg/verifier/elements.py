"""The Triton hooks of an expression, read as terms of one pair or one tile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

from ..codegen.arguments import (
    MOST_PASSED,
    BitsNumber,
    BitsTable,
    DistanceNumber,
    DistanceTable,
    DivisorArgument,
    LayoutArgument,
    MarksArgument,
    NumbersTable,
    Scalar,
    ScalarArgument,
    TableArgument,
    TableLike,
)
from ..codegen.hooks import Hooks
from ..engine.normal_form import Structure
from ..formula.parameters import Slot
from ..schedule.tiling import Of
from . import terms
from .meaning import BATCH, HEAD, KV_LEN, Q0, Q1, SCORE, K, Meaning, NotDefined, Q, step_table
from .reading.library import Library, unwrapped
from .reading.triton import Module, Reader, as_number
from .reading.values import FLOAT32, INT32, INT64, Number, Pointer, Type, type_of
from .terms import Table, Term

_NUMBERS: Final = Table("numbers", "int", -(2**31), 2**31 - 1)
SCALE: Final = terms.variable("scale", "real")


@dataclass(frozen=True)
class Interval:
    """An interval of keys low..high of a kernel's loop; empty unless `some`."""

    low: Term
    high: Term
    some: Term

    def holds(self, key: Term) -> Term:
        """Whether it holds a key."""
        return self.some & (key >= self.low) & (key <= self.high)


@dataclass(frozen=True)
class Bounds:
    """How a hook such as `next_run` finds runs: the function it calls, and the arguments.

    Attributes:
        function: the kernels' function that finds the next run, such as `run_of_spans`.
        touched, unfull: intervals of keys; none where the function reads labels of tiles alone.
        place: the other arguments: the row, its labels if the function reads them, and its length.
    """

    function: str
    touched: tuple[Interval, ...]
    unfull: tuple[Interval, ...]
    place: tuple[Any, ...]

    @property
    def looked_up(self) -> bool:
        """Whether the function reads labels of tiles, which the host makes."""
        return "marks" in self.function


class TritonHooks:
    """Reads the Triton text of a structure's hooks as terms.

    Args:
        structure: the structure of the expression.
        hooks: the text of the hooks, and their arguments.
        meaning: translates the structure's formulas to terms.
        wide: whether indices have 64 bits.
        library: sources used in place of the kernels' files, by name.
    """

    def __init__(
        self,
        structure: Structure,
        hooks: Hooks,
        meaning: Meaning,
        *,
        wide: bool,
        library: dict[str, str] | None = None,
    ) -> None:
        self.structure, self.meaning = structure, meaning
        self.index = INT64 if wide else INT32
        self._slots = {slot.index: slot for slot in structure.slots}
        self._divisors: dict[tuple[str, str], Term] = {}
        self._bits: dict[Term, Term] = {}
        self._numbers = [self._scalar(argument) for argument in hooks.scalars]
        self._tables = tuple([self._table(table) for table in hooks.tables])
        self._marks = {repr(t): t.of for t in hooks.tables if isinstance(t, MarksArgument)}
        self._bits_of_pairs = {repr(t): t for t in hooks.tables if isinstance(t, BitsTable)}
        self._distances = {repr(t): t for t in hooks.tables if isinstance(t, DistanceTable)}
        self._looked_up: dict[Term, Term] = {}
        self._wide, self._library = wide, library
        self._module = Module(hooks.source, "the hooks", library)
        self._reader = Reader(self._module, self._summaries())

    def _summaries(self) -> dict[str, Callable[..., Any]]:
        found = Library(self._divisors).summaries()
        in_tiles = {"bits_of": False, "bits_of_tiles": True}
        return found | {name: partial(self._bits_of, tiled) for name, tiled in in_tiles.items()}

    def element(self, name: str, moving: str) -> Number:
        """The result of the hook `name` for a pair, and its score or product q . k.

        `moving` is the index that the loop runs over. Before the loop, `hold` computes what depends
        on the other index alone. `ahead` loads the entries that `biased_ahead` gets after the
        numbers.
        """
        suffix = "" if moving == "kv_idx" else "_of_keys"
        stands = Q if moving == "kv_idx" else K
        numbers = tuple(self._numbers[:MOST_PASSED])
        scalars = (self._plain(BATCH), self._plain(HEAD))
        held, _ = self._reader.call(
            f"hold{suffix}",
            *scalars,
            Number(stands, self.index),
            self._plain(KV_LEN),
            Number(SCALE, FLOAT32),
            numbers,
            self._tables,
        )
        place = (*scalars, Number(Q, self.index), Number(K, self.index), self._plain(KV_LEN))
        if name == "biased_ahead":
            numbers += self._reader.call("ahead", *place, numbers, held)
        found = self._reader.call(f"{name}{suffix}", Number(SCORE, FLOAT32), *place, numbers, held)
        return Number(self.resolved(found.term), found.type)

    def bounds(self, name: str) -> Bounds:
        """The intervals that a hook such as `next_run` computes, and the function it calls."""
        found: list[Bounds] = []

        def tiles(low: Any, high: Any, some: Any, kv_len: Any, block: Any) -> Interval:
            if as_number(kv_len).term is not KV_LEN or block != 64:
                raise NotDefined("the tiles of another row")
            parts = [self.resolved(as_number(part).term) for part in (low, high, some)]
            return Interval(*parts)

        def read(function: str, before: int) -> Callable[..., None]:
            """A reader of calls of `function`; its intervals, if any, follow `before` arguments."""

            def call(*args: Any) -> None:
                spans = "spans" in function
                sides = args[before : before + 2] if spans else ((), ())
                more = (*args[:before], *args[before + 2 * spans :])
                found.append(Bounds(function, tuple(sides[0]), tuple(sides[1]), more))

            return call

        places = {"run_of_spans": 1, "run_of_spans_and_marks": 1, "run_of_spans_either_way": 2,
                  "run_of_marks": 1, "run_of_marks_either_way": 2}  # fmt: skip
        summaries = self._summaries() | {"tiles": tiles}
        summaries |= {function: read(function, before) for function, before in places.items()}
        reader = Reader(self._module, summaries)
        row = [Number(term, self.index) for term in (Q0, Q1)]
        from_tile = ("j", "from_last") if "either_way" in name else ("j",)
        first = [Number(terms.variable(part), INT32) for part in from_tile]
        place = [self._plain(term) for term in (BATCH, HEAD, KV_LEN)]
        numbers = tuple(self._numbers[:MOST_PASSED])
        reader.call(name, *first, *row, *place, numbers, self._tables, 64)
        return found[0]

    def asked_for(self, bounds: Bounds, of: Of) -> list[tuple[Term, Term]]:
        """The arguments that a hook such as `next_run` passes on, each beside the right one.

        It should ask for the runs of its own row, from tile j on. If it reads labels, they should
        be those of `of` (queries or keys), in the row of its batch entry and head.
        """
        step = [self._layout(name, of) for name in ("of_batch", "of_head", "grain_bits")]
        row = BATCH * step[0] + HEAD * step[1]
        from_tile = ("j", "from_last") if "either_way" in bounds.function else ("j",)
        wanted = [terms.variable(part) for part in from_tile]
        if bounds.looked_up:
            wanted += [Q0, Q1, terms.number(0), row, step[2]]
        wanted += [KV_LEN, terms.number(64)]
        if len(wanted) != len(bounds.place):
            raise NotDefined(f"{len(bounds.place)} arguments of {bounds.function}")
        found = []
        for part, term in zip(bounds.place, wanted, strict=True):
            if isinstance(part, Pointer):
                labels = f"labels of {self._marks.get(part.table.name)}", f"labels of {of}"
                found.append((terms.variable(labels[0]), terms.variable(labels[1])))
                found.append((part.at, term))
            else:
                plain = terms.replaced(self.resolved(as_number(part).term), unwrapped)
                found.append((plain, term))
        return found

    def resolved(self, term: Term) -> Term:
        """The term with the formula's own parts: a number in place of its bits or of its entry in
        the table of numbers, a formula in place of a distance table's entry or a pair's bit."""

        def replace(part: Term) -> Term | None:
            if part.op == "zero" and part.args[0] in self._looked_up:
                return ~self._looked_up[part.args[0]]
            if part.op == "entry" and part.data.name in self._distances:
                return self._at_distance(self._distances[part.data.name], part.args[0])
            if part.op == "of_bits":
                return self._bits.get(part.args[0])
            if part.op == "entry" and part.data == _NUMBERS and terms.is_number(part.args[0]):
                place = MOST_PASSED + terms.value_of_number(part.args[0])
                return self._numbers[place].term
            return None

        # Twice: bits may lie in the table of numbers.
        return terms.replaced(terms.replaced(term, replace), replace)

    @staticmethod
    def _plain(term: Term) -> Number:
        return Number(term, INT32)

    def _scalar(self, argument: Scalar) -> Number:
        if isinstance(argument, ScalarArgument):
            return Number(self._number(argument), INT32)
        if isinstance(argument, DivisorArgument):
            divisor = self.meaning(argument.divisor)
            names = tuple(f"{part} of {divisor!r}" for part in ("factor", "shift"))
            self._divisors[cast("tuple[str, str]", names)] = divisor
            return Number(terms.variable(f"{argument.part} of {divisor!r}"), INT32)
        if isinstance(argument, LayoutArgument):
            return Number(self._layout(argument.number, argument.of), INT32)
        if isinstance(argument, BitsNumber):
            return Number(self._layout(argument.number, f"bits of {argument.rows}"), INT32)
        assert isinstance(argument, DistanceNumber)
        return Number(terms.variable(f"distance {argument.number}"), INT32)

    def _layout(self, number: str, of: str) -> Term:
        """A number of the layout of a table that the host makes, such as the step between heads: 0
        if one row stands for all of them (`schedule.rung.Layout`, `kept.BitsLayout`)."""
        index = number.removeprefix("of_")
        if index != number and index not in self.structure.mask.indices():
            return terms.number(0)
        return terms.variable(f"{number} of {of}")

    def _number(self, argument: ScalarArgument) -> Term:
        slot = self._slots[argument.slot]
        if argument.real:
            bits = terms.variable(f"bits of n{slot.index}")
            self._bits[bits] = self.meaning.number(slot)
            return bits
        if argument.axis is None:
            return self.meaning.number(slot)
        if argument.kv_slot is None:
            return self.meaning.size(slot, argument.axis)
        both = (slot, self._slots[argument.kv_slot])
        return terms.most(*[self.meaning.size(s, argument.axis) for s in both if s.ndim == 2])

    def _table(self, table: TableLike) -> Pointer:
        none = terms.number(0)
        if isinstance(table, NumbersTable):
            return Pointer(_NUMBERS, INT32, none)
        if isinstance(table, TableArgument) and table.step is None:
            slot = self._slots[table.slot]
            return Pointer(self.meaning.table(slot), self._type(slot), none)
        if isinstance(table, TableArgument):
            own = self._slots[table.slot], self._slots[cast(int, table.kv_slot)]
            return Pointer(step_table(cast(str, table.step), *own), INT32, none)
        if isinstance(table, DistanceTable):
            return Pointer(Table(repr(table), "real"), FLOAT32, none)
        return Pointer(Table(repr(table), "int"), INT32, none)

    def _at_distance(self, table: DistanceTable, at: Term) -> Term:
        """The formula of a table of distances.

        Raises:
            NotDefined: the entry is not that of the pair's head and distance.
        """
        row, zero = (terms.variable(f"distance {name}") for name in ("row", "zero"))
        own = zero + (K - Q)
        if "head" in table.formula.indices():
            own = own + HEAD * row
        if terms.replaced(at, unwrapped) is not own:
            raise NotDefined(f"the entry {at} of a table of distances")
        return self.meaning(table.formula)

    def _bits_of(self, tiled: bool, table: Pointer, *place: Number) -> tuple[Number, Number]:
        """The word and the bit that the kernels' `bits_of` returns for a pair, in a table of rows,
        or `bits_of_tiles` in a table of tiles: they read the pair's own bit (`walk/bits.py`)."""
        made = self._bits_of_pairs.get(table.table.name)
        if made is None or made.tiled != tiled:
            raise NotDefined(f"bits in the table {table.table.name[:40]}")
        of_keys = made.rows == "keys"
        if table.at is not terms.number(0) or made.suffix != "_of_keys" * of_keys:
            raise NotDefined(f"bits within the table {table.table.name[:40]}")
        step, of_batch, of_head = (
            self._layout(name, f"bits of {made.rows}") for name in ("step", "of_batch", "of_head")
        )
        member = BATCH * of_batch + HEAD * of_head
        row, column = (K, Q) if of_keys else (Q, K)
        own = (member, step, row, column) if tiled else (member + row * step, column)
        found = [terms.replaced(part.term, unwrapped) for part in place]
        if any(x is not y for x, y in zip(found, own, strict=True)):
            raise NotDefined(f"the bit {found[-1]} of the row {', '.join(map(str, found[:-1]))}")
        by = TritonHooks(
            self.structure, made.hooks, self.meaning, wide=self._wide, library=self._library
        )
        computed = by.element("masked", "q_idx" if of_keys else "kv_idx").term
        name = f"{made.rows} {len(self._looked_up)}"
        word, bit = terms.variable(f"word of {name}"), terms.variable(f"bit of {name}")
        self._looked_up[terms.bitwise("bitand", word, bit)] = kept(computed)
        return Number(word, INT32), Number(bit, INT32)

    def _type(self, slot: Slot) -> Type:
        return type_of(self.meaning.dtypes[slot.index])


def kept(result: Term) -> Term:
    """The condition under which a result is the score and not -inf."""
    if result is SCORE:
        return terms.TRUE
    if result.op == "real" and result.data == -float("inf"):
        return terms.FALSE
    if result.op == "choice":
        chosen, then, otherwise = result.args
        return terms.choice(chosen, kept(then), kept(otherwise))
    raise NotDefined("a result that is neither the score nor -inf")
