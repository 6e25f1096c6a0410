"""The CPU backend against the hand-written oracle and against float64 autograd."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import maskalg as ma
from maskalg import causal, sliding
from maskalg.attention import checked_call
from maskalg.backends.cpu import plan
from maskalg.backends.cpu.backend import attend
from maskalg.engine.extents import Extents
from maskalg.testing import oracle
from tests.cases.tables import SOFTPLUS, cancelling

LENGTH = 150


def expressions(length=LENGTH):
    generator = torch.Generator().manual_seed(0)

    def integers(high, *shape):
        return torch.randint(0, high, shape, generator=generator)

    ids = integers(5, length + 9).sort().values
    scattered = integers(4, 2, length + 9)
    slopes = torch.rand(4, generator=generator, requires_grad=True)
    table = torch.randn(4, 11, generator=generator, requires_grad=True)
    return {
        "everything": ma.everything,
        "nothing": ma.nothing,
        "causal": causal,
        "sliding": causal & sliding(9),
        "sinks": causal & (sliding(9) | ma.prefix(3)),
        "prefix": causal | ma.prefix(torch.tensor([3, 60])),
        "padding": ma.padding(torch.tensor([20, length]), queries=True),
        "document": causal & ma.document(ids),
        "scattered": causal & ma.document(scattered),
        "not-document": ~ma.document(ids),
        "dilated": sliding(30) & ma.dilated(3),
        "dense": ma.dense(torch.rand(4, length, length, generator=generator) > 0.5),
        "per-head": ma.where(ma.head % 2 == 0, causal, sliding(5)),
        "shifted": (causal & ma.document(ids)).shift(q=5, kv=2),
        "three": causal & sliding(40) & ma.document(ids) + ma.alibi(slopes),
        "relative": causal + ma.relative(table),
        "softcap": causal & sliding(50) + ma.softcap(3.0) @ ma.alibi(slopes),
        "negative-cap": causal + -ma.softcap(2.0),
        "score-and-sine": ma.score(lambda score, b, h, q, k: score + torch.sin(score)),
        "score-and-constant": causal + ma.score(lambda score, b, h, q, k: score + 3.0),
        "score-times-head": ma.score(lambda score, b, h, q, k: score + score * h),
        "both": ma.softcap(2.0) @ ma.relative(table) + ma.alibi(slopes),
    }


NAMES = list(expressions())


def tensors(shapes, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(s, generator=generator).to(dtype).requires_grad_() for s in shapes]


def gradients_of(expression, inputs, backend):
    """Output, lse, and gradients of inputs and tables, of one weighted sum of both results."""
    learned = [t for t in expression.parameters.values() if getattr(t, "requires_grad", False)]
    out, lse = ma.attention(*inputs, expression, return_lse=True, backend=backend)
    generator = torch.Generator().manual_seed(2)
    a, b = (torch.randn(t.shape, generator=generator) for t in (out, lse))
    loss = (out.double() * a).sum() + (torch.where(lse.isfinite(), lse, 0).double() * b).sum()
    return [out, lse, *torch.autograd.grad(loss, [*inputs, *learned])]


def assert_close(found, wanted, tolerance):
    for got, want in zip(found, wanted, strict=True):
        assert not got.isnan().any()
        finite = want.isfinite()
        assert torch.equal(got.isfinite(), finite)
        scale = want[finite].abs().max().item() if finite.any() else 1.0
        error = (got.double() - want.double())[finite].abs()
        assert error.numel() == 0 or error.max().item() <= tolerance * max(scale, 0.1)


@pytest.mark.parametrize("of_tile", [1 << 30, 0], ids=["together", "one by one"])
@pytest.mark.parametrize("name", NAMES)
def test_results_and_gradients(name, of_tile, monkeypatch):
    monkeypatch.setattr(plan, "_OF_TILE", of_tile)
    expression = expressions()[name]
    inputs = tensors(((2, 4, LENGTH, 16), (2, 2, LENGTH, 16), (2, 2, LENGTH, 24)))
    wide = [t.detach().double().requires_grad_() for t in inputs]
    found = gradients_of(expression, inputs, "cpu")
    assert_close(found, gradients_of(expression, wide, "reference"), 1e-5)


@pytest.mark.parametrize("q_len, kv_len", [(1, 1), (1, 150), (150, 1), (63, 130), (0, 4), (4, 0)])
def test_lengths(q_len, kv_len):
    inputs = tensors(((2, 4, q_len, 16), (2, 4, kv_len, 16), (2, 4, kv_len, 16)))
    wide = [t.detach().double().requires_grad_() for t in inputs]
    expression = causal | ma.prefix(2)
    found = gradients_of(expression, inputs, "cpu")
    assert_close(found, gradients_of(expression, wide, "reference"), 1e-5)


@pytest.mark.parametrize(
    "dtype, tolerance", [(torch.float64, 1e-12), (torch.bfloat16, 2e-2), (torch.float16, 3e-3)]
)
def test_dtypes(dtype, tolerance):
    shapes = ((2, 4, 70, 16), (2, 2, 70, 16), (2, 2, 70, 16))
    inputs = tensors(shapes, dtype)
    wide = [t.detach().double().requires_grad_() for t in inputs]
    expression = causal & sliding(20) + ma.alibi(torch.rand(4))
    found = gradients_of(expression, inputs, "cpu")
    assert found[0].dtype == dtype
    assert found[1].dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert_close(found, gradients_of(expression, wide, "reference"), tolerance)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_against_the_oracle(backend):
    q, k, v = (t.detach() for t in tensors(((2, 4, 33, 8), (2, 2, 40, 8), (2, 2, 40, 8))))
    ids = np.random.default_rng(0).integers(0, 3, (2, 60))
    slopes = np.array([0.5, 0.25, 0.1, 0.0])
    keep = oracle.causal(q_len=33, kv_len=40) & oracle.document(ids, q_len=33, kv_len=40)
    added = oracle.alibi(slopes, q_len=33, kv_len=40)
    want, want_lse = oracle.attention(q, k, v, keep, lambda s: oracle.softcap(s + added, 2.0))
    score = causal & ma.document(torch.from_numpy(ids)) + ma.softcap(2.0) @ ma.alibi(
        torch.from_numpy(slopes).float()
    )
    out, lse = ma.attention(q, k, v, score, return_lse=True, backend=backend)
    np.testing.assert_allclose(out.numpy(), want, atol=2e-6)
    np.testing.assert_allclose(lse.numpy(), want_lse, atol=2e-6)


def test_reference_gradcheck():
    inputs = [t.detach().double().requires_grad_() for t in tensors(((1, 2, 7, 4),) * 3)]
    slopes = torch.rand(2, dtype=torch.float64, requires_grad=True)

    def attend(q, k, v, m):
        score = causal & sliding(3) + ma.softcap(2.0) @ ma.alibi(m)
        return ma.attention(q, k, v, score, backend="reference")

    assert torch.autograd.gradcheck(attend, (*inputs, slopes))


def test_cpu_gradcheck():
    inputs = [t.detach().double().requires_grad_() for t in tensors(((1, 2, 7, 4),) * 3)]
    table = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)

    def attend(q, k, v, t):
        return ma.attention(q, k, v, causal + ma.relative(t), return_lse=True, backend="cpu")

    assert torch.autograd.gradcheck(attend, (*inputs, table))


class Largest(TorchDispatchMode):
    """Remembers the number of elements of the largest tensor an operation returned."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.elements = max(self.elements, result.numel())
        return result


