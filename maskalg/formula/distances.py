"""Whether a formula depends on q and k through their distance alone."""

from __future__ import annotations

from typing import cast

from . import nodes
from .node import Node

_COMPARISONS = ("ge", "gt", "eq")


def by_distance(node: Node) -> bool:
    """Whether the value stays when q and k move together; False where that is not seen."""
    if node.op == "index":
        return node.data not in ("q_idx", "kv_idx")
    if node.op in _COMPARISONS and not any(arg.kind == "bool" for arg in node.args):
        return by_distance(nodes.subtract(*node.args))
    if node.op == "add" and node.kind == "int":
        terms = [_multiple(term) for term in node.args]
        moved = sum(times for times, index in terms if index in ("q_idx", "kv_idx"))
        others = [arg for arg, (_, index) in zip(node.args, terms, strict=True) if not index]
        return moved == 0 and all(by_distance(arg) for arg in others)
    return all(by_distance(arg) for arg in node.args)


def _multiple(term: Node) -> tuple[int, str]:
    """`term` as a multiple of q or k, else (0, "")."""
    if term.op == "index":
        return 1, cast(str, term.data)
    if term.op == "mul" and len(term.args) == 2:
        index = [arg for arg in term.args if arg.op == "index"]
        times = [arg for arg in term.args if arg.op == "const" and arg.kind == "int"]
        if index and times:
            return cast(int, times[0].data), cast(str, index[0].data)
    return 0, ""
