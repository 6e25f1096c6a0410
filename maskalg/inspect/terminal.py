"""`mask.show()`: the blocks of a mask in a terminal, or as plain text where output is piped."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

import torch

from ..algebra import Mask
from ..schedule.block_map import EMPTY, FULL, PARTIAL
from .picture import Picture, picture, require_cells

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

LEAST_WIDTH: Final = 8
NAMES: Final = ("empty", "partial", "full")

# Orange and blue are told apart with any colour vision, on light and on dark terminals.
_COLOURS: Final = {PARTIAL: "#e08a1e", FULL: "#3b78e7"}
_PLAIN: Final = "·▒█"
_ASCII: Final = ".+#"
# Even, so that the two rows of a character belong to one block.
_ZOOMS: Final = (4, 2)


@dataclass(frozen=True)
class Frame:
    """The characters around a picture: two sides, four corners."""

    across: str
    down: str
    corners: str


_LINES: Final = Frame("─", "│", "┌┐└┘")
_ASCII_LINES: Final = Frame("-", "|", "++++")


def show(
    mask: Mask,
    q_len: int,
    kv_len: int | None = None,
    *,
    width: int = 64,
    console: Console | None = None,
) -> None:
    """Print which blocks of a mask are empty, partial and full.

    Queries run down, keys to the right. In a terminal a character holds two blocks, one above the
    other, in colour. Without colour a character is the union of those two: `·` both empty, `█`
    both full, `▒` anything else (`.`, `#`, `+` where only ASCII can be written). Of a mask that
    depends on the batch or the head the first of each is shown.

    Args:
        mask: the mask.
        q_len: number of queries.
        kv_len: number of keys; `None` means `q_len`.
        width: most columns of the picture, >= 8; a narrower terminal narrows it.
        console: where to print; by default standard output.
    """
    from rich.console import Console

    console = console or Console()
    cells = require_cells("show", "width", width, LEAST_WIDTH)
    if console.is_terminal:
        cells = max(LEAST_WIDTH, min(cells, console.width - 2))
    shown = picture(mask, q_len, kv_len, cells=cells)
    coloured = console.color_system is not None and not console.no_color
    for line in [
        *_header(shown, ascii_only=console.options.ascii_only, coloured=coloured),
        *_framed(shown, cells, ascii_only=console.options.ascii_only, coloured=coloured),
    ]:
        console.print(line, soft_wrap=True)


def percent(share: float) -> str:
    """A share in percent, `0 %` and `100 %` only where they are meant."""
    text = f"{100 * share:.1f}"
    if text == "0.0":
        return "0 %" if share == 0 else "< 0.1 %"
    if text == "100.0":
        return "100 %" if share == 1 else "> 99.9 %"
    return f"{text} %"


def kept_text(shown: Picture) -> str:
    """What the blocks tell about the share of elements kept."""
    least, most = shown.kept_share()
    if least == most:
        return f"{percent(most)} of the elements kept"
    return f"between {percent(least)} and {percent(most)} of the elements kept, judging by blocks"


def size_text(shown: Picture) -> str:
    """Lengths, block size and the share of blocks that are empty."""
    rows, columns = shown.labels.shape
    return (
        f"{shown.q_len} queries, {shown.kv_len} keys, {rows} x {columns} blocks of "
        f"{shown.block} x {shown.block}: {percent(shown.empty_share)} empty"
    )


def _header(shown: Picture, *, ascii_only: bool, coloured: bool) -> list[Text]:
    from rich.text import Text

    legend = Text()
    for label, count in enumerate(shown.counts()):
        sample = "■" if coloured and not ascii_only else (_ASCII if ascii_only else _PLAIN)[label]
        if coloured and label == EMPTY:
            sample = "." if ascii_only else "□"
        legend.append(sample, style=_COLOURS.get(label, "dim") if coloured else "")
        legend.append(f" {NAMES[label]} {count}   ")
    legend.rstrip()
    title = shown.title.encode("ascii", "replace").decode() if ascii_only else shown.title
    lines = [Text(title, style="bold"), Text(size_text(shown)), Text(kept_text(shown))]
    return [*lines, *(Text(f"note: {note}") for note in shown.notes), legend]


def _framed(shown: Picture, cells: int, *, ascii_only: bool, coloured: bool) -> list[Text]:
    from rich.text import Text

    labels = _zoomed(shown.labels, cells)
    if not labels.numel():
        return [Text("no blocks")]
    if coloured and not ascii_only:
        rows = [_coloured_row(top, bottom) for top, bottom in _pairs(labels)]
    else:
        alphabet = _ASCII if ascii_only else _PLAIN
        rows = [_plain_row(top, bottom, alphabet) for top, bottom in _pairs(labels)]
    frame = _ASCII_LINES if ascii_only else _LINES
    width = labels.shape[1]
    named = f"{frame.across} keys ".ljust(width, frame.across)
    top_line = named if len(named) == width else frame.across * width
    lines = [Text(frame.corners[0] + top_line + frame.corners[1], style="dim")]
    for number, row in enumerate(rows):
        line = Text()
        line.append(frame.down, style="dim").append_text(row).append(frame.down, style="dim")
        lines.append(line.append(" queries", style="dim") if number == 0 else line)
    return [*lines, Text(frame.corners[2] + frame.across * width + frame.corners[3], style="dim")]


def _zoomed(labels: torch.Tensor, cells: int) -> torch.Tensor:
    """Labels repeated in both directions, where few blocks would make a tiny picture."""
    most = cells // max(*labels.shape, 1)
    times = next((zoom for zoom in _ZOOMS if zoom <= most), 1)
    return labels.repeat_interleave(times, dim=0).repeat_interleave(times, dim=1)


def _pairs(labels: torch.Tensor) -> list[tuple[list[int], list[int] | None]]:
    """Rows two by two; the last has no partner where their number is odd."""
    rows: list[list[int]] = labels.tolist()
    return [(rows[i], rows[i + 1] if i + 1 < len(rows) else None) for i in range(0, len(rows), 2)]


def _coloured_row(top: list[int], bottom: list[int] | None) -> Text:
    from rich.text import Text

    line = Text()
    for pair, same in groupby(zip(top, bottom or [EMPTY] * len(top), strict=True)):
        character, style = _half_blocks(*pair)
        line.append(character * len(list(same)), style=style)
    return line


def _half_blocks(upper: int, lower: int) -> tuple[str, str]:
    """One character for two blocks, and its style; an empty block is the terminal's background."""
    if upper == lower:
        return (" ", "") if upper == EMPTY else ("█", _COLOURS[upper])
    if upper == EMPTY:
        return "▄", _COLOURS[lower]
    if lower == EMPTY:
        return "▀", _COLOURS[upper]
    return "▀", f"{_COLOURS[upper]} on {_COLOURS[lower]}"


def _plain_row(top: list[int], bottom: list[int] | None, alphabet: str) -> Text:
    from rich.text import Text

    pairs = zip(top, bottom or top, strict=True)
    return Text("".join(alphabet[a if a == b else PARTIAL] for a, b in pairs))
