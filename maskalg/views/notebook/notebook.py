"""HTML for notebooks: masks, biases, scores, blocks, segments and proofs.

Shown are a picture, the typeset formula, and facts. Missing lengths are chosen from the expression,
and many blocks are pooled to few cells. Nothing here raises: without a picture, the rest or plain
text is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from html import escape
from typing import Any, Final

import torch
from torch.nn.functional import max_pool2d

from ...engine.extents import Lengths
from ...engine.normal_form import bound
from ...formula.expression import Expression
from ...formula.latex import expression_latex, latex
from ...formula.parameters import Scalar
from ...formula.printing import Shown
from ...proof.proof import Proof
from ...questions.domain import FAR, reach
from ...schedule.block_map import BlockMap, Segments
from ..inspect.choice import Choice, one_entry, parts_of
from ..inspect.heat import heat, is_curve
from ..inspect.palette import NAMES
from ..inspect.picture import FIRST, Picture, evaluated, picture
from ..inspect.terminal import kept_text, percent, size_text
from .svg import STYLE, blocks_svg, heat_svg, key_svg

_SHORTEST: Final = 256
_LONGEST: Final = 1 << 20
# Where positions are digits, numbers multiply: a canvas of 16 x 16 has 256 positions.
_LONGEST_SQUARE: Final = 1024


def lengths_to_show(expression: Expression, choice: Choice) -> tuple[int, int] | None:
    """Queries and keys: as many as the bound tensors hold, else four of the largest numbers.

    None where no length fits the tensors, as for an empty one.
    """
    extents = reach(bound(one_entry(expression, choice)), Lengths()).extents
    limits = (extents.q_len, extents.kv_len)
    if not min(limits):
        return None
    if min(limits) == FAR:
        limits = 2 * (_of_numbers(expression),)
    q_len, kv_len = (min(limits) if limit == FAR else limit for limit in limits)
    return q_len, kv_len


def _of_numbers(expression: Expression) -> int:
    """A power of two that is four times as long as the largest number of the formula."""
    numbers = [abs(int(p.value)) for p in expression.mask_node.params + expression.bias_node.params
               if isinstance(p, Scalar) and p.kind == "int"]  # fmt: skip
    largest = max(numbers, default=0)
    wanted = max(_SHORTEST, 4 * largest)
    if any(node.op in ("floordiv", "mod") for node in expression.mask_node.walk()):
        wanted = max(wanted, min(largest**2, _LONGEST_SQUARE))
    length = _SHORTEST
    while length < min(wanted, _LONGEST):
        length *= 2
    return length


def pooled(labels: torch.Tensor, cells: int) -> tuple[torch.Tensor, int]:
    """Labels `[rows, columns]` pooled to at most `cells` a side, and the blocks of a cell's side.

    A cell is empty (full) if all of its blocks are.
    """
    times = max(1, -(-max(labels.shape) // cells))
    if times == 1:
        return labels, 1
    most, least = (
        sign * max_pool2d((sign * labels.float())[None], times, ceil_mode=True)[0]
        for sign in (1, -1)
    )
    return torch.where(least == most, most, 1).to(torch.uint8), times


def pooled_segments(found: Segments, row_offset: int, cells: int) -> tuple[torch.Tensor, int]:
    """The rows of one batch entry and head, from `row_offset` on, pooled like labels of blocks.

    Cells are counted from the ends of segments, whatever their length.
    """
    rows, columns = found.shape[2], -(-found.kv_len // found.block[1])
    times = max(1, -(-max(rows, columns, 1) // cells))
    own = slice(int(found.row_start[row_offset]), int(found.row_start[row_offset + rows]))
    first, end, label = (x[own].cpu() for x in (found.first, found.end, found.label))
    starts = found.row_start[row_offset : row_offset + rows + 1].cpu().to(torch.int64)
    row = torch.repeat_interleave(torch.arange(rows), starts.diff()) // times
    edges = torch.arange(0, columns + times, times).clamp(max=columns)
    before = torch.minimum(edges, end[:, None]) - torch.minimum(edges, first[:, None])
    inside = before.diff(dim=1)
    shape = (-(-rows // times), len(edges) - 1)
    visited, full = (
        torch.zeros(shape, dtype=torch.int64).index_add(0, row[of], inside[of])
        for of in (label >= 0, label == 2)
    )
    heights = torch.arange(0, rows + times, times).clamp(max=rows).diff()
    whole = full == heights[:, None] * edges.diff()
    labels = torch.where(visited == 0, 0, torch.where(whole, 2, 1))
    return labels.to(torch.uint8), times


_CELLS: Final = 64
_HEAT_CELLS: Final = 64
_MOST_PICTURES: Final = 4
# Limit of elements to evaluate times the length of the formula's text.
_MOST_WORK: Final = 1 << 33
_MOST_ELEMENTS: Final = 1 << 24
_SHORT: Final = 512
# Longer formulas are neither typeset nor proved for a display.
_LONGEST_FORMULA: Final = 6000


def html(value: Shown) -> str | None:
    """A mask, a bias, a score, a proof, a block map or segments as HTML."""
    for kind, show in _DISPLAYS.items():
        if isinstance(value, kind):
            return _quietly(partial(show, value))
    raise NotImplementedError(f"no display of {type(value).__name__}: add it to {__name__}")


def expression_math(expression: Expression) -> str | None:
    """The formula between dollar signs."""
    return _quietly(lambda: _math(expression) and f"$\\displaystyle {_math(expression)}$")


def _quietly(show: Callable[[], str | None]) -> str | None:
    """The result of `show`; None if it fails, so that plain text is shown."""
    try:
        return show()
    except Exception:  # a display that fails would hide the value that the reader asked for
        return None


def _page(pictures: list[str], facts: list[str]) -> str:
    column = f'<div class="ma-facts">{"".join(facts)}</div>'
    return f'<div class="maskalg"><style>{STYLE}</style>{"".join(pictures)}{column}</div>'


def _expression(expression: Expression) -> str:
    facts = [f'<div class="ma-title">{escape(str(expression))}</div>']
    math = _quietly(lambda: _math(expression))
    facts += [_formula(math)] if math else []
    drawn = _quietly(lambda: _drawn(expression, facts))
    return _page([drawn] if drawn else [], facts)


def _math(expression: Expression) -> str | None:
    size = len(expression.mask_node.skeleton) + len(expression.bias_node.skeleton)
    return expression_latex(expression) if size <= _LONGEST_FORMULA else None


def _formula(text: str) -> str:
    # Signs of less and more are entities here; MathJax reads them as text.
    return f'<div class="ma-formula">\\({escape(text)}\\)</div>'


def _drawn(expression: Expression, facts: list[str]) -> str | None:
    """The picture of an expression; adds facts about the picture to `facts`."""
    if is_curve(expression):
        return None
    lengths = lengths_to_show(expression, FIRST)
    if lengths is None:
        return None
    if expression.kind == "mask":
        shown = _picture(expression, *lengths, _CELLS)
        facts += [_soft(size_text(shown)), _soft(kept_text(shown)), *map(_soft, shown.notes)]
        facts.append(_legend(shown.counts()))
        return blocks_svg(shown.labels, (shown.block, shown.block), shown.q_len, shown.kv_len)
    return _heat(expression, lengths, facts)


def _heat(expression: Expression, lengths: tuple[int, int], facts: list[str]) -> str:
    kept = None
    if expression.kind == "score":
        kept = _picture(parts_of(expression)[0], *lengths, _HEAT_CELLS)
        lengths = (kept.q_len, kept.kv_len)
    shown = heat(expression, *lengths, cells=_HEAT_CELLS)
    if kept is not None:
        shown = shown.where_kept(kept)
    facts.append(_soft(f"{shown.q_len} queries, {shown.kv_len} keys"))
    if kept is not None:
        facts.append(_soft(f"{percent(kept.empty_share)} of the blocks empty"))
    found = shown.values[shown.values.isfinite()]
    if len(found):
        facts.append(_soft(f"values from {float(found.min()):.4g} to {float(found.max()):.4g}"))
    facts += map(_soft, shown.notes)
    return heat_svg(shown.values, shown.block, shown.largest, shown.q_len, shown.kv_len)


def _picture(mask: Expression, q_len: int, kv_len: int, cells: int) -> Picture:
    """A picture within about a second: by evaluation of few elements, else by the proof."""
    work = len(mask.mask_node.skeleton)
    if q_len * kv_len <= min(_MOST_ELEMENTS, _MOST_WORK // work):
        return evaluated(mask, q_len, kv_len, cells=cells, choice=FIRST)
    is_formula = all(node.op != "opaque" for node in mask.mask_node.walk())
    if is_formula and work <= _LONGEST_FORMULA:
        return picture(mask, q_len, kv_len, cells=cells, most_elements=_MOST_ELEMENTS)
    rows, columns = min(q_len, _SHORT), min(kv_len, _SHORT)
    return evaluated(mask, rows, columns, cells=cells, choice=FIRST)


def _proof(proof: Proof) -> str:
    """The formula typeset, and the proof."""
    lines = str(proof).split("\n", 1)[1]
    return _page([], [_formula(latex(proof.mask)), f"<pre>{escape(lines)}</pre>"])


def _block_map(found: BlockMap) -> str:
    """The labels of up to four batch entries and heads, and their counts."""
    drawn = [pooled(labels, _CELLS) for labels in found.labels.flatten(0, 1)[:_MOST_PICTURES]]
    shape = "{} x {} x {} x {}".format(*found.labels.shape)
    evaluated = [f"{found.evaluated} blocks were evaluated"] if found.evaluated else []
    return _blocks(found, drawn, f"labels {shape} (batch, heads, rows, columns)", *evaluated)


def _segments(found: Segments) -> str:
    """The segments of up to four batch entries and heads, and their counts."""
    batches, heads, rows = found.shape
    members = range(min(batches * heads, _MOST_PICTURES))
    drawn = [pooled_segments(found, member * rows, _CELLS) for member in members]
    told = f"{len(found.first)} segments in {batches} x {heads} x {rows} rows (batch, heads, rows)"
    return _blocks(found, drawn, f"{told}, {found.nbytes} bytes")


def _blocks(
    found: BlockMap | Segments, drawn: list[tuple[torch.Tensor, int]], fact: str, *more: str
) -> str:
    """Pictures of cells, each of some blocks a side, and facts around the legend."""
    (height, width), lengths = found.block, (found.q_len, found.kv_len)
    pictures = [
        blocks_svg(cells.cpu(), (times * height, times * width), *lengths) for cells, times in drawn
    ]
    sizes = f"{found.q_len} queries, {found.kv_len} keys, blocks of {height} x {width}"
    heading = f'<div class="ma-title">{type(found).__name__}</div>'
    facts = [_soft(sizes), _soft(fact), _legend(found.counts()), *map(_soft, more)]
    return _page(pictures, [heading, *facts])


def _soft(text: str) -> str:
    return f'<div class="ma-soft">{escape(text)}</div>'


def _legend(counts: tuple[int, int, int]) -> str:
    keys = [f"{key_svg(name)} {name} {count}" for name, count in zip(NAMES, counts, strict=True)]
    return f"<div>{' &nbsp; '.join(keys)}</div>"


_DISPLAYS: Final[dict[type, Callable[[Any], str]]] = {
    Expression: _expression, Proof: _proof, BlockMap: _block_map, Segments: _segments,
}  # fmt: skip