@pytest.mark.parametrize("mask", [causal, causal & sliding(100)], ids=str)
def test_memory_is_linear(mask):
    length = 4096
    inputs = tensors(((1, 2, length, 16),) * 3)
    with Largest() as seen:
        torch.autograd.grad(attend(checked_call(*inputs, mask))[0].sum(), inputs)
    assert seen.elements <= 1 << 20 < length * length // 8


def test_short_entries_with_other_documents_are_computed_together():
    def groups(mask, length, heads=2):
        query, key = torch.randn(3, heads, length, 8), torch.randn(3, 1, length, 8)
        form = checked_call(query, key, key, mask).form
        return plan.plan(form, Extents(length, length, 3, heads))

    ids = torch.arange(128) // torch.tensor([[7], [11], [128]])
    assert len(groups(ma.document(ids), 128)) == 1
    assert len(groups(ma.document(ids.clone()), 128, heads=64)) == 3
    one_long = ma.padding(torch.tensor([16, 800, 16]), queries=True)
    assert len(groups(one_long, 800, heads=1)) == 3
    (group,) = groups(ma.everything, 40)
    assert not group.rows[0].pieces[0].masked


def test_empty_tiles_are_not_visited():
    """Poison: keys that no query keeps are NaN, and NaN times a weight of zero is NaN."""
    q, k, v = (t.detach() for t in tensors(((1, 2, 1024, 16),) * 3))
    k[:, :, 600:] = float("nan")
    v[:, :, 600:] = float("nan")
    out = ma.attention(q[:, :, :512], k, v, causal)
    assert not out.isnan().any()


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_gradients_of_no_keys(backend):
    query, none = (torch.randn(1, 2, n, 8, requires_grad=True) for n in (5, 0))
    out, lse = ma.attention(query, none, none, causal, return_lse=True, backend=backend)
    assert (lse == -torch.inf).all() and not out.any()
    change = (torch.ones_like(out), torch.zeros_like(lse))
    of_query, of_none = torch.autograd.grad((out, lse), (query, none), change)
    assert not of_query.any() and of_none.shape == none.shape


