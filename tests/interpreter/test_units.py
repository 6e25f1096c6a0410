"""Biases counted in units of the scale, and distances that float32 only just holds."""

import math
import os

import pytest
import torch

import maskalg as ma
from maskalg import causal, kv_idx, q_idx
from maskalg.codegen.hooks import Style, hooks_of
from maskalg.codegen.store import load
from maskalg.engine.extents import Extents, distances_are_short
from maskalg.engine.normal_form import bound

triton = pytest.importorskip("triton", reason="needs Triton")
tl = triton.language
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)

LENGTH = 40


def results(expression, scale, weight, backend, dtype):
    """Output, lse and the gradients of the inputs, float64."""
    torch.manual_seed(3)
    inputs = [torch.randn(1, heads, LENGTH, 16).to(dtype) for heads in (4, 2, 2)]
    inputs = [tensor.requires_grad_() for tensor in inputs]
    out, lse = ma.attention(
        *inputs, expression, scale=scale, weight=weight, return_lse=True, backend=backend
    )
    kept = lse.isfinite()
    return [
        t.double()
        for t in (out, lse[kept], *torch.autograd.grad(out.sum() + out[..., 0].sum(), inputs))
    ]


def expressions():
    slopes = torch.tensor([0.5, 0.25, 2.0, 2**-8])
    late = (torch.arange(LENGTH) - 6.0).clamp(min=0).log()
    return {
        "none": causal,
        # Queries that keep nothing, and one whose scores are all -inf.
        "holes": (causal & (q_idx >= 5)) + ma.key_bias(late[None, None]),
        "alibi": causal + ma.alibi(slopes),
        "terms": ma.everything
        + ma.alibi(slopes)
        + ma.dense_bias(torch.randn(LENGTH, LENGTH))
        + ma.bias(0.25 * abs(q_idx - kv_idx)),
        "softcap": causal + ma.alibi(slopes) + ma.softcap(2.0),
    }


@pytest.mark.parametrize("scale", [0.3, 0.0, -0.7, 1e-30])
@pytest.mark.parametrize("name", expressions())
def test_scales(name, scale):
    torch.manual_seed(0)
    expression = expressions()[name]
    weight = ma.softmax_with_sink(0.5) if name == "terms" else ma.softmax
    found = results(expression, scale, weight, "triton", torch.float32)
    wanted = results(expression, scale, weight, "reference", torch.float64)
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-5)


@triton.jit
def probe(out_ptr, T, scale, q0, k0, S0, HOLD: tl.constexpr, BIASED: tl.constexpr):
    """Biased scores of products of 0.75 at 16 x 16 positions."""
    q_idx = (q0 + tl.arange(0, 16))[:, None]
    kv_idx = (k0 + tl.arange(0, 16))[None, :]
    T, unit = HOLD(0, 0, q_idx, 2**22, scale, (S0,), T)
    product = tl.full((16, 16), 0.75, tl.float32)
    biased = BIASED(product, 0, 0, q_idx, kv_idx, 2**22, (S0,), T) * unit
    tl.store(out_ptr + tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :], biased)


@pytest.mark.parametrize("slope", [0.5, 2**-8])
@pytest.mark.parametrize("suffix", ["", "_of_keys"])
def test_distances_of_four_million_positions(suffix, slope):
    """As near to the exact sum as float32 is: three roundings."""
    slopes = torch.tensor([slope])
    hooks = hooks_of(bound(ma.everything + ma.alibi(slopes)).structure, backward=True)
    module = load(hooks.source, hooks.digest)
    hold, biased = (getattr(module, name + suffix) for name in ("hold", "biased"))
    last, scale = 2**22 - 16, 128**-0.5
    for q0, k0 in [(0, last), (last, 0), (last, last - 32), (last // 2 + 5, last // 3 + 7)]:
        out = torch.full((16, 16), math.nan)
        probe[(1,)](out, (slopes,), scale, q0, k0, 1, hold, biased)
        position = torch.arange(16, dtype=torch.float64)
        wanted = 0.75 * scale + slope * ((k0 + position)[None, :] - (q0 + position)[:, None])
        assert ((out.double() - wanted).abs() <= 3 * 2.0**-24 * wanted.abs() + 1e-7).all()


def test_longer_distances_are_converted():
    structure = bound(causal + ma.alibi(torch.ones(4))).structure
    assert "bitcast" in hooks_of(structure, Style()).source
    for style in (Style(far=True), Style(wide=True)):
        assert "bitcast" not in hooks_of(structure, style).source
    for length, short in [(2**22, True), (2**22 + 1, False)]:
        extents = Extents(1, length, 1, 4)
        assert distances_are_short(bound(causal + ma.alibi(torch.ones(4))), extents) == short
    # Sums of two positions, and their multiples.
    for formula in (q_idx + kv_idx, 2 * q_idx - kv_idx):
        assert "bitcast" not in hooks_of(bound(ma.bias(ma.cos(formula))).structure).source


def test_a_product_that_was_written_out_is_one_again():
    source = hooks_of(bound(ma.bias(0.3 * (kv_idx - q_idx))).structure).source
    assert "(kv_idx - q_idx) + 0x4B400000" in source and source.count(" fma(") == 1
