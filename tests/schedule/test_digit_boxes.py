"""What schedules do with digits, by brute force: certificates of digits take it for granted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any, cast

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from maskalg import Mask, kv_idx, q_idx
from maskalg.formula import nodes
from maskalg.formula.nodes import Node
from maskalg.proof.check.digit_certificate import coordinate, digits_of
from maskalg.proof.digits.forms import Axis, Leaf, Split, Tree
from maskalg.schedule.digits.digits import axis_numeral, numeral, pieces
from maskalg.testing import assert_labels_exact


def trees() -> st.SearchStrategy[Tree]:
    """Trees of two to four digits, without their numbers."""

    def grow(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.builds(Split, st.integers(1, 4).map(nodes.const), below, below)

    return st.recursive(st.just(Leaf(0)), grow, max_leaves=4).map(
        lambda tree: _numbered(tree, iter(range(4)))
    )


def _numbered(tree: Tree, numbers: Iterator[int]) -> Tree:
    if isinstance(tree, Leaf):
        return Leaf(next(numbers))
    major = _numbered(tree.major, numbers)
    return Split(tree.radix, major, _numbered(tree.minor, numbers))


def value(node: Node, at: int) -> int:
    """A formula of numbers and of the query, by Python's own arithmetic."""
    if node.op == "index":
        return at
    if node.op == "const":
        return cast(int, node.data)
    args = [value(arg, at) for arg in node.args]
    if node.op in ("add", "mul"):
        return sum(args) if node.op == "add" else prod(args)
    return args[0] // args[1] if node.op == "floordiv" else args[0] % args[1]


@given(trees(), st.integers(-9, 30), st.integers(0, 40), st.data())
@settings(max_examples=150, deadline=None)
def test_boxes_of_digits(tree: Tree, first: int, count: int, data: DataObject) -> None:
    """Coordinates that are found axis by axis, between the ends that a box has on each, are those
    of one number of the interval. So are those of keys, taken apart in digits again."""
    digits = digits_of(tree, nodes.Q)
    numbers = range(first, first + count + 1)
    written = {x: tuple(value(digit, x) for digit in digits) for x in numbers}
    start = data.draw(st.integers(0, len(digits) - 1))
    later = [n for n in range(start + 1, len(digits)) if _takes_every_value(tree, n)]
    chosen = sorted(data.draw(st.lists(st.sampled_from(later), unique=True))) if later else []
    composite = Axis((start, *chosen), tuple(_radix(tree, n) for n in chosen))
    rest = [n for n in range(len(digits)) if n not in composite.digits]
    axes = [composite, *[Axis((n,), ()) for n in rest]]
    at = {x: tuple(value(coordinate(axis, digits), x) for axis in axes) for x in numbers}
    low, high = (torch.tensor([x]) for x in (first, first + count))
    boxed: set[int] = set()
    for box, some in pieces(numeral(tree, ()), low, high):
        if not bool(some):
            continue
        ends = {digit: (int(a), int(b)) for digit, (a, b) in box.items()}
        inside = [x for x in numbers if all(a <= written[x][d] <= b for d, (a, b) in ends.items())]
        assert inside and boxed.isdisjoint(inside)
        boxed.update(inside)
        spans = []
        for axis in axes:
            a, b = (tuple(ends[d][end] for d in range(len(digits))) for end in (0, 1))
            spans.append(range(_joined(axis, a), _joined(axis, b) + 1))
        assert set(product(*spans)) <= set(at.values())
    assert boxed == set(numbers)
    below, above = sorted(data.draw(st.tuples(st.integers(-9, 40), st.integers(-9, 40))))
    number = axis_numeral(composite, ())
    ranges = pieces(number, torch.tensor([below]), torch.tensor([above]))
    boxes = [box for box, some in ranges if bool(some)]
    for x in numbers:
        kept = any(
            all(int(a) <= written[x][d] <= int(b) for d, (a, b) in box.items()) for box in boxes
        )
        assert kept == (below <= at[x][0] <= above)


def _joined(axis: Axis, digits: tuple[int, ...]) -> int:
    found = digits[axis.digits[0]]
    for digit, radix in zip(axis.digits[1:], axis.radices, strict=True):
        found = found * cast(int, radix.data) + digits[digit]
    return found


def _counts(tree: Tree, size: int | None) -> list[int | None]:
    """How many values each digit takes whatever the others are, by hand."""
    if isinstance(tree, Leaf):
        return [size]
    radix = cast(int, tree.radix.data)
    if size is None:
        return [*_counts(tree.major, None), *_counts(tree.minor, radix)]
    if size % radix:
        return [None] * len(digits_of(tree, nodes.Q))
    return [*_counts(tree.major, size // radix), *_counts(tree.minor, radix)]


def _takes_every_value(tree: Tree, digit: int) -> bool:
    return _counts(tree, None)[digit] is not None


def _radix(tree: Tree, digit: int) -> Node:
    return nodes.const(cast(int, _counts(tree, None)[digit]))


def test_a_number_with_digits_in_another_order_is_not_called_exact() -> None:
    """Such a number jumps where positions follow each other: its boxes are no intervals."""

    def turned(x: Any) -> Any:
        return x % 5 * 3 + x // 5 % 3

    mask = (turned(q_idx) >= turned(kv_idx)) & (q_idx < 15) & (kv_idx < 15)
    assert isinstance(mask, Mask)
    for block in ((2, 3), (4, 2), (5, 1), (5, 5)):
        assert_labels_exact(mask, 15, block=block)
