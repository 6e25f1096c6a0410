"""`mask.plot()`: an expression on matplotlib axes, as blocks or as a heat map.

matplotlib is imported when something is drawn; `pip install 'maskalg[plot]'` brings it.
"""

from __future__ import annotations

import importlib.util
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final, cast

import torch

from ...engine.evaluate import Environment, evaluate
from ...engine.normal_form import bound
from ...errors import MaskTypeError, MissingPackageError
from ...formula.expression import Expression
from ...schedule.tile_runs import EMPTY, FULL
from .choice import Choice, parts_of
from .heat import Heat, heat, is_curve
from .palette import DIVERGING, DROPPED, LIGHT, NAMES
from .picture import Picture, picture
from .terminal import percent, size_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS: Final = 201


def draw_curve(bias: Expression, ax: Axes) -> None:
    """The score after the bias over the score before, for the first batch entry and head.

    Scores run from minus to plus three times the largest number bound to the bias.
    """
    numbers = [abs(value) for value in bias.parameters.values() if isinstance(value, (int, float))]
    reach = 3.0 * max(numbers, default=0.0) or 5.0
    scores = torch.linspace(-reach, reach, _POINTS, dtype=torch.float64)
    form = bound(bias.to("cpu"))
    nowhere = {name: torch.tensor(0) for name in ("batch", "head", "q_idx", "kv_idx")}
    values = evaluate(form.structure.bias, Environment(nowhere, form.values, scores))
    ax.plot(scores.numpy(), scores.numpy(), color="#aab4c0", linewidth=0.8, linestyle="dashed")
    ax.plot(scores.numpy(), values.detach().expand(_POINTS).numpy(), color=LIGHT[2])
    ax.set_xlabel("score", size="small")
    ax.set_ylabel("score with the bias", size="small")
    ax.set_box_aspect(1)
    ax.tick_params(labelsize="small")


CELLS: Final = 256
_MOST_LINES: Final = 40
_POINT: Final = 72  # points an inch


Drawable = Picture | Heat | Expression


def require_matplotlib() -> None:
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingPackageError(
            "plot needs matplotlib, which is not installed: pip install 'maskalg[plot]'"
        )


def drawable(
    expression: object, q_len: int, kv_len: int | None, block: int | None, choice: Choice
) -> Drawable:
    """The drawing of an expression: blocks, values, or a bias that is one curve."""
    if not isinstance(expression, Expression):
        raise not_to_plot(expression)
    choice.check("plot", expression)
    if expression.kind == "mask":
        return picture(expression, q_len, kv_len, cells=CELLS, block=block, choice=choice)
    if is_curve(expression):
        return expression
    values = heat(expression, q_len, kv_len, cells=CELLS, block=block, choice=choice)
    if expression.kind == "bias":
        return values
    return values.where_kept(
        picture(
            parts_of(expression)[0], q_len, kv_len, cells=CELLS, block=values.block, choice=choice
        )
    )


def draw(
    content: Drawable, ax: Axes | None, *, title: str | None, legend: bool, largest: float | None
) -> Axes:
    """Draw on the axes, or on those of a new figure."""
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.subplots(figsize=(5.2, 5.2), layout="constrained")[1]
    heading = title or str(content if isinstance(content, Expression) else content.title)
    _title(ax, heading)
    if isinstance(content, Expression):
        draw_curve(content, ax)
    elif isinstance(content, Heat):
        _draw_values(content, ax, legend=legend, largest=largest)
    else:
        _draw_blocks(content, ax, legend=legend)
    return ax


def _draw_blocks(shown: Picture, ax: Axes, *, legend: bool) -> None:
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    _image(ax, shown, shown.labels.numpy(), cmap=ListedColormap(LIGHT), vmin=EMPTY, vmax=FULL)
    if not legend:
        _caption(ax, ". ".join([f"{percent(shown.empty_share)} empty", *shown.notes]))
        return
    handles = [
        Patch(facecolor=LIGHT[label], edgecolor="#8894a2", linewidth=0.5, label=f"{name} {count}")
        for label, (name, count) in enumerate(zip(block_names(shown), shown.counts(), strict=True))
        if name
    ]
    text = ". ".join([size_text(shown), *shown.notes])
    _below(ax, handles, text)


