"""The fused kernel in Triton's interpreter, against the float64 reference."""

import os

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from maskalg.formula import nodes
from maskalg.formula.printing import named

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)

LENGTH = 70


def expressions():
    torch.manual_seed(0)
    ids = torch.randint(0, 5, (LENGTH + 8,)).sort().values
    scattered = torch.randint(0, 4, (2, LENGTH + 8))
    small = torch.randint(0, 3, (LENGTH + 8,), dtype=torch.uint8)
    slopes = torch.rand(4)
    return {
        "everything": ma.everything,
        "nothing": ma.nothing,
        "causal": causal,
        "sliding": sliding(20),
        "window": ma.window(20, 5),
        "sinks": causal & (sliding(9) | ma.prefix(3)),
        "prefix": causal | ma.prefix(torch.tensor([3, 60])),
        "padding": ma.padding(torch.tensor([20, 70]), queries=True),
        "document": causal & ma.document(ids),
        "scattered": ma.document(scattered),
        "other-document": ma.document(scattered[0].sort().values, scattered),
        "not-document": ~ma.document(ids),
        "three": causal & sliding(20) & ma.document(ids) + ma.alibi(slopes),
        "chunked": ma.chunked(13) | ma.prefix(2),
        "block-causal": ma.block_causal(7),
        "dilated": sliding(30) & ma.dilated(3),
        "dense": ma.dense(torch.rand(2, 4, LENGTH, LENGTH) > 0.5),
        "per-head": ma.where(ma.head % 2 == 0, causal, sliding(5)),
        "shifted": (causal & ma.document(ids)).shift(q=5, kv=3),
        "relative": causal + ma.relative(torch.randn(4, 11)),
        "softcap": causal + ma.softcap(3.0) @ ma.alibi(slopes),
        "wide": ma.window(2**31 - 1, 3) & (ma.q_idx - 3 >= ma.kv_idx),
        "small-integers": ma.table(small)[ma.q_idx] - ma.table(small)[ma.kv_idx] >= 0,
        "many-intervals": _islands(),
        "flags-of-queries": causal & sliding(20) & ma.table(small == 1)[ma.q_idx],
        "flags-of-keys": (ma.table(small == 1)[ma.kv_idx] | sliding(5)) & (ma.kv_idx % 7 >= 2),
        "categories": ma.table(torch.rand(3, 3) > 0.5)[
            ma.table(small)[ma.q_idx], ma.table(small)[ma.kv_idx]
        ],
        "sections": (ma.table(ids)[ma.q_idx] * 9 <= ma.kv_idx)
        & (ma.kv_idx <= ma.q_idx + ma.table(small)[ma.q_idx]),
        "two-remainders": ((ma.q_idx - ma.kv_idx) % 2 == 0) & ((ma.q_idx + ma.kv_idx) % 3 == 1),
        "number-of-the-head": ma.q_idx - ma.kv_idx <= ma.where(ma.head % 2 == 0, 4, ma.head * 9),
        "neighborhood": ma.neighborhood((7, 9), (3, 4), (1, 2), (False, True)),
        "neighborhood-on-a-line": ma.neighborhood(66, 9, 3),
        "tiled-neighborhood": ma.tiled_neighborhood((6, 10), (2, 5), 3),
        "sliding-tiles": ma.sliding_tile((8, 8), (4, 4), (1, 2), 3),
        "frames": ma.where(ma.head % 2 == 0, ma.spatial(10, 1), ma.temporal(10)),
    }


def _of_score(build):
    """A bias that is a formula of the score and the distance."""
    node = build(nodes.SCORE, nodes.subtract(nodes.Q, nodes.K))
    return causal + ma.Bias(nodes.TRUE, node, named("tested"))


