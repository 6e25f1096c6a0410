"""Runs of tiles that kernels look up, proved from the text of `kernels/runs.py` for any labels.

The host labels square tiles, here called cells, EMPTY, PARTIAL or FULL. For each cell of a row it
stores the run at or after it: first cell, whether PARTIAL, and the cell past the run
(`schedule.tile_runs.marked_runs_of`). A kernel's tile t holds some cells, or a part of one, and
its queries may lie in several rows of cells. For one row and tile t, two facts matter: whether t
keeps a pair, in a cell that is not EMPTY, and whether it drops one, in a cell that is not FULL or
past the last key. The proofs assume only what the stored runs say about these (`_Tile.stored`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from .. import terms
from ..given import between
from ..meaning import NotDefined
from ..reading.triton import as_number, power_of_two
from ..reading.values import BOOL, INT32, Number, Pointer
from ..solve import settled
from ..terms import Term, number
from .loops import Proof, Walker, ordered
from .runs import NO_TILE, TILE, about_tiles, claim_run, is_run, next_run

BLOCKS: Final = (16, 32, 64, 128, 256)
SIDES: Final = (64, 128)
"""Sizes of cells, in positions, that may be smaller than a tile."""
LONGEST: Final = 2**28
_MOST_CELLS: Final = 2**28
_FARTHEST: Final = 2**30 + 2**27
"""The last tile j from which a run may be asked for."""

KEPT, DROPPED = terms.variable("kept", "bool"), terms.variable("dropped", "bool")
"""Whether tile t keeps a pair of one row of cells, and whether it drops one."""


class _Found(NamedTuple):
    """A result of `_marked_run`: the first tile from j on with a kept pair (NO_TILE if there is
    none), the end of the full tiles from there on, and the end of those with a kept pair."""

    first: Any
    full: Any
    partial: Any


_MARKS: Final = Pointer(terms.Table("marks", "int", -(2**31), 2**31 - 1), INT32, number(0))


# --- one row of cells -----------------------------------------------------------------------------


def found_in_row(j: Term, found: Any, kept: Term, dropped: Term, tile: Term) -> dict[str, Term]:
    """Facts about `_marked_run` from tile j on, for any tile of one row."""
    first, full, partial = (as_number(part).term for part in found)
    in_full, in_partial = (terms.within(first, tile, end) for end in (full, partial))
    return {
        "it begins at j or later": first >= terms.least(j, NO_TILE),
        "it has a tile, or there is no further one": (
            terms.equal(first, NO_TILE) & terms.equal(partial, NO_TILE) & (full <= NO_TILE)
        )
        | ((partial > first) & (partial <= NO_TILE) & (full <= NO_TILE)),
        "no tile between j and it keeps a pair": ~kept | (j > tile) | (tile >= first),
        "its tiles keep a pair": ~in_partial | kept,
        "its full tiles keep a pair": ~in_full | kept,
        "its full tiles drop none": ~in_full | ~dropped,
    }


def _of_a_row(walker: Walker) -> None:
    """Proof steps for one row: cells of any number of tiles, and tiles of any number of cells."""
    many = terms.variable("tiles of a cell")
    for block in BLOCKS:
        sizes = [number(side) for side in SIDES if side < block]
        for side in (*sizes, block * many):
            own = about_tiles(walker.again())
            own.given += [many > 0, *between(1, side, LONGEST)]
            _of_cells(own, block, side)


def _of_cells(walker: Walker, block: int, side: Term) -> None:
    """Proof steps for `_marked_run`, for given numbers of positions in tiles and cells."""
    j = walker.unknown("j", 0, _FARTHEST)
    row, columns = (walker.unknown(name, 0, _MOST_CELLS) for name in ("row", "columns"))
    length, grain_bits = walker.unknown("length", 1, 2**30), walker.unknown("grain_bits", 6, 28)
    cells = columns.term * side
    walker.given += [cells >= length.term, *between(0, cells, 2**31 - 1)]
    walker.given += between(0, row.term * columns.term, _MOST_CELLS)
    tile = _Tile(block, side, columns.term, length.term)
    walker.given += tile.facts()

    def plain(*parts: Term) -> list[Term]:
        """The results without wrapping, where this is proved."""
        of_side = {power_of_two(grain_bits.term): side}
        sized = [terms.replaced(part, of_side.get) for part in parts]
        in_order = [law for part in sized for law in tile.order(part)]
        found = settled([*walker.given, *in_order], sized)
        in_order = [law for part in found for law in tile.order(part)]
        walker.given = list(dict.fromkeys((*walker.given, *in_order)))
        return found

    def load(pointer: Pointer, mask: Any, other: Any) -> Number:
        at, inside = plain(pointer.at, as_number(mask).as_condition)
        rest = at - 2 * row.term * columns.term
        column, end = (of(rest, number(2)) for of in (terms.quotient, terms.remainder))
        if not terms.is_number(end):
            raise NotDefined(f"entry {rest} of the marks of a row")
        walker.claim(
            "a cell of the row is looked up",
            ~inside | terms.within(number(0), column, columns.term),
        )
        walker.given += [~inside | fact for fact in tile.stored(column)]
        value = _PAST if terms.value_of_number(end) else _CODE
        return Number(terms.choice(inside, value, as_number(other).term), INT32)

    walker.words["load"] = load
    found = walker.call("_marked_run", j, _MARKS, row, columns, grain_bits, length, block)
    found = tuple(
        [Number(part, INT32) for part in plain(*[as_number(each).term for each in found])]
    )
    for text, claim in found_in_row(j.term, found, KEPT, DROPPED, TILE).items():
        walker.claim(f"{text} (tiles of {block}, cells of {side})", claim)


_FIRST, _PAST, _IS_PARTIAL = (terms.variable(name) for name in ("cell", "cell past", "partial"))
_CODE: Final = 2 * _FIRST + _IS_PARTIAL
"""The first number of a cell's stored run: twice its first cell, plus 1 if PARTIAL; the second is
the cell past the run."""

_KEPT_CELL, _DROPPED_CELL = terms.variable("kept cell"), terms.variable("dropped cell")
"""A cell of the tile that is not EMPTY, if the tile keeps a pair; and a cell of it that is not
FULL, if the tile drops a pair before the last key."""


@dataclass(frozen=True)
class _Tile:
    """Tile t of `block` positions, in a row of cells of `side` positions."""

    block: int
    side: Term
    columns: Term
    length: Term

    def order(self, of: Term) -> list[Term]:
        """Laws: cells begin in the order of their numbers. The cells are those of the proof, and
        those that positions in `of` lie in."""
        if terms.is_number(self.side):
            return []
        (many,) = terms.polynomial(self.side)
        products = [
            part.args for part in of.walk() if part.op == "product" and many[0] in part.args
        ]
        numbers = [part for args in products for part in args if part is not many[0]]
        places = [part for part in of.walk() if part.op == "quotient" and part.args[1] is self.side]
        cells = dict.fromkeys(
            (_FIRST, _PAST, _KEPT_CELL, _DROPPED_CELL, self.columns, *places, *numbers)
        )
        return [law for pair in itertools.combinations(cells, 2)
                for law in ordered(*pair, self.side)]  # fmt: skip

    def overlaps(self, cell: Term, past: Term) -> Term:
        """Whether a position of cells cell <= x < past lies in the tile and below the length."""
        begin = self.block * TILE
        until = terms.least(begin + self.block, self.length)
        ends = [self.side * each for each in (cell, past)]
        return (past > cell) & (until > begin) & (until > ends[0]) & (ends[1] > begin)

    def facts(self) -> list[Term]:
        """Kept and dropped pairs lie in cells, or past the last key."""
        kept, dropped = (
            self.overlaps(cell, cell + 1) & terms.within(number(0), cell, self.columns)
            for cell in (_KEPT_CELL, _DROPPED_CELL)
        )
        return [~KEPT | kept, ~DROPPED | self._cut() | dropped]

    def stored(self, column: Term) -> list[Term]:
        """Facts about the tile that follow from the run stored for a cell."""
        some = self.columns > _FIRST
        of_run = some & terms.within(_FIRST, _DROPPED_CELL, _PAST)
        lies = [column <= _FIRST, _PAST > _FIRST, self.columns >= _PAST]
        return [
            *between(0, _IS_PARTIAL, 1), *between(0, _FIRST, 2**29), *between(0, _PAST, 2**29),
            terms.choice(some, terms.both(*lies), terms.equal(_PAST, self.columns)),
            # The cells before it are EMPTY, its own are not, and are FULL if it is not PARTIAL.
            ~KEPT | ~terms.within(column, _KEPT_CELL, _FIRST),
            ~some | ~self.overlaps(_FIRST, _PAST) | KEPT,
            ~DROPPED | terms.equal(_IS_PARTIAL, number(1)) | ~of_run | self._cut(),
        ]  # fmt: skip

    def _cut(self) -> Term:
        """Whether the tile reaches past the length."""
        every = number(self.block)
        return every * TILE + every > self.length


# --- rows of cells --------------------------------------------------------------------------------


def _of_rows(walker: Walker) -> None:
    """Proof steps for several rows: t keeps (drops) a pair if it does in one of the rows."""
    about_tiles(walker)
    j, grain_bits = walker.unknown("j", 0, 2**30), walker.unknown("grain_bits", 6, 28)
    q0, q1, query = (walker.unknown(name, 0, LONGEST) for name in ("q0", "q1", "query"))
    first_row = walker.unknown("first_row", 0, LONGEST)
    length = walker.unknown("kv_len", 1, LONGEST)
    side = power_of_two(grain_bits.term)
    walker.given += [*between(1, side, LONGEST), q1.term >= q0.term]
    begin, last, own = (each.term // side for each in (q0, q1, query))
    for pair in itertools.combinations((begin, last, own), 2):
        walker.given += ordered(*pair, side)
    begin, last, own = (first_row.term + each for each in (begin, last, own))

    def told(row: Term) -> tuple[Term, Term]:
        kept, dropped = (
            terms.apply(f"row {what}", row, sort="bool") for what in ("keeps", "drops")
        )
        return kept, dropped

    def up_to(name: str, place: int) -> Callable[..., Number]:
        def meaning(row: Term) -> Term:
            """The condition in this row, or in one of the rows before it."""
            before = terms.apply(name, row - 1, sort="bool")
            return told(row)[place] | ((row > begin) & before)

        of_first = terms.apply(name, begin, sort="bool")
        walker.given.append(terms.same(of_first, told(begin)[place]))
        return walker.mean(name, meaning)

    def found(j: Any, marks: Any, row: Any, columns: Any, grain: Any, total: Any, of: int) -> Any:
        at, cells = as_number(j).term, as_number(columns).term * side
        passed = grain.term is grain_bits.term and total.term is length.term and of == 64
        walker.claim("its cells hold all keys", terms.both(
            terms.truth(passed), cells >= length.term,
            cells < 2**31, *between(0, at, _FARTHEST),
        ))  # fmt: skip
        return _any_found(walker, at, *told(as_number(row).term), TILE)

    walker.words["_marked_run"] = found
    kept, dropped = up_to("kept", 0), up_to("dropped", 1)
    run = walker.call("run_of_marks", j, q0, q1, _MARKS, first_row, grain_bits, length, 64)
    claim_run(walker, j.term, run, *[of(Number(last, INT32)).term for of in (kept, dropped)])
    among = (query.term >= q0.term) & (q1.term >= query.term)
    within = (own >= begin) & (last >= own)
    walker.claim("the row of each query is among them", ~among | within)


def _any_found(walker: Walker, j: Term, kept: Term, dropped: Term, tile: Term) -> _Found:
    """A result of `_marked_run`, known only by the facts about it."""
    result = _Found(*[walker.fresh(name) for name in _Found._fields])
    walker.given += found_in_row(j, result, kept, dropped, tile).values()
    return result


def _either_way(from_last: int, walker: Walker) -> None:
    """Proof steps for runs from either end of a row.

    With from_last 1 cells are counted from the last one, after padding the row to a multiple of
    four cells: tile t from the last is tile t + skipped of the padded row.
    """
    for block in BLOCKS:
        _of_cells_either_way(about_tiles(walker.again()), block, from_last)


def _of_cells_either_way(walker: Walker, block: int, from_last: int) -> None:
    j, grain_bits = walker.unknown("j", 0, 2**30), walker.unknown("grain_bits", 6, 26)
    q0, q1, first_row = (walker.unknown(name, 0, LONGEST) for name in ("q0", "q1", "first_row"))
    length = walker.unknown("kv_len", 1, LONGEST)
    # A cell has a multiple of 64 positions, so that four cells are whole tiles.
    sixty_fours = terms.variable("positions of a cell, in 64s")
    side = 64 * sixty_fours
    four = 4 * side
    walker.given += between(1, sixty_fours, 2**20)
    fours = (length.term + four - 1) // four
    filled = fours * four
    count = (length.term + (block - 1)) // block
    skipped = filled // block - count
    if not from_last:
        skipped = number(0)
    walker.given.append(~KEPT | (count > TILE))
    size = {power_of_two(grain_bits.term): side}
    of_row = power_of_two(terms.most(grain_bits.term, number(7)))
    row_of_keys = first_row.term + q0.term // of_row
    walker.given += between(128, of_row, LONGEST)

    def plain(value: Any) -> Term:
        return settled(walker.given, [terms.replaced(as_number(value).term, size.get)])[0]

    def found(j: Any, marks: Any, row: Any, columns: Any, grain: Any, total: Any, of: int) -> Any:
        at, row, columns, total = map(plain, (j, row, columns, total))
        own = 2 * row_of_keys + from_last
        walker.claim("the row of the keys, from this end", terms.equal(row, own))
        cells = columns * side
        walker.claim("its cells hold all keys", terms.both(
            cells >= total, *between(0, cells, 2**31 - 1),
            *between(1, total, 2**30), *between(0, at, _FARTHEST), terms.truth(of == block),
        ))  # fmt: skip
        return _any_found(walker, at, KEPT, DROPPED, TILE + skipped)

    walker.words["_marked_run"] = found
    from_end = Number(number(from_last), INT32)
    run = walker.call(
        "run_of_marks_either_way", j, from_end, q0, q1, _MARKS, first_row, grain_bits, length, block
    )
    first, end = (plain(part) for part in run[:2])
    run = (Number(first, INT32), Number(end, INT32), run[2])
    claim_run(walker, j.term, run, KEPT, DROPPED, told=f"{{}} (tiles of {block})")


def _with_spans(walker: Walker) -> None:
    """Proof steps for labels within intervals: t keeps (drops) a pair if both say so."""
    j = about_tiles(walker).unknown("j", 0, 2**30)
    names = ("spans", "marks")
    touched = [terms.variable(f"touched by {name}", "bool") for name in names]
    unfull = [terms.variable(f"unfull by {name}", "bool") for name in names]
    walker.names |= {"kept": Number(terms.both(*touched), BOOL)}

    for name, *of in zip(names, touched, unfull, strict=True):
        walker.words[f"run_of_{name}"] = next_run(walker, *of)
        walker.words[f"is_run_of_{name}"] = is_run(*of)
    run = walker.call("run_of_spans_and_marks", j, (), (), 0, 0, None, 0, 6, 1, 64)
    claim_run(walker, j.term, run, terms.both(*touched), terms.both(*unfull))


_RUN: Final = "finds the next run from tile j on, for any labels"
LEMMAS: Final[tuple[Proof, ...]] = (
    ("runs._marked_run", "finds the next run in a row of cells, for any labels", _of_a_row),
    ("runs.run_of_marks", f"{_RUN} and any rows of cells", _of_rows),
    *(("runs.run_of_marks_either_way", f"{_RUN}, counted from the {end} tile",
       partial(_either_way, from_last)) for from_last, end in enumerate(("first", "last"))),
    ("runs.run_of_spans_and_marks", f"{_RUN} and any intervals", _with_spans),
)  # fmt: skip