def block_names(shown: Picture) -> tuple[str, str, str]:
    """Names of the three labels; blocks of one element are never partial."""
    return ("dropped", "", "kept") if shown.block == 1 else NAMES


def _draw_values(shown: Heat, ax: Axes, *, legend: bool, largest: float | None) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("maskalg", DIVERGING).with_extremes(bad=DROPPED)
    limit = (shown.largest if largest is None else largest) or 1.0
    image = _image(ax, shown, shown.values.numpy(), cmap=colours, vmin=-limit, vmax=limit)
    if legend:
        figure = cast("Any", ax.figure)
        bar = figure.colorbar(image, ax=ax, shrink=0.7, pad=0.03)
        bar.outline.set_linewidth(0.5)
        _caption(ax, ". ".join(shown.notes))


def _caption(ax: Axes, text: str) -> None:
    """A sentence under the picture, wrapped to the picture's width."""
    if text:
        # Half of the font size is the width of a character, more or less.
        ax.set_xlabel(fill(text, max(20, int(0.75 * _width(ax) / 4.2))), size="small")


def _below(ax: Axes, handles: list[Any], text: str) -> None:
    """The legend under the picture, and a sentence."""
    ax.legend(
        handles=handles,
        title=fill(text, 68),
        title_fontsize="small",
        loc="upper center",
        bbox_to_anchor=(0.5, -0.01),
        ncols=3,
        frameon=False,
    )


def _image(ax: Axes, shown: Picture | Heat, values: Any, **options: Any) -> Any:
    """The matrix as an image in positions, with ticks and lines at the boundaries of blocks."""
    block, (rows, columns) = shown.block, values.shape
    extent = (0, max(columns, 1) * block, max(rows, 1) * block, 0)
    # The image is kept as it is: viewers of vector formats enlarge it without blurring.
    image = ax.imshow(values, extent=extent, interpolation="none", aspect="equal", **options)
    ax.set_xlim(0, max(shown.kv_len, 1))
    ax.set_ylim(max(shown.q_len, 1), 0)
    ax.xaxis.set_ticks_position("top")
    ax.xaxis.set_label_position("bottom")
    most = 8 if _width(ax) > 3 * _POINT else 4
    for axis, length in ((ax.xaxis, shown.kv_len), (ax.yaxis, shown.q_len)):
        axis.set_ticks(ticks(length, block, most))
        axis.set_tick_params(labelsize="small", length=3)
    if isinstance(shown, Picture) and block > 1 and max(rows, columns) <= _MOST_LINES:
        ax.vlines(range(block, shown.kv_len, block), 0, shown.q_len, color="white", lw=0.4)
        ax.hlines(range(block, shown.q_len, block), 0, shown.kv_len, color="white", lw=0.4)
    for spine in ax.spines.values():
        spine.set_linewidth(0.6)
    return image


def ticks(length: int, block: int, most: int) -> list[int]:
    """Positions at boundaries of blocks, from 0 on, at most `most` steps apart."""
    blocks = -(-length // block)
    step = 1
    while step * most < blocks:
        step *= 2
    return list(range(0, length + 1, step * block))


def _width(ax: Axes) -> float:
    """The width of the axes in points, before a legend or a bar of colours takes some of it."""
    return _POINT * float(ax.get_window_extent().width) / float(ax.figure.dpi)


def _title(ax: Axes, heading: str) -> None:
    """The heading, small enough for the picture, in as many lines as it needs."""
    # A character of a monospaced font is 0.6 of the font size wide.
    widest = 1.15 * _width(ax) / 0.6
    size = max(7.0, min(10.0, widest / max(len(heading), 1)))
    ax.set_title(fill(heading, int(widest / size)), family="monospace", size=size)


def not_to_plot(what: object) -> MaskTypeError:
    return MaskTypeError(
        f"plot draws masks, biases and scores, got {what!r} of type {type(what).__name__}. A "
        "comparison of index expressions is a mask, `ma.bias(expression)` a bias."
    )