def test_same_bits_every_time():
    def once():
        slopes = torch.linspace(0, 1, 4).requires_grad_()
        inputs = tensors(((2, 4, 300, 16), (2, 2, 300, 16), (2, 2, 300, 16)))
        return gradients_of(causal & sliding(70) + ma.alibi(slopes), inputs, "cpu")

    assert all(torch.equal(a, b) for a, b in zip(once(), once(), strict=True))


def test_double_backward_is_refused():
    inputs = tensors(((1, 1, 8, 4),) * 3)
    with pytest.raises(ma.BackendError, match="create_graph=True"):
        torch.autograd.grad(ma.attention(*inputs, causal).sum(), inputs, create_graph=True)


def test_a_table_changed_before_backward_is_told():
    q, k, v = tensors(((1, 2, 20, 8),) * 3)
    ids = torch.arange(20) // 7
    out = ma.attention(q, k, v, causal & ma.document(ids))
    ids.fill_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_tables_made_in_inference_mode_serve_training():
    q, k, v = tensors(((1, 2, 20, 8),) * 3)
    with torch.inference_mode():
        ids, slopes = torch.arange(20) // 7, torch.rand(2)
    mask = causal & ma.document(ids) + ma.alibi(slopes)
    wanted = causal & ma.document(ids.clone()) + ma.alibi(slopes.clone())
    found = [ma.attention(q, k, v, m).square().sum() for m in (mask, wanted)]
    for got, want in zip(*[torch.autograd.grad(f, (q, k, v)) for f in found], strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("mean", [0.0, 2.0])
def test_gradients_of_tables_in_16_bits_are_those_of_the_inputs(dtype, mean):
    """What rounding took from the output must not stay."""
    for weight in (ma.softmax, SOFTPLUS):
        assert max(cancelling("cpu", dtype, mean, 700, weight=weight)) <= 1e-4


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_gradients_of_a_table_in_16_bits_are_added_up_in_32(backend):
    torch.manual_seed(0)
    inputs, entries = torch.randn(3, 1, 2, 300, 16), torch.rand(2, 17).bfloat16()

    def gradient(backend, dtype):
        table = entries.to(dtype).requires_grad_()
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        q, k, v = inputs.to(wide)
        out = ma.attention(q, k, v, causal + ma.relative(table), backend=backend)
        return torch.autograd.grad((out * v.cos()).sum(), table)[0].double()

    exact = gradient("reference", torch.float64)
    assert (gradient(backend, torch.bfloat16) - exact).norm() < 3e-3 * exact.norm()


def test_gradients_of_slopes_by_far_keys():
    """An lse of some hundreds holds the sum of weights too roughly for a sum over distances."""
    generator = torch.Generator().manual_seed(0)
    q, k, v, g = (torch.randn(1, 8, 400, 16, generator=generator) for _ in range(4))
    slopes = torch.full((8,), 0.5, requires_grad=True)
    ma.attention(q, k, v, ma.alibi(slopes)).backward(g)

    wanted = slopes.detach().double().requires_grad_()
    distance = torch.arange(400) - torch.arange(400)[:, None]
    scores = q.double() @ k.double().mT / 4 + wanted[:, None, None] * distance
    (scores.softmax(-1) @ v.double()).backward(g.double())
    assert (slopes.grad - wanted.grad).norm() <= 2e-4 * wanted.grad.norm()
