"""The blocks of a mask as an SVG picture, for pages and documents."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from ..algebra import Mask
from ..schedule.block_map import EMPTY, FULL, PARTIAL
from .paths import number as _n
from .paths import stretches
from .picture import Picture, picture, require_cells
from .terminal import NAMES, kept_text, size_text

_SIDE: Final = 480
_LEFT, _TOP, _RIGHT, _BOTTOM = 78, 112, 26, 62
_TICKS: Final = 4

_STYLE: Final = """\
  text { font-family: ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
  .title { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
  .page { fill: #ffffff; stroke: #d8dee6; }
  .ink { fill: #1f2733; } .soft { fill: #5b6675; }
  .line { stroke: #aab4c0; fill: none; }
  .empty { fill: #edf0f4; } .partial { fill: #e8963a; } .full { fill: #2f6fd6; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #10151c; stroke: #2c3540; }
    .ink { fill: #e6ebf2; } .soft { fill: #9aa6b5; }
    .line { stroke: #4a5563; }
    .empty { fill: #1d242e; } .partial { fill: #f0a54e; } .full { fill: #5b95f5; }
  }
"""


def svg(
    mask: Mask,
    q_len: int,
    kv_len: int | None = None,
    *,
    cells: int = 128,
    block: int | None = None,
    title: str | None = None,
) -> str:
    """A picture of the empty, partial and full blocks of a mask, as the text of an SVG file.

    Queries run down, keys to the right. The colours follow the reader's light or dark setting. Of
    a mask that depends on the batch or the head the first of each is shown.

    Args:
        mask: the mask.
        q_len: number of queries.
        kv_len: number of keys; `None` means `q_len`.
        cells: most blocks along a side, >= 1.
        block: side of a block in positions; by default the smallest power of two that fits `cells`.
        title: the heading; by default the expression.
    """
    cells = require_cells("svg", "cells", cells, 1)
    shown = picture(mask, q_len, kv_len, cells=cells, block=block)
    scale = _SIDE / max(shown.q_len, shown.kv_len, 1)
    width, height = shown.kv_len * scale, shown.q_len * scale
    page_width, page_height = _LEFT + max(width, 420) + _RIGHT, _TOP + height + _BOTTOM
    heading = title or shown.title
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(page_width)} {_n(page_height)}" '
        f'width="{_n(page_width)}" height="{_n(page_height)}" role="img">',
        f"<title>{escape(heading)}</title>",
        f"<desc>{escape(_description(shown))}</desc>",
        f"<style>\n{_STYLE}</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{_n(page_width - 1)}" '
        f'height="{_n(page_height - 1)}" rx="10"/>',
        *_heading(heading, shown, page_width - 2 * 20),
        f'<g transform="translate({_LEFT} {_TOP})">',
        f'<rect class="empty" width="{_n(width)}" height="{_n(height)}"/>',
        *_blocks(shown, scale),
        f'<rect class="line" width="{_n(width)}" height="{_n(height)}"/>',
        *_axes(shown, scale),
        "</g>",
        *_legend(shown, _TOP + height + 44),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _description(shown: Picture) -> str:
    return ". ".join([size_text(shown), kept_text(shown), *shown.notes])


def _heading(heading: str, shown: Picture, width: float) -> list[str]:
    # A character of a monospaced font is about 0.6 of the font size wide.
    size = min(16.0, width / (0.6 * max(len(heading), 1)))
    lines = [_text(20, 32, heading, "title ink", size=max(size, 7.0))]
    return [*lines, _text(20, 54, size_text(shown), "soft", size=12)]


def _blocks(shown: Picture, scale: float) -> Iterator[str]:
    """A path for each kind of block; neighbours of one row are one rectangle."""
    for label in (PARTIAL, FULL):
        steps = []
        for row, (first, end) in stretches(shown.labels == label):
            top, bottom = row * shown.block, min((row + 1) * shown.block, shown.q_len)
            left, right = first * shown.block, min(end * shown.block, shown.kv_len)
            steps.append(
                f"M{_n(left * scale)} {_n(top * scale)}H{_n(right * scale)}"
                f"V{_n(bottom * scale)}H{_n(left * scale)}z"
            )
        # crispEdges: neighbouring rectangles must not show seams.
        yield (f'<path class="{NAMES[label]}" shape-rendering="crispEdges" d="{"".join(steps)}"/>')


def _axes(shown: Picture, scale: float) -> list[str]:
    width, height = shown.kv_len * scale, shown.q_len * scale
    parts = [
        _text(width / 2, -28, "key position", "soft", size=12, anchor="middle"),
        f'<g transform="translate(-60 {_n(height / 2)}) rotate(-90)">'
        + _text(0, 0, "query position", "soft", size=12, anchor="middle")
        + "</g>",
    ]
    for position in _ticks(shown.kv_len, scale, 44):
        x = position * scale
        parts.append(f'<path class="line" d="M{_n(x)} 0v-5"/>')
        parts.append(_text(x, -10, str(position), "soft", size=11, anchor="middle"))
    for position in _ticks(shown.q_len, scale, 16):
        y = position * scale
        parts.append(f'<path class="line" d="M0 {_n(y)}h-5"/>')
        parts.append(_text(-9, y + 4, str(position), "soft", size=11, anchor="end"))
    return parts


def _ticks(length: int, scale: float, room: float) -> list[int]:
    """Positions to name on an axis: quarters, or fewer where they would be closer than `room`."""
    parts = next((n for n in (_TICKS, 2, 1) if length * scale >= n * room), 0)
    return sorted({length * i // parts for i in range(parts + 1)}) if parts else [0]


def _legend(shown: Picture, y: float) -> list[str]:
    parts = []
    x = float(_LEFT)
    for label in (EMPTY, PARTIAL, FULL):
        text = f"{NAMES[label]} {shown.counts()[label]}"
        parts.append(
            f'<rect class="{NAMES[label]}" x="{_n(x)}" y="{_n(y - 11)}" width="14" height="14" '
            'rx="3" stroke="#8894a2" stroke-width="0.5"/>'
        )
        parts.append(_text(x + 21, y + 1, text, "ink", size=12))
        x += 45 + 7 * len(text)
    return parts


def _text(x: float, y: float, text: str, kind: str, *, size: float, anchor: str = "start") -> str:
    return (
        f'<text class="{kind}" x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )
