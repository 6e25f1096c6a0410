"""Digit forms with values put in: the boxes of keys that rows of tiles touch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Final

import torch

from ...engine.evaluate import Environment, evaluate, narrowed
from ...engine.normal_form import Value
from ...formula import nodes
from ...formula.nodes import Node
from ...proof.digits.forms import Axis, AxisSpan, BoxClause, DigitPart, Numeral, Split
from .digits import (
    FAR,
    Digits,
    Piece,
    axis_numeral,
    numeral,
    pieces,
    sizes,
    top_digit,
)

Found = tuple[torch.Tensor, ...]  # the fields of `Boxes`, of one clause

_ALIKE: Final = 4  # rows of a kind, on average, that are worth a look for kinds


@dataclass(frozen=True)
class TileRows:
    """Tiles of queries, flat: their queries `q0..q1`, batch entry and head, `[rows]` each."""

    q0: torch.Tensor
    q1: torch.Tensor
    batch: torch.Tensor
    head: torch.Tensor


@dataclass(frozen=True)
class Boxes:
    """Boxes of keys, in order of rows.

    `row` is `[boxes]`; `low` and `high` are `[boxes, digits]`. Only keys from `first` to `last`
    `[boxes]` count, both included. Digits are those of a key plus the offset of the forms.
    """

    row: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor
    first: torch.Tensor
    last: torch.Tensor

    def sorted_by(self, key: torch.Tensor) -> Boxes:
        """The boxes sorted by `key`; boxes of equal keys keep their order."""
        if bool((key[1:] >= key[:-1]).all()):
            return self
        order = key.argsort(stable=True)
        columns = (self.row, self.low, self.high, self.first, self.last)
        return Boxes(*(column.index_select(0, order) for column in columns))

    def widest_first(self) -> Boxes:
        """In each row, boxes with the widest range of the top digit first: they hold most tiles."""
        if not len(self.row):
            return self
        width = self.high[:, 0] - self.low[:, 0]
        return self.sorted_by(self.row * (int(width.max()) + 1) - width)


@dataclass(frozen=True)
class _Queries:
    """A box of queries for some of the rows, and the range of their keys.

    `row` names the rows, `digits` the digits of the queries. Keys plus the offset lie from `first`
    to `last`, with digits in `every`.
    """

    row: torch.Tensor
    digits: Digits
    first: torch.Tensor
    last: torch.Tensor
    every: Digits


class PartInCall:
    """A part of digit forms in one call: radices are numbers, limits are evaluated on demand."""

    def __init__(self, forms: DigitPart, values: tuple[Value, ...], kv_len: int) -> None:
        self.forms = forms
        self.numeral: Numeral = numeral(forms.tree, values)
        self._values = values
        self._kv_len = kv_len
        self._sizes = sizes(self.numeral)

    def key_offset(self, rows: TileRows) -> torch.Tensor:
        """The offset added to keys before they are written in digits, `[rows]`."""
        return self._at_rows(self.forms.k_offset, rows)

    def boxes(self, clauses: tuple[BoxClause, ...], rows: TileRows) -> Boxes:
        """The keys that the clauses keep for some query of each row, as boxes."""
        # Clauses share most limits and axes; these are computed once.
        queries: dict[object, list[_Queries]] = {}
        kept: dict[object, list[Piece]] = {}
        found: list[Found] = []
        for clause in clauses:
            limits = replace(clause, axes=())
            if limits not in queries:
                queries[limits] = self._queries(clause, rows)
            for number, box in enumerate(queries[limits]):
                for axis in clause.axes:
                    if (limits, number, axis) not in kept:
                        kept[limits, number, axis] = self._of_axis(*axis, rows, box)
                found += _crossed(box, [kept[limits, number, axis] for axis in clause.axes])
        if not found:
            none = torch.zeros(0, dtype=torch.int64, device=rows.q0.device)
            digits = none.reshape(0, len(self._sizes))
            return Boxes(none, digits, digits, none, none)
        row, low, high, first, last = (torch.cat(parts) for parts in zip(*found, strict=True))
        return Boxes(row, low, high, first, last).sorted_by(row)

    def _queries(self, clause: BoxClause, rows: TileRows) -> list[_Queries]:
        """The queries of each row within the limits of a clause, as boxes."""
        value = partial(self._at_rows, rows=rows)
        first, last = torch.zeros_like(rows.q0), torch.full_like(rows.q0, self._kv_len - 1)
        q_low, q_high = narrowed(rows.q0, rows.q1, clause.q_lows, clause.q_highs, value)
        k_low, k_high = narrowed(first, last, clause.k_lows, clause.k_highs, value)
        some = k_low <= k_high
        for condition in clause.conditions:
            some = some & self._at_rows(condition, rows)
        move = self._at_rows(self.forms.q_offset, rows)
        offset = self.key_offset(rows)
        found = []
        for digits, holds in pieces(self.numeral, q_low + move, q_high + move):
            row = (holds & some).nonzero()[:, 0]
            if len(row):
                there = {d: (_of(low, row), _of(high, row)) for d, (low, high) in digits.items()}
                first, last = (k_low + offset)[row], (k_high + offset)[row]
                found.append(_Queries(row, there, first, last, self._every(first, last)))
        return found

    def _every(self, first: torch.Tensor, last: torch.Tensor) -> Digits:
        """The range of each digit, for keys from `first` to `last`."""
        full: Digits = {}
        for digit, size in self._sizes.items():
            if size is None:
                full[digit] = (top_digit(self.numeral, first), top_digit(self.numeral, last))
            else:
                zero = torch.zeros_like(first)
                full[digit] = (zero, zero + size - 1)
        return full

    def _of_axis(
        self,
        axis: Axis,
        spans: tuple[AxisSpan, ...],
        rows: TileRows,
        box: _Queries,
    ) -> list[Piece]:
        """The keys that an axis keeps for a box of queries, as disjoint intervals of its digits."""
        number = axis_numeral(axis, self._values)
        low, high = (_joined(number, {d: e[i] for d, e in box.digits.items()}) for i in (0, 1))
        least, most = (_joined(number, {d: e[i] for d, e in box.every.items()}) for i in (0, 1))
        # Rows of an image have the same columns, so each coordinate is computed once.
        columns = (low, high - low, least, most - least, rows.batch[box.row], rows.head[box.row])
        (low, width, least, room, batch, head), kind = _kinds(columns)
        high, most = low + width, least + room
        env = Environment({"q0": low, "q1": high, "batch": batch, "head": head}, self._values)
        lows, highs = [], []
        for span in spans:
            value = partial(evaluate, env=env)
            below, above = narrowed(least, most, span.lows, span.highs, value)
            for guard in span.guards:
                above = torch.where(evaluate(nodes.ge(guard, nodes.const(0)), env), above, -FAR)
            lows.append(below)
            highs.append(above)
        found: list[Piece] = []
        for below, above in _united(torch.stack(lows, dim=1), torch.stack(highs, dim=1)):
            found += pieces(number, below, above)
        return found if kind is None else [_of_kinds(piece, kind) for piece in found]

    def _at_rows(self, node: Node, rows: TileRows) -> torch.Tensor:
        env = Environment({"batch": rows.batch, "head": rows.head}, self._values)
        return evaluate(node, env).expand(rows.q0.shape)


def _crossed(box: _Queries, axes: list[list[Piece]]) -> list[Found]:
    """The keys that all axes keep: a box for each combination of their intervals."""
    found: list[Found] = []
    for choice in product(*axes):
        digits = dict(box.every)
        holds = torch.ones_like(box.first, dtype=torch.bool)
        for piece, some in choice:
            digits |= piece
            holds = holds & some
        place = holds.nonzero()[:, 0]
        if len(place):
            low = torch.stack([_of(digits[d][0], place) for d in range(len(digits))], dim=1)
            high = torch.stack([_of(digits[d][1], place) for d in range(len(digits))], dim=1)
            found.append((box.row[place], low, high, box.first[place], box.last[place]))
    return found


def _kinds(columns: Found) -> tuple[Found, torch.Tensor | None]:
    """The distinct rows of columns `[rows]`, and the index of each row among them.

    If many rows are distinct: all rows, and None.
    """
    kind, kinds = torch.zeros_like(columns[0]), 1
    for column in columns:
        least, most = column.aminmax()
        size = int(most - least) + 1
        kinds *= size
        if kinds * _ALIKE > len(kind):
            return columns, None
        if size > 1:
            kind = kind * size + (column - least)
    example = kind.new_zeros(kinds)
    example[kind] = torch.arange(len(kind), device=kind.device)
    return tuple([column[example] for column in columns]), kind


def _of_kinds(piece: Piece, kind: torch.Tensor) -> Piece:
    digits, some = piece
    return {d: (_of(low, kind), _of(high, kind)) for d, (low, high) in digits.items()}, some[kind]


def _of(values: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return values.expand(len(rows)) if values.ndim == 0 else values.index_select(0, rows)


def _joined(number: Numeral, digits: dict[int, torch.Tensor]) -> torch.Tensor:
    """A coordinate from its digits."""
    if isinstance(number, Split):
        return _joined(number.major, digits) * number.radix + _joined(number.minor, digits)
    return digits[number.index]


def _united(lows: torch.Tensor, highs: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The union of the intervals in each row of `[boxes, intervals]`, as disjoint intervals.

    An interval is empty where its low end exceeds its high end.
    """
    empty = lows > highs
    lows, order = torch.where(empty, FAR, lows).sort(dim=1)
    highs = torch.where(empty, -FAR, highs).gather(1, order)
    reach = highs.cummax(dim=1).values
    starts = torch.ones_like(lows, dtype=torch.bool)
    starts[:, 1:] = lows[:, 1:] > reach[:, :-1] + 1
    group = starts.cumsum(dim=1) - 1
    low = torch.full_like(lows, FAR).scatter_reduce(1, group, lows, "amin")
    high = torch.full_like(highs, -FAR).scatter_reduce(1, group, highs, "amax")
    used = (low <= high).any(dim=0).tolist()
    return [(low[:, i], high[:, i]) for i, some in enumerate(used) if some]
