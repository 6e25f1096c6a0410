"""Canvases of one to three axes: coordinates of tokens, and windows that stay inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
import torch

from ....errors import MaskTypeError, MaskValueError
from ....formula import nodes
from ....formula.nodes import Node
from ....formula.parameters import Parameter, Scalar
from ....formula.printing import Label
from ...arguments import integer

Sizes = int | Sequence[int]
Flags = bool | Sequence[bool]
Leaf = tuple[Node, Parameter]  # in the formula, and as it is printed

AXES: Final = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}


@dataclass(frozen=True)
class Window:
    """`size` keys on an axis with `extent` positions, `dilation` apart (None: side by side)."""

    extent: Node
    size: Node
    dilation: Node | None = None
    causal: bool = False

    def keeps(self, q: Node, k: Node) -> Node:
        """Whether a query coordinate keeps a key coordinate."""
        if self.dilation is None:
            return self._keeps(q, k, self.extent)
        q_rest, k_rest = nodes.mod(q, self.dilation), nodes.mod(k, self.dilation)
        # Some remainders mod the dilation have one position more than others.
        fewer = nodes.floordiv(self.extent, self.dilation)
        longer = nodes.gt(nodes.mod(self.extent, self.dilation), q_rest)
        extent = nodes.where(longer, nodes.add(fewer, nodes.const(1)), fewer)
        q_step, k_step = nodes.floordiv(q, self.dilation), nodes.floordiv(k, self.dilation)
        return nodes.conjunction(nodes.eq(q_rest, k_rest), self._keeps(q_step, k_step, extent))

    def _keeps(self, q: Node, k: Node, extent: Node) -> Node:
        zero, one = nodes.const(0), nodes.const(1)
        if self.causal:
            first = nodes.maximum(nodes.add(q, one, nodes.negate(self.size)), zero)
            return nodes.conjunction(nodes.ge(k, first), nodes.ge(q, k))
        before = nodes.floordiv(self.size, nodes.const(2))
        first = nodes.minimum(
            nodes.maximum(nodes.subtract(q, before), zero), nodes.subtract(extent, self.size)
        )
        last = nodes.add(first, self.size, nodes.const(-1))
        return nodes.conjunction(nodes.ge(k, first), nodes.ge(last, k))


def inside(windows: Sequence[Window], q: Sequence[Node], k: Sequence[Node]) -> Node:
    """Whether a query keeps a key on every axis, both given by their coordinates."""
    return nodes.conjunction(*[w.keeps(a, b) for w, a, b in zip(windows, q, k, strict=True)])


def within(extent: Node, coordinate: Node) -> Node:
    """0 <= coordinate < extent."""
    return nodes.conjunction(nodes.ge(coordinate, nodes.const(0)), nodes.gt(extent, coordinate))


def row_major(extents: Sequence[Node], position: Node) -> list[Node]:
    """The coordinates of a position, the slowest first; the first one has no upper bound."""
    found: list[Node] = []
    for extent in reversed(extents[1:]):
        found.append(nodes.mod(position, extent))
        position = nodes.floordiv(position, extent)
    return [position, *reversed(found)]


def tile_major(tiles: Sequence[Node], sides: Sequence[Node], position: Node) -> list[Node]:
    """The coordinates of a position when tokens are stored tile by tile."""
    places: list[Node] = []
    for side in reversed(sides):
        places.append(nodes.mod(position, side))
        position = nodes.floordiv(position, side)
    numbers = row_major(tiles, position)
    return [
        nodes.add(nodes.mul(number, side), place)
        for number, side, place in zip(numbers, sides, reversed(places), strict=True)
    ]


def canvas(call: str, shape: Sizes) -> list[Leaf]:
    """The extents of a canvas of one to three axes, each a named number >= 1."""
    return [
        integer(call, axis, extent, low=1)
        for axis, extent in zip(AXES[rank_of(call, shape)], _listed(shape, 1), strict=True)
    ]


def tiling(call: str, shape: Sizes, tile: Sizes) -> tuple[list[Leaf], list[Leaf]]:
    """How many tiles a canvas has along each axis, and the sides of a tile; sides divide."""
    extents = canvas(call, shape)
    sides = per_axis(call, "tile", tile, len(extents))
    counts = []
    for axis, extent, side in zip(AXES[len(extents)], extents, sides, strict=True):
        if value_of(extent) % value_of(side):
            raise MaskValueError(
                f"{call}: the {axis} {value_of(extent)} of the canvas is no multiple of the tile's "
                f"{value_of(side)}. Pad the canvas to "
                f"{-(-value_of(extent) // value_of(side)) * value_of(side)}."
            )
        count = value_of(extent) // value_of(side)
        counts.append(integer(call, f"tiles_{axis}", count, low=1))
    return counts, sides


def rank_of(call: str, shape: Sizes) -> int:
    """How many axes a canvas has."""
    given = _listed(shape, 1)
    if not isinstance(given, Sequence) or len(given) not in AXES:
        raise MaskTypeError(
            f"{call}: shape must be one to three integers, the slowest axis first, got {shape!r}. "
            f"Write `{call}((height, width), …)`."
        )
    return len(given)


def per_axis(call: str, name: str, value: Sizes, rank: int) -> list[Leaf]:
    """A number >= 1 for each axis; one number serves all."""
    given = _listed(value, rank)
    if not isinstance(given, Sequence) or len(given) != rank:
        raise not_per_axis(call, name, value, rank)
    return [
        integer(call, f"{name}_{axis}", number, low=1)
        for axis, number in zip(AXES[rank], given, strict=True)
    ]


def flags(call: str, name: str, value: Flags, rank: int) -> list[bool]:
    """A truth value for each axis; one serves all."""
    given = _listed(value, rank)
    if (
        not isinstance(given, Sequence)
        or len(given) != rank
        or not all(isinstance(flag, bool) for flag in given)
    ):
        raise not_per_axis(call, name, value, rank)
    return [bool(flag) for flag in given]


def windows_on(
    call: str, extents: Sequence[Leaf], window: Sizes, dilation: Sizes = 1, causal: Flags = False
) -> tuple[list[Window], list[Label | str]]:
    """The window of each axis, and its arguments as the label prints them."""
    rank = len(extents)
    sizes = per_axis(call, "window", window, rank)
    steps = per_axis(call, "dilation", dilation, rank)
    one_way = flags(call, "causal", causal, rank)
    found = []
    for extent, size, step, ahead in zip(extents, sizes, steps, one_way, strict=True):
        if value_of(size) * value_of(step) > value_of(extent):
            far = f" {value_of(step)} apart" if value_of(step) > 1 else ""
            raise MaskValueError(
                f"{call}: {size[1].name} is {value_of(size)} keys{far}, the axis holds "
                f"{value_of(extent)}. Take at most {value_of(extent) // value_of(step)}."
            )
        apart = step[0] if value_of(step) > 1 else None
        found.append(Window(extent[0], size[0], apart, ahead))
    parts: list[Label | str] = [printed(sizes)]
    if any(value_of(step) > 1 for step in steps):
        parts.append(printed(steps))
    if any(one_way):
        parts.append(f"causal={tuple(one_way)}")
    return found, parts


def printed(leaves: Sequence[Leaf]) -> Label:
    """Numbers as a tuple in a label."""
    return Label("call", ("", *[parameter for _, parameter in leaves]))


def printed_products(counts: Sequence[Leaf], sides: Sequence[Leaf]) -> Label:
    """Extents as a tuple of products in a label."""
    products = [Label("*", (a, b)) for (_, a), (_, b) in zip(counts, sides, strict=True)]
    return Label("call", ("", *products))


def value_of(leaf: Leaf) -> int:
    return cast(int, cast(Scalar, leaf[1]).value)


def _listed(value: Sizes | Flags, rank: int) -> Sequence[int]:
    """A value for each axis: one is repeated `rank` times. A list parsed from text is a tensor."""
    if isinstance(value, (torch.Tensor, np.ndarray, np.generic)):
        value = value.tolist()
    return [value] * rank if isinstance(value, int) else value


def not_per_axis(call: str, argument: str, found: object, axes: int) -> MaskTypeError:
    return MaskTypeError(
        f"{call}: {argument} must be one value, or {axes} of them for a canvas of {axes} axes, "
        f"got {found!r}."
    )
