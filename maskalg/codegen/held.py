"""Values of one side alone that element hooks read, computed once before a kernel's loop.

A kernel that loops over keys holds a tile of queries; one that loops over queries, for gradients of
keys, holds a tile of keys. The hook `hold` computes reads and bounds that do not depend on the
loop's index and appends them to the tables `T`, where the hooks in the loop find them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..formula.nodes import Node
from ..formula.separation import Index
from .text.triton import TritonText


@dataclass
class Held:
    """The values kept while the index `moving` runs, in order.

    Attributes:
        moving: the index the loop runs over.
        text: prints the values in the hook `hold`, whose `scale` is the factor of q . k.
        near: whether sums of positions and numbers are below 2**22.
    """

    moving: Index
    text: TritonText
    near: bool
    _values: list[str] = field(default_factory=list)

    def exactly(self) -> Held:
        """The same values, printed as masks are."""
        return replace(self, text=self.text.exactly())

    def fixed(self, node: Node) -> bool:
        """Whether a formula is the same at every step."""
        return self.moving not in node.indices() and all(
            part.op not in ("score", "opaque") for part in node.walk()
        )

    def reading(self, node: Node) -> str | None:
        """The name of a read that is the same at every step; None for other reads."""
        return None if self.moving in node.indices() else self.keep(self.text(node))

    def keep(self, value: str) -> str:
        """The name under which a hook finds a value, given as `text` printed it."""
        if value not in self._values:
            self._values.append(value)
        # Counted from the end, since the number of tables is not known yet.
        return f"T[-{self._values.index(value) + 1}]"

    def body(self, unit: str) -> tuple[str, ...]:
        """The body of the hook `hold`, which also returns the unit of biased scores."""
        if not self._values:
            return (f"return T, {unit}",)
        return (*self.text.lines, f"return T + ({', '.join(reversed(self._values))},), {unit}")
