"""Depth-first intervals of forests, against the definition; trees by their ancestors."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import maskalg as ma
from maskalg import MaskValueError
from maskalg.values.masks.documents.ancestry import ancestry


@st.composite
def forests(draw: st.DrawFn, count: int) -> list[int]:
    """Parents of forests of all shapes: chains with branches, numbered in any order."""
    reach = draw(st.sampled_from([1, 2, count + 1]))  # 1: a chain wherever there is no root
    parents = [draw(st.integers(max(i - reach, -1), i - 1)) for i in range(count)]
    if not draw(st.booleans()):
        return parents
    numbers = draw(st.permutations(range(count)))
    other = [-1] * count
    for node, parent in enumerate(parents):
        other[numbers[node]] = numbers[parent] if parent >= 0 else draw(st.integers(-3, -1))
    return other


def depth_first(parents: list[int]) -> tuple[list[int], list[int]]:
    """The places of all nodes and one past their last descendants, by a walk."""
    order, end = [-1] * len(parents), [-1] * len(parents)
    place = 0

    def walk(node: int) -> None:
        nonlocal place
        order[node] = place
        place += 1
        for child, parent in enumerate(parents):
            if parent == node:
                walk(child)
        end[node] = place

    for node, parent in enumerate(parents):
        if parent < 0:
            walk(node)
    return order, end


@settings(max_examples=150)
@given(st.integers(0, 24).flatmap(forests))
def test_intervals_are_those_of_a_walk(parents: list[int]) -> None:
    found = ancestry("tree", torch.tensor(parents, dtype=torch.int32))
    order, end = depth_first(parents)
    assert found.order.tolist() == order
    assert found.end.tolist() == end
    assert found.in_order == (order == sorted(order))


@settings(max_examples=40)
@given(st.data(), st.integers(1, 12), st.integers(0, 3))
def test_a_tree_keeps_the_prompt_and_ancestors(
    data: st.DataObject, count: int, prompt: int
) -> None:
    rows = [data.draw(forests(count)) for _ in range(2)]
    kept = ma.tree(torch.tensor(rows), prompt).to_dense(prompt + count)
    for batch, parents in enumerate(rows):
        for query in range(count):
            seen, node = set(range(prompt)), query
            while node >= 0:
                seen.add(prompt + node)
                node = parents[node]
            assert set(kept[batch, 0, prompt + query].nonzero()[:, 0].tolist()) == seen


@pytest.mark.parametrize("parents", [[], torch.zeros(2, 0, dtype=torch.int32)])
def test_a_tree_without_tokens_is_its_prompt(parents) -> None:
    kept = ma.tree(parents, prompt=4)
    assert torch.equal(kept.to_dense(4)[0], ma.causal.to_dense(4)[0])
    assert ma.tree([]).to_dense(0).numel() == 0


@pytest.mark.parametrize("parents", [[-1, 0, 0, 0], [-1, 0, 0, 1]])
def test_no_query_keeps_keys_past_a_tree_after_prompts_per_batch(parents: list[int]) -> None:
    kept = ma.tree(parents, [4, 2]).to_dense(10)[:, 0]
    for each, prompt in zip(kept, (4, 2), strict=True):
        end = prompt + 4
        alone = ma.tree(parents, prompt).to_dense(end)[0, 0]
        assert torch.equal(each[:end, :end], alone)
        assert not each[:, end:].any()
        assert torch.equal(each[end:, :end], (torch.arange(end) < prompt).expand(10 - end, -1))


@pytest.mark.parametrize("shape", ["chain", "star", "roots", "comb", "heap"])
def test_large_forests(shape: str) -> None:
    """Shapes whose intervals are known, deeper than any recursion."""
    count = 1 << 14
    node = torch.arange(count)
    parents = {
        "chain": node - 1,
        "star": torch.where(node > 0, 0, -1),
        "roots": torch.full_like(node, -1),
        "comb": torch.where(node % 2 == 1, node - 1, node - 2).clamp(min=-1),
        "heap": (node + 1) // 2 - 1,
    }[shape]
    found = ancestry("tree", parents)
    size = found.end - found.order
    if shape == "comb":  # a leaf, with an odd number, comes before the rest of the spine
        assert torch.equal(found.order, node)
        assert torch.equal(size, torch.where(node % 2 == 1, 1, count - node))
    elif shape == "heap":
        child, above = node[1:], parents[1:]
        assert sorted(found.order.tolist()) == node.tolist()
        assert torch.equal(size, torch.ones_like(node).index_add(0, above, size[child]))
        assert bool((found.order[above] < found.order[child]).all())
        assert bool((found.end[above] >= found.end[child]).all())
    else:
        assert found.in_order
        whole = {"chain": count - node, "star": torch.where(node > 0, 1, count), "roots": 1}[shape]
        assert torch.equal(size, torch.as_tensor(whole).expand(count))


@pytest.mark.parametrize(
    ("parents", "node"),
    [([0], 0), ([-1, 1], 1), ([1, 2, 1], 1), ([4, 0, -1, 2, 5, 4], 4), ([3, 0, 1, 2], 0)],
)
def test_a_circle_is_named_by_a_node_on_it(parents: list[int], node: int) -> None:
    with pytest.raises(MaskValueError, match=f"parents of node {node} leads back"):
        ancestry("tree", torch.tensor(parents))
