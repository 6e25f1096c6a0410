"""Values of a traced function: formulas, and rows of formulas such as `table[q_idx]`.

FlexAttention calls its functions with indices that are single numbers, so a value has dimensions
only where a captured tensor was not indexed along all of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, cast

import torch

from ..errors import MaskTypeError, MaskValueError
from ..formula import nodes
from ..formula.nodes import Node
from ..formula.parameters import Kind, Table
from . import messages
from .bounds import Bounds

Entry = Callable[[tuple[Node, ...]], Node]

# Sums and products over rows are written out; longer ones make no kernel.
_LONGEST_ROW: Final = 128


@dataclass(frozen=True)
class Array:
    """Formulas at integer indices below `shape`; a single formula where the shape is empty."""

    shape: tuple[int, ...]
    entry: Entry

    @property
    def kind(self) -> Kind:
        return self.any_node.kind

    @property
    def any_node(self) -> Node:
        """One of the formulas."""
        return self.entry(tuple(nodes.const(0) for _ in self.shape))

    @property
    def node(self) -> Node:
        assert not self.shape
        return self.entry(())

    def entries(self) -> list[Node]:
        """All formulas, in order of their indices."""
        count = 1
        for size in self.shape:
            count *= size
        if count > _LONGEST_ROW:
            raise MaskValueError(
                f"a row of shape {list(self.shape)} is reduced entry by entry, which rows of up to "
                f"{_LONGEST_ROW} entries allow. Compute it before, {messages.OPAQUE}."
            )
        places = product(*[range(size) for size in self.shape])
        return [self.entry(tuple(nodes.const(i) for i in place)) for place in places]


def single(node: Node) -> Array:
    return Array((), lambda at: node)


def of_table(table: Table, bounds: Bounds) -> Array:
    """A captured tensor; a negative index counts from the end, as in torch."""
    bounds.check_exact(table)

    def entry(at: tuple[Node, ...]) -> Node:
        for axis, index in enumerate(at):
            bounds.check_place(table, axis, index)
        ends = [nodes.add(index, nodes.extent(table, axis)) for axis, index in enumerate(at)]
        whole = [_counted(index, index, end, bounds) for index, end in zip(at, ends, strict=True)]
        return nodes.read(table, *whole)

    return Array(tuple(table.tensor.shape), entry)


def _counted(index: Node, from_start: Node, from_end: Node, bounds: Bounds | None) -> Node:
    """The place of an index, counted from the end if the index is negative."""
    if index.op == "const":
        return from_start if cast(int, index.data) >= 0 else from_end
    assert bounds is not None
    if bounds.never_negative(index):
        return from_start
    return nodes.where(nodes.ge(index, nodes.const(0)), from_start, from_end)


def elementwise(rule: Callable[..., Node], *arrays: Array) -> Array:
    """`rule` at each place of the broadcast arrays."""
    shape = tuple(torch.broadcast_shapes(*[array.shape for array in arrays]))

    def entry(at: tuple[Node, ...]) -> Node:
        return rule(*[array.entry(_narrowed(at, array.shape)) for array in arrays])

    return Array(shape, entry)


def _narrowed(at: tuple[Node, ...], shape: tuple[int, ...]) -> tuple[Node, ...]:
    own = at[len(at) - len(shape) :]
    zero = nodes.const(0)
    return tuple(zero if size == 1 else index for index, size in zip(own, shape, strict=True))


def indexed(array: Array, places: Sequence[Any], bounds: Bounds | None = None) -> Array:
    """`array[places]`: formulas, slices, None and an ellipsis.

    `bounds` tells whether an index into a slice may be negative, and so count from its end.
    """
    plain = [place for place in places if place is not None and place is not ...]
    if len(plain) > len(array.shape):
        raise MaskTypeError(f"a tensor of shape {list(array.shape)} is given {len(plain)} indices.")
    whole = [slice(None)] * (len(array.shape) - len(plain))
    at = next((i for i, place in enumerate(places) if place is ...), None)
    full = [*places, *whole] if at is None else [*places[:at], *whole, *places[at + 1 :]]
    shape: list[int] = []
    # For each dimension of `array`: a formula, or the place among the new indices and the slice.
    sources: list[Node | tuple[int, slice]] = []
    axis = 0
    for place in full:
        if place is None:
            shape.append(1)
            continue
        if isinstance(place, slice):
            start, stop, step = place.indices(array.shape[axis])
            if step != 1:
                raise messages.untraceable("a slice with a step")
            whole_axis = (start, stop) == (0, array.shape[axis])
            sources.append((len(shape), slice(None) if whole_axis else slice(start, stop)))
            shape.append(max(stop - start, 0))
        else:
            sources.append(place)
        axis += 1

    def entry(new: tuple[Node, ...]) -> Node:
        return array.entry(
            tuple(
                source if isinstance(source, Node) else _in_slice(new[source[0]], source[1], bounds)
                for source in sources
            )
        )

    return Array(tuple(shape), entry)


def _in_slice(index: Node, part: slice, bounds: Bounds | None) -> Node:
    """The index into a dimension for an index into its slice; negative ones count from the end."""
    if part == slice(None):
        return index
    from_start, from_end = (nodes.add(index, nodes.const(n)) for n in (part.start, part.stop))
    return _counted(index, from_start, from_end, bounds)


def unsqueezed(array: Array, dim: int) -> Array:
    place = dim % (len(array.shape) + 1)
    return indexed(array, [slice(None)] * place + [None])


def squeezed(array: Array, dim: int | None = None) -> Array:
    axes = range(len(array.shape)) if dim is None else [dim % max(len(array.shape), 1)]
    one = [axis for axis in axes if axis < len(array.shape) and array.shape[axis] == 1]
    whole = range(len(array.shape))
    return indexed(array, [nodes.const(0) if axis in one else slice(None) for axis in whole])


def reduced(
    join: Callable[..., Node], array: Array, dim: int | None = None, keepdim: bool = False
) -> Array:
    """`join` of all entries, or of those along one dimension."""
    if dim is None or not array.shape:
        return single(join(*array.entries()))
    axis = dim % len(array.shape)
    shape = array.shape[:axis] + array.shape[axis + 1 :]

    def entry(at: tuple[Node, ...]) -> Node:
        line = indexed(array, [*at[:axis], slice(None), *at[axis:]])
        return join(*line.entries())

    result = Array(shape, entry)
    return unsqueezed(result, axis) if keepdim else result
