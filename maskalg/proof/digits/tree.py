"""The digits of positions that a formula uses: `q // c`, `q % c`, `(q // c) % d`, and so on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import cast

from ...formula import nodes
from ...formula.nodes import Node
from ...formula.parameters import Slot
from ...formula.separation import POSITIONS, Index, positions
from .forms import Axis, Leaf, Split, Tree

Path = tuple[str, ...]  # "//" and "%" from the whole position down to a part of it


class NotDigits(Exception):
    """The formula does not compare digits in pairs; another rung decides the mask."""


@dataclass(frozen=True)
class Coordinate:
    """An expression that is an axis of one side: digits at paths, most significant first."""

    side: Index
    paths: tuple[Path, ...]


@dataclass
class DigitTree:
    """The radices found in a formula, the same for queries and keys.

    `roots` holds the numbers written in digits: an index, or an index plus an offset.
    """

    roots: dict[Index, Node] = field(default_factory=dict)
    radices: dict[Path, Node] = field(default_factory=dict)

    def collect(self, formula: Node) -> None:
        """Learn the tree from every division in a formula.

        Raises:
            NotDigits: divisions that do not form one tree.
        """
        for node in formula.walk():
            if node.op in ("floordiv", "mod") and positions(node):
                self._path_of(node, learn=True)
        for index in (nodes.Q, nodes.K):
            self.roots.setdefault(cast(Index, index.data), index)

    def coordinate(self, node: Node) -> Coordinate | None:
        """The axis that a node is, or None."""
        found = self._path_of(node, learn=False)
        if found is not None:
            side, path = found
            return Coordinate(side, tuple(self._leaves_below(path)))
        if _is_gathered(node):
            return self._composite(node.args[0])
        return None

    def axis(self, paths: tuple[Path, ...]) -> Axis:
        """The axis of a coordinate, by the numbers of its digits."""
        numbers = {path: number for number, path in enumerate(self._leaves_below(()))}
        return Axis(
            tuple([numbers[path] for path in paths]),
            tuple([self._size_of(path) for path in paths[1:]]),
        )

    def axes_in(self, formula: Node) -> Iterator[tuple[Path, ...]]:
        """The axes of a formula: its largest expressions that are one."""
        found = self.coordinate(formula)
        if found is not None:
            yield found.paths
        else:
            for arg in formula.args:
                yield from self.axes_in(arg)

    def gathered(self, formula: Node) -> Node:
        """The formula with each sum `a * c + b` that is one coordinate kept together."""

        def gather(node: Node) -> Node | None:
            if _is_gathered(node):
                return node
            if node.op != "add":
                return None
            return self._gathered_sum([nodes.substitute(term, gather) for term in node.args])

        return nodes.substitute(formula, gather)

    def _gathered_sum(self, terms: list[Node]) -> Node:
        for i, j in combinations(range(len(terms)), 2):
            for sign in (1, -1):
                pair = [nodes.mul(nodes.const(sign), terms[place]) for place in (i, j)]
                whole = nodes.add(*pair)
                if self._composite(whole) is not None:
                    # A quotient by one is not merged with the sum around it.
                    kept = Node("floordiv", "int", (whole, nodes.const(1)))
                    rest = [term for place, term in enumerate(terms) if place not in (i, j)]
                    return self._gathered_sum([*rest, nodes.mul(nodes.const(sign), kept)])
        return nodes.add(*terms)

    def plain(self, formula: Node) -> Node:
        """A formula on one axis, with q and k in place of its coordinates."""

        def rename(node: Node) -> Node | None:
            found = None if node.op == "index" else self.coordinate(node)
            if found is None:
                return None
            return nodes.Q if found.side == "q_idx" else nodes.K

        return nodes.substitute(formula, rename)

    def quotient(self, number: Node) -> tuple[Index, Node, Node] | None:
        """Index, unit and offset of a number of the form `(index + offset) // unit`, or None."""
        if number.op == "index" and number.data in POSITIONS:
            return cast(Index, number.data), nodes.const(1), nodes.const(0)
        found = self._path_of(number, learn=False)
        if found is None or "%" in found[1]:
            return None
        side, path = found
        units = [self.radices[path[:depth]] for depth in range(len(path))]
        return side, nodes.mul(nodes.const(1), *units), self.offset(side)

    def tree(self) -> Tree:
        """The tree with its digits numbered."""
        numbers = {path: number for number, path in enumerate(self._leaves_below(()))}

        def build(path: Path) -> Tree:
            if path not in self.radices:
                return Leaf(numbers[path])
            return Split(self.radices[path], build((*path, "//")), build((*path, "%")))

        return build(())

    def offset(self, side: Index) -> Node:
        """The offset of a side's index before it is written in digits."""
        root = self.roots[side]
        if root.op == "index":
            return nodes.const(0)
        return nodes.add(*[term for term in root.args if not positions(term)])

    def may_be_negative(self, path: Path) -> bool:
        """Whether a digit can be negative: only the top one, if an offset moves it."""
        return "%" not in path and any(root.op != "index" for root in self.roots.values())

    def _leaves_below(self, path: Path) -> list[Path]:
        if path not in self.radices:
            return [path]
        return self._leaves_below((*path, "//")) + self._leaves_below((*path, "%"))

    def _size_of(self, path: Path) -> Node:
        """How many values a part has: all numbers below that occur, whatever the parts above are.

        Raises:
            NotDigits: the top digit, or a part whose range depends on the parts above.
        """
        if not path:
            raise NotDigits("the top digit behind others")
        above, radix = path[:-1], self.radices[path[:-1]]
        if path[-1] == "%" and "%" not in above:
            return radix
        quotient = _quotient(self._size_of(above), radix)
        return radix if path[-1] == "%" else quotient

    def _path_of(self, node: Node, *, learn: bool) -> tuple[Index, Path] | None:
        if node.op in ("floordiv", "mod"):
            found = self._path_of(node.args[0], learn=learn)
            if found is None:
                return None
            side, path = found
            radix = node.args[1]
            if learn:
                _check_radix(radix)
                if self.radices.setdefault(path, radix) != radix:
                    raise NotDigits("a position divided by different numbers")
            return side, (*path, "//" if node.op == "floordiv" else "%")
        indices = positions(node)
        if len(indices) != 1:
            if learn:
                raise NotDigits("a division of what is not one position")
            return None
        side = cast(Index, next(iter(indices)))
        if learn:
            if not _is_root(node) or self.roots.setdefault(side, node) != node:
                raise NotDigits("a division of what is not one position")
            return side, ()
        return (side, ()) if node == self.roots[side] else None

    def _composite(self, node: Node) -> Coordinate | None:
        """`a * c + b`, where b is a digit with c values."""
        if node.op != "add" or len(node.args) != 2:
            return None
        for scaled, low in (node.args, node.args[::-1]):
            minor = self.coordinate(low)
            if minor is None or len(minor.paths) != 1:
                continue
            try:
                rest = _quotient(scaled, self._size_of(minor.paths[0]))
            except NotDigits:
                continue
            major = self.coordinate(rest)
            if major is None or major.side != minor.side:
                continue
            paths = major.paths + minor.paths
            # An interval of positions is one of these numbers only if the digits are in order.
            if sorted(paths, key=self._leaves_below(()).index) == list(paths):
                return Coordinate(major.side, paths)
        return None


