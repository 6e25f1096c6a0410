"""Tensors of a mask are freed with the mask, also while Python collects no garbage."""

import gc
import weakref

import pytest
import torch

import maskalg as ma
from maskalg.bench.families import SHORTEST, families


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive(name, use):
    """How many tensors of a mask live after the mask and all that was computed with it."""
    mask = families(SHORTEST)[name]()
    seen = [
        weakref.ref(each) for each in mask.parameters.values() if isinstance(each, torch.Tensor)
    ]
    use(mask)
    del mask
    return sum(each() is not None for each in seen)


@pytest.mark.parametrize("name", list(families(SHORTEST)))
def test_labels(name, no_collector):
    assert alive(name, lambda mask: mask.blocks(SHORTEST)) == 0


@pytest.mark.parametrize("score", [None, ma.alibi(torch.ones(2)), ma.relative(torch.ones(2, 9))])
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize(
    "name", ["document", "tree, by level", "Transfusion", "block table", "per document"]
)
def test_calls(name, gradients, score, no_collector):
    query = torch.randn(1, 2, SHORTEST, 8, requires_grad=gradients)

    def use(mask):
        out = ma.attention(query, query, query, mask if score is None else mask + score)
        if gradients:
            out.sum().backward()

    alive(name, use)  # proofs of a first call may hold frames
    assert alive(name, use) == 0
