"""Real functions written in assembly, in float32 over all of their range, against float64."""

import pytest
import torch

triton = pytest.importorskip("triton", reason="needs Triton")
tl = triton.language

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.version.hip is not None, reason="needs NVIDIA"
    ),
]

INFINITY = float("inf")
EXTREMES = [0.0, -0.0, 1e-38, -1e-38, 3e38, -3e38, INFINITY, -INFINITY, float("nan")]


@triton.jit
def _apply(x_ptr, out_ptr, FUNCTION: tl.constexpr, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(out_ptr + at, FUNCTION(tl.load(x_ptr + at)))


def numbers():
    """Small, large and extreme numbers, each beside numbers of other sizes."""
    torch.manual_seed(0)
    parts = [
        torch.linspace(-110, 110, 200_001, device="cuda"),
        torch.randn(100_000, device="cuda") * torch.logspace(-8, 4, 100_000, device="cuda"),
        torch.tensor(EXTREMES * 1000, device="cuda"),
    ]
    x = torch.cat(parts)
    x = x[torch.randperm(len(x), device="cuda")]
    return x[: len(x) // 512 * 512].contiguous()


def applied(name, x, size):
    from maskalg_kernels import reals

    out = torch.full_like(x, float("nan"))
    _apply[(len(x) // size,)](x, out, getattr(reals, name), size)
    return out.double()


# A thread of four warps holds four elements, or one.
@pytest.mark.parametrize("size", [512, 128, 32])
def test_sigmoid(size):
    x = numbers()
    found, wanted = applied("sigmoid_ptx", x, size), x.double().sigmoid()
    assert torch.equal(found.isnan(), x.isnan())
    # As if x had been rounded once more; below 1.2e-38 zero is written.
    kept = ~x.isnan() & (wanted > 2e-38)
    bound = 5e-7 + 1e-7 * x.double().abs()
    assert ((found - wanted).abs() <= bound * wanted)[kept & x.isfinite()].all()
    assert (found[x == INFINITY] == 1).all() and (found[x < -89] == 0).all()
    assert (found[~x.isnan()] <= 1).all() and (found[~x.isnan()] >= 0).all()


@pytest.mark.parametrize("size", [512, 128, 32])
def test_tanh(size):
    x = numbers()
    found, wanted = applied("tanh_ptx", x, size), x.double().tanh()
    assert torch.equal(found.isnan(), x.isnan())
    assert (found - wanted)[~x.isnan()].abs().max() <= 5e-7
