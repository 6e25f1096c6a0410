"""Where outputs and gradients lie in memory: as the inputs they belong to."""

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from maskalg.backends.results import empty_gradients, empty_result, in_order_of, row_steps

PACKED = torch.randn(2, 20, 3, 4, 8)  # as one projection makes query, key and value


def of_tokens(*shape):
    batch, heads, length, dim = shape
    return torch.randn(batch, length, heads, dim).transpose(1, 2)


INPUTS = {
    "heads": (torch.randn(2, 4, 20, 8), torch.randn(2, 2, 30, 8), torch.randn(2, 2, 30, 6)),
    "tokens": (of_tokens(2, 4, 20, 8), of_tokens(2, 2, 30, 8), of_tokens(2, 2, 30, 6)),
    "both": (of_tokens(2, 4, 20, 8), torch.randn(2, 2, 30, 8), of_tokens(2, 2, 30, 6)),
    "packed": tuple(PACKED[:, :, i].transpose(1, 2) for i in range(3)),
    "one head": (of_tokens(2, 1, 20, 8), of_tokens(2, 1, 30, 8), of_tokens(2, 1, 30, 6)),
    "one query": (of_tokens(2, 4, 1, 8), of_tokens(2, 2, 30, 8), of_tokens(2, 2, 30, 6)),
    "expanded": (torch.randn(2, 1, 20, 8).expand(-1, 4, -1, -1), *[torch.randn(2, 2, 30, 8)] * 2),
    "nothing": (of_tokens(2, 4, 0, 8), of_tokens(2, 2, 0, 8), of_tokens(2, 2, 0, 6)),
}


def lies_as(tensor, like):
    """Dense, with the heads of a token together or the tokens of a head."""
    plain = tensor.transpose(1, 2) if 0 < like.stride(1) < like.stride(2) else tensor
    return plain.is_contiguous()


@pytest.mark.parametrize("name", INPUTS)
def test_new_tensors(name):
    query, key, value = INPUTS[name]
    out = empty_result(query, value.shape[-1], torch.float64)
    assert out.shape == (*query.shape[:3], value.shape[-1]) and out.dtype == torch.float64
    assert lies_as(out, query)
    for made, like, shape in zip(
        empty_gradients(query, key, value), (query, key, key), (query, key, value), strict=True
    ):
        assert made.shape == shape.shape and lies_as(made, like)
    if out.numel():
        dim = value.shape[-1]
        rows = out.fill_(0).as_strided((out.numel() // dim, dim), (dim, 1))
        a_head, a_row = row_steps(query)
        rows[(query.shape[1] - 1) * a_head + (query.shape[2] - 1) * a_row] = 1
        assert (out[0, -1, -1] == 1).all() and out.sum() == dim


def test_order_of():
    like, tensor = of_tokens(2, 4, 20, 8), torch.randn(2, 4, 20, 6)
    moved = in_order_of(like, tensor)
    assert torch.equal(moved, tensor) and lies_as(moved, like)
    assert in_order_of(like, moved) is moved
    assert in_order_of(torch.randn(2, 4, 20, 1), tensor) is tensor


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("weight", [ma.softmax, ma.relu])
@pytest.mark.parametrize("name", INPUTS)
def test_calls(name, weight, backend):
    leaves = [t.detach().requires_grad_() for t in INPUTS[name]]
    out = ma.attention(*leaves, causal & sliding(7), weight=weight, backend=backend)
    if backend == "cpu":
        assert lies_as(out, leaves[0])
        seen = []
        for leaf, like in zip(leaves, (leaves[0], leaves[1], leaves[1]), strict=True):
            leaf.register_hook(lambda grad, like=like: seen.append(lies_as(grad, like)))
        out.sum().backward()
        assert seen == [True] * 3
    wide = [t.detach().double().requires_grad_() for t in leaves]
    out, want = (ma.attention(*t, causal & sliding(7), weight=weight) for t in (leaves, wide))
    change = torch.randn(out.shape)
    found = torch.autograd.grad(out, leaves, change)
    for one, other in zip(found, torch.autograd.grad(want, wide, change.double()), strict=True):
        torch.testing.assert_close(one.double(), other, atol=2e-5, rtol=2e-5)


def test_a_projection_reads_the_output_without_a_copy():
    query, key, value = INPUTS["tokens"]
    out = ma.attention(query, key, value, causal)
    joined = out.transpose(1, 2).flatten(2)
    assert joined.data_ptr() == out.data_ptr() and joined.shape == (2, 20, 24)
