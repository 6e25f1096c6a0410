"""Biases of distances as tables: what a logarithm or a reading gives is found once a distance.

T5's buckets, KERPLE's logarithms and the like are computed for each pair otherwise, where there
are thousands of times as many pairs as distances.
"""

from __future__ import annotations

from typing import Final

from .. import nodes
from ..comparisons import POSITIONS
from ..distances import by_distance
from ..node import Node

BEYOND: Final = 256
"""Distances on either side that a tile past the last query or key may ask for."""


def with_distance_tables(formula: Node) -> Node:
    """The formula with a node `along` around each part that a table of distances may stand for."""

    def tabled(node: Node) -> Node | None:
        if node.op == "along":
            return node
        return Node("along", "real", (node,)) if _worth(node) else None

    return nodes.substitute(formula, tabled)


def _worth(node: Node) -> bool:
    """Whether a part costs to compute, and is of distances alone, for all batch entries alike."""
    told = node.kind == "real" and node.indices() >= POSITIONS and "batch" not in node.indices()
    parts = tuple(node.walk()) if told else ()
    plain = not any(part.op in ("score", "opaque", "along") for part in parts)
    return told and plain and by_distance(node) and any(map(_costs, parts))


def _costs(part: Node) -> bool:
    reads = part.op == "read" and bool(part.indices() & POSITIONS)
    return reads or part.op == "pow" or (part.op == "call" and part.data != "float")
