"""Forward-mode differentiation: by the reference, and refused by the other backends."""

import pytest
import torch
from torch.autograd import forward_ad

import maskalg as ma
from maskalg import causal

X = torch.randn(1, 2, 9, 8, dtype=torch.float64)
SLOPES = torch.tensor([0.5, 0.25], dtype=torch.float64)
REFUSED = pytest.raises(ma.BackendError, match=r"backend='reference' supports it")


def attend(x, backend=None):
    return ma.attention(x, x, x, causal, backend=backend)


@pytest.mark.parametrize("transform", ["jvp", "jacfwd", "hessian"])
def test_transforms(transform):
    def found(backend):
        function = lambda x: attend(x, backend).square().sum()  # noqa: E731
        made = getattr(torch.func, transform)
        return made(function, (X,), (X,))[1] if transform == "jvp" else made(function)(X)

    found("reference")
    with REFUSED:
        found(None)


@pytest.mark.parametrize("gradient", [False, True])
def test_dual_tensors(gradient):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(X.clone().requires_grad_(gradient), torch.ones_like(X))
        assert forward_ad.unpack_dual(attend(dual, "reference")).tangent is not None
        with REFUSED:
            attend(dual)
        slopes = forward_ad.make_dual(SLOPES, torch.ones_like(SLOPES))
        with REFUSED:
            ma.attention(X, X, X, causal + ma.alibi(slopes))
        assert torch.equal(attend(X), attend(X.clone()))


def test_the_tangent_is_the_derivative():
    change = torch.randn_like(X)
    _, tangent = torch.func.jvp(lambda x: attend(x, "reference"), (X,), (change,))
    step = 1e-6
    wanted = (attend(X + step * change) - attend(X - step * change)) / (2 * step)
    torch.testing.assert_close(tangent, wanted, rtol=1e-6, atol=1e-6)


def test_calls_without_gradients_refuse_tangents():
    pool = torch.randn(2, 5, 16, 2, 8)
    pages = ma.Pages(torch.tensor([[3, 0]]), torch.tensor([20]))

    def step(q):
        return ma.attention(q, *pool, causal.shift(q=19), pages=pages)

    q8 = ma.to_float8(torch.randn(1, 2, 9, 16))[0]

    def of_float8(slopes):
        return ma.attention(q8, q8, q8, causal + ma.alibi(slopes))

    for function, at in ((step, torch.randn(1, 4, 1, 8)), (of_float8, SLOPES)):
        with REFUSED:
            torch.func.jvp(function, (at,), (at,))
    with pytest.raises(ma.BackendError, match="requests are a batch already"):
        torch.func.vmap(step)(torch.randn(3, 1, 4, 1, 8))
