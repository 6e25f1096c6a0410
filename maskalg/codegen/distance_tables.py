"""Biases of distances as tables: logarithms and reads are computed once for each distance.

T5's buckets, KERPLE's logarithms and the like would else be computed for each pair, and there are
thousands of times as many pairs as distances.
"""

from __future__ import annotations

from typing import Final, Literal

from ..formula import nodes
from ..formula.nodes import Node
from ..formula.separation import POSITIONS, by_distance, positions

BEYOND: Final = 256
"""Distances on either side that a tile past the last query or key may ask for."""


Tabled = Literal["nothing", "reads", "costly"]


def with_distance_tables(formula: Node, which: Tabled) -> Node:
    """The formula with a node `along` around each part that a table of distances replaces."""

    def tabled(node: Node) -> Node | None:
        if node.op == "along":
            return node
        return Node("along", "real", (node,)) if _worth(node, which) else None

    return nodes.substitute(formula, tabled)


def _worth(node: Node, which: Tabled) -> bool:
    """Whether a part is costly, and depends on the distance (and head) alone."""
    told = node.kind == "real" and node.indices() >= POSITIONS and "batch" not in node.indices()
    parts = tuple(node.walk()) if told else ()
    plain = not any(part.op in ("score", "opaque", "along") for part in parts)
    costs = _reads if which == "reads" else _costs
    return told and plain and by_distance(node) and any(map(costs, parts))


def _reads(part: Node) -> bool:
    return part.op == "read" and bool(positions(part))


def _costs(part: Node) -> bool:
    return _reads(part) or part.op == "pow" or (part.op == "call" and part.data != "float")
