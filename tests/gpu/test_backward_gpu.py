"""Gradients of the fused kernels on a GPU, against float64 autograd through the reference."""

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from tests.cases.gradients import check_gradients

pytestmark = pytest.mark.gpu

LENGTH = 515


def expressions(device):
    torch.manual_seed(0)
    ids = torch.randint(0, 6, (LENGTH + 8,), device=device).sort().values
    scattered = torch.randint(0, 4, (2, LENGTH + 8), device=device)
    slopes = torch.rand(4, device=device)
    return {
        "everything": ma.everything,
        "nothing": ma.nothing,
        "causal": causal,
        "window": ma.window(70, 20),
        "sinks": causal & (sliding(90) | ma.prefix(4)),
        "prefix": causal | ma.prefix(torch.tensor([3, 300], device=device)),
        "padding": ma.padding(torch.tensor([100, 515], device=device), queries=True),
        "document": causal & ma.document(ids),
        "document-int32": causal & ma.document(ids.int()),
        "scattered": ma.document(scattered),
        "not-document": ~ma.document(ids),
        "three": causal & sliding(128) & ma.document(ids.int()) + ma.alibi(slopes),
        "chunked": causal & ma.chunked(100),
        "dilated": sliding(200) & ma.dilated(3),
        "image": ma.neighborhood((5, 103), (3, 7)),
        "per-head": ma.where(ma.head % 2 == 0, causal, sliding(33)),
        "shifted": (causal & ma.document(ids)).shift(q=8),
        "shifted-far": ~ma.document(ids.int()).shift(q=torch.tensor([2**63 - 1, 3], device=device)),
        "relative": causal + ma.relative(torch.randn(4, 31, device=device)),
        "softcap": causal + ma.softcap(5.0) @ ma.alibi(slopes),
    }


NAMES = list(expressions("cpu"))
# Rounding of P and dS to the dtype before the products; float32 products keep about 21 bits.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 2.5e-2}


def check(expression, dtype, dim, *, value_dim=None, q_len=LENGTH, kv_len=LENGTH, kv_heads=2):
    value_dim = value_dim or dim
    torch.manual_seed(1)
    shapes = ((2, 4, q_len, dim), (2, kv_heads, kv_len, dim), (2, kv_heads, kv_len, value_dim))
    inputs = [torch.randn(s, device="cuda", dtype=dtype, requires_grad=True) for s in shapes]
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    out, lse = ma.attention(*inputs, expression, return_lse=True)
    want, want_lse = ma.attention(*wide, expression, return_lse=True, backend="reference")
    weights, of_lse = torch.randn_like(out), torch.randn_like(lse)
    # Memory that was NaN is handed out again: an element not written would be seen.
    poison = [torch.full_like(t, float("nan")) for t in inputs]
    del poison
    kept = want_lse.isfinite()
    ((out * weights).sum() + (torch.where(kept, lse, 0) * of_lse).sum()).backward()
    ((want * weights).sum() + (torch.where(kept, want_lse, 0) * of_lse).sum()).backward()
    for got, true in zip(inputs, wide, strict=True):
        assert not got.grad.isnan().any()
        scale = true.grad.abs().max().clamp(min=1e-3)
        assert ((got.grad - true.grad).abs().max() / scale).item() <= TOLERANCE[dtype]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_gradients(name, dtype):
    check(expressions("cuda")[name], dtype, 64)


@pytest.mark.parametrize("dim", [16, 40, 80, 96, 128, 192, 256])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_head_dimensions(dim, dtype):
    check(causal & sliding(100), dtype, dim)


@pytest.mark.parametrize("dim", [192, 256])
def test_a_mask_whose_first_tile_of_float32_spills(dim):
    ids = (torch.arange(LENGTH, device="cuda") // 70).int()
    check(ma.document(ids) | sliding(100), torch.float32, dim)


def test_value_dimension_of_its_own():
    check(causal, torch.bfloat16, 192, value_dim=128)


@pytest.mark.parametrize("q_len, kv_len", [(1, 1), (1, 515), (63, 64), (129, 500), (515, 100)])
def test_lengths(q_len, kv_len):
    check(causal | ma.prefix(5), torch.float16, 64, q_len=q_len, kv_len=kv_len)


@pytest.mark.parametrize("kv_heads", [1, 4])
def test_grouped_heads(kv_heads):
    check(causal, torch.bfloat16, 64, kv_heads=kv_heads)


def test_repeats_bitwise():
    def once():
        torch.manual_seed(0)
        inputs = [
            torch.randn(2, 4, 700, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            for _ in range(3)
        ]
        score = causal & sliding(300) + ma.alibi(torch.linspace(0.1, 1, 4, device="cuda"))
        ma.attention(*inputs, score).sum().backward()
        return [tensor.grad for tensor in inputs]

    assert all(torch.equal(a, b) for a, b in zip(once(), once(), strict=True))


def _seen(found):
    assert found


@pytest.mark.parametrize("of_tokens", ["query", "key", "query key value"])
@pytest.mark.parametrize("weight", ["softmax", "relu", "sinks"])
@pytest.mark.parametrize("dims", [(64, 64), (128, 128), (48, 80), (36, 36)])
def test_orders_in_memory(dims, weight, of_tokens):
    """Output and gradients of inputs whose heads lie together, of a token each."""
    torch.manual_seed(0)
    dim, value_dim = dims
    shapes = {"query": (2, 4, 300, dim), "key": (2, 2, 280, dim), "value": (2, 2, 280, value_dim)}
    tensors = [
        torch.randn(b, n, h, d, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
        if name in of_tokens
        else torch.randn(b, h, n, d, device="cuda", dtype=torch.bfloat16)
        for name, (b, h, n, d) in shapes.items()
    ]
    weights = {"softmax": ma.softmax, "relu": ma.relu, "sinks": ma.softmax_with_sink(0.3)}
    change = torch.randn(2, 4, 300, value_dim, device="cuda")
    check_gradients(tensors, causal.shift(q=5), change, weight=weights[weight])


def test_strided_inputs_and_gradients():
    packed = torch.randn(2, 300, 3, 4, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    q, k, v = (packed[:, :, i].transpose(1, 2) for i in range(3))
    out = ma.attention(q, k, v, causal).transpose(1, 2)
    assert out.is_contiguous()
    for tensor in (q, k, v):
        tensor.register_hook(lambda grad: _seen(grad.transpose(1, 2).is_contiguous()))
    out.sum().backward()
    plain = packed.detach().double().requires_grad_()
    q, k, v = (plain[:, :, i].transpose(1, 2) for i in range(3))
    ma.attention(q, k, v, causal, backend="reference").transpose(1, 2).sum().backward()
    error = (packed.grad - plain.grad).abs().max() / plain.grad.abs().max()
    assert error.item() <= TOLERANCE[torch.bfloat16]


def test_double_backward_is_refused():
    q = torch.randn(1, 1, 64, 16, device="cuda", requires_grad=True)
    with pytest.raises(ma.BackendError, match="create_graph=True"):
        torch.autograd.grad(ma.attention(q, q, q, causal).sum(), q, create_graph=True)
