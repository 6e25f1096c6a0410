"""The fused kernel on a GPU against the float64 reference."""

import contextlib

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding

pytestmark = pytest.mark.gpu

LENGTH = 1031  # past short rows


def expressions(device):
    torch.manual_seed(0)
    ids = torch.randint(0, 6, (LENGTH + 8,), device=device).sort().values
    scattered = torch.randint(0, 4, (2, LENGTH + 8), device=device)
    slopes = torch.rand(4, device=device)
    table = torch.randn(4, 31, device=device)
    dense = torch.rand(2, 4, LENGTH, LENGTH, device=device) > 0.6
    return {
        "everything": ma.everything,
        "nothing": ma.nothing,
        "causal": causal,
        "sliding": sliding(100),
        "window": ma.window(70, 20),
        "sinks": causal & (sliding(90) | ma.prefix(4)),
        "prefix": causal | ma.prefix(torch.tensor([3, 300], device=device)),
        "padding": ma.padding(torch.tensor([100, 515], device=device), queries=True),
        "document": causal & ma.document(ids),
        "scattered": ma.document(scattered),
        "not-document": ~ma.document(ids),
        "three": causal & sliding(128) & ma.document(ids) + ma.alibi(slopes),
        "chunked": causal & ma.chunked(100),
        "block-causal": ma.block_causal(64),
        "dilated": sliding(200) & ma.dilated(3),
        "dense": ma.dense(dense),
        "image": ma.neighborhood((5, 103), (3, 7)),
        "per-head": ma.where(ma.head % 2 == 0, causal, sliding(33)),
        "shifted": (causal & ma.document(ids)).shift(q=8),
        "relative": causal + ma.relative(table),
        "softcap": causal + ma.softcap(5.0) @ ma.alibi(slopes),
        "wide": causal & ma.window(2**31 - 1, None),
        "abs": abs(ma.q_idx - ma.kv_idx) < 77,
    }


NAMES = list(expressions("cpu"))
# Rounding of the output and of the weights to the dtype, times a margin for the sums.
TOLERANCE = {torch.float32: 4e-6, torch.float16: 2e-3, torch.bfloat16: 1.2e-2}


