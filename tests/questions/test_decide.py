"""True and False are never wrong: every answer is compared with dense evaluation."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import maskalg as ma
from maskalg import (
    alibi,
    causal,
    chunked,
    dilated,
    document,
    equivalent,
    everything,
    head,
    implies,
    kv_idx,
    nothing,
    prefix,
    q_idx,
    scalar,
    sliding,
    table,
    where,
    window,
)
from maskalg.testing import describe
from maskalg.testing.case import BATCH, HEADS, Case
from maskalg.testing.strategies import masks
from maskalg.values.by_hand import LONGEST

IDS = torch.tensor([0] * 5 + [1] * 6)
RECURRING = torch.tensor([0, 1, 0, 1, 1, 2])


def kept(mask: ma.Mask, q_len: int = LONGEST, kv_len: int = LONGEST) -> torch.Tensor:
    dense = mask.to_dense(q_len, kv_len, batch=BATCH, heads=HEADS)
    return dense.expand(BATCH, HEADS, q_len, kv_len)


# --- against dense evaluation --------------------------------------------------------------------


@given(masks(depth=2), masks(depth=1))
def test_answers_for_given_lengths_are_exact(left: Case, right: Case) -> None:
    a, b = left.mask, right.mask
    at = {"batch": BATCH, "heads": HEADS}
    truth = not (kept(a) & ~kept(b)).any()
    where_ = f"{describe(a)}\nand\n{describe(b)}"
    assert implies(a, b, LONGEST, **at) is truth, where_
    assert equivalent(a, b, LONGEST, **at) is bool((kept(a) == kept(b)).all()), where_
    assert a.is_empty(LONGEST, **at) is (not kept(a).any()), where_
    found = a.witness(b, LONGEST, **at)
    assert (found is None) == bool((kept(a) == kept(b)).all()), where_
    if found is not None:
        assert kept(a)[found] != kept(b)[found], where_


@given(masks(depth=2), masks(depth=1))
def test_answers_for_all_positions_hold_where_they_can_be_seen(left: Case, right: Case) -> None:
    a, b = left.mask, right.mask
    at = {"batch": BATCH, "heads": HEADS}
    answer = implies(a, b, **at)
    seen = not (kept(a) & ~kept(b)).any()
    where_ = f"{describe(a)}\nand\n{describe(b)}\n{answer}"
    assert answer is not True or seen, where_
    if answer is False:
        found = (a & ~b).witness(nothing, **at)
        assert found is not None, where_
        # No further than the pair: a tensor may hold fewer queries than keys.
        lengths = (found.q_idx + 1, found.kv_idx + 1)
        assert kept(a, *lengths)[found] and not kept(b, *lengths)[found], where_


@given(masks(depth=2))
def test_a_mask_and_its_negation(case: Case) -> None:
    mask = case.mask
    at = {"batch": BATCH, "heads": HEADS}
    assert (mask & ~mask).is_empty(**at) is not False, describe(mask)
    assert implies(mask, mask | causal, **at) is not False, describe(mask)
    assert implies(mask, everything, **at) is not False, describe(mask)


# --- what is decided -----------------------------------------------------------------------------

WINDOW = scalar(4, low=1)

TRUE = {
    "a window written twice": (causal & sliding(4), window(3, 0)),
    "a window in a longer one": (causal & sliding(4096), sliding(5000)),
    "chunks in larger ones": (chunked(4), chunked(8)),
    "chunks in a window": (chunked(8), sliding(8)),
    "every fourth in every second": (dilated(4), dilated(2)),
    "causal within documents": (causal & document(IDS), causal),
    "documents in themselves": (document(IDS), document(IDS)),
    "documents no longer than a window": (document(IDS), sliding(6)),
    "recurring ids": (document(RECURRING), sliding(4)),
    "a choice by head": (where(head % 2 == 0, causal, sliding(3)), causal | sliding(5)),
    "absolute values": (abs(q_idx - kv_idx) < 4, sliding(4)),
    "real numbers, as they stand": (
        table(torch.rand(9))[q_idx] > table(torch.rand(9))[kv_idx],
        everything,
    ),
}

FALSE = {
    "a window in a shorter one": (causal & sliding(5000), sliding(4096)),
    "every second in every fourth": (dilated(2), dilated(4)),
    "documents longer than a window": (document(IDS), sliding(5)),
    "a prefix": (prefix(5000), causal),
    "the contrary": (causal, ~causal),
}


@pytest.mark.parametrize("name", TRUE)
def test_implied(name: str) -> None:
    assert implies(*TRUE[name]) is True


@pytest.mark.parametrize("name", FALSE)
def test_not_implied(name: str) -> None:
    a, b = FALSE[name]
    assert implies(a, b) is False
    found = a.witness(b)
    assert found is not None
    q, k = found.q_idx + 1, found.kv_idx + 1
    assert a.to_dense(q, k)[..., -1, -1] != b.to_dense(q, k)[..., -1, -1]


def test_equivalent() -> None:
    assert equivalent(causal & sliding(4), window(3, 0)) is True
    assert equivalent(causal | prefix(4), prefix(4) | causal) is True
    assert equivalent(causal, window(None, 0)) is True
    assert equivalent(causal, window(None, 1)) is False
    assert equivalent(causal & prefix(2), causal) is False


def test_tables_with_equal_entries_are_one_unless_all_values_are_asked_about() -> None:
    one, copy, other = (torch.tensor(windows) for windows in ([3, 5], [3, 5], [3, 6]))
    windows = ma.sliding(one)
    assert ma.equivalent(causal & windows, causal & ma.sliding(copy))
    assert ma.implies(causal & windows, ma.sliding(copy))
    assert ma.equivalent(windows, ma.sliding(other)) is False
    assert ma.equivalent(windows, ma.sliding(copy), for_all=True) is None


def test_contradictions_are_empty() -> None:
    assert (causal & ~causal).is_empty() is True
    assert (document(IDS) & ~document(IDS)).is_empty() is True
    assert (causal & (kv_idx > q_idx + 3)).is_empty() is True
    assert nothing.is_empty() is True
    assert causal.is_empty() is False
    assert causal.is_empty(0) is True
    # Keys too far for the first thousand queries, not for all.
    far = q_idx - kv_idx >= 1000
    assert far.is_empty(1000) is True
    assert far.is_empty() is False


def test_an_entry_for_all_is_one_for_each_batch_entry_and_head() -> None:
    shared, width = document(IDS[None]), table(torch.tensor([3]), "width")[head]
    assert (shared & (ma.batch >= 1)).is_empty() is False
    assert implies(shared, ma.batch < 1) is False
    assert (shared & (ma.batch < 1)).simplify() == shared & (ma.batch < 1)
    assert ((q_idx - kv_idx < width) & (head >= 1)).is_empty() is False
    assert implies(shared, shared | causal) is True


def test_for_all_values_of_the_parameters() -> None:
    assert implies(q_idx - kv_idx < WINDOW, q_idx - kv_idx < WINDOW + 1, for_all=True) is True
    shared = q_idx // WINDOW == kv_idx // WINDOW
    assert implies(shared, q_idx - kv_idx < WINDOW, for_all=True) is True
    assert implies(shared, q_idx - kv_idx < WINDOW - 1, for_all=True) is False
    # Two windows are two parameters: 4 and 8 are in order, others are not.
    assert implies(causal & sliding(4), sliding(8)) is True
    assert implies(causal & sliding(4), sliding(8), for_all=True) is None


def test_what_is_not_known_is_none() -> None:
    # A product of positions has no closed form, and the only query kept is far away.
    far = q_idx * q_idx == 46337**2
    assert far.is_empty() is None
    assert far.is_empty(46338, 1) is False
    assert far.is_empty(46337, 1) is True
    flags = table(torch.ones(7, dtype=torch.bool))
    # Keys end with the tensor, queries do not.
    assert (flags[kv_idx] & far).is_empty() is None


def test_witness_of_equal_masks_is_none() -> None:
    assert causal.witness(window(None, 0)) is None
    assert tuple(causal.witness(everything)) == (0, 0, 0, 1)
    assert causal.witness(everything).kv_idx == 1
    assert causal.witness(everything, 1) is None


# --- mistakes ------------------------------------------------------------------------------------


def test_mistakes_are_named() -> None:
    with pytest.raises(ma.MaskTypeError, match="implies asks about masks, got alibi"):
        implies(causal, alibi(torch.rand(4)))
    with pytest.raises(ma.MaskTypeError, match="equivalent asks about masks, got 3 of type int"):
        equivalent(3, causal)
    with pytest.raises(ma.MaskTypeError, match="witness asks about masks"):
        causal.witness(None)
    with pytest.raises(ma.MaskValueError, match="kv_len=4 was given without q_len"):
        causal.is_empty(kv_len=4)
    with pytest.raises(ma.MaskValueError, match="Pass ids with at least 12 entries"):
        implies(document(IDS), causal, 12)


@given(st.integers(1, 12), st.integers(1, 12))
def test_windows_are_ordered_by_their_size(short: int, long: int) -> None:
    assert implies(sliding(short), sliding(long)) is (short <= long)
    assert implies(dilated(long), dilated(short)) is (long % short == 0)


def test_batch_entries_and_heads_that_are_given() -> None:
    """A proof knows of no others, also where no length is given."""
    assert (ma.head >= 2).is_empty(heads=2) and (ma.batch >= 3).is_empty(batch=3)
    assert (ma.head >= 2).is_empty(heads=3) is False and (ma.head >= 2).is_empty() is False
    assert ma.equivalent(ma.head == 0, ~(ma.head == 1), heads=2)
    assert ma.equivalent(ma.head == 0, ~(ma.head == 1), heads=3) is False
    assert ma.implies(ma.everything, (ma.head < 4) & (ma.batch < 2), batch=2, heads=4)


def test_a_declared_order_is_of_one_mask():
    assert implies(document.from_lengths([2, 1]), causal, 3) is False
    scattered = document([1, 0, 1])
    assert implies(scattered, causal, 3) is False
    assert scattered.witness(causal, 3)[2:] == (0, 2)
