"""The small pictures of a notebook: SVG in the colours of the page around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import torch

from ...export.elements import edges
from ..inspect.palette import DARK, DIVERGING, DROPPED, LIGHT, NAMES


def number(value: float) -> str:
    """A coordinate with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


SIDE: Final = 200
_LEAST: Final = 12

_LIGHT_TOKENS: Final = (
    f"--ma-empty:{LIGHT[0]};--ma-partial:{LIGHT[1]};--ma-full:{LIGHT[2]};--ma-dropped:{DROPPED};"
    "--ma-line:#aab4c0;--ma-text:#1f2733;--ma-soft:#5b6675;"
)
_DARK_TOKENS: Final = (
    f"--ma-empty:{DARK[0]};--ma-partial:{DARK[1]};--ma-full:{DARK[2]};--ma-dropped:#39424e;"
    "--ma-line:#4a5563;--ma-text:#e6ebf2;--ma-soft:#9aa6b5;"
)
# The reader's setting, which the theme of JupyterLab, VS Code or Colab overrules.
STYLE: Final = f"""\
.maskalg{{{_LIGHT_TOKENS}display:flex;flex-wrap:wrap;gap:16px;align-items:flex-start;\
color:var(--jp-content-font-color1,var(--vscode-editor-foreground,var(--ma-text)));\
font-family:var(--jp-content-font-family,ui-sans-serif,system-ui,sans-serif);font-size:13px}}
@media (prefers-color-scheme:dark){{.maskalg{{{_DARK_TOKENS}}}}}
[data-jp-theme-light="true"] .maskalg,.vscode-light .maskalg,html[theme="light"] .maskalg\
{{{_LIGHT_TOKENS}}}
[data-jp-theme-light="false"] .maskalg,.vscode-dark .maskalg,html[theme="dark"] .maskalg\
{{{_DARK_TOKENS}}}
.maskalg svg{{flex:none}}
.maskalg .ma-empty{{fill:var(--ma-empty)}}.maskalg .ma-partial{{fill:var(--ma-partial)}}
.maskalg .ma-full{{fill:var(--ma-full)}}.maskalg .ma-dropped{{fill:var(--ma-dropped)}}
.maskalg .ma-line{{fill:none;stroke:var(--jp-border-color1,var(--ma-line))}}
.maskalg .ma-title{{font-family:var(--jp-code-font-family,ui-monospace,monospace);\
font-weight:600;overflow-wrap:anywhere}}
.maskalg .ma-formula{{margin:6px 0}}
.maskalg .ma-soft{{color:var(--jp-content-font-color2,var(--ma-soft))}}
.maskalg .ma-facts{{min-width:240px;max-width:640px}}
.maskalg .ma-facts svg{{vertical-align:-1px}}
.maskalg pre{{margin:6px 0;font-size:12px;white-space:pre-wrap;color:inherit;background:none}}
"""


def blocks_svg(labels: torch.Tensor, cell: tuple[int, int], q_len: int, kv_len: int) -> str:
    """Labels of cells, uint8 `[rows, columns]`, as SVG: a path for each label that occurs.

    Args:
        labels: EMPTY=0, PARTIAL=1, FULL=2.
        cell: height and width of a cell in positions; the last ones are cut by the lengths.
        q_len, kv_len: lengths in positions.
    """
    parts = [
        _path(labels == label, f'class="ma-{name}"', cell, q_len, kv_len)
        for label, name in enumerate(NAMES)
        if label
    ]
    return _svg("ma-empty", parts, q_len, kv_len)


def heat_svg(values: torch.Tensor, block: int, largest: float, q_len: int, kv_len: int) -> str:
    """Values `[rows, columns]` as SVG in nine colours from `-largest` to `largest`.

    NaN marks values that a mask drops.
    """
    steps = len(DIVERGING) - 1
    level = ((values / (largest or 1.0) + 1) / 2 * steps).round().clamp(0, steps)
    parts = [
        _path(level == step, f'fill="{colour}"', (block, block), q_len, kv_len)
        for step, colour in enumerate(DIVERGING)
    ]
    return _svg("ma-dropped", parts, q_len, kv_len)


def key_svg(name: str) -> str:
    """A small square in the colour of a label."""
    return (
        '<svg width="11" height="11" aria-hidden="true">'
        f'<rect class="ma-{name}" width="11" height="11" rx="2"/></svg>'
    )


def _svg(ground: str, parts: Sequence[str], q_len: int, kv_len: int) -> str:
    width, height = _scaled(kv_len, max(q_len, kv_len)), _scaled(q_len, max(q_len, kv_len))
    box = f'width="{number(width)}" height="{number(height)}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} '
        f'viewBox="0 0 {number(width)} {number(height)}" role="img">'
        f'<rect class="{ground}" {box}/>{"".join(parts)}<rect class="ma-line" {box}/></svg>'
    )


def _path(marked: torch.Tensor, colour: str, cell: tuple[int, int], q_len: int, kv_len: int) -> str:
    """One path over all marked cells; neighbours in a row are one rectangle."""
    steps = "".join(_rectangles(marked, cell, q_len, kv_len))
    # crispEdges: neighbouring rectangles must not show seams.
    return f'<path {colour} shape-rendering="crispEdges" d="{steps}"/>' if steps else ""


def _rectangles(
    marked: torch.Tensor, cell: tuple[int, int], q_len: int, kv_len: int
) -> Iterator[str]:
    longest = max(q_len, kv_len)
    down, across = _scaled(q_len, longest) / q_len, _scaled(kv_len, longest) / kv_len
    ends = edges(marked).tolist()
    for (row, first), (_, end) in zip(ends[::2], ends[1::2], strict=True):
        top, bottom = row * cell[0] * down, min((row + 1) * cell[0], q_len) * down
        left, right = first * cell[1] * across, min(end * cell[1], kv_len) * across
        yield (f"M{number(left)} {number(top)}H{number(right)}V{number(bottom)}H{number(left)}z")


def _scaled(length: int, longest: int) -> float:
    return max(SIDE * length / max(longest, 1), _LEAST)