def _quotient(product: Node, divisor: Node) -> Node:
    """The quotient of a product by some of its factors, `divisor`.

    Raises:
        NotDigits: `divisor` has other factors.
    """
    number, rest = factors(product)
    least, gone = factors(divisor)
    for factor in gone:
        if factor not in rest:
            raise NotDigits("a radix that is no multiple of the one below")
        rest.remove(factor)
    if number % least:
        raise NotDigits("a radix that is no multiple of the one below")
    return nodes.mul(nodes.const(number // least), *rest)


def factors(product: Node) -> tuple[int, list[Node]]:
    """A product as its constant and its other factors."""
    number, rest = 1, []
    for factor in product.args if product.op == "mul" else (product,):
        if factor.op == "const":
            number *= cast(int, factor.data)
        else:
            rest.append(factor)
    return number, rest


def _is_gathered(node: Node) -> bool:
    return node.op == "floordiv" and node.args[1] == nodes.const(1)


def _is_root(node: Node) -> bool:
    """Whether a number is an index, or an index plus an offset that no position changes."""
    if node.op == "index":
        return True
    return (
        node.op == "add"
        and sum(bool(positions(arg)) for arg in node.args) == 1
        and (any(arg in (nodes.Q, nodes.K) for arg in node.args))
    )


def _check_radix(radix: Node) -> None:
    """Radices are positive numbers, the same for every batch entry and head."""
    if radix.op == "const" and cast(int, radix.data) >= 1:
        return
    slot = radix.own[0] if radix.op == "scalar" else None
    if isinstance(slot, Slot) and slot.low is not None and slot.low >= 1:
        return
    if radix.op == "mul":
        for factor in radix.args:
            _check_radix(factor)
        return
    raise NotDigits("a divisor that is not a positive number")
