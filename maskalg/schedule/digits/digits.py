"""Positions as digits, with numbers for the radices: intervals as boxes, and search in a box.

Everything works on many positions at once. A box holds an interval for each digit, `low` and
`high` of shape `[boxes, digits]`, both ends included, and stands for the numbers with all digits
inside.
"""

from __future__ import annotations

from itertools import product
from typing import Final

import torch

from ...engine.evaluate import Environment, evaluate
from ...engine.normal_form import Value
from ...formula.nodes import Node
from ...proof.digits.forms import Axis, Leaf, Numeral, Split, Tree

FAR: Final = 1 << 40  # beyond every position, and small enough to be added to

Digits = dict[int, tuple[torch.Tensor, torch.Tensor]]  # low and high of some digits
Piece = tuple[Digits, torch.Tensor]  # and whether it holds anything


def numeral(tree: Tree, values: tuple[Value, ...]) -> Numeral:
    """A tree of digits with its radices as numbers."""
    if isinstance(tree, Leaf):
        return tree
    return Split(
        number(tree.radix, values), numeral(tree.major, values), numeral(tree.minor, values)
    )


def axis_numeral(axis: Axis, values: tuple[Value, ...]) -> Numeral:
    """An axis as a number of its digits alone."""
    found: Numeral = Leaf(axis.digits[0])
    for digit, radix in zip(axis.digits[1:], axis.radices, strict=True):
        found = Split(number(radix, values), found, Leaf(digit))
    return found


def number(node: Node, values: tuple[Value, ...]) -> int:
    """The value of a formula of numbers alone, on the host."""
    host = Environment({"q_idx": torch.zeros((), dtype=torch.int64)}, values)
    return int(evaluate(node, host))


def sizes(tree: Numeral, size: int | None = None) -> dict[int, int | None]:
    """How many values each digit has; None for the top one."""
    if isinstance(tree, Leaf):
        return {tree.index: size}
    above = None if size is None else (size - 1) // tree.radix + 1
    below = tree.radix if size is None else min(tree.radix, size)
    return sizes(tree.major, above) | sizes(tree.minor, below)


def pieces(tree: Numeral, low: torch.Tensor, high: torch.Tensor) -> list[Piece]:
    """The numbers `low..high` as disjoint boxes: at most 2 L - 1 of them for L digits."""
    if isinstance(tree, Leaf):
        return [({tree.index: (low, high)}, low <= high)]
    if bool((low == high).all()):
        return [_point(tree, low)]
    radix, some = tree.radix, low <= high
    top_low, top_high = low // radix, high // radix
    rest_low, rest_high = low - top_low * radix, high - top_high * radix
    zero, last = torch.zeros_like(low), torch.full_like(low, radix - 1)
    alone = top_low == top_high
    head = _crossed(
        [_point(tree.major, top_low)],
        pieces(tree.minor, rest_low, torch.where(alone, rest_high, last)),
        some & (alone | (rest_low != 0)),
    )
    first = torch.where(rest_low == 0, top_low, top_low + 1)
    end = torch.where(rest_high == last, top_high, top_high - 1)
    middle = _full(tree.minor, radix, low.device)
    body = _crossed(pieces(tree.major, first, end), middle, some & ~alone)
    tail = _crossed(
        [_point(tree.major, top_high)],
        _upto(tree.minor, zero, rest_high),
        some & ~alone & (rest_high != last),
    )
    return head + body + tail


def _upto(tree: Numeral, zero: torch.Tensor, high: torch.Tensor) -> list[Piece]:
    """The numbers 0..high."""
    if isinstance(tree, Leaf):
        return [({tree.index: (zero, high)}, zero <= high)]
    top = high // tree.radix
    rest = high - top * tree.radix
    below = _full(tree.minor, tree.radix, zero.device)
    body = _crossed(_upto(tree.major, zero, top - 1), below, zero <= high)
    return body + _crossed([_point(tree.major, top)], _upto(tree.minor, zero, rest), zero <= high)


