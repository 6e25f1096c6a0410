"""Entries of tables of pairs, which a kernel begins to load before it needs them.

A table with an entry for each query and key is read from memory element by element. The hook
`ahead` begins to, and appends what it loads to the numbers `S`; meanwhile products are under way.
The hooks `masked_ahead` and `biased_ahead` find the entries there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .. import nodes
from ..node import Node


def is_ahead(node: Node) -> bool:
    """Whether a reading is of an entry for each query and key, at indices known from the start."""
    plain = node.op == "read" and all(index.op == "index" for index in node.args)
    return plain and nodes.Q in node.args and nodes.K in node.args


@dataclass
class Ahead:
    """What the hook `ahead` loads, in the order it was asked for.

    Attributes:
        loads: the address and condition of each load, and whether partial tiles alone need it.
    """

    loads: dict[tuple[str, str], bool] = field(default_factory=dict)

    def reading(self, address: str, condition: str, *, partial: bool) -> str:
        """Where a hook finds an entry that one of mask, which `partial` tiles look at, and bias
        reads."""
        load = (address, condition)
        self.loads[load] = partial and self.loads.get(load, True)
        # Counted from the end: how many numbers there are is not known yet.
        return f"S[-{list(self.loads).index(load) + 1}]"

    def body(self) -> tuple[str, ...]:
        """The body of the hook `ahead`."""
        found = []
        for (address, condition), partial in self.loads.items():
            known = [f"({condition})"] if condition else []
            mask = " & ".join([*known, *(["partial"] if partial else [])])
            found.append(
                f"tl.load({address}, mask={mask}, other=0)" if mask else f"tl.load({address})"
            )
        return (f"return S + ({', '.join(reversed(found))},)",)
