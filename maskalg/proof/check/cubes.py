"""Cubes: formulas as alternatives without `or`.

They are made here and not by `literals.py`: a check shares no code with the proof.
"""

from __future__ import annotations

from typing import Final

from ...formula import nodes
from ...formula.nodes import Node

MOST_CUBES: Final = 32


def cubes(node: Node, holds: bool) -> list[Node]:
    """Conjunctions of comparisons; the formula (or its negation) holds if and only if one does.

    A formula of more than `MOST_CUBES` cubes is left whole.
    """
    found = _cubes(node, holds)
    return [node if holds else nodes.negation(node)] if found is None else found


def _cubes(node: Node, holds: bool) -> list[Node] | None:
    if node.op == "const":
        return [nodes.TRUE] if bool(node.data) == holds else []
    if node.op == "not":
        return _cubes(node.args[0], not holds)
    if node.op not in ("and", "or"):
        return [node if holds else nodes.negation(node)]
    parts = [_cubes(arg, holds) for arg in node.args]
    if (node.op == "or") == holds:
        joined = None if None in parts else [cube for part in parts for cube in part or []]
        return joined if joined is not None and len(joined) <= MOST_CUBES else None
    product = [nodes.TRUE]
    for part in parts:
        if part is None or len(product) * len(part) > MOST_CUBES:
            return None
        product = [nodes.conjunction(left, right) for left in product for right in part]
    return product


def cases(cube: Node) -> list[Node]:
    """The cube split by the conditions of its `where`s: in each case, a `where` is one branch.

    The cube holds if and only if one case does. With more than `MOST_CUBES` cases it is left whole.
    """
    found, done = [cube], False
    while not done and len(found) <= MOST_CUBES:
        split = [_split(case) for case in found]
        done = all(len(parts) == 1 for parts in split)
        found = [part for parts in split for part in parts]
    return found if done else [cube]


def _split(cube: Node) -> list[Node]:
    choice = next((node for node in cube.walk() if node.op == "where"), None)
    if choice is None:
        return [cube]
    condition, then, otherwise = choice.args
    return [
        nodes.conjunction(condition, nodes.substitute(cube, {choice: then}.get)),
        nodes.conjunction(
            nodes.negation(condition), nodes.substitute(cube, {choice: otherwise}.get)
        ),
    ]