def _full(tree: Numeral, size: int, device: torch.device) -> list[Piece]:
    zero = torch.zeros((), dtype=torch.int64, device=device)
    return _upto(tree, zero, torch.full_like(zero, size - 1))


def _point(tree: Numeral, at: torch.Tensor) -> Piece:
    if isinstance(tree, Leaf):
        return {tree.index: (at, at)}, torch.ones_like(at, dtype=torch.bool)
    top = at // tree.radix
    major, minor = _point(tree.major, top), _point(tree.minor, at - top * tree.radix)
    return major[0] | minor[0], major[1]


def _crossed(majors: list[Piece], minors: list[Piece], when: torch.Tensor) -> list[Piece]:
    return [
        (major | minor, when & some & others)
        for (major, some), (minor, others) in product(majors, minors)
    ]


def top_digit(tree: Numeral, at: torch.Tensor) -> torch.Tensor:
    """The most significant digit."""
    while isinstance(tree, Split):
        at, tree = at // tree.radix, tree.major
    return at


def joined(tree: Numeral, digits: torch.Tensor) -> torch.Tensor:
    """The numbers with the digits `[boxes, digits]`, or beyond where a digit is beyond its own."""
    if isinstance(tree, Leaf):
        return digits[:, tree.index]
    return joined(tree.major, digits) * tree.radix + joined(tree.minor, digits)


def tile_of(at: torch.Tensor, block: int) -> torch.Tensor:
    """`at // block`, by a shift for powers of two: a division is several times slower."""
    return at >> (block.bit_length() - 1) if block & (block - 1) == 0 else at // block


def next_in(tree: Numeral, at: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """The first number >= `at` in each box; FAR where there is none."""
    if isinstance(tree, Leaf):
        found = torch.maximum(at, low[:, tree.index])
        return torch.where(found <= high[:, tree.index], found, FAR)
    top = tile_of(at, tree.radix)
    rest = at - top * tree.radix
    same = next_in(tree.minor, rest, low, high)
    above = next_in(tree.major, top + 1, low, high)
    first = _first_in(tree.minor, low, high)
    later = torch.where((above < FAR) & (first < tree.radix), above * tree.radix + first, FAR)
    here = holds(tree.major, top, low, high) & (same < tree.radix)
    return torch.where(here, top * tree.radix + same, later)


def last_in(tree: Numeral, at: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """The last number <= `at` in each box; -FAR where there is none."""
    if isinstance(tree, Leaf):
        found = torch.minimum(at, high[:, tree.index])
        return torch.where(found >= low[:, tree.index], found, -FAR)
    top = tile_of(at, tree.radix)
    rest = at - top * tree.radix
    same = last_in(tree.minor, rest, low, high)
    below = last_in(tree.major, top - 1, low, high)
    most = last_in(tree.minor, torch.full_like(at, tree.radix - 1), low, high)
    earlier = torch.where((below > -FAR) & (most >= 0), below * tree.radix + most, -FAR)
    here = holds(tree.major, top, low, high) & (same >= 0)
    return torch.where(here, top * tree.radix + same, earlier)


def _first_in(tree: Numeral, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """The smallest number of each box; FAR where there is none."""
    if isinstance(tree, Leaf):
        return torch.where(low[:, tree.index] <= high[:, tree.index], low[:, tree.index], FAR)
    top, rest = _first_in(tree.major, low, high), _first_in(tree.minor, low, high)
    return torch.where((top < FAR) & (rest < tree.radix), top * tree.radix + rest, FAR)


def holds(tree: Numeral, at: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Whether each box holds its number."""
    if isinstance(tree, Leaf):
        return (at >= low[:, tree.index]) & (at <= high[:, tree.index])
    top = tile_of(at, tree.radix)
    rest = at - top * tree.radix
    return holds(tree.major, top, low, high) & holds(tree.minor, rest, low, high)
