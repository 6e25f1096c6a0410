"""Ancestors in a forest as intervals of its depth-first order."""

from __future__ import annotations

from dataclasses import dataclass

from .. import errors


@dataclass(frozen=True)
class Ancestry:
    """`a` is `b` or an ancestor of it exactly when `order[a] <= order[b] < end[a]`.

    Attributes:
        order: the place of each node in depth-first order, children in the order of their numbers.
        end: one past the place of its last descendant.
    """

    order: tuple[int, ...]
    end: tuple[int, ...]

    @property
    def in_order(self) -> bool:
        """Whether the nodes are numbered depth first, so that `order` is the number itself."""
        return self.order == tuple(range(len(self.order)))


def ancestry(call: str, parents: list[int]) -> Ancestry:
    """The depth-first intervals of a forest given by the parent of each node, negative at roots.

    Raises:
        ValueError: a parent that is not a node, or parents that go round in a circle.
    """
    count = len(parents)
    children: list[list[int]] = [[] for _ in parents]
    roots: list[int] = []
    for node, parent in enumerate(parents):
        if parent >= count:
            raise errors.parent_outside(call, node, parent, count)
        (roots if parent < 0 else children[parent]).append(node)
    order, end = [-1] * count, [-1] * count
    place = 0
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, done = stack.pop()
        if done:
            end[node] = place
            continue
        order[node] = place
        place += 1
        stack.append((node, True))
        stack.extend((child, False) for child in reversed(children[node]))
    if place < count:
        raise errors.not_a_forest(call, order.index(-1))
    return Ancestry(tuple(order), tuple(end))
