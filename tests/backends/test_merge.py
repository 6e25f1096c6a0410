"""Attention over parts of the keys, joined: against attention over all of them in float64."""

import pytest
import torch

import maskalg as ma
from maskalg import causal, errors, sliding


def tensors(dtype=torch.float64, q_len=9, kv_len=20):
    torch.manual_seed(0)
    shapes = [(2, 4, q_len, 8), (2, 2, kv_len, 8), (2, 2, kv_len, 6)]
    return [torch.randn(*shape, dtype=dtype, requires_grad=True) for shape in shapes]


def in_parts(q, k, v, mask, cuts, **how):
    """The parts of keys between `cuts`, each with the mask moved to its keys."""
    ends = [*cuts, k.shape[2]]
    parts = [
        ma.attention(q, k[:, :, a:b], v[:, :, a:b], mask.shift(kv=a), return_lse=True, **how)
        for a, b in zip([0, *cuts], ends, strict=True)
    ]
    return zip(*parts, strict=True)


@pytest.mark.parametrize("sink", [0.0, torch.tensor([-1.0, 0.5, 2.0, 0.0]).double()])
def test_a_sink_beside_all_parts(sink):
    inputs = tensors()
    weight = ma.softmax_plus_one if isinstance(sink, float) else ma.softmax_with_sink(sink)
    mask, logits = causal & sliding(4), [] if isinstance(sink, float) else [sink.requires_grad_()]
    found, lse = ma.merge(*in_parts(*inputs, mask, (7, 15)), sink=sink)
    wanted = ma.attention(*inputs, mask, return_lse=True, weight=weight, backend="reference")
    torch.testing.assert_close((found, lse), wanted, atol=1e-12, rtol=1e-12)
    change, leaves = torch.randn_like(found), (*inputs, *logits)
    torch.testing.assert_close(
        torch.autograd.grad(found, leaves, change), torch.autograd.grad(wanted[0], leaves, change)
    )


def test_sinks_that_do_not_fit():
    parts = [*zip(*in_parts(*tensors(), causal, (7,)), strict=True)]
    outs, lses = zip(*parts, strict=True)
    with pytest.raises(errors.MaskValueError, match=r"each head of outputs .*, \[4\], got \[2\]"):
        ma.merge(outs, lses, sink=torch.zeros(2))
    with pytest.raises(errors.MaskTypeError, match="sink"):
        ma.merge(outs, lses, sink=torch.zeros(4, dtype=torch.long))


@pytest.mark.parametrize("cuts", [(), (7,), (3, 3, 15), (20,), (0, 1)])
@pytest.mark.parametrize(
    "mask",
    [causal.shift(q=11), causal & sliding(4), ma.document(torch.arange(20) // 5), ma.nothing],
)
def test_output_lse_and_gradients(mask, cuts):
    inputs = tensors()
    change, of_lse = torch.randn(2, 4, 9, 6).double(), torch.randn(2, 4, 9).double()
    found = ma.merge(*in_parts(*inputs, mask, cuts))
    wanted = ma.attention(*inputs, mask, return_lse=True, backend="reference")
    gradients = []
    for out, lse in (found, wanted):
        some = torch.where(lse == float("-inf"), 0.0, lse)
        loss = (out * change).sum() + (some * of_lse).sum()
        gradients.append(torch.autograd.grad(loss, inputs, materialize_grads=True))
    for one, other in zip([*found, *gradients[0]], [*wanted, *gradients[1]], strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)


def test_half_precision_and_far_scores():
    q, k, v = (t.detach().bfloat16() for t in tensors())
    q = q * 300
    out, lse = ma.merge(*in_parts(q, k, v, causal.shift(q=11), (10,)))
    wide = [t.double() for t in (q, k, v)]
    want, want_lse = ma.attention(*wide, causal.shift(q=11), return_lse=True)
    assert out.dtype == torch.bfloat16 and lse.dtype == torch.float32
    torch.testing.assert_close(out.double(), want, atol=2e-2, rtol=2e-2)
    torch.testing.assert_close(lse.double(), want_lse, atol=1e-4, rtol=1e-5)


def test_a_part_of_no_keys_may_hold_anything():
    out, lse = torch.ones(1, 1, 2, 3), torch.zeros(1, 1, 2)
    nothing = torch.full_like(out, torch.nan).requires_grad_()
    joined, total = ma.merge([nothing, out], [torch.full_like(lse, -torch.inf), lse])
    assert torch.equal(joined, out) and torch.equal(total, lse)
    (gradient,) = torch.autograd.grad(joined.sum(), nothing)
    assert torch.equal(gradient, torch.zeros_like(out))


def test_the_order_is_that_of_the_parts():
    outs, lses = torch.randn(7, 1, 2, 50, 8), 5 * torch.randn(7, 1, 2, 50)
    first = ma.merge((out for out in outs), map(torch.clone, lses))  # whatever can be listed
    for one, other in zip(first, ma.merge(list(outs), list(lses)), strict=True):
        assert torch.equal(one, other)


def test_mistakes():
    out, lse = torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3)
    with pytest.raises(
        errors.MaskTypeError, match=r"outs must be a list of tensors, .* got Tensor"
    ):
        ma.merge(out, [lse])
    with pytest.raises(errors.MaskTypeError, match=r"outs must be a list of tensors, .* got int"):
        ma.merge(1, [lse])
    with pytest.raises(errors.MaskTypeError, match=r"an lse must be a floating tensor"):
        ma.merge([out], [lse.long()])
    with pytest.raises(errors.MaskTypeError, match=r"lses must be .* got int"):
        ma.merge([out], (3 for _ in range(1)))
    with pytest.raises(errors.MaskTypeError, match=r"lses must be .* got NoneType"):
        ma.merge([out], [None])
    with pytest.raises(errors.MaskValueError, match="got 2 outputs and 1 lses"):
        ma.merge([out, out], [lse])
    with pytest.raises(errors.MaskValueError, match="got 0 outputs and 0 lses"):
        ma.merge([], [])
    with pytest.raises(errors.MaskValueError, match=r"\[1, 2, 3, 4\] of torch.float32"):
        ma.merge([out, out.double()], [lse, lse])
    with pytest.raises(errors.MaskValueError, match=r"has shape \[1, 2, 3\], got \[3\]"):
        ma.merge([out], [lse[0, 0]])