def check(expression, dtype, dim, *, value_dim=None, q_len=LENGTH, kv_len=LENGTH, kv_heads=2):
    value_dim = value_dim or dim
    q = torch.randn(2, 4, q_len, dim, device="cuda", dtype=dtype)
    k = torch.randn(2, kv_heads, kv_len, dim, device="cuda", dtype=dtype)
    v = torch.randn(2, kv_heads, kv_len, value_dim, device="cuda", dtype=dtype)
    # Memory that was NaN is handed out again: an element not written would be seen.
    poison = torch.full((2, 4, q_len, value_dim), float("nan"), device="cuda", dtype=dtype)
    del poison
    out, lse = ma.attention(q, k, v, expression, return_lse=True)
    wide = [t.double() for t in (q, k, v)]
    want, want_lse = ma.attention(*wide, expression, return_lse=True, backend="reference")
    assert not out.isnan().any()
    scale = want.abs().max().clamp(min=1e-6)
    assert ((out - want).abs().max() / scale).item() <= TOLERANCE[dtype]
    finite = want_lse.isfinite()
    assert torch.equal(finite, lse.isfinite())
    assert (lse[~finite] == float("-inf")).all()
    if finite.any():
        assert (lse - want_lse)[finite].abs().max().item() <= max(TOLERANCE[dtype], 1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_expressions(name, dtype):
    check(expressions("cuda")[name], dtype, 64)


@pytest.mark.parametrize("dim", [16, 32, 40, 80, 96, 128, 192, 256])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_head_dimensions(dim, dtype):
    check(causal & sliding(100), dtype, dim)


def test_value_dimension_of_its_own():
    check(causal, torch.bfloat16, 192, value_dim=128)


@pytest.mark.parametrize("q_len, kv_len", [(1, 1), (1, 515), (63, 64), (129, 500), (515, 100)])
def test_lengths(q_len, kv_len):
    check(causal | ma.prefix(5), torch.float16, 64, q_len=q_len, kv_len=kv_len)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_grouped_heads(kv_heads):
    check(causal, torch.bfloat16, 64, kv_heads=kv_heads)


def test_strided_inputs():
    packed = torch.randn(2, 300, 3, 4, 64, device="cuda", dtype=torch.bfloat16)
    q, k, v = (packed[:, :, i].transpose(1, 2) for i in range(3))
    out = ma.attention(q, k, v, causal)
    same = ma.attention(q.contiguous(), k.contiguous(), v.contiguous(), causal)
    assert torch.equal(out, same)


def test_repeats_bitwise():
    q, k, v = (torch.randn(2, 4, 700, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    score = causal & sliding(300) + ma.alibi(torch.rand(4, device="cuda"))
    assert torch.equal(ma.attention(q, k, v, score), ma.attention(q, k, v, score))


def test_new_values_compile_nothing():
    from maskalg.backends.triton.families.forward import compilations

    q, k, v = (torch.randn(1, 2, 640, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    ids = torch.arange(1000, device="cuda")

    def run(window, length, divisor):
        mask = causal & sliding(window) & ma.document(ids[:length] // divisor)
        ma.attention(q[:, :, :length], k[:, :, :length], v[:, :, :length], mask)

    run(100, 640, 7)
    before = compilations()
    for window, length, divisor in [(1, 640, 16), (16, 639, 50), (128, 512, 100), (4096, 1, 1)]:
        run(window, length, divisor)
    assert compilations() == before


def test_no_wait_for_the_device():
    q, k, v = (torch.randn(1, 2, 640, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    ids = torch.arange(640, device="cuda") // 100
    ma.attention(q, k, v, causal & ma.document(ids))
    torch.cuda.set_sync_debug_mode("error")
    try:
        ma.attention(q, k, v, causal & ma.document(ids.clone()) & ma.document(ids))
        ma.attention(q, k, v, causal & ma.document(ids.clone()))
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.fixture
def natural_form(monkeypatch):
    """A context in which hooks are rendered without inline assembly."""
    from maskalg.backends.triton import plan as backend
    from maskalg.backends.triton.tuned import look_again
    from maskalg.codegen.hooks import Style

    @contextlib.contextmanager
    def natural():
        with monkeypatch.context() as patch:
            patch.setattr(backend, "Style", lambda wide, **_: Style(wide))
            backend.structure_plan.cache_clear()
            look_again()  # what is remembered of calls has the other form
            yield
        backend.structure_plan.cache_clear()
        look_again()

    return natural


@pytest.mark.parametrize("name", NAMES)
def test_inline_assembly_equals_the_natural_form(name, natural_form):
    """The interpreter cannot run inline assembly: here both forms must agree to the bit."""
    expression = expressions("cuda")[name]
    for slot, table in list(expression._named.items()):
        if getattr(getattr(table, "tensor", None), "dtype", None) == torch.int64:
            expression = expression.bind({slot: table.tensor.int()})
    q, k, v = (torch.randn(2, 4, LENGTH, 64, device="cuda", dtype=torch.bfloat16) for _ in "qkv")
    assembly = ma.attention(q, k, v, expression)
    with natural_form():
        natural = ma.attention(q, k, v, expression)
    if name == "softcap":  # its tanh is another one, within a rounding of bfloat16
        torch.testing.assert_close(assembly, natural, atol=8e-3, rtol=8e-3)
    else:
        assert torch.equal(assembly, natural)


def test_tanh_by_two_special_functions(natural_form):
    """In float32, where the rounding of the output does not hide it."""
    score = causal & sliding(200) + ma.softcap(5.0)
    q, k, v = (5 * torch.randn(2, 4, LENGTH, 64, device="cuda") for _ in "qkv")
    fast = ma.attention(q, k, v, score)
    with natural_form():
        torch.testing.assert_close(fast, ma.attention(q, k, v, score), atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("queries", [1, 700])
def test_keys_and_values_expanded_over_batch_and_heads(queries, dim):
    """Strides of 0 are described too: the kernels, and so the bits, are those of copies."""
    torch.manual_seed(0)
    q = torch.randn(3, 4, queries, dim, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    one = torch.randn(2, 1, 1, 700, dim, device="cuda", dtype=torch.bfloat16)
    expanded = [x.expand(3, 4, -1, -1).requires_grad_() for x in one]
    copies = [x.detach().contiguous().requires_grad_() for x in expanded]
    mask = causal.shift(q=700 - queries)
    change = torch.randn_like(q)
    found, wanted = (
        (out := ma.attention(q, *keys, mask), *torch.autograd.grad(out, (q, *keys), change))
        for keys in (expanded, copies)
    )
    told = [ma.explain(q, *keys, mask).tier for keys in (expanded, copies)]
    assert told[0] == told[1]
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
