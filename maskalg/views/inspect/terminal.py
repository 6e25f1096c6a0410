"""`mask.show()`: the blocks of a mask in a terminal, or as plain text where output is piped."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

import torch

from ...engine.extents import Lengths
from ...formula.expression import Expression
from ...formula.parameters import whole_number
from ...formula.printing import formula_text
from ...schedule.tile_runs import EMPTY, FULL, PARTIAL
from .choice import Choice, one_entry
from .palette import NAMES
from .picture import Picture, picture
from .tally import Tally, counted_side, sharpened, tally

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

LEAST_WIDTH: Final = 8

# Orange and blue are told apart with any colour vision, on light and on dark terminals.
_COLOURS: Final = {PARTIAL: "#e08a1e", FULL: "#3b78e7"}
_PLAIN: Final = "·▒█"
_ASCII: Final = ".+#"
_QUERIES: Final = " queries"
_LONGEST: Final = 240  # characters of a formula; `prove` shows it whole
# Even, so that the two rows of a character belong to one block.
_ZOOMS: Final = (4, 2)


@dataclass(frozen=True)
class Frame:
    """The characters around a picture: two sides, four corners."""

    across: str
    down: str
    corners: str


@dataclass(frozen=True)
class Style:
    """The abilities of a console: only ASCII or more, colours or none, columns (None: any)."""

    ascii_only: bool
    coloured: bool
    width: int | None


_LINES: Final = Frame("─", "│", "┌┐└┘")
_ASCII_LINES: Final = Frame("-", "|", "++++")


def show(
    mask: Expression,
    q_len: int,
    kv_len: int | None = None,
    *,
    width: int = 64,
    block: int = 128,
    entry: int = 0,
    head: int = 0,
    console: Console | None = None,
) -> None:
    """Print which blocks of a mask are empty, partial and full, and the share of work saved.

    Queries run down, keys to the right. In a terminal a character holds two blocks, one above the
    other, in colour. Without colour a character is the union of those two: `·` both empty, `█`
    both full, `▒` anything else (`.`, `#`, `+` where only ASCII can be written).

    Args:
        mask: the mask.
        q_len: number of queries.
        kv_len: number of keys; `None` means `q_len`.
        width: most columns of the picture, >= 8; a narrower terminal narrows it.
        block: side of the blocks that are counted, >= 1, doubled while there are more than 65,536
            rows or columns of them; those of the picture follow from `width`.
        entry, head: which batch entry and head of a mask that depends on them.
        console: where to print; by default standard output.
    """
    from rich.console import Console

    console = console or Console()
    cells = whole_number("show", "width", width, LEAST_WIDTH)
    whole_number("show", "block", block, 1)
    choice = Choice(entry, head)
    choice.check("show", mask)
    if console.is_terminal:
        cells = max(LEAST_WIDTH, min(cells, console.width - 2))
    shown = picture(mask, q_len, kv_len, cells=cells, choice=choice)
    side = counted_side(block, max(shown.q_len, shown.kv_len))
    entry_alone = one_entry(mask, choice).to("cpu")
    counted = sharpened(tally(entry_alone, Lengths(q_len, kv_len), side), shown)
    style = Style(
        console.options.ascii_only,
        console.color_system is not None and not console.no_color,
        console.width if console.is_terminal else None,
    )
    for line in [*_texts(figure_lines(mask, counted, shown), style), *_framed(shown, cells, style)]:
        console.print(line, soft_wrap=True)


def percent(share: float) -> str:
    """A share in percent; `0 %` and `100 %` only if exact."""
    text = f"{100 * share:.1f}"
    if text == "0.0":
        return "0 %" if share == 0 else "< 0.1 %"
    if text == "100.0":
        return "100 %" if share == 1 else "> 99.9 %"
    return f"{text} %"


def kept_text(shown: Picture) -> str:
    """The share of kept elements, or its limits if blocks do not decide it."""
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


def figure_lines(mask: Expression, found: Tally, shown: Picture) -> list[tuple[str, str]]:
    """The lines above the picture: a name and a text each; the first is the title."""
    least, most = found.kept
    kept = f"{most:,} of {found.total:,} elements ({percent(most / max(found.total, 1))})"
    if least != most:
        shares = [percent(count / max(found.total, 1)) for count in found.kept]
        between = f"between {shares[0]} and {shares[1]}" if shares[0] != shares[1] else shares[0]
        kept = f"{between} of {found.total:,} elements"
    count = found.rows * found.columns
    blocks = (
        f"{count:,} of {found.block} x {found.block}: {'' if found.exact else 'at least '}"
        f"{found.empty:,} empty ({percent(found.empty / max(count, 1))}), "
        f"{found.partial:,} partial, {found.full:,} full"
    )
    unvisited = (found.total - found.visited) / max(found.total, 1)
    saved = f"{percent(unvisited)} of dense attention's saved"
    if least < most < found.visited:
        saved += ": kernels visit what their bounds leave open"
    rows = [
        ("", str(mask)),
        ("formula", _short(formula_text(mask.named_apart.mask_node))),
        ("lengths", f"{shown.q_len:,} queries, {shown.kv_len:,} keys"),
        ("blocks", blocks),
        ("kept", kept),
        ("FLOPs", saved),
        *(("note", note) for note in shown.notes),
    ]
    # A single block shows nothing that is skipped.
    left_out = ("blocks", "FLOPs") if count == 1 else ()
    return [r for r in rows if r != ("formula", str(mask)) and r[0] not in left_out]


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 2] + " …"


def _texts(rows: list[tuple[str, str]], style: Style) -> list[Text]:
    from rich.text import Text

    lines = []
    for name, text in rows:
        plain = text.encode("ascii", "replace").decode() if style.ascii_only else text
        line = Text(f"{name:<9}", style="dim") if name else Text()
        lines.append(line.append(plain, style="not dim" if name else "bold"))
    return lines


def _legend(shown: Picture, style: Style) -> Text:
    from rich.text import Text

    legend = Text()
    for label, name in enumerate(NAMES):
        sample = (_ASCII if style.ascii_only else _PLAIN)[label]
        if style.coloured and not style.ascii_only:
            sample = "□" if label == EMPTY else "■"
        legend.append(sample, style=_COLOURS.get(label, "dim") if style.coloured else "")
        legend.append(f" {name}   ")
    rows, columns = shown.labels.shape
    return legend.append(f"{rows} x {columns} blocks of {shown.block} x {shown.block}", style="dim")


def _framed(shown: Picture, cells: int, style: Style) -> list[Text]:
    from rich.text import Text

    labels = _zoomed(shown.labels, cells)
    if not labels.numel():
        return [Text("no blocks")]
    if style.coloured and not style.ascii_only:
        rows = [_coloured_row(top, bottom) for top, bottom in _pairs(labels)]
    else:
        alphabet = _ASCII if style.ascii_only else _PLAIN
        rows = [_plain_row(top, bottom, alphabet) for top, bottom in _pairs(labels)]
    frame = _ASCII_LINES if style.ascii_only else _LINES
    width = labels.shape[1]
    named = f"{frame.across} keys ".ljust(width, frame.across)
    top_line = named if len(named) == width else frame.across * width
    lines = [Text(frame.corners[0] + top_line + frame.corners[1], style="dim")]
    # Beside the first row, where there is room for it.
    beside = style.width is None or width + 2 + len(_QUERIES) <= style.width
    for number, row in enumerate(rows):
        line = Text()
        line.append(frame.down, style="dim").append_text(row).append(frame.down, style="dim")
        lines.append(line.append(_QUERIES, style="dim") if number == 0 and beside else line)
    lines.append(Text(frame.corners[2] + frame.across * width + frame.corners[3], style="dim"))
    return [*lines, _legend(shown, style)]


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
