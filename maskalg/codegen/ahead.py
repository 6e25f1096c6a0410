"""Entries of a bias for each pair, which a kernel begins to load before it needs them.

They are as many as scores. The hook `ahead` begins to load them, in whatever layout memory is read
best; meanwhile products are under way. The hook `biased_ahead` finds what it returned behind the
numbers `S`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ..formula import nodes
from ..formula.nodes import Node

LINE: Final = 8
"""Entries that a thread loads at once; rows of other lengths are not read ahead of time."""


def is_ahead(node: Node) -> bool:
    """Whether a reading is of an entry for each query and key, at indices known from the start."""
    plain = node.op == "read" and all(index.op == "index" for index in node.args)
    return plain and nodes.Q in node.args and nodes.K in node.args


@dataclass
class Ahead:
    """Loads of the hook `ahead`, in the order they were asked for."""

    loads: list[str] = field(default_factory=list)

    def keep(self, load: str) -> str:
        """The name under which the hook `biased_ahead` finds a load."""
        if load not in self.loads:
            self.loads.append(load)
        # Counted from the end: how many numbers there are is not known yet.
        return f"S[-{self.loads.index(load) + 1}]"

    def body(self) -> tuple[str, ...]:
        """The body of the hook `ahead`."""
        return (f"return ({', '.join(reversed(self.loads))},)",)
