"""`where` inside `where`: the formula doubles with each level, the work of a proof does not."""

from __future__ import annotations

import pytest

import maskalg as ma
from maskalg import kv_idx, q_idx, scalar
from maskalg.engine.normal_form import bound
from maskalg.formula import nodes
from maskalg.formula.nodes import K, Node, Q
from maskalg.testing import assert_closed_forms_sound, assert_labels_exact


def chosen(levels: int) -> ma.Mask:
    """Moves the query on or back, by what the key has passed, `levels` times."""
    place = q_idx
    for level in range(levels):
        passed = kv_idx >= scalar(3 * level, f"at{level}")
        place = ma.where(passed, place + 1, place - kv_idx)
    return place >= kv_idx


@pytest.mark.parametrize("levels", [1, 2, 3, 5])
def test_labels_are_exact(levels: int) -> None:
    assert_labels_exact(chosen(levels), 37, block=5)
    assert_closed_forms_sound(chosen(levels), 37, block_q=5)
    assert chosen(levels).prove().exact


def test_deep_ones_end_in_the_budget() -> None:
    assert not chosen(13).prove().exact
    shallower = chosen(10)  # elements are evaluated, at twice the cost for each level
    assert not shallower.prove().exact
    assert_labels_exact(shallower, 24, block=8)


def test_a_part_that_stands_in_many_places_is_rewritten_once() -> None:
    node = Q
    for _ in range(9):
        node = nodes.where(nodes.ge(node, K), node, nodes.negate(node))
    seen: list[Node] = []

    def swapped(part: Node) -> Node | None:
        seen.append(part)
        return K if part is Q else None

    moved = nodes.substitute(node, swapped)
    assert len(seen) < 60, "3 ** 9 parts, if each place counted"
    assert moved.skeleton == node.skeleton.replace("q_idx", "kv_idx")
    assert bound(chosen(9)).structure.mask.skeleton.count("where") == 2**9 - 1
