"""Labels for which the kernels look up wrong runs, found by running their text on small tables."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from ....schedule.tile_runs import FULL, PARTIAL, marked_runs_of
from ...meaning import NotDefined
from .intervals import NO_TILE, TRIED, Endless, Entries, Integer, functions, wrong_visits

_LETTERS: Final = ".pf"  # EMPTY, PARTIAL, FULL


@dataclass(frozen=True)
class Cells:
    """Rows of labels of square cells, and tiles of `block` keys that a kernel goes over."""

    labels: tuple[tuple[int, ...], ...]
    grain_bits: int
    length: int
    block: int
    spans: tuple[tuple[int, int], ...]

    def label(self, tile: int, spans: bool) -> int:
        """0 for an empty tile, 1 for one to be masked, 2 for a full one.

        With `spans`, tiles outside of the intervals of tiles are empty.
        """
        keys = range(tile * self.block, min((tile + 1) * self.block, self.length))
        every = [row[key >> self.grain_bits] for row in self.labels for key in keys]
        kept, dropped = any(every), len(keys) < self.block or set(every) != {FULL}
        if spans:
            kept &= any(first <= tile < end for first, end in self.spans)
        return (1 if dropped else 2) if kept else 0

    @property
    def count(self) -> int:
        return -(-self.length // self.block)

    def __str__(self) -> str:
        rows = ", ".join(["".join(_LETTERS[label] for label in row) for row in self.labels])
        return (f"labels {rows} of cells of {1 << self.grain_bits} ({_LETTERS[PARTIAL]}artial, "
                f"{_LETTERS[FULL]}ull), {self.length} keys in tiles of {self.block}")  # fmt: skip


def _every() -> Iterator[Cells]:
    """Small rows of cells, the same ones each time."""
    drawn = random.Random(0)
    for _ in range(TRIED):
        grain_bits, block = drawn.randint(6, 8), drawn.choice((16, 64, 128, 256))
        columns = drawn.randint(1, 7)
        length = (columns << grain_bits) - drawn.choice((0, 0, 1, 20, 63))
        labels = [[drawn.choice((0, 0, 1, 2, 2)) for _ in range(columns)]
                  for _ in range(drawn.randint(1, 4))]  # fmt: skip
        ends = [sorted(drawn.choices(range(-(-length // block) + 1), k=2)) for _ in range(2)]
        spans = tuple([(first, end) for first, end in ends])
        yield Cells(tuple(map(tuple, labels)), grain_bits, length, block, spans)


def wrong_marks(sources: dict[str, str] | None = None) -> str | None:
    """Labels for which a function finds a wrong run, and the run; None if all are right."""
    runs = functions("runs", sources)
    for cells in _every():
        for name, spans, from_last in (
            ("run_of_marks", False, 0), ("run_of_spans_and_marks", True, 0),
            ("run_of_marks_either_way", False, 0), ("run_of_marks_either_way", False, 1),
        ):  # fmt: skip
            told = f"{name}, from the last tile," if from_last else name
            one_row = cells
            if "either" in name:
                first = list(cells.labels[0])
                if cells.length % (1 << cells.grain_bits):  # a cut tile is never FULL
                    first[-1] = min(first[-1], PARTIAL)
                one_row = replace(cells, labels=(tuple(first),))
            try:
                found = list(_runs(runs, name, one_row, spans, from_last))
            except (Endless, NotDefined) as problem:
                return f"{told}: {problem}: {cells}"
            masked: defaultdict[int, list[bool]] = defaultdict(list)
            for begin, end, partial in found:
                for tile in range(begin, end):
                    masked[tile].append(partial)

            def label(
                at: int, cells: Cells = one_row, spans: bool = spans, from_last: int = from_last
            ) -> int:
                tile = cells.count - 1 - at if from_last else at
                return cells.label(tile, spans) if 0 <= tile < cells.count else 0

            wrong = wrong_visits(masked, label, cells.count)
            if wrong:
                return f"{told} {wrong}: {one_row}"
    return None


def _runs(
    runs: dict[str, Any], name: str, cells: Cells, spans: bool, from_last: int
) -> Iterator[tuple[int, int, bool]]:
    labels = torch.tensor(cells.labels, dtype=torch.uint8)
    if "either" in name:
        filled = torch.nn.functional.pad(labels, (0, -labels.shape[-1] % 4))
        labels = torch.stack([filled, filled.flip(-1)], dim=-2)
    marks = Entries(marked_runs_of(labels).flatten().tolist())
    last = (len(cells.labels) << cells.grain_bits) - 1
    told: list[Any] = [Integer(0), Integer(last), marks, Integer(0), Integer(cells.grain_bits)]
    if "either" in name:
        told = [Integer(from_last), *told]
    if spans:
        intervals = tuple([(Integer(first), Integer(end)) for first, end in cells.spans])
        told = [intervals, ((Integer(0), Integer(cells.count)),), *told]
    j = Integer(0)
    for _ in range(200):
        first, end, partial = runs[name](j, *told, Integer(cells.length), cells.block)
        if first >= NO_TILE:
            return
        if end <= first or first < j:
            raise NotDefined(f"a run from tile {j} on that goes from {first} to {end}")
        yield int(first), int(end), bool(partial)
        j = end
    raise Endless("it does not end")
