"""The pattern that tiles are chosen by, from the structure of an expression alone."""

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from maskalg.backward_tiles import one_pass_for
from maskalg.normalform import bound

pytest.importorskip("triton", reason="needs Triton")
from maskalg.backends.triton_plan import pattern_of

BIAS = ma.dense_bias(torch.zeros(8, 8))
MASK = ma.dense(torch.ones(8, 8, dtype=torch.bool))
IDS = torch.zeros(8, dtype=torch.int32)

# Of the forward pass and of gradients.
CASES = {
    "full": (ma.everything, "full", "full"),
    "causal": (causal, "dense", "dense"),
    "window": (causal & sliding(3), "banded", "banded"),
    "documents": (causal & ma.document(IDS), "reading", "reading"),
    "documents & window": (causal & sliding(3) & ma.document(IDS), "reading band", "reading band"),
    "bias of keys": (causal + ma.key_bias(torch.zeros(8)), "reading", "dense"),
    "mask of pairs": (MASK, "pairs", "reading"),
    "bias of pairs": (BIAS, "pairs", "pairs"),
    "causal, bias of pairs": (causal + BIAS, "pairs", "pairs"),
    "both of pairs": (MASK + BIAS, "pairs", "reading"),
    "window, bias of pairs": (causal & sliding(3) + BIAS, "reading", "banded"),
}


@pytest.mark.parametrize("name", CASES)
def test_patterns(name):
    expression, forward, gradients = CASES[name]
    structure = bound(expression).structure
    found = (pattern_of(structure), pattern_of(structure, gradients=True))
    assert found == (forward, gradients)


@pytest.mark.parametrize(
    "pattern, dims",
    [
        ("dense", {64, 128}),
        ("banded", {64, 128}),
        ("reading", {64, 128}),
        ("reading band", {}),
        ("pairs", {128}),
    ],
)
def test_which_gradients_are_made_in_one_pass(pattern, dims):
    served = {d for d in (64, 128, 256) if one_pass_for("sm_90", d, 2, pattern, additive=True)}
    assert served == set(dims)
