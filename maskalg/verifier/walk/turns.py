"""The order in which rows add to dQ: counts of visits in earlier and in later rows, for any visits.

All facts are about one tile of queries. `visits_before(n)` is the number of visits to it in rows
before n: it grows by `visit(n)` from n to n + 1, is 0 at row 0 and constant after the last row.
"""

from __future__ import annotations

from typing import Any, Final

from .. import terms
from ..given import between
from ..meaning import NotDefined
from ..reading.triton import as_number
from ..reading.values import INT32, Number, Pointer
from ..solve import settled
from ..terms import Table, Term, number
from .loops import Proof, Walker, ordered

_ROWS: Final = (16, 32, 64)
"""Rows that a program reads at once."""
_LANE, _BLOCK, _ACROSS, _ROW = (
    terms.variable(name) for name in ("lane", "block of columns", "lane of columns", "r")
)
_SIZE, _TILES = terms.variable("rows"), terms.variable("tiles")


def _before(row: Term) -> Term:
    return terms.apply("visits before", row, sort="int")


def _visit(row: Term) -> Term:
    return terms.apply("visit", row, sort="int")


def _at(row: Term) -> list[Term]:
    """Facts about `_before` at one row."""
    none = terms.equal(_before(row), number(0))
    return [*between(0, _before(row), 2**30), (row > 0) | none]


def _laws(row: Term) -> list[Term]:
    """Facts about `_before` at a row and at the next one."""
    after = row + 1
    none = (row < 0) | (row >= _SIZE)
    return [
        terms.equal(_before(after), _before(row) + _visit(row)),
        ~none | terms.equal(_visit(row), number(0)),
        *between(0, _visit(row), 1), *_at(row), *_at(after),
    ]  # fmt: skip


def _turns(walker: Walker) -> None:
    for rows in _ROWS:
        _of_rows(rows, walker.again())


def _of_rows(rows: int, walker: Walker) -> None:
    walker.given += [
        *between(1, _SIZE, 2**20),
        *between(1, _TILES, 2**20),
        *between(0, _LANE, rows - 1),
    ]
    column = rows * _BLOCK + _ACROSS
    walker.given += [*between(0, _BLOCK, 2**20), *between(0, _ACROSS, rows - 1)]
    walker.given.append(column < _TILES)
    walker.given += [*between(0, _ROW, 2**20), _SIZE > _ROW]
    walker.given += between(0, _SIZE * _TILES, 2**29)
    walker.facts |= {"visits before": _at}
    walker.given += _laws(_ROW)

    def place_of(pointer: Pointer) -> tuple[Term, int]:
        """The row of a place in memory, and the half of the table that it lies in."""
        products = [part for part in pointer.at.walk() if part.op == "product"]
        for part in products:
            (other,) = (each for each in part.args if each is not _TILES)
            walker.given += ordered(other, _SIZE, _TILES) + ordered(number(0), other, _TILES)
        (at,) = settled(walker.given, [pointer.at])
        row, of_rows, step = number(0), 0, 0
        for atoms, times in terms.polynomial(at - column).items():
            if _TILES not in atoms or len(atoms) > 2:
                raise NotDefined(f"the place {at}")
            rest = [each for each in atoms if each is not _TILES]
            of_rows += times if rest == [_SIZE] else 0
            step += times if rest == [_LANE] else 0
            row = row + terms.multiply(number(times), *rest)
        half = of_rows if step == 1 else of_rows - 1
        return row - half * _SIZE, half

    def is_inside(row: Term, mask: Any) -> Term:
        (inside,) = settled(walker.given, [as_number(mask).as_condition])
        among = terms.within(number(0), row, _SIZE)
        walker.claim("rows that there are, and no others", terms.same(inside, among))
        return inside

    def load(pointer: Pointer, mask: Any, other: Any) -> Number:
        row, half = place_of(pointer)
        is_inside(row, mask)
        if half or other != 0:
            raise NotDefined("visits that are read from another half")
        # Each row is read before its count is stored.
        walker.given += _laws(row)
        return Number(_visit(row), INT32)

    def lanes(value: Number) -> tuple[Term, int]:
        """The row that lane 0 visits, and the step from lane to lane."""
        found = [terms.replaced(value.term.args[0], {_LANE: number(lane)}.get) for lane in (0, 1)]
        step = found[1] - found[0]
        if value.term.data != "visit" or not terms.is_number(step):
            raise NotDefined(f"the sum of {value.term}")
        return found[0], terms.value_of_number(step)

    def summed(value: Number, last: Term) -> Number:
        """The number of visits from the row of lane 0 to that of the last lane."""
        first, step = lanes(value)
        low, high = first, first + last
        if step == -1:
            low, high = first - last, first
        elif step != 1:
            raise NotDefined(f"rows in steps of {step}")
        low, high = low, high + 1
        walker.given += [*_laws(low), *_laws(high)]
        return Number(_before(high) - _before(low), INT32)

    def store(before: Any, pointer: Pointer, value: Any, mask: Any) -> Any:
        row, half = place_of(pointer)
        inside = is_inside(row, mask)
        step = 1 if terms.replaced(row, {_LANE: number(0)}.get) is (row - _LANE) else -1
        own = step * (_ROW - (row - step * _LANE))
        mine = terms.both(*between(0, own, rows - 1), inside)
        mine, new = (terms.replaced(part, {_LANE: own}.get)
                     for part in (mine, as_number(value).term))  # fmt: skip
        stored = list(before)
        if half not in (0, 1):
            raise NotDefined("a place behind both halves")
        stored[half] = Number(terms.choice(mine, new, stored[half].term), INT32)
        return tuple(stored)

    walker.lanes({rows: _LANE}, _LANE, _ACROSS)
    walker.words |= {
        "load": load, "store": store,
        "cumsum": lambda value, axis: summed(value, _LANE),
        "sum": lambda value, axis: summed(value, number(rows - 1)),
        "visits_before": lambda row: Number(_before(as_number(row).term), INT32),
        "visit": lambda row: Number(_visit(as_number(row).term), INT32),
        "zeros": lambda shape, of: Number(number(0), of),
        "program_id": lambda axis: Number(_BLOCK, INT32),
    }  # fmt: skip
    walker.names |= {"r": Number(_ROW, INT32)}
    at_first = (Number(_visit(_ROW), INT32), walker.fresh("stored"))
    scope: dict[str, Any] = {
        "ptr": Pointer(Table("turns", "int"), INT32, number(0)),
        "ROWS": rows,
        "COLUMNS": rows,
    }
    scope |= {"rows": Number(_SIZE, INT32), "tiles": Number(_TILES, INT32), "stored": at_first}
    walker.run_stores("turns", scope, "columns = ")
    later, earlier = (part.term for part in scope["stored"])
    after = _before(_SIZE) - _before(_ROW + 1)
    walker.claim("visits in later rows", terms.equal(later, after))
    walker.claim("visits in earlier rows", terms.equal(earlier, _before(_ROW)))


LEMMAS: Final[tuple[Proof, ...]] = (
    ("gradient_sums.turns",
     "counts the visits in later rows, and in earlier rows, for any visits", _turns),
)  # fmt: skip
