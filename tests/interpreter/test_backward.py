"""Gradients of the fused kernels in Triton's interpreter, against float64 autograd."""

import os

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from maskalg.formula import nodes
from maskalg.formula.printing import named
from tests.cases.gradients import check_gradients

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)

LENGTH = 50


def expressions():
    torch.manual_seed(0)
    ids = torch.randint(0, 4, (LENGTH + 8,)).sort().values
    scattered = torch.randint(0, 3, (2, LENGTH + 8))
    return {
        "everything": ma.everything,
        "nothing": ma.nothing,
        "causal": causal,
        "sinks": causal & (sliding(9) | ma.prefix(3)),
        "prefix": causal | ma.prefix(torch.tensor([3, 40])),
        "padding": ma.padding(torch.tensor([20, 50]), queries=True),
        "document": causal & ma.document(ids),
        "scattered": ma.document(scattered),
        "other-document": ma.document(scattered[0].sort().values, scattered),
        "three": causal & sliding(20) & ma.document(ids) + ma.alibi(torch.rand(4)),
        "chunked": ma.chunked(13),
        "dilated": sliding(30) & ma.dilated(3),
        "per-head": ma.where(ma.head % 2 == 0, causal, sliding(5)),
        "shifted": (causal & ma.document(ids)).shift(q=5, kv=3),
        "softcap": causal + ma.softcap(3.0) @ ma.alibi(torch.rand(4)),
        "capped-twice": causal + (ma.softcap(2.0) + ma.softcap(5.0)),
        "squared": _of_score(lambda s: nodes.mul(s, s)),
        "sine": _of_score(lambda s: nodes.call("sin", s)),
    }


def _of_score(build):
    return causal + ma.Bias(nodes.TRUE, build(nodes.SCORE), named("tested"))


@pytest.mark.parametrize("name", list(expressions()))
def test_gradients(name):
    # Alibi's slopes are those of four heads.
    check(expressions()[name], heads=4 if name in {"three", "softcap"} else 2)


@pytest.mark.parametrize("q_len, kv_len", [(1, 50), (33, 16), (17, 40), (0, 5), (5, 0)])
def test_lengths(q_len, kv_len):
    check(causal | ma.prefix(2), q_len=q_len, kv_len=kv_len)


def test_odd_head_dimensions():
    check(causal, dim=24, value_dim=40, q_len=20, kv_len=20)


WEIGHTS = {"softmax": ma.softmax, "relu": ma.relu, "sinks": ma.softmax_with_sink(0.3)}


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("name", ["query", "key", "value", "query key value"])
def test_orders_in_memory(name, weight):
    """Output and gradients of inputs whose heads lie together, of a token each."""
    torch.manual_seed(2)
    shapes = {"query": (2, 4, 50, 16), "key": (2, 2, 40, 16), "value": (2, 2, 40, 24)}
    tensors = [
        torch.randn(shape).transpose(1, 2).contiguous().transpose(1, 2)
        if of in name
        else torch.randn(shape)
        for of, shape in shapes.items()
    ]
    change = torch.randn(2, 4, 50, 24)
    check_gradients(tensors, causal.shift(q=5), change, most=2e-5, weight=WEIGHTS[weight])


def check(expression, *, heads=2, q_len=LENGTH, kv_len=LENGTH, dim=16, value_dim=None):
    value_dim = value_dim or dim
    torch.manual_seed(1)
    few = heads // 2
    shapes = ((2, heads, q_len, dim), (2, few, kv_len, dim), (2, few, kv_len, value_dim))
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    results = [
        ma.attention(*tensors, expression, return_lse=True, backend=backend)
        for tensors, backend in ((inputs, "triton"), (wide, "reference"))
    ]
    weights = torch.randn_like(results[0][0])
    of_lse = torch.randn_like(results[0][1])
    for (out, lse), double in zip(results, (False, True), strict=True):
        finite = lse.isfinite()
        a, b = (t.double() if double else t for t in (weights, of_lse))
        loss = (out * a).sum() + (torch.where(finite, lse, 0) * b).sum()
        loss.backward()
    for got, want in zip(inputs, wide, strict=True):
        assert not got.grad.isnan().any()
        torch.testing.assert_close(got.grad.double(), want.grad, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("parts", [1, 2, 3, 6])
@pytest.mark.parametrize("name", ["sinks", "of heads", "document"])
def test_heads_that_share_keys_in_parts(name, parts, monkeypatch):
    """Where a program has several query heads, and where parts of them are added."""
    from maskalg.backends.triton.families import backward

    monkeypatch.setattr(backward, "_parts", lambda call: parts)
    made, sized = [], backward._sizes

    def sizes(of, tile, call):
        found = sized(of, tile, call)
        made.append(found.numbers["parts"])
        return found

    monkeypatch.setattr(backward, "_sizes", sizes)
    expression = {
        "sinks": causal & (sliding(9) | ma.prefix(3)),
        "of heads": causal & sliding(torch.tensor([3, 9, 30, 1, 50, 7])),
        "document": causal & ma.document(torch.arange(LENGTH) // 17),
    }[name]
    torch.manual_seed(1)
    shapes = ((1, 6, LENGTH, 16), (1, 1, LENGTH, 16), (1, 1, LENGTH, 24))
    tensors = [torch.randn(shape) for shape in shapes]
    check_gradients(tensors, expression, torch.randn(1, 6, LENGTH, 24), most=2e-5)
    assert set(made) == {1, parts}


def test_double_backward_is_refused():
    q = torch.randn(1, 1, 20, 16, requires_grad=True)
    out = ma.attention(q, q, q, causal, backend="triton")
    with pytest.raises(ma.BackendError, match="create_graph=True"):
        torch.autograd.grad(out.sum(), q, create_graph=True)


def test_a_table_changed_before_backward_is_told():
    q, ids = torch.randn(1, 1, 20, 16, requires_grad=True), torch.arange(20) // 7
    out = ma.attention(q, q, q, causal & ma.document(ids), backend="triton")
    ids.fill_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
