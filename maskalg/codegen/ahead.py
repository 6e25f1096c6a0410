"""Entries of a bias for each pair, which a kernel starts to load before it needs them.

There are as many entries as scores. The hook `ahead` starts their loads, in the layout that reads
memory best, while products are computed. The hook `biased_ahead` gets the loaded entries after the
numbers in `S`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ..formula import nodes
from ..formula.nodes import Node

LINE: Final = 8
"""Entries that a thread loads at once; rows of other lengths are not read ahead of time."""


def is_ahead(node: Node) -> bool:
    """Whether a read is of an entry for each query and key, at indices known before the loop."""
    plain = node.op == "read" and all(index.op == "index" for index in node.args)
    return plain and nodes.Q in node.args and nodes.K in node.args


@dataclass
class Ahead:
    """The loads of the hook `ahead`, in order."""

    loads: list[str] = field(default_factory=list)

    def keep(self, load: str) -> str:
        """The name under which the hook `biased_ahead` finds a load."""
        if load not in self.loads:
            self.loads.append(load)
        # Counted from the end, since the number of numbers is not known yet.
        return f"S[-{self.loads.index(load) + 1}]"

    def body(self) -> tuple[str, ...]:
        """The body of the hook `ahead`."""
        return (f"return ({', '.join(reversed(self.loads))},)",)
