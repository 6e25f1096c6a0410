"""What the kernel of dQ finds of each query, where that is hard to find."""

import math

import pytest
import torch

import maskalg as ma

HEADS, LENGTH, DIM = 2, 17, 16


def gradients(backend, sink, *, lse, kv_len=LENGTH, inputs=True):
    """Of the sink, and of query, key and value where wanted."""
    torch.manual_seed(1)
    dtype = torch.float64 if backend == "reference" else torch.float32
    q, k, v = (torch.randn(1, HEADS, n, DIM).to(dtype) for n in (LENGTH, kv_len, kv_len))
    of_inputs = [t.requires_grad_() for t in (q, k, v)] if inputs else []
    sinks = torch.full((HEADS,), sink).requires_grad_()
    change, of_lse = torch.randn(1, HEADS, LENGTH, DIM), torch.randn(1, HEADS, LENGTH)
    weight = ma.softmax_with_sink(sinks)
    out, found = ma.attention(q, k, v, ma.causal, weight=weight, return_lse=True, backend=backend)
    total = (out * change).sum()
    if lse:
        total = total + (found * of_lse).sum()
    return torch.autograd.grad(total, [sinks, *of_inputs])


@pytest.mark.parametrize("lse", [False, True])
@pytest.mark.parametrize("sink", [0.0, 15.0, 50.0])
def test_a_sink_of_any_size(sink, lse):
    """The part of the lse in delta is larger than dO . O by as much as the sink is."""
    found, wanted = (gradients(b, sink, lse=lse) for b in ("triton", "reference"))
    for one, other in zip(found, wanted, strict=True):
        assert (one - other).abs().max() <= 1e-4 * other.abs().max()


@pytest.mark.parametrize("sink", [math.inf, -math.inf])
def test_infinite_sinks(sink):
    found, wanted = (gradients(b, sink, lse=False) for b in ("triton", "reference"))
    for one, other in zip(found[1:], wanted[1:], strict=True):
        assert (one - other).abs().max() <= 1e-5
    assert found[0].isfinite().all()


def test_no_keys_and_no_gradient_of_inputs():
    poison = [torch.full((2 * 256,), math.nan) for _ in range(20)]
    del poison
    (found,) = gradients("triton", 0.0, lse=False, kv_len=0, inputs=False)
    assert torch.equal(found, torch.zeros(HEADS))


def test_saved_results_that_are_not_contiguous():
    """vmap over a batch of one hands out views whose first stride is 0."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, HEADS, 5, DIM) for _ in range(3))

    def jacobian(backend):
        def sums(query):
            out, lse = ma.attention(query, k, v, ma.causal, return_lse=True, backend=backend)
            return torch.stack([out.sum(), (out * query).sum(), lse.sum()])

        return torch.func.jacrev(sums)(q)

    assert (jacobian("triton") - jacobian("reference")).abs().max() <= 1e-5


@pytest.mark.parametrize("number", [5, 2**22 - 40, 5_000_001])
def test_distances_from_far_numbers(number):
    torch.manual_seed(0)
    bias = ma.bias(ma.sin(ma.q_idx - ma.kv_idx - number))
    q, k, v = (torch.randn(1, 1, 20, DIM) for _ in range(3))
    found = ma.attention(q, k, v, ma.everything + bias, backend="triton")
    wanted = ma.attention(
        *(t.double() for t in (q, k, v)), ma.everything + bias, backend="reference"
    )
    assert (found - wanted).abs().max() <= 1e-5
