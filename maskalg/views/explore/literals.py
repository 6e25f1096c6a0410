"""The literals of a mask, each with its text, and how `&`, `|` and `~` join them."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...formula.nodes import Node
from .closed_forms import template
from .javascript import JavaScript
from .ranges import truth


@dataclass
class Literals:
    """The literals met so far: as JavaScript, and as what a reader is shown."""

    js: JavaScript
    scripts: list[str] = field(default_factory=list)
    shown: list[dict[str, object]] = field(default_factory=list)
    known: dict[Node, int] = field(default_factory=dict)

    def tree(self, node: Node) -> object:
        """The formula as `["and", …]`, `["or", …]`, `["not", x]`, with numbers of literals."""
        if node.op in ("and", "or", "not"):
            return [node.op, *map(self.tree, node.args)]
        if node not in self.known:
            self.known[node] = len(self.scripts)
            written = template(node, self.js)
            self.shown.append(written.shown())
            self.scripts.append(
                f"{{at: (q, k) => {self.js(node)}, "
                f"over: (q0, q1, k0, k1) => {truth(node, self.js)}, "
                f"values: (q, k) => [{', '.join(written.values)}]}}"
            )
        return self.known[node]

    def script(self) -> str:
        return f"[{', '.join(self.scripts)}]"
