"""Compiled functions that torch replays as CUDA graphs, `mode="reduce-overhead"`.

Torch raises an error if a function keeps memory of a graph that is no result of it.
"""

import pytest
import torch

import maskalg as ma
from maskalg import causal, document, sliding

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

LENGTH = 625
MASKS = {
    "causal": lambda ids: causal,
    "window": lambda ids: causal & sliding(100),
    "documents": lambda ids: causal & document(ids),
    "spans": lambda ids: causal | ma.spans(ids),
    "scattered": lambda ids: causal & document(ids % 2),
    "digits": lambda ids: ma.neighborhood((25, 25), 5),
    "biased": lambda ids: (causal & document(ids)) + ma.alibi(torch.ones(2, device="cuda")),
    "padded": lambda ids: causal & ma.padding(torch.full((2,), 500, device="cuda")),
}


@pytest.mark.parametrize("built", ["inside", "outside"])
@pytest.mark.parametrize("name", MASKS)
def test_training(name, built):
    torch._dynamo.reset()
    ids = torch.arange(LENGTH, device="cuda") // 90
    leaves = list(torch.randn(3, 2, 2, LENGTH, 64, device="cuda", dtype=torch.bfloat16))
    leaves = [leaf.requires_grad_() for leaf in leaves]

    def layers(mask, *tensors):
        """Two layers; the first layer's output is the second one's query."""
        query, key, value = tensors
        return ma.attention(ma.attention(query, key, value, mask), key, value, mask)

    def loss(ids, *tensors):
        return layers(MASKS[name](ids), *tensors).float().square().sum()

    given = MASKS[name](ids)
    if built == "outside":
        step = torch.compile(
            lambda _, *tensors: layers(given, *tensors).float().square().sum(),
            mode="reduce-overhead",
        )
    else:
        step = torch.compile(loss, mode="reduce-overhead")
    wanted = torch.autograd.grad(loss(ids, *leaves), leaves)
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        found = torch.autograd.grad(step(ids, *leaves), leaves)
        for got, want in zip(found, wanted, strict=True):
            assert (got - want).abs().max() <= 1e-2 * want.abs().max()


@pytest.mark.parametrize("name", MASKS)
def test_inference_on_other_ids(name):
    """The ids of a replay are those given to it."""
    torch._dynamo.reset()
    tensors = torch.randn(3, 2, 2, LENGTH, 64, device="cuda", dtype=torch.bfloat16)

    def attend(ids, *tensors):
        return ma.attention(*tensors, MASKS[name](ids))

    step = torch.compile(attend, mode="reduce-overhead")
    with torch.no_grad():
        for size in (90, 90, 90, 150, 40):
            ids = torch.arange(LENGTH, device="cuda") // size
            torch.compiler.cudagraph_mark_step_begin()
            wanted = attend(ids, *tensors)
            found = step(ids, *tensors)
            assert (found - wanted).abs().max() <= 1e-2 * wanted.abs().max()
