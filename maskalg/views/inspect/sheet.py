"""`ma.plot()`: several pictures side by side: layers, heads, or the parts of a composition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from ...errors import MaskValueError
from ...formula.expression import Expression
from .choice import Choice, parts_of
from .figure import Drawable, block_names, draw, drawable, not_to_plot, require_matplotlib
from .heat import Heat
from .palette import LIGHT
from .picture import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIDE: Final = 3.1  # inches of a picture
_LINE: Final = 0.15  # of a line of its heading or caption, beyond the first


def plot(
    expressions: Expression | Sequence[Expression],
    q_len: int,
    kv_len: int | None = None,
    *,
    parts: bool = False,
    head: int | Sequence[int] = 0,
    entry: int = 0,
    block: int | None = None,
    columns: int = 4,
    titles: Sequence[str] | None = None,
) -> list[Axes]:
    """Draw expressions side by side in one figure, each as its own `plot` method would.

        ma.plot([local_layer, global_layer], 4096)      # layers
        ma.plot(mask, 4096, head=[0, 1, 2])             # heads, with one scale of colours
        ma.plot(causal & document(ids), 4096, parts=True)  # causal, document(ids), and both

    Args:
        expressions: a mask, a bias or a score, or several of them.
        q_len: number of queries.
        kv_len: number of keys; `None` means `q_len`.
        parts: draw the parts of each expression before it: the operands of its outermost
            `&`, `|` or `~`, and the mask and the bias of a score. An expression that was bound,
            shifted, moved or pickled no longer knows its operands.
        head: the head, or several, each expression then once for each head.
        entry: the batch entry.
        block: side of a block in positions, 1 for single elements; by default the smallest power
            of two that makes at most 256 blocks a side.
        columns: most pictures in a row.
        titles: a heading for each picture; by default the expression, and the head of several.

    Returns:
        The axes, one for each picture, of a new figure.

    Raises:
        ImportError: matplotlib is not installed.
        TypeError: not an expression.
        ValueError: lengths, a batch entry or heads that the bound tensors do not have.
    """
    require_matplotlib()
    given = list(expressions) if isinstance(expressions, Iterable) else [expressions]
    for what in given:
        if not isinstance(what, Expression):
            raise not_to_plot(what)
    if parts:
        given = [part for expression in given for part in composed_of(expression)]
    several = not isinstance(head, int)
    heads = [head] if isinstance(head, int) else list(head)
    panels = [(expression, one) for expression in given for one in heads]
    if not panels:
        raise MaskValueError(
            "plot was given nothing to draw: pass an expression or a list of them."
        )
    if titles is not None and len(titles) != len(panels):
        raise MaskValueError(f"plot: {len(titles)} titles were given for {len(panels)} pictures.")
    choices = [Choice(entry, one) for one in heads]
    for choice in choices:
        choice.check("plot", *given)
    drawn = [
        drawable(what, q_len, kv_len, block, choice.within(what))
        for what in given
        for choice in choices
    ]
    headings = list(titles or (f"{what}, head {h}" if several else str(what) for what, h in panels))
    return _side_by_side(drawn, headings, columns, one_scale=several)


def composed_of(expression: Expression) -> list[Expression]:
    """The operands of the outermost operation, then the expression itself."""
    if expression.kind == "score":
        return [*parts_of(expression), expression]
    if expression.kind == "bias":
        return [expression]
    return [*_operands(expression, expression.label.kind), expression]


def _operands(mask: Expression, kind: str) -> list[Expression]:
    """The operands joined by `kind`, whatever the parentheses."""
    found: list[Expression] = []
    for operand in mask.operands:
        inner = _operands(operand, kind) if operand.label.kind == kind else []
        found += inner or [operand]
    return found


def _side_by_side(
    drawn: list[Drawable], headings: list[str], columns: int, *, one_scale: bool
) -> list[Axes]:
    from matplotlib import pyplot

    columns = max(1, min(columns, len(drawn)))
    rows = -(-len(drawn) // columns)
    figure, grid = pyplot.subplots(
        rows,
        columns,
        figsize=(_SIDE * columns, (_SIDE + 0.25) * rows + 0.3),
        squeeze=False,
        layout="constrained",
    )
    places = list(grid.flat)
    heats = [content for content in drawn if isinstance(content, Heat)]
    largest = max((content.largest for content in heats), default=0.0) if one_scale else None
    for content, heading, ax in zip(drawn, headings, places, strict=False):
        draw(content, ax, title=heading, legend=isinstance(content, Heat), largest=largest)
    for ax in places[len(drawn) :]:
        ax.set_axis_off()
    more = max(ax.get_title().count("\n") + ax.get_xlabel().count("\n") for ax in places)
    figure.set_figheight(figure.get_figheight() + rows * _LINE * more)
    _legend(figure, [content for content in drawn if isinstance(content, Picture)])
    return places[: len(drawn)]


def _legend(figure: object, shown: list[Picture]) -> None:
    """One legend for all pictures of blocks."""
    from matplotlib.patches import Patch

    names = dict.fromkeys(
        (name, label)
        for content in shown
        for label, name in enumerate(block_names(content))
        if name
    )
    handles = [
        Patch(facecolor=LIGHT[label], edgecolor="#8894a2", linewidth=0.5, label=name)
        for name, label in names
    ]
    if handles:
        cast("Any", figure).legend(
            handles=handles, loc="outside lower center", ncols=len(handles), frameon=False
        )
