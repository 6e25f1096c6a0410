"""A picture of the pairs that two masks keep: both, one alone, or neither."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from ...engine.evaluate import device_of, kept_at
from ...engine.extents import Lengths
from ...engine.normal_form import bound
from ...formula.expression import Expression, both
from ...questions.compare import Comparison
from ...questions.domain import reach
from ...questions.search import Place
from ...schedule.tile_runs import EMPTY
from .picture import fitting_block, picture

if TYPE_CHECKING:
    from rich.console import Console

NEITHER, BOTH, ONLY_A, ONLY_B, EACH = range(5)
_CELLS: Final = 32
LENGTHS_SEEN_WHOLE: Final = range(_CELLS + 1, (1 << 17) + 1)
"""Lengths with an overview: a close-up shows shorter ones whole, longer ones take seconds."""

_BEFORE: Final = 12  # rows and columns of a close-up before the pair it is about
_CHARACTERS: Final = ("·", "=", "A", "B", "X")
_NAMES: Final = ("neither keeps", "both keep", "only A", "only B", "A and B, different pairs")
_COLOURS: Final = ("", "#8a8a8a", "#e08a1e", "#3b78e7", "#b04fc4")


@dataclass(frozen=True, eq=False)
class Difference:
    """For each cell, which of two masks keeps it.

    Attributes:
        title: where the cells lie.
        codes: int64 `[rows, columns]`, one of the codes above.
    """

    title: str
    codes: torch.Tensor


def overview(
    a: Expression, b: Expression, sides: Comparison, q_len: int, kv_len: int | None
) -> Difference:
    """Blocks that hold a pair of each kind, at most 32 a side."""
    block = fitting_block(q_len, q_len if kv_len is None else kv_len, _CELLS)
    some = [
        picture(mask, q_len, kv_len, cells=_CELLS, block=block).labels != EMPTY
        for mask in (both(a, b), sides.only_a.mask, sides.only_b.mask)
    ]
    title = f"blocks of {block} x {block}: where the masks may differ"
    return Difference(title, _codes(*some))


def close_up(a: Expression, b: Expression, place: Place, lengths: Lengths) -> Difference:
    """Elements around a pair, at most 32 a side."""
    extents = reach(bound(both(a, b)), lengths).extents
    ends = (
        extents.q_len if lengths.q_len is None else lengths.q_len,
        extents.kv_len if lengths.q_len is None else lengths.kv_len or lengths.q_len,
    )
    first = [max(0, at - _BEFORE) for at in (place.q_idx, place.kv_idx)]
    last = [min(start + _CELLS, end) for start, end in zip(first, ends, strict=True)]
    kept = [_kept(mask, place, (first[0], last[0]), (first[1], last[1])) for mask in (a, b)]
    title = f"elements from query {first[0]} and key {first[1]} on"
    if place.batch or place.head:
        title += f", batch entry {place.batch}, head {place.head}"
    return Difference(title, _codes(kept[0] & kept[1], kept[0] & ~kept[1], kept[1] & ~kept[0]))


def _codes(both: torch.Tensor, only_a: torch.Tensor, only_b: torch.Tensor) -> torch.Tensor:
    codes = torch.where(both, BOTH, NEITHER)
    codes[only_a] = ONLY_A
    codes[only_b] = ONLY_B
    codes[only_a & only_b] = EACH
    return codes


def _kept(
    mask: Expression, place: Place, rows: tuple[int, int], columns: tuple[int, int]
) -> torch.Tensor:
    form = bound(mask)
    device = device_of(form)
    indices = {
        "batch": torch.tensor(place.batch, device=device),
        "head": torch.tensor(place.head, device=device),
        "q_idx": torch.arange(*rows, device=device)[:, None],
        "kv_idx": torch.arange(*columns, device=device)[None, :],
    }
    kept = kept_at(form, indices)
    return kept.expand(rows[1] - rows[0], columns[1] - columns[0]).cpu()


def show_difference(found: Difference, console: Console) -> None:
    """Print the cells, two characters each, and a legend."""
    from rich.text import Text

    coloured = console.color_system is not None and not console.no_color
    console.print(f"\n{found.title}")
    for row in found.codes.tolist():
        line = Text()
        for code in row:
            style = _COLOURS[code] if coloured else ""
            line.append("  " if coloured and not code else _sample(code, coloured) * 2, style=style)
        console.print(line)
    legend = Text()
    for code in found.codes.unique().tolist():
        legend.append(_sample(code, coloured), style=_COLOURS[code] if coloured else "")
        legend.append(f" {_NAMES[code]}   ")
    legend.rstrip()
    console.print(legend)


def _sample(code: int, coloured: bool) -> str:
    return "█" if coloured and code else _CHARACTERS[code]