REAL = {
    "kerple": lambda s, d: nodes.subtract(
        s, nodes.call("log", nodes.add(nodes.mul(d, d), nodes.const(1.5)))
    ),
    "trigonometric": lambda s, d: nodes.add(
        nodes.call("sin", nodes.call("cos", s)), nodes.call("tan", nodes.HEAD)
    ),
    "small-arguments": lambda s, d: nodes.add(
        nodes.call("expm1", nodes.mul(s, nodes.const(0.03))),
        nodes.call("log1p", nodes.call("abs", nodes.mul(s, nodes.const(0.02)))),
        nodes.call("erf", s),
    ),
    "powers": lambda s, d: nodes.add(
        nodes.power(nodes.add(nodes.mul(s, s), nodes.const(0.5)), nodes.const(-1.3)),
        nodes.power(nodes.const(-2.0), nodes.call("float", nodes.minimum(d, nodes.const(3)))),
    ),
    "rounded": lambda s, d: nodes.add(
        s,
        nodes.truncated(nodes.divide(nodes.negate(d), nodes.const(4.0))),
        nodes.call("floor", nodes.divide(nodes.negate(d), nodes.const(3.0))),
        nodes.bitwise("bitxor", nodes.bitwise("bitand", d, nodes.const(6)), nodes.const(1)),
    ),
    "no-score": lambda s, d: nodes.call("float", nodes.HEAD),
    "minus-infinity": lambda s, d: nodes.where(
        nodes.ge(d, nodes.const(2)), s, nodes.const(float("-inf"))
    ),
}


@pytest.mark.parametrize("name", list(REAL))
def test_real_functions(name):
    check(_of_score(REAL[name]), q_len=40, kv_len=33)


def _islands():
    """More intervals than the kernel is given bounds for."""
    mask = ma.nothing
    for i in range(12):
        mask |= (ma.kv_idx >= 6 * i) & (ma.kv_idx < 6 * i + 2) & (ma.q_idx >= 5 * i)
    return mask


NAMES = list(expressions())
# Their tensors have an entry for each of four heads.
OF_FOUR_HEADS = {"three", "dense", "relative", "softcap"}


