"""Runs of tiles, proved from the text of `kernels/runs.py` for every table of intervals.

NEXT_RUN returns the next run at or after tile j: tiles `first <= t < end`, PARTIAL or not. Five
conditions on a run and an arbitrary tile t (`conditions`) are proved for each function that finds
runs. From these alone it is proved that loops over runs visit each touched tile once and no other,
and evaluate the mask in each tile with a pair to drop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from .. import terms
from ..given import between
from ..meaning import NotDefined
from ..reading.triton import Record, as_number
from ..reading.values import BOOL, INT32, Number, Pointer
from ..solve import settled
from ..terms import FALSE, Term, number
from .loops import Proof, Table, Walker, inside, ordered

NO_TILE: Final = number(2**30)
TILE = terms.variable("t")
TOUCHED, UNFULL = terms.variable("touched", "bool"), terms.variable("unfull", "bool")
"""Whether tile t has a pair to keep, and whether it has one to drop."""

Sources = dict[str, str]


def conditions(j: Term, run: Any, touched: Term, unfull: Term, tile: Term) -> dict[str, Term]:
    """The conditions on the next run at or after tile j, for an arbitrary tile."""
    first, end = (as_number(part).term for part in run[:2])
    masked = as_number(run[2]).as_condition
    within = inside(run[:2], tile)
    some = (end > first) & (end <= NO_TILE)
    none = terms.equal(first, NO_TILE) & terms.equal(end, NO_TILE)
    return {
        "it begins at j or later": first >= j,
        "it has a tile, or there is no further one": none | some,
        "no touched tile lies between j and it": ~touched | (j > tile) | (tile >= first),
        "its tiles are touched": ~within | touched,
        "without a mask its tiles have no pair to drop": ~within | masked | ~unfull,
    }


# --- functions that find runs ---------------------------------------------------------------------


def about_tiles(walker: Walker) -> Walker:
    """The walker, with an arbitrary tile t."""
    walker.names |= {"t": Number(TILE, INT32)}
    walker.given += between(0, TILE, 2**30 - 1)
    return walker


def _tiles(walker: Walker) -> None:
    """A tile is in `tiles(…)` if and only if it has a key of low..high below kv_len, and `some`."""
    about_tiles(walker)
    low, high = (walker.unknown(name, -(2**31)) for name in ("low", "high"))
    kv_len, block = walker.unknown("kv_len", 0), walker.unknown("BLOCK", 16, 2**10)
    some = Number(terms.variable("some", "bool"), BOOL)
    first, end = walker.call("tiles", low, high, some, kv_len, block)
    begin = TILE * block.term
    least = terms.most(begin, low.term, number(0))
    keys = begin + block.term - 1
    most = terms.least(keys, high.term, kv_len.term - 1)
    has_key = some.term & (most >= least)
    found = inside((first, end), TILE)
    # Tiles before and after those of the first and the last key.
    for key in (terms.most(low.term, number(0)), terms.least(high.term, kv_len.term - 1)):
        walker.given += ordered(key // block.term, TILE, block.term)
    walker.claim("a tile of the interval holds a key", ~found | has_key)
    walker.claim("a tile that holds a key is in it", ~has_key | found)
    walker.claim(
        "its ends are tiles",
        terms.both(*[(each.term >= 0) & (each.term <= NO_TILE) for each in (first, end)]),
    )


def _of_spans(walker: Walker) -> None:
    about_tiles(walker)
    touched = Table("touched", terms.variable("touched intervals"))
    unfull = Table("unfull", terms.variable("intervals with a pair to drop"))
    walker.given += [table.count >= 0 for table in (touched, unfull)]
    j = walker.unknown("j", 0, 2**30)
    kv_len, block = walker.unknown("kv_len", 0), walker.unknown("BLOCK", 16, 2**10)
    past = kv_len.term // block.term
    walker.given.append(past < NO_TILE)

    def cut(table: Table, count: Any, tile: Any) -> Number:
        """Whether a tile lies in an interval, or reaches past the last key."""
        at = as_number(tile).term
        lies_in = walker.within(table, count, tile).term
        return Number(lies_in | (at >= past), BOOL)

    walker.words["cut"] = cut
    run, tile = walker.call("run_of_spans", j, touched, unfull, kv_len, block), walker.names["t"]
    of_tile = (walker.within(touched, Number(touched.count, INT32), tile).term,
               cut(unfull, Number(unfull.count, INT32), tile).term)  # fmt: skip
    claim_run(walker, j.term, run, *of_tile)
    full = ~inside(run[:2], TILE) | ~as_number(run[2]).term | of_tile[1]
    walker.claim("with a mask its tiles have a pair to drop", full)


def _either_way(from_last: int, walker: Walker) -> None:
    """Proof steps for runs from either end, given the law proved for `run_of_spans`.

    With from_last 1, runs count tiles from the last: their tile t is tile count - 1 - t of the row.
    """
    about_tiles(walker)
    j = walker.unknown("j", 0, 2**30)
    kv_len = walker.unknown("kv_len", 1, 2**30 - 2**11)
    block = walker.unknown("BLOCK", 16, 2**10)
    count = (kv_len.term + block.term - 1) // block.term
    past = kv_len.term // block.term
    walker.given += ordered(count, past, block.term)
    apart = count - past
    walker.show("the last tile is whole or cut", terms.both(count < NO_TILE, *between(0, apart, 1)))

    def interval(name: str) -> tuple[Number, Number]:
        first, end = (walker.unknown(f"{name} {side}", 0, 2**30 - 1) for side in ("from", "to"))
        walker.given.append(count >= end.term)
        return first, end

    spans = [
        tuple([interval(f"{name} {i}") for i in range(many)])
        for name, many in (("touched", 2), ("unfull", 3))
    ]

    def of_spans(j: Any, touched: Any, unfull: Any, length: Any, block: Any) -> Any:
        # `run_of_spans` takes tiles from length // block on as cut: here none of the row's.
        at = as_number(length).term // as_number(block).term
        walker.claim("all tiles are whole ones", terms.equal(at, count))
        behind = count <= TILE
        is_cut = terms.either(*[inside(pair, TILE) for pair in unfull], behind)
        is_touched = terms.either(*[inside(pair, TILE) for pair in touched])
        return any_run(walker, as_number(j).term, is_touched, is_cut)

    walker.words["run_of_spans"] = of_spans
    run = walker.call(
        "run_of_spans_either_way", j, Number(number(from_last), INT32), *spans, kv_len, block
    )
    tile = count - 1 - TILE if from_last else TILE
    is_touched = terms.either(*[inside(pair, tile) for pair in spans[0]])
    is_cut = terms.either(*[inside(pair, tile) for pair in spans[1]], tile >= past)
    claim_run(walker, j.term, run, is_touched, is_cut)


# --- loops over runs ------------------------------------------------------------------------------


def any_run(walker: Walker, j: Term, touched: Term = TOUCHED, unfull: Term = UNFULL) -> Any:
    """The next run at or after tile j, known only by the conditions."""
    run = (walker.fresh("first"), walker.fresh("end"), walker.fresh("partial", BOOL))
    walker.given += conditions(j, run, touched, unfull, TILE).values()
    return run


def claim_run(
    walker: Walker, j: Term, run: Any, touched: Term, unfull: Term, *, told: str = "{}"
) -> None:
    """Prove the conditions."""
    for text, claim in conditions(j, run, touched, unfull, TILE).items():
        walker.claim(told.format(text), claim)


def is_run(touched: Term = TOUCHED, unfull: Term = UNFULL) -> Callable[..., Number]:
    """The function `is_run` of invariants: whether a run, from its first tile on, satisfies the
    conditions."""

    def word(first: Any, end: Any, masked: Any = True) -> Number:
        every = conditions(as_number(first).term, (first, end, masked), touched, unfull, TILE)
        return Number(terms.both(*every.values()), BOOL)

    return word


def next_run(walker: Walker, touched: Term = TOUCHED, unfull: Term = UNFULL) -> Callable[..., Any]:
    """NEXT_RUN, known only by the conditions."""

    def found(j: Any, *rest: Any) -> Any:
        at = as_number(j).term
        walker.claim("runs are asked for from a tile on", at >= 0)
        return any_run(walker, at, touched, unfull)

    return found


OF_TILE: Final = {"touched": Number(TOUCHED, BOOL), "unfull": Number(UNFULL, BOOL)}
NOTHING: Final = (Number(number(0), INT32), Number(FALSE, BOOL))
"""The state before any visit: how often tile t was visited, and whether ever without its mask."""


def visit(
    state: Any, of: Any, place: Any, first: Any, end: Any, hooks: Any, tile: Any, *checks: Any
) -> Any:
    """Counts visits to tile t among tiles first, first + step, … below end.

    `checks` say whether the mask checks pairs, and the length rows; a visit is masked if both do.
    """
    visits, bare = state[:2]
    mine = inside((first, end), TILE)
    step = getattr(of, "step", None)
    if step is not None:
        mine = mine & _a_step_from(as_number(first).term, as_number(step).term)
    checked = terms.both(*[as_number(part).as_condition for part in checks])
    once = terms.choice(mine, number(1), number(0))
    count = Number(visits.term + once, INT32)
    bare = Number(bare.term | (mine & ~checked), BOOL)
    return (count, bare, *state[2:])


def _a_step_from(first: Term, step: Term) -> Term:
    """Whether tile t lies a multiple of the step from the first tile."""
    if first.op == "choice":
        chosen, then, otherwise = first.args
        return terms.choice(chosen, _a_step_from(then, step), _a_step_from(otherwise, step))
    return terms.divides(step, TILE - first)


def count_visits(walker: Walker) -> None:
    """Define `visits` and `unmasked`, which invariants ask of a state of `visit`."""
    walker.words["visits"] = lambda state: state[0]
    walker.words["unmasked"] = lambda state: state[1]


def claim_visited(walker: Walker, state: Any, mine: Term = terms.TRUE) -> None:
    visits, bare = state[:2]
    wanted = terms.choice(TOUCHED & mine, number(1), number(0))
    walker.claim("a touched tile is visited once, no other is", terms.equal(visits.term, wanted))
    walker.claim("none with a pair to drop goes without a mask", ~bare.term | ~UNFULL)


def _over_runs(one_loop: bool, walker: Walker) -> None:
    about_tiles(walker).names |= OF_TILE
    count_visits(walker)
    hooks, tile = Record.made(NEXT_RUN=next_run(walker)), Record.made(BLOCK=64)
    state = walker.call("over_runs", visit, NOTHING, None, None, (), hooks, tile, one_loop)
    claim_visited(walker, state)


def _next_tile(walker: Walker) -> None:
    """Proof steps for `first_tile` and `next_tile`: the rest of a run is a run."""
    found = next_run(about_tiles(walker))
    run = walker.call("first_tile", (), found, 64)
    claim_run(walker, number(0), run, TOUCHED, UNFULL, told="first: {}")
    before = any_run(walker, number(0))
    tile = before[0].term
    walker.given.append(tile < NO_TILE)
    run = walker.call("next_tile", before, (), found, 64)
    after = tile + 1
    claim_run(walker, after, run, TOUCHED, UNFULL, told="next: {}")


def _decode(pages: bool, walker: Walker) -> None:
    count_visits(about_tiles(walker))
    walker.words["visit"] = visit
    split, splits = walker.unknown("split", 0, 2**15), walker.unknown("splits", 1, 2**15)
    walker.given.append(splits.term > split.term)
    apart = TILE - split.term
    mine = terms.divides(splits.term, apart)
    walker.names |= OF_TILE | {"mine": Number(mine, BOOL)}
    scope = {"split": split, "splits": splits, "PAGE": int(pages), "NEXT_RUN": next_run(walker)}
    scope |= dict(zip(("acc", "m", "l"), (*NOTHING, None), strict=True))
    walker.ordered_by(splits.term, apart // splits.term)
    walker.run_loop("sums_of_share", scope)
    claim_visited(walker, (scope["acc"], scope["m"]), mine)


def _parts(walker: Walker) -> None:
    splits, one, other = (terms.variable(name) for name in ("splits", "split", "other split"))
    walker.given += [TILE >= 0, one >= 0, splits > one, other >= 0, splits > other]
    has = [terms.divides(splits, TILE - s) for s in (one, other)]
    wholes = [(TILE - s) // splits for s in (one, other)]
    walker.given += ordered(wholes[0], wholes[1], splits)
    walker.claim("to no other one", terms.either(*map(terms.no, has), terms.equal(one, other)))
    rest = TILE - splits * (TILE // splits)
    belongs = terms.divides(splits, TILE - rest)
    walker.claim("to one", terms.within(number(0), rest, splits) & belongs)


def _turns(walker: Walker) -> None:
    """Proof steps for a block of stored elements, which may have the element of tile t."""
    about_tiles(walker)
    lane = terms.variable("lane")
    row, tiles = (walker.unknown(name, 0, 2**20) for name in ("row", "tiles"))
    first_of_row = row.term * tiles.term
    walker.given += [tiles.term > TILE, *between(0, lane, 127)]
    walker.given += between(0, first_of_row, 2**30)

    def store(before: Any, pointer: Pointer, value: Any, mask: Any) -> Number:
        at, inside = settled(walker.given, [pointer.at, as_number(mask).as_condition])
        # The element of tile t is the one at its place.
        own = TILE + first_of_row + lane - at
        if lane in own.walk():
            raise NotDefined("elements that are stored apart")
        mine = terms.replaced(terms.both(*between(0, lane, 127), inside), {lane: own}.get)
        return Number(terms.choice(mine, as_number(value).term, before.term), INT32)

    walker.lanes({128: lane}, lane, lane)
    walker.words |= {
        "store": store, "is_run": is_run(), "full": lambda shape, value, of: as_number(value),
        "zeros": lambda shape, of: Number(number(0), of),
    }  # fmt: skip
    scope: dict[str, Any] = dict.fromkeys(("k0", "k1", "S", "T"))
    scope |= {"row": row, "tiles": tiles, "NEXT_RUN": next_run(walker), "BLOCK": 64}
    scope |= {name: walker.unknown(name, 0) for name in ("q_len", "kv_len")}
    scope |= {"out_ptr": Pointer(terms.Table("out", "int"), INT32, number(0))}
    scope |= {"stored": walker.fresh("stored")}
    walker.names |= OF_TILE
    walker.run_stores("visits", scope)
    wanted = terms.choice(TOUCHED, number(1), number(0))
    walker.claim("1 for a touched tile", terms.equal(scope["stored"].term, wanted))


_RUN: Final = "finds the next run from tile j on"
_ONCE: Final = "a touched tile is visited once, masked unless it is full; no other is visited"
_OF_SPLIT: Final = "program s of n visits each touched tile among s, s + n, s + 2 n, … once"
LEMMAS: Final[tuple[Proof, ...]] = (
    ("runs.tiles", "finds the tiles of an interval of keys, and no other", _tiles),
    ("runs.run_of_spans", f"{_RUN}, for any table of intervals", _of_spans),
    *(("runs.run_of_spans_either_way", f"{_RUN}, counted from the {end} tile",
       partial(_either_way, from_last)) for from_last, end in enumerate(("first", "last"))),
    ("runs.over_runs", f"{_ONCE} (a loop for each kind of run)", partial(_over_runs, False)),
    ("runs.over_runs", f"{_ONCE} (one loop)", partial(_over_runs, True)),
    ("runs.next_tile", "finds the next touched tile, masked unless it is full", _next_tile),
    ("decode.sums_of_share", f"{_OF_SPLIT} (keys in rows)", partial(_decode, False)),
    ("decode.sums_of_share", f"{_OF_SPLIT} (keys in pages)", partial(_decode, True)),
    ("decode.sums_of_share", "each tile belongs to one program", _parts),
    ("gradient_sums.visits", "stores 1 for each touched tile, 0 for others", _turns),
)  # fmt: skip
