"""The error of a comparison of masks, which can draw the expected mask and the found one."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..schedule.tile_runs import EMPTY, FULL, PARTIAL

Labels = NDArray[np.uint8]

_CHARACTERS: Final = {EMPTY: "·", PARTIAL: "▒", FULL: "█"}
_MOST_COLUMNS: Final = 100
_MOST_CELLS: Final = 64


class MaskMismatch(AssertionError):
    """Two masks, or two labellings of blocks, differ.

    Attributes:
        expected, found: uint8 `[rows, columns]` of the first batch entry and head that differ:
            EMPTY=0, PARTIAL=1, FULL=2 for blocks, EMPTY and FULL for single elements.
    """

    def __init__(self, message: str, expected: Labels, found: Labels) -> None:
        super().__init__(message)
        self.expected = expected
        self.found = found

    def maskalg_picture(self) -> str:
        """Expected, found and difference as text, side by side where they fit 100 columns."""
        expected, found, side = _fitted(self.expected, self.found)
        differs = np.sign(found.astype(np.int8) - expected.astype(np.int8))
        panels = [
            _panel("expected", _drawn(expected, _CHARACTERS)),
            _panel("found", _drawn(found, _CHARACTERS)),
            _panel("difference", _drawn(differs, {0: "·", 1: "+", -1: "-"})),
        ]
        lines = ["queries down, keys to the right; + kept wrongly, - dropped wrongly"]
        if side > 1:
            lines.append(f"each character stands for {side} x {side} of them")
        if sum(len(panel[0]) + 2 for panel in panels) <= _MOST_COLUMNS:
            lines += ["  ".join(parts).rstrip() for parts in zip(*panels, strict=True)]
        else:
            lines += [line.rstrip() for panel in panels for line in panel]
        return "\n".join(lines)


def mismatch(message: str, expected: Any, found: Any, place: tuple[int, ...]) -> MaskMismatch:
    """The error for two arrays `[…, rows, columns]` that first differ at `place`.

    Boolean arrays hold elements, others labels of blocks; leading axes are broadcast.
    """
    both = np.broadcast_arrays(expected, found)
    matrices = [part[place[:-2]] for part in both]
    shown = [np.where(m, FULL, EMPTY) if m.dtype == np.bool_ else m for m in matrices]
    return MaskMismatch(message, *(m.astype(np.uint8) for m in shown))


def _fitted(expected: Labels, found: Labels) -> tuple[Labels, Labels, int]:
    """Both in at most 64 rows and columns; a cell that holds a difference shows one."""
    side = -(-max(*expected.shape, 1) // _MOST_CELLS)
    if side == 1:
        return expected, found, 1
    rows, columns = (-(-size // side) for size in expected.shape)
    shown = [np.zeros((rows, columns), np.uint8) for _ in range(2)]
    for row in range(rows):
        for column in range(columns):
            cell = np.s_[row * side : (row + 1) * side, column * side : (column + 1) * side]
            places = np.argwhere(expected[cell] != found[cell])
            at = tuple(places[0]) if len(places) else (0, 0)
            for array, picture in zip((expected, found), shown, strict=True):
                picture[row, column] = array[cell][at]
    return shown[0], shown[1], side


def _drawn(cells: NDArray[Any], characters: dict[int, str]) -> list[str]:
    return ["".join(characters[int(cell)] for cell in row) for row in cells]


def _panel(title: str, rows: list[str]) -> list[str]:
    inner = max((len(row) for row in rows), default=0)
    frame = [
        "┌" + "─" * inner + "┐",
        *("│" + row + "│" for row in rows),
        "└" + "─" * inner + "┘",
    ]
    width = max(len(title), inner + 2)
    return [line.ljust(width) for line in (title, *frame)]
