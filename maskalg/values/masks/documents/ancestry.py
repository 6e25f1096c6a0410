"""Ancestors in a forest as intervals of its depth-first order.

All nodes are numbered at once by pointer jumping: sums along the paths to the roots go over the
1st, 2nd, 4th, … ancestors, in about log2(depth) steps. A chain of nodes without a branch counts as
one node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from ....errors import MaskValueError
from ....formula.entries import readable


@dataclass(frozen=True, eq=False)
class Ancestry:
    """`a` is `b` or an ancestor of it exactly when `order[a] <= order[b] < end[a]`.

    Attributes:
        order: int64 `[nodes]`, the place of each node in depth-first order, children in the order
            of their numbers.
        end: int64 `[nodes]`, one past the place of its last descendant.
    """

    order: torch.Tensor
    end: torch.Tensor

    @property
    def in_order(self) -> bool:
        """Whether the nodes are numbered depth first, so that `order` is the number itself."""
        return torch.equal(self.order, torch.arange(len(self.order), device=self.order.device))


def ancestry(call: str, parents: torch.Tensor) -> Ancestry:
    """The depth-first intervals of a forest given by the parent of each node, negative at roots.

    Args:
        call: what was typed, for errors.
        parents: integers `[nodes]`. On a GPU they are not checked: a parent past the last node
            counts as none, and circles go unnoticed.

    Raises:
        ValueError: a parent that is not a node, or parents that go round in a circle.
    """
    count = len(parents)
    if not readable(parents):
        parent = torch.where((parents < 0) | (parents >= count), count, parents.long())
        order, size = _intervals(call, parent, torch.ones_like(parent), parent)
        return Ancestry(order, order + size)
    outside = (parents >= count).nonzero()
    if len(outside):
        node = int(outside[0])
        raise MaskValueError(
            f"{call}: the parent of node {node} must be one of 0 … {count - 1}, or negative for a "
            f"root, got {int(parents[node])}."
        )
    if not count:
        return Ancestry(parents.to(torch.int64), parents.to(torch.int64))
    # `count` stands for the parent of a root, from here on.
    parent = torch.where(parents < 0, count, parents.to(torch.int64))
    number = torch.arange(count, device=parent.device)
    only = torch.bincount(parent, minlength=count + 1)[parent] == 1
    follows = only & (parent == number - 1)
    chain = (~follows).cumsum(0) - 1
    first = (~follows).nonzero()[:, 0]
    length = torch.cat([first, first.new_tensor([count])]).diff()
    above = torch.cat([chain, chain.new_tensor([len(first)])])[parent[first]]
    order, size = _intervals(call, above, length, first)
    return Ancestry(order[chain] + number - first[chain], (order + size)[chain])


def _intervals(
    call: str, parent: torch.Tensor, length: torch.Tensor, named: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The start of each chain of nodes in depth-first order, and how many nodes descend from it.

    `length` is the number of nodes of each chain, `named` the node that stands for it in errors.
    """
    count = len(parent)
    length = torch.cat([length, length.new_zeros(1)])
    size = length
    for jump in _jumps(call, parent, named):
        size = size.scatter_add(0, jump, size)
        size[count] = 0
    # A chain begins after its parent and the subtrees of its earlier siblings.
    family, brothers = parent.sort(stable=True)
    before = torch.nn.functional.pad(size[brothers].cumsum(0), (1, 0))
    sons = torch.zeros_like(size).scatter_add(0, parent, torch.ones_like(parent))
    eldest = torch.nn.functional.pad(sons.cumsum(0), (1, 0))
    before = before[:-1] - before[eldest[family]]
    order = length[parent].scatter_add(0, brothers, before)
    order = torch.cat([order, order.new_zeros(1)])
    for jump in _jumps(call, parent, named):
        order = order + order[jump]
    return order[:-1], size[:-1]


def _jumps(call: str, parent: torch.Tensor, named: torch.Tensor) -> Iterator[torch.Tensor]:
    """The 1st, 2nd, 4th, … ancestor of each node; `len(parent)` stands for none."""
    count = len(parent)
    jump = torch.cat([parent, parent.new_tensor([count])])
    for _ in range(count.bit_length() + 1):
        if readable(jump) and int(jump.min()) == count:
            return
        yield jump
        jump = jump[jump]
    # After more steps than there are nodes, a node that is not past a root is on a circle.
    if readable(jump):
        raise MaskValueError(
            f"{call}: following the parents of node {int(named[jump.min()])} leads back to it. "
            "Give roots a negative parent."
        )
