"""Masks as intervals of one index: the bounds keep what the mask keeps."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import maskalg as ma
from maskalg import causal, document, sliding
from maskalg.codegen.spans import contiguous, equal_ids, interval_of
from maskalg.engine.evaluate import Environment, evaluate
from maskalg.engine.normal_form import bound
from maskalg.formula import nodes
from maskalg.schedule.intervals.steps import read_step

LENGTH = 24


def dense(node, form):
    places = {
        "batch": torch.zeros((), dtype=torch.int64),
        "head": torch.zeros((), dtype=torch.int64),
        "q_idx": torch.arange(LENGTH)[:, None],
        "kv_idx": torch.arange(LENGTH)[None, :],
    }
    return evaluate(node, environment(form, places)).expand(LENGTH, LENGTH)


def environment(form, places):
    step = lambda node, indices, env: read_step(node, env.values, indices)  # noqa: E731
    return Environment(places, form.values, step=step)


def literals(mask):
    return mask.args if mask.op == "and" else (mask,)


def by_interval(mask, form, moving):
    """The mask decided by the interval and what is left of it."""
    interval = interval_of(literals(mask), moving)
    index = nodes.K if moving == "kv_idx" else nodes.Q
    kept = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    for low in interval.lows:
        assert moving not in low.indices()
        kept = kept & (dense(index, form) >= dense(low, form))
    for high in interval.highs:
        assert moving not in high.indices()
        kept = kept & (dense(index, form) <= dense(high, form))
    for rest in interval.rest:
        kept = kept & dense(rest, form)
    return kept, interval


ATOMS = {
    "causal": causal,
    "sliding": sliding(5),
    "window": ma.window(3, 2),
    "dilated": ma.dilated(3),
    "prefix": ma.prefix(4),
    "padding": ma.padding(torch.tensor([20])),
    "equal": ma.q_idx == ma.kv_idx + 3,
    "table": ma.kv_idx >= ma.table(torch.arange(LENGTH) // 3, "starts")[ma.q_idx],
}


@pytest.mark.parametrize("moving", ["q_idx", "kv_idx"])
@given(names=st.sets(st.sampled_from(sorted(ATOMS)), min_size=1, max_size=4))
@settings(max_examples=40, deadline=None)
def test_an_interval_and_the_rest_are_the_mask(moving, names):
    mask = ma.everything
    for name in sorted(names):
        mask = mask & ATOMS[name]
    form = bound(mask)
    kept, _ = by_interval(form.structure.mask, form, moving)
    assert torch.equal(kept, dense(form.structure.mask, form))


@pytest.mark.parametrize("moving", ["q_idx", "kv_idx"])
def test_windows_leave_nothing_to_compare(moving):
    form = bound(causal & sliding(5))
    _, interval = by_interval(form.structure.mask, form, moving)
    assert not interval.rest and interval.lows and interval.highs


@pytest.mark.parametrize("moving", ["q_idx", "kv_idx"])
@given(
    ids=st.lists(st.integers(0, 4), min_size=LENGTH + 3, max_size=LENGTH + 3),
    in_order=st.booleans(),
    moved=st.integers(0, 3),
)
@settings(max_examples=60, deadline=None)
def test_contiguous_documents_are_intervals(moving, ids, in_order, moved):
    """The flag says when the bounds mean the same; it is set for sorted ids."""
    tensor = torch.tensor(sorted(ids) if in_order else ids)
    form = bound((causal & document(tensor)).shift(q=moved))
    bounded, (flag,) = contiguous(form.structure.mask, moving)
    assert not any(part.op == "read" for part in bounded.walk())
    known = bool(evaluate(flag, environment(form, {})))
    assert known or not in_order
    if known:
        assert torch.equal(dense(bounded, form), dense(form.structure.mask, form))
    (same,) = equal_ids(form.structure.mask, moving)
    both = dense(bounded, form) & dense(same, form)
    assert torch.equal(both, dense(form.structure.mask, form)), "contiguous or not"


@pytest.mark.parametrize("moving", ["q_idx", "kv_idx"])
def test_a_mask_that_does_not_imply_equal_ids(moving):
    same = document(torch.arange(LENGTH) // 5)
    for mask in (same | ma.prefix(4), ~same, causal & (same | sliding(3))):
        assert equal_ids(bound(mask).structure.mask, moving) == ()
    repeated = bound(same & (sliding(9) | ~same)).structure.mask
    assert len(equal_ids(repeated, moving)) == 1


def test_documents_of_two_tensors_bound_keys_alone():
    mask = bound(document(torch.zeros(4).int(), torch.zeros(6).int())).structure.mask
    assert contiguous(mask, "kv_idx") is not None
    assert contiguous(mask, "q_idx") is None


def test_a_document_at_a_place_that_is_read_stays_as_it_is():
    """Reads past the table are clamped, which bounds would not be."""
    table = ma.table(torch.arange(LENGTH), "ids")
    moved = ma.table(torch.zeros(1).int(), "moved")[ma.batch]
    mask = bound(table[ma.q_idx + moved] == table[ma.kv_idx]).structure.mask
    assert contiguous(mask, "kv_idx") is None and contiguous(mask, "q_idx") is None