def check(
    expression, *, heads=2, q_len=LENGTH, kv_len=LENGTH, dim=16, value_dim=None, dtype=torch.float32
):
    value_dim = value_dim or dim
    q = torch.randn(2, heads, q_len, dim, dtype=dtype)
    k, v = (torch.randn(2, heads // 2, kv_len, size, dtype=dtype) for size in (dim, value_dim))
    out, lse = ma.attention(q, k, v, expression, return_lse=True, backend="triton")
    wide = [t.double() for t in (q, k, v)]
    want, want_lse = ma.attention(*wide, expression, return_lse=True, backend="reference")
    tolerance = {torch.float32: 1e-5, torch.float16: 4e-3}[dtype]
    torch.testing.assert_close(out.double(), want, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(lse.double(), want_lse, atol=tolerance, rtol=tolerance)
    assert out.dtype == dtype and lse.dtype == torch.float32


@pytest.mark.parametrize("name", NAMES)
def test_expressions(name):
    check(expressions()[name], heads=4 if name in OF_FOUR_HEADS else 2)


@pytest.mark.parametrize("q_len, kv_len", [(1, 1), (1, 70), (33, 16), (70, 31), (64, 64)])
def test_lengths(q_len, kv_len):
    check(causal | ma.prefix(5), q_len=q_len, kv_len=kv_len)


@pytest.mark.parametrize("dim, value_dim", [(16, 16), (24, 40), (80, 64)])
def test_head_dimensions(dim, value_dim):
    check(causal, q_len=33, kv_len=40, dim=dim, value_dim=value_dim)


def test_half_precision():
    check(causal & sliding(11), dtype=torch.float16)


def test_strided_inputs_and_no_lse():
    packed = torch.randn(1, 40, 3, 2, 16)
    q, k, v = (packed[:, :, i].transpose(1, 2) for i in range(3))
    out = ma.attention(q, k, v, causal, backend="triton")
    want = ma.attention(q, k, v, causal, backend="reference")
    torch.testing.assert_close(out, want)


def test_full_tiles_are_not_masked_and_empty_ones_not_visited(monkeypatch):
    """Poison: a NaN key outside of the mask, and a hook that must not be called."""
    q, k, v = (torch.randn(1, 1, 64, 16) for _ in range(3))
    k[:, :, 48:] = float("nan")
    v[:, :, 48:] = float("nan")
    out = ma.attention(q[:, :, :32], k, v, causal & ma.chunked(32), backend="triton")
    assert not out.isnan().any()


def test_no_keys_and_no_queries():
    q, k = torch.randn(1, 2, 5, 16), torch.randn(1, 2, 0, 16)
    out, lse = ma.attention(q, k, k, causal, return_lse=True, backend="triton")
    assert (out == 0).all() and (lse == float("-inf")).all()
    assert ma.attention(k, q, q, causal, backend="triton").shape == (1, 2, 0, 16)


def test_refusals():
    small = torch.randn(1, 1, 8, 4)
    with pytest.raises(ma.BackendError, match=r"8 to 256, got 4.*reference"):
        ma.attention(small, small, small, causal, backend="triton")
    with pytest.raises(ma.BackendError, match="float64"):
        wide = torch.randn(1, 1, 8, 16).double()
        ma.attention(wide, wide, wide, causal, backend="triton")


def test_explain_names_the_kernels_of_gradients(monkeypatch):
    from maskalg.backends.triton import plan
    from maskalg.backends.triton.trust import has_gluon
    from maskalg.tiles.tuned.choices import NOTHING_TUNED

    if not has_gluon():
        pytest.skip("this Triton is not one the Gluon kernels were tested with")

    def told(mask, dtype=torch.bfloat16):
        tensor = torch.empty(1, 1, 1, 64, dtype=dtype).expand(2, 16, 8192, 64)
        if dtype == torch.bfloat16:
            tensor = tensor.contiguous()
        return ma.explain(tensor, tensor, tensor, mask, backend="triton").gradients

    assert told(causal).startswith("dQ: plain Triton, 32 x 16")
    monkeypatch.setattr(plan, "machine_of", lambda _: ("sm_90", NOTHING_TUNED))
    one = "one kernel, Gluon on Hopper, 128 queries at a time"
    assert told(causal) == told(causal & sliding(1024)) == one
    gluon = "Gluon on Hopper, 64 x 64, 3 stages"
    plain = "plain Triton, 64 x 64, 4 warps, 2 stages"
    assert told(causal & sliding(256)) == f"dQ: {plain}; dK and dV: {gluon}"
    ids = torch.arange(8192) // 4096
    assert told(causal & ma.document(ids)) == f"dQ: {gluon}; dK and dV: {gluon}"
    assert told(causal & ma.document.from_lengths([4096, 4096])) == one
    assert told(causal, torch.float8_e4m3fn) == ""


def test_explain_names_what_is_chosen():
    q = torch.randn(1, 2, 40, 16)
    text = str(ma.explain(q, q, q, causal & sliding(9), backend="triton"))
    assert "plain Triton" in text and "closed form, exact" in text and "no metadata" in text
    ids = torch.zeros(40, dtype=torch.int64)
    assert (
        "from the bound tensors" in ma.explain(q, q, q, ma.document(ids), backend="triton").schedule
    )
    assert ma.explain(q, q, q, ma.relative(torch.randn(9))).bias == "computed for each pair"
    many = ma.explain(q, q, q, _islands(), backend="triton")
    assert "every tile" in many.schedule


def test_bfloat16_is_refused():
    """Triton's interpreter computes other numbers: 8e8 where 1 is right."""
    q = torch.randn(1, 2, 70, 32, dtype=torch.bfloat16)
    with pytest.raises(ma.BackendError, match="computes bfloat16 wrongly"):
        ma.attention(q, q, q, ma.causal, backend="triton")
