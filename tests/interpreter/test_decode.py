"""Few queries against many keys in Triton's interpreter, against the float64 reference."""

import os

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from tests.cases import decoding as decode_cases
from tests.cases import weights as weight_cases
from tests.interpreter.test_ready import found_anew  # noqa: F401

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)

HEADS, LENGTH = decode_cases.HEADS, 150  # of keys: 5 tiles, the last one cut


@pytest.fixture(autouse=True)
def launched(monkeypatch):
    """Splits of each launch: what serves these calls is the kernel of few queries.

    On a GPU it does from more keys on.
    """
    from maskalg.backends.triton.families import decode

    monkeypatch.setattr(decode, "LEAST_KEYS", LENGTH)
    monkeypatch.setattr(decode, "_LEAST_OF_SPLIT", LENGTH // 2)
    found = []
    of_parts = decode._parts

    def noted(*arguments):
        launch = of_parts(*arguments)
        found.append(launch.made[0].shape[1])
        return launch

    monkeypatch.setattr(decode, "_parts", noted)
    return found


def inputs(q_len, kv_heads, *, batch=2, dims=(16, 16), dtype=torch.float32):
    torch.manual_seed(1)
    shapes = [(HEADS, q_len, dims[0]), (kv_heads, LENGTH, dims[0]), (kv_heads, LENGTH, dims[1])]
    return [torch.randn(batch, *shape, dtype=dtype) for shape in shapes]


def check(tensors, expression, tolerance=1e-5, **options):
    out, lse = ma.attention(*tensors, expression, return_lse=True, backend="triton", **options)
    wide = [t.double() for t in tensors]
    want = ma.attention(*wide, expression, return_lse=True, backend="reference", **options)
    torch.testing.assert_close(out.double(), want[0], atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(lse.double(), want[1], atol=tolerance, rtol=tolerance)
    assert out.dtype == tensors[0].dtype and lse.dtype == torch.float32


@pytest.mark.parametrize("name", decode_cases.NAMES)
def test_expressions(name, launched):
    check(inputs(3, 2), decode_cases.expressions(LENGTH)[name])
    # Of 16 programs at once, for each of two heads of keys, or of four that the mask tells apart.
    assert launched == ([2] if name in ("per-head", "dense") else [4])


@pytest.mark.parametrize("q_len, kv_heads, splits", [(1, HEADS, 2), (5, 2, 4), (4, 1, 5)])
def test_heads(q_len, kv_heads, splits, launched):
    check(inputs(q_len, kv_heads), decode_cases.expressions(LENGTH)["alibi"])
    assert launched == [splits]


@pytest.mark.parametrize("name", ["causal", "document", "softcap"])
def test_several_tiles_of_rows(name, launched):
    # 44 rows of all heads are three tiles, of each batch entry.
    check(inputs(11, 1), decode_cases.expressions(LENGTH)[name])
    assert launched == [2]


def test_more_splits_than_tiles(launched):
    check(inputs(1, 1, batch=1), causal.shift(q=20))
    assert launched == [5]
    # What is kept lies in two tiles; 3 programs find nothing.
    check(inputs(1, 1, batch=1), (causal & sliding(20)).shift(q=LENGTH - 1))


@pytest.mark.parametrize("name", list(weight_cases.weights()))
def test_weights(name, launched):
    weight = weight_cases.weights()[name]
    tensors = inputs(3, 2, batch=1)
    for expression in ((causal & sliding(100)).shift(q=120), ma.nothing):
        with torch.no_grad():
            found = ma.attention(*tensors, expression, weight=weight, backend="triton")
        wide = [t.double() for t in tensors]
        wanted = ma.attention(*wide, expression, weight=weight, backend="reference")
        torch.testing.assert_close(found.double(), wanted.detach(), atol=2e-5, rtol=2e-5)
    assert launched == [5, 5]


@pytest.mark.parametrize("dims", [(24, 16), (16, 40)])
def test_head_dimensions(dims):
    check(inputs(2, 2, dims=dims), causal.shift(q=LENGTH - 2))


def test_strides():
    q, k, v = inputs(2, 2)
    q = q.transpose(1, 2).contiguous().transpose(1, 2)
    wider = torch.randn(2, 2, LENGTH, 40)
    check((q, wider[..., 3:19], wider[..., 20:36]), causal.shift(q=100))
    check((q, k.mT.contiguous().mT, v), causal.shift(q=100))


def test_scales():
    for scale in (0.7, -0.3, 1e-3):
        check(inputs(3, 2), causal.shift(q=140) + ma.softcap(3.0), scale=scale)


def test_a_score_that_is_infinite():
    tensors = inputs(1, 4)
    tensors[1][:, :, 100] = float("-inf")
    tensors[0] = tensors[0].abs()
    check(tensors, ma.everything)


@pytest.mark.parametrize("name", ["everything", "alibi"])
def test_float8(name):
    tensors = [
        t * (1 + torch.arange(t.shape[1])).view(-1, 1, 1) for t in inputs(3, 2, dims=(32, 32))
    ]
    numbers, factors = zip(*[ma.to_float8(t) for t in tensors], strict=True)
    how = {"descale": factors, "return_lse": True}
    expression = decode_cases.expressions(LENGTH)[name]
    out, lse = ma.attention(*numbers, expression, **how, backend="triton")
    want, want_lse = ma.attention(*numbers, expression, **how, backend="reference")
    # Both are rounded to bfloat16, and weights to float16 before.
    assert ((out - want).abs() <= 2.0**-7 * want.abs() + 2e-3).all()
    assert torch.allclose(lse, want_lse, atol=1e-4)


def test_calls_like_one_before(found_anew):  # noqa: F811
    offset = torch.tensor([140, 100])
    expression = causal.shift(q=offset)
    for _ in range(4):
        check(inputs(1, 2), expression)
        offset += 1
    assert len(found_anew) == 2


def test_gradients(launched):
    leaves = [t.requires_grad_() for t in inputs(3, 2, batch=1)]
    expression = (causal & sliding(100)).shift(q=LENGTH - 3)
    found = ma.attention(*leaves, expression, backend="triton")
    assert launched == [5]
    change = torch.randn_like(found)
    wanted = ma.attention(*leaves, expression, backend="reference")
    for one, other in zip(
        torch.autograd.grad(found, leaves, change),
        torch.autograd.grad(wanted, leaves, change),
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_what_is_left_to_the_others(monkeypatch):
    serves = lambda tensors: "few queries" in ma.explain(*tensors, causal, backend="triton").tier  # noqa: E731
    assert serves(inputs(1, 2))
    q, k, v = inputs(1, 2)
    assert not serves((q, k[:, :, 1:], v[:, :, 1:]))  # a short cache
    assert serves(inputs(11, 1))
    assert not serves(inputs(20, 1))  # the keys of a split would be too few
    assert not serves(inputs(40, 4))  # there are programs enough
