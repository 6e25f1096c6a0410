"""float8 inputs in Triton's interpreter: the plain kernel, and values in the order of products."""

import os

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from tests.interpreter.test_ready import found_anew  # noqa: F401

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)

LENGTH = 70
EXPRESSIONS = {
    "everything": ma.everything,
    "causal": causal,
    "window": causal & sliding(20),
    "softcap": causal + ma.softcap(3.0),
    "alibi": causal + ma.alibi(torch.rand(4)),
    "nothing": ma.nothing,
}


def inputs(dim=32):
    torch.manual_seed(0)
    made = [
        torch.randn(2, heads, LENGTH, dim) * (1 + torch.arange(heads)).view(-1, 1, 1)
        for heads in (4, 2, 2)
    ]
    query, key, value = (ma.to_float8(tensor) for tensor in made)
    return (query[0], key[0], value[0]), (query[1] * 0.3, key[1] * 0.3, value[1])


@pytest.mark.parametrize("name", list(EXPRESSIONS))
def test_expressions(name):
    tensors, descale = inputs()
    how = {"descale": descale, "return_lse": True}
    out, lse = ma.attention(*tensors, EXPRESSIONS[name], **how, backend="triton")
    want, want_lse = ma.attention(*tensors, EXPRESSIONS[name], **how, backend="reference")
    # Both are rounded to bfloat16, and weights to float16 before.
    assert ((out - want).abs() <= 2.0**-7 * want.abs() + 2e-3).all()
    assert torch.allclose(lse, want_lse, atol=1e-4)


@pytest.mark.parametrize("dim", [16, 24, 64])
def test_calls_like_one_before(dim, found_anew):  # noqa: F811
    # One head of keys for two of queries: what is computed anew takes the interpreter seconds.
    few = (slice(1), slice(2)), (slice(1), slice(1)), (slice(1), slice(1))
    tensors, descale = ([t[at] for t, at in zip(x, few, strict=True)] for x in inputs(dim))
    expression = causal & sliding(50)
    weight = ma.softmax_with_sink(1.0)
    for i in range(4):
        tensors = [torch.roll(t.view(torch.uint8), i, 2).view(t.dtype) for t in tensors]
        descale = [d * (1 + 0.1 * i) for d in descale]
        for how in ({"descale": descale}, {"descale": descale, "weight": weight}, {"scale": 1e-4}):
            out = ma.attention(*tensors, expression, **how, backend="triton")
            want = ma.attention(*tensors, expression, **how, backend="reference")
            assert ((out - want).abs() <= 2.0**-7 * want.abs() + 2e-3 * want.abs().max()).all()
    assert len(found_anew) == 4  # nothing is kept of the first call of all


@pytest.mark.parametrize("factor", [1e-17, 1e-19, 1e-22])
def test_factors_of_almost_nothing(factor):
    tensors, (of_query, of_key, of_value) = inputs()
    how = {"descale": (of_query * factor, of_key * factor, of_value)}
    for expression in (causal, causal + ma.alibi(torch.ones(4))):
        out = ma.attention(*tensors, expression, **how, backend="triton")
        want = ma.attention(*tensors, expression, **how, backend="reference")
        assert ((out - want).abs() <= 2.0**-7 * want.abs() + 2e-3 * want.abs().max()).all()


def test_a_factor_that_is_not_positive():
    tensors, (of_query, of_key, of_value) = inputs()
    of_query[1, 2] = 0
    out = ma.attention(*tensors, causal, descale=(of_query, of_key, of_value), backend="triton")
    assert out[1, 2].isnan().all()
    assert not out[0].isnan().any() and not out[1, :2].isnan().any()


@pytest.mark.parametrize("shape", [(2, 3, 200, 72), (1, 1, 1, 8), (1, 2, 128, 64)])
def test_values_in_order(shape):
    from maskalg.attention import checked_call
    from maskalg.backends.triton.families.forward import values_in_order

    value = torch.randn(shape).to(torch.float8_e4m3fn)
    apart = torch.stack([value.view(torch.uint8)] * 2, -1)[..., 0].view(value.dtype)
    turned = value.transpose(1, 2).contiguous().transpose(1, 2)
    room = torch.empty(value.numel() + 5, dtype=torch.uint8).view(value.dtype)
    moved = room[5:].view(shape).copy_(value)
    alone = value[:1, :1].clone().as_strided((1, 1, *shape[2:]), (7, 5, shape[3], 1))
    for given in (value, apart, turned, moved, alone):
        value, shape = given, given.shape
        launch = values_in_order(checked_call(given, given, given, ma.everything))
        launch.run()
        (out,) = launch.made
        length = out.shape[-1]
        assert length % 128 == 0 and length - shape[2] < 128
        # A thread has weights of these keys, one after the other.
        keys = [
            16 * g + 2 * t + k for g in range(length // 16) for t in range(4) for k in (0, 1, 8, 9)
        ]
        padded = torch.zeros(*shape[:2], length, shape[3])
        padded[:, :, : shape[2]] = value.float()
        assert torch.equal(out.float(), padded[:, :, keys].transpose(2, 3))
