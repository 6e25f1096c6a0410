"""The two patterns of attention heads in video models: within frames, and across them."""

from __future__ import annotations

from collections.abc import Callable

from ....formula import nodes
from ....formula.nodes import SCORE, K, Node, Q
from ....formula.printing import called
from ...algebra import Mask
from ...arguments import integer, shown
from ...by_hand import Bools, pairs

__all__ = ["spatial", "temporal"]


def spatial(frame: int, reach: int = 0) -> Mask:
    """|q // frame - k // frame| <= reach: attention within a frame, and frames next to it.

    Args:
        frame: tokens of a frame, >= 1; frames are stored one after the other.
        reach: frames before and after the query's own that are kept too, >= 0.

    `where(head % 2 == 0, spatial(n), temporal(n))` chooses by head.

    Source: spatial heads of Sparse VideoGen (Xi et al., 2025).
    """
    return _near("spatial", nodes.floordiv, frame, reach)


def temporal(frame: int, reach: int = 0) -> Mask:
    """|q % frame - k % frame| <= reach: attention to the same place in every frame.

    Args:
        frame: tokens of a frame, >= 1; frames are stored one after the other.
        reach: tokens of a frame before and after the query's place that are kept too, >= 0.

    Source: temporal heads of Sparse VideoGen (Xi et al., 2025).
    """
    return _near("temporal", nodes.mod, frame, reach)


def _near(name: str, part: Callable[[Node, Node], Node], frame: int, reach: int) -> Mask:
    """Pairs whose parts, by the size of a frame, are at most `reach` apart."""
    call = f"{name}({shown(frame)}, {shown(reach)})"
    size, printed = integer(call, "frame", frame, low=1)
    limit, printed_limit = integer(call, "reach", reach, low=0)
    q, k = part(Q, size), part(K, size)
    node = nodes.conjunction(
        nodes.ge(limit, nodes.subtract(q, k)), nodes.ge(limit, nodes.subtract(k, q))
    )
    return Mask(node, SCORE, called(name, printed, printed_limit))


# The second definition, and the rows of the catalogue.


def spatial_by_hand(frame: int, reach: int = 0, **at: int) -> Bools:
    """Frames at most `reach` apart."""
    return pairs(lambda b, h, q, k: abs(q // frame - k // frame) <= reach, **at)


def temporal_by_hand(frame: int, reach: int = 0, **at: int) -> Bools:
    """Places in their frames at most `reach` apart."""
    return pairs(lambda b, h, q, k: abs(q % frame - k % frame) <= reach, **at)
