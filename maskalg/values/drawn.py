"""Pictures that masks, biases and scores share, and the operators that they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ..errors import MaskTypeError
from ..formula.expression import Expression
from ..formula.watched import asked
from . import messages
from .in_torch import InTorch
from .messages import refusing

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def not_joined(left: object, sign: str, right: object) -> MaskTypeError | None:
    """The error for operands that `&`, `|` or `^` do not join; None for foreign types."""
    for expression, other in ((left, right), (right, left)):
        if isinstance(expression, Expression) and not isinstance(other, Expression):
            return messages.no_mask(left, sign, right, other, expression.kind)
    if sign == "&":
        return messages.mask_and_bias(left, right)
    return messages.joined_with_bias(left, sign, right)


class Drawn(InTorch, Expression):
    """An expression that draws itself; the code of pictures is imported when one is drawn.

    `&`, `|` and `^` are refused here; `Mask` defines them.
    """

    if not TYPE_CHECKING:  # type checkers report missing operators themselves
        __and__, __rand__ = refusing(not_joined, "&")
        __or__, __ror__ = refusing(not_joined, "|")
        __xor__, __rxor__ = refusing(not_joined, "^")
        __lt__, __gt__ = refusing(messages.compared, "<")[0], refusing(messages.compared, ">")[0]
        __le__, __ge__ = refusing(messages.compared, "<=")[0], refusing(messages.compared, ">=")[0]

    @asked
    def plot(
        self,
        q_len: int,
        kv_len: int | None = None,
        *,
        block: int | None = None,
        entry: int = 0,
        head: int = 0,
        ax: Axes | None = None,
        title: str | None = None,
        legend: bool = True,
    ) -> Axes:
        """Draw on matplotlib axes; `ma.plot` draws several expressions side by side.

        A mask is drawn as its empty, partial and full blocks, or with `block=1` as its dropped and
        kept elements. A bias or a score is drawn as a heat map of the number added to a score;
        dropped elements are grey. If it is not a sum, the map shows the result for a score of 1,
        and if it is the same everywhere, as `softcap` is, a curve is drawn. Queries run down, keys
        to the right.

        Args:
            q_len: number of queries.
            kv_len: number of keys; `None` means `q_len`.
            block: side of a block in positions, 1 for single elements; by default the smallest
                power of two that makes at most 256 blocks a side.
            entry: the batch entry to draw, if the expression depends on it.
            head: the head to draw, if the expression depends on it.
            ax: axes to draw on; by default those of a new figure.
            title: the heading; by default the expression.
            legend: whether to explain the colours beside the picture.

        Returns:
            The axes.

        Raises:
            ImportError: matplotlib is not installed.
            ValueError: lengths, a batch entry or a head that the bound tensors do not have.
        """
        from ..views.inspect.choice import Choice
        from ..views.inspect.figure import draw, drawable, require_matplotlib

        require_matplotlib()
        content = drawable(self, q_len, kv_len, block, Choice(entry, head))
        return draw(content, ax, title=title, legend=legend, largest=None)

    @asked
    def explore(
        self,
        q_len: int,
        kv_len: int | None = None,
        *,
        path: str | Path,
        batch: int | None = None,
        heads: int | None = None,
    ) -> Path:
        """Write an HTML page in which to pan, zoom, read the proof's reasons and change parameters.

        The page is one file below 5 MB that needs no network. It computes labels, elements and the
        values of a bias itself, from the closed forms, the formulas and the bound tensors, which
        it holds compressed.

        Args:
            q_len: number of queries; up to a million and more.
            kv_len: number of keys; None means `q_len`.
            batch: batch entries, as in `blocks`.
            heads: heads, as in `blocks`.
            path: the file to write, such as "mask.html".

        Returns:
            The path that was written.

        Raises:
            MaskTypeError: a bias that is the same everywhere, such as `softcap`.
            MaskValueError: what `blocks` raises, tensors too large for a page, a formula a page
                cannot compute (`opaque=True`), or a path that cannot be written.
        """
        from ..views.explore import explore

        return explore(self, q_len, kv_len, path=path, batch=batch, heads=heads)

    def _repr_latex_(self) -> str | None:
        """The formula as LaTeX, for viewers that show no HTML."""
        from ..views.notebook.notebook import expression_math

        return expression_math(self)


class WithMask(Drawn):
    """A mask or a score: it shows blocks, and refuses arithmetic."""

    @asked
    def show(
        self,
        q_len: int,
        kv_len: int | None = None,
        *,
        width: int = 64,
        block: int = 128,
        entry: int = 0,
        head: int = 0,
    ) -> None:
        """Print a picture of the empty, partial and full blocks, and the work they save.

        `width` is the largest number of columns of the picture, `block` the side of the blocks
        that are counted (doubled while there are more than 65,536 rows of them). `entry` and
        `head` choose the batch entry and the head, if the mask depends on them. `plot` draws a
        bias too.
        """
        from ..views.inspect.terminal import show

        show(self, q_len, kv_len, width=width, block=block, entry=entry, head=head)

    def __neg__(self) -> NoReturn:
        raise MaskTypeError(f"`-({self!r})`: a mask is no number. Write `~mask` for all it drops.")

    def __rsub__(self, other: NoReturn) -> NoReturn:
        raise MaskTypeError(
            f"`{other!r} - ({self!r})`: a mask is no number. Write `~mask` for all it drops."
        )

    if not TYPE_CHECKING:
        __mul__, __rmul__ = refusing(messages.times_mask, "*")
        __truediv__, __rtruediv__ = refusing(messages.times_mask, "/")
        __floordiv__, __rfloordiv__ = refusing(messages.times_mask, "//")
        __mod__, __rmod__ = refusing(messages.times_mask, "%")
        __pow__, __rpow__ = refusing(messages.times_mask, "**")
        __matmul__, __rmatmul__ = refusing(messages.nested_mask, "@")
