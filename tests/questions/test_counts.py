"""What is counted equals what dense evaluation counts; what is said of rows and bands holds."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from hypothesis import given, settings

import maskalg as ma
from maskalg import (
    causal,
    chunked,
    dense,
    dilated,
    document,
    everything,
    head,
    kv_idx,
    nothing,
    prefix,
    q_idx,
    sliding,
    where,
    window,
)
from maskalg.questions.rows import Bandwidth
from maskalg.testing import describe, oracle
from maskalg.testing.case import BATCH, HEADS, Case
from maskalg.testing.catalogue import CATALOGUE
from maskalg.testing.strategies import Shape, masks, shapes
from maskalg.values.algebra import Mask
from maskalg.values.by_hand import LONGEST


def dense_of(mask: Mask, q_len: int, kv_len: int) -> torch.Tensor:
    found = mask.to_dense(q_len, kv_len, batch=BATCH, heads=HEADS)
    return found.expand(BATCH, HEADS, q_len, kv_len)


def check_cost(mask: Mask, shape: Shape) -> None:
    at = {"batch": BATCH, "heads": HEADS}
    found = mask.cost(*shape.lengths, block=shape.block, **at)
    kept = dense_of(mask, *shape.lengths)
    labels = oracle.labels(kept.numpy(), *shape.block)
    where_ = f"{describe(mask)}\n{shape}\n{found}"
    assert found.kept == int(kept.sum()), where_
    assert found.total == kept.numel(), where_
    assert (found.empty, found.partial, found.full) == tuple(
        int((labels == label).sum()) for label in range(3)
    ), where_
    visits = mask.segments(*shape.lengths, block=shape.block, **at)
    elements = 0
    for batch in range(BATCH):
        for one in range(HEADS):
            for row in range(labels.shape[2]):
                height = min(shape.block_q, shape.q_len - row * shape.block_q)
                for run in visits.row(batch, one, row):
                    end = min(run.end * shape.block_kv, shape.kv_len)
                    elements += height * (end - run.first * shape.block_kv)
    assert found.visited == elements, where_
    assert mask.rows_have_a_key(*shape.lengths, **at) is bool(kept.any(-1).all()), where_


@pytest.mark.parametrize("name", CATALOGUE)
def test_catalogue(name: str) -> None:
    for shape in (Shape(37, 37, 8, 5), Shape(40, 23, 7, 16)):
        check_cost(CATALOGUE[name].mask, shape)


@given(masks(depth=2), shapes())
def test_random_compositions(case: Case, shape: Shape) -> None:
    check_cost(case.mask, shape)


def test_cost_written_out() -> None:
    found = (causal & sliding(2)).cost(8, block=4, heads=3, batch=2)
    assert found.kept == 6 * 15 and found.total == 6 * 64
    assert (found.empty, found.partial, found.full) == (6, 18, 0)
    assert found.visited == 6 * 48
    assert found.forward_flops(64) == 4 * 90 * 64
    assert found.backward_flops(64) == 10 * 90 * 64
    assert found.forward_flops(64, 32) == 2 * 90 * 96
    assert str(causal.cost(1000)) == (
        "kept      500,500 of 1,000,000 elements (50.05%)\n"
        "blocks    28 empty, 8 partial, 28 full (128 x 128)\n"
        "visited   562,752 elements\n"
        "forward   2,002,000 x head_dim operations\n"
        "backward  5,005,000 x head_dim operations"
    )


def test_a_million_tokens_are_counted_by_intervals() -> None:
    length, width = 1 << 20, 4096
    found = (causal & sliding(width)).cost(length)
    assert found.kept == width * length - width * (width - 1) // 2


@pytest.mark.parametrize(
    "mask",
    [
        document(torch.arange(40) // 7) & causal & sliding(9),
        document(torch.arange(40) // 7) | prefix(5),
        ma.neighborhood((5, 8), (3, 4)),
    ],
)
def test_documents_and_grids_are_counted_by_intervals(
    mask: Mask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maskalg.questions.cost.blocks", lambda *_, **__: pytest.fail("labels"))
    check_cost(mask, Shape(40, 37, 8, 5))


def test_no_length() -> None:
    assert causal.cost(0).kept == causal.cost(3, 0).kept == 0
    assert causal.rows_have_a_key(0) is True
    assert everything.rows_have_a_key(3, 0) is False


def test_rows() -> None:
    assert causal.rows_have_a_key(1 << 20) is True
    assert (causal & (kv_idx >= 3)).rows_have_a_key(10) is False
    assert dilated(3).rows_have_a_key(100) is True
    assert where(head == 1, nothing, causal).rows_have_a_key(5, heads=3) is False
    assert where(head == 1, nothing, causal).rows_have_a_key(5, heads=1) is True


def test_rows_of_too_many_open_elements_are_not_known() -> None:
    assert dilated(3).rows_have_a_key(1 << 15) is True
    assert ((q_idx * kv_idx) % 3 != 1).rows_have_a_key(1 << 15) is None


# --- bandwidth -----------------------------------------------------------------------------------


@settings(max_examples=30)
@given(masks(depth=2))
def test_bands_hold_every_kept_pair(case: Case) -> None:
    found = case.mask.bandwidth()
    kept = dense_of(case.mask, LONGEST, LONGEST).any(0).any(0)
    queries, keys = kept.nonzero(as_tuple=True)
    for ahead, limit in ((queries - keys, found.left), (keys - queries, found.right)):
        assert limit is None or (ahead <= limit).all(), f"{describe(case.mask)}\n{found}"


BANDS = [
    (causal, (None, 0)),
    (sliding(7), (6, 6)),
    (causal & sliding(4096), (4095, 0)),
    (window(3, 9) & chunked(16), (3, 9)),
    (chunked(10), (9, 9)),
    ((q_idx - kv_idx >= 2) & sliding(5), (4, -2)),
    (causal & ~causal, (0, 0)),
    (prefix(9), (None, 8)),
    (document(torch.tensor([0] * 5 + [1] * 6)), (5, 5)),
]


@pytest.mark.parametrize(("mask", "limits"), BANDS, ids=[str(mask) for mask, _ in BANDS])
def test_bandwidth(mask: Mask, limits: tuple[int | None, int | None]) -> None:
    assert mask.bandwidth() == Bandwidth(*limits)


# --- simplify ------------------------------------------------------------------------------------


@given(masks(depth=2))
def test_simplified_masks_are_equivalent(case: Case) -> None:
    simple = case.mask.simplify()
    same = dense_of(simple, LONGEST, LONGEST) == dense_of(case.mask, LONGEST, LONGEST)
    assert same.all(), f"{describe(case.mask)}\n{simple}"
    assert len(list(simple.mask_node.walk())) <= len(list(case.mask.mask_node.walk()))


SIMPLER = [
    (causal & (sliding(4) | ~causal) & sliding(9), "causal & sliding(4)"),
    (causal & causal, "causal"),
    (causal | sliding(3) | window(2, 0), "causal | sliding(3)"),
    (causal & ~causal, "nothing"),
    (causal | ~causal, "everything"),
    (sliding(3) & everything, "sliding(3)"),
    (~(causal & sliding(3) & causal), "~(sliding(3) & causal)"),
    (causal ^ (causal & sliding(3)), "causal ^ causal & sliding(3)"),
    (causal ^ (sliding(3) & sliding(4)) ^ nothing, "causal ^ sliding(3)"),
    (causal & (causal ^ sliding(3)), "causal & (everything ^ sliding(3))"),
    (window(3, 0) & causal & (kv_idx >= 0), "window(3, 0)"),
    ((q_idx >= kv_idx) & (q_idx >= kv_idx - 1), "q_idx >= kv_idx"),
    (
        cast(Mask, causal & sliding(4) & sliding(9)).bind(window=3),
        "(3 - 1 >= q_idx - kv_idx) & (q_idx >= kv_idx)",
    ),
]


@pytest.mark.parametrize(("mask", "text"), SIMPLER, ids=[text for _, text in SIMPLER])
def test_simplify(mask: Mask, text: str) -> None:
    assert str(mask.simplify()) == text


def test_what_is_simple_stays_as_it_is() -> None:
    for mask in (causal, causal & (sliding(4) | prefix(4)), dense(torch.eye(5) > 0)):
        assert mask.simplify() is mask


def test_mistakes_are_named() -> None:
    with pytest.raises(ma.MaskValueError, match="q_len must be an integer >= 0"):
        causal.cost(-1)
    with pytest.raises(ma.MaskValueError, match="block must be"):
        causal.cost(8, block=0)
    with pytest.raises(ma.MaskValueError, match="Pass ids with at least 12"):
        document(torch.zeros(11, dtype=torch.int32)).rows_have_a_key(12)


def test_what_would_take_hours_is_refused() -> None:
    """A mask that mixes positions, whose elements nothing but evaluation counts."""
    mixed = (ma.q_idx * ma.kv_idx + ma.q_idx) % 97 < 5
    assert mixed.cost(64).kept == int(mixed.to_dense(64).sum())
    with pytest.raises(ValueError, match=r"segments\(q_len, kv_len\)"):
        mixed.cost(1 << 17)
