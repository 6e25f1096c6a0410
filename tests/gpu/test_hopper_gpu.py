"""The warp-specialised kernel on a Hopper GPU against the float64 reference."""

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from maskalg.schedule.summaries import labels
from maskalg.testing import assert_attention_close
from tests.cases.launched import launched

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9,
        reason="needs a Hopper GPU",
    ),
]

LENGTH = 1031  # past short rows
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.2e-2}


def expressions(device):
    torch.manual_seed(0)
    ids = torch.randint(0, 6, (LENGTH + 8,), device=device, dtype=torch.int32).sort().values
    scattered = torch.randint(0, 4, (LENGTH + 8,), device=device)
    slopes = torch.rand(4, device=device)
    return {
        "everything": ma.everything,
        "nothing": ma.nothing,
        "causal": causal,
        "late": ma.q_idx >= ma.kv_idx + 200,
        "window": causal & sliding(100),
        "sinks": causal & (sliding(90) | ma.prefix(4)),
        "prefix": causal | ma.prefix(torch.tensor([3, 300], device=device)),
        "padding": ma.padding(torch.tensor([100, 515], device=device), queries=True),
        "document": causal & ma.document(ids),
        "wide ids": causal & ma.document(ids.long()),
        "scattered": causal & sliding(300) & ma.document(scattered.int()),
        "scattered wide ids": causal & ma.document(scattered + 2**40 * (scattered % 2)),
        "scattered or first": causal & (ma.document(scattered.int()) | ma.prefix(9)),
        "three": causal & sliding(128) & ma.document(ids) + ma.alibi(slopes),
        "dilated": sliding(200) & ma.dilated(3),
        "dense": ma.dense(torch.rand(2, 4, LENGTH, LENGTH, device=device) > 0.6),
        "per-head": ma.where(ma.head % 2 == 0, causal, sliding(33)),
        "shifted": (causal & ma.document(ids)).shift(q=8),
        "softcap": causal + ma.softcap(5.0) @ ma.alibi(slopes),
        "relative": causal + ma.relative(torch.randn(4, 31, device=device)),
    }


@pytest.fixture
def launches(monkeypatch):
    """Launches of the warp-specialised kernel."""
    return launched(monkeypatch, "hopper_forward")


def inputs(dim, dtype, *, value_dim=None, q_len=LENGTH, kv_len=LENGTH, kv_heads=2):
    torch.manual_seed(1)
    q = torch.randn(2, 4, q_len, dim, device="cuda", dtype=dtype)
    k = torch.randn(2, kv_heads, kv_len, dim, device="cuda", dtype=dtype)
    v = torch.randn(2, kv_heads, kv_len, value_dim or dim, device="cuda", dtype=dtype)
    return q, k, v


def check(expression, q, k, v, weight=ma.softmax, factor=None):
    # Memory that was NaN is handed out again: an element not written would be seen.
    shape = (*q.shape[:-1], v.shape[-1])
    poison = torch.full(shape, float("nan"), device="cuda", dtype=q.dtype)
    del poison
    how = {"return_lse": True, "weight": weight, "scale": factor}
    out, lse = ma.attention(q, k, v, expression, **how)
    wide = [t.double() for t in (q, k, v)]
    want, want_lse = ma.attention(*wide, expression, **how, backend="reference")
    assert not out.isnan().any()
    scale = want.abs().max().clamp(min=1e-6)
    assert ((out - want).abs().max() / scale).item() <= TOLERANCE[q.dtype]
    finite = want_lse.isfinite()
    assert torch.equal(finite, lse.isfinite())
    assert (lse[~finite] == float("-inf")).all()
    if finite.any():
        assert (lse - want_lse)[finite].abs().max().item() <= TOLERANCE[q.dtype]


@pytest.mark.parametrize("name", list(expressions("cpu")))
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_expressions(name, dtype, launches):
    check(expressions("cuda")[name], *inputs(128, dtype))
    assert len(launches) == 1


@pytest.mark.parametrize("dims", [(192, 128), (160, 160), (256, 256)], ids=str)
@pytest.mark.parametrize("name", list(expressions("cpu")))
def test_wide_heads(name, dims, launches):
    check(expressions("cuda")[name], *inputs(dims[0], torch.bfloat16, value_dim=dims[1]))
    assert len(launches) == (name != "dense")


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("name", ["everything", "nothing", "causal", "window", "document"])
def test_programs_draw_many_rows(name, dim, monkeypatch):
    """Three programs compute all rows, and leave the counter as they found it."""
    from maskalg.backends.triton.families import backward, forward

    for family in (forward, backward):
        monkeypatch.setattr(family, "programs_at_once", lambda *_: 3)
    mask = expressions("cuda")[name]
    assert_attention_close(
        mask, LENGTH - 4, kv_heads=2, head_dim=dim, dtype=torch.bfloat16, device="cuda"
    )
    q, k, v = inputs(dim, torch.bfloat16, q_len=LENGTH - 4, kv_len=LENGTH - 4)
    first, *others = [ma.attention(q, k, v, mask) for _ in range(4)]
    assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize("dim", [64, 128, 192, 256])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_long_documents(dim, dtype, launches, monkeypatch):
    """Documents of 343 keys on average, as of thousands."""
    from maskalg.backends.triton import plan as triton_plan

    monkeypatch.setattr(triton_plan, "LONG_DOCUMENT", {64: 343, 128: 343})
    of_lengths = ma.document.from_lengths([430, 1, 600], device="cuda")
    cu_seqlens = torch.tensor([0, 700, 900], device="cuda")
    cut_short = ma.document.from_cu_seqlens(cu_seqlens, total=LENGTH)
    for mask in (causal & of_lengths, of_lengths, causal & cut_short):
        check(mask, *inputs(dim, dtype))
    assert {launch.of[0].pattern for launch in launches} == {"long documents"}


@pytest.mark.parametrize("dim", [64, 128, 192, 256])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_long_paths(dim, dtype, launches, monkeypatch):
    """Paths of some hundred keys, as of thousands; labelled tiles, and all of them visited."""
    from maskalg.backends.triton import plan as triton_plan

    monkeypatch.setattr(triton_plan, "LONG_PATH", 100)
    for fewest in (0, 1 << 10):
        monkeypatch.setattr(labels, "_FEWEST_TILES", fewest)
        for cu_seqlens, parents in (
            ([0, 430, 431, 800, LENGTH], [-1, 0, 0, 2]),
            ([0, 300, 700], [-1, -1]),
            ([0, 129, 257, 700, 900, 901], [-1, 0, 1, 1, 3]),
        ):
            mask = ma.shared_prefix.from_cu_seqlens(
                cu_seqlens, parents, total=LENGTH, device="cuda"
            )
            check(mask, *inputs(dim, dtype))
    assert {launch.of[0].pattern for launch in launches} == {"long paths"}


@pytest.mark.parametrize("name", ["everything", "causal", "prefix"])
def test_64_dimensions(name, launches):
    check(expressions("cuda")[name], *inputs(64, torch.bfloat16))
    assert len(launches) == 1


@pytest.mark.parametrize("dim, value_dim", [(40, 40), (80, 80), (96, 96), (192, 128), (256, 256)])
def test_head_dimensions(dim, value_dim, launches):
    check(causal, *inputs(dim, torch.bfloat16, value_dim=value_dim))
    assert len(launches) == 1


@pytest.mark.parametrize("q_len, kv_len", [(1, 1), (1, 255), (65, 128), (129, 500), (515, 100)])
def test_lengths(q_len, kv_len, launches):
    mask = causal | ma.prefix(5)
    check(mask, *inputs(128, torch.bfloat16, q_len=q_len, kv_len=kv_len))
    assert len(launches) == 1


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_grouped_heads(kv_heads, launches):
    check(causal, *inputs(128, torch.bfloat16, kv_heads=kv_heads))
    assert len(launches) == 1


def test_sinks(launches):
    sinks = torch.randn(4, device="cuda")
    for mask in (causal, ma.q_idx >= ma.kv_idx + 200):
        check(mask, *inputs(128, torch.bfloat16), weight=ma.softmax_with_sink(sinks))
    assert len(launches) == 2


def test_strided_inputs(launches):
    packed = torch.randn(2, 300, 3, 4, 128, device="cuda", dtype=torch.bfloat16)
    q, k, v = (packed[:, :, i].transpose(1, 2) for i in range(3))
    check(causal, q, k, v)
    assert len(launches) == 1
    assert ma.attention(q, k, v, causal).transpose(1, 2).is_contiguous()


@pytest.mark.parametrize("factor", [-0.1, 0.0, 1e-25, 0.7])
@pytest.mark.parametrize("name", ["plain", "alibi", "softcap"])
def test_scales(factor, name, launches):
    biases = {"alibi": ma.alibi(torch.rand(4, device="cuda")), "softcap": ma.softcap(5.0)}
    expression = causal + biases[name] if name in biases else causal
    check(expression, *inputs(128, torch.bfloat16), factor=factor)
    assert len(launches) == 1


def test_an_infinite_value(launches):
    """What is multiplied by no weight does not make an infinite output one that is no number."""
    q, k, v = inputs(128, torch.bfloat16)
    v[:, :, 0, 7] = float("inf")
    for expression in (causal, causal + ma.softcap(5.0)):
        out = ma.attention(q, k, v, expression)
        assert (out[..., 7] == float("inf")).all()
        assert out[..., :7].isfinite().all()
    assert len(launches) == 2


def test_what_it_does_not_serve_goes_to_the_plain_kernel(launches):
    q, k, v = inputs(128, torch.bfloat16)
    ma.attention(q, k, v, causal, scale=1e7)
    ma.attention(q.float(), k.float(), v.float(), causal)
    ma.attention(q, k.mT.contiguous().mT, v, causal)
    assert not launches


def test_keys_that_are_one_row(launches):
    """A descriptor whose rows lie at one address."""
    q, k, v = inputs(128, torch.bfloat16)
    check(causal, q, k[:, :, :1].expand_as(k), v)
    assert len(launches) == 1


def test_repeats_bitwise(launches):
    q, k, v = inputs(128, torch.bfloat16, q_len=2000, kv_len=2000)
    first = ma.attention(q, k, v, causal & sliding(300))
    for _ in range(20):
        assert torch.equal(ma.attention(q, k, v, causal & sliding(300)), first)
    assert len(launches) == 21


def test_new_values_compile_nothing():
    from maskalg.backends.triton.families.forward import compilations

    q, k, v = inputs(128, torch.bfloat16)
    ids = torch.arange(1000, device="cuda", dtype=torch.int32)

    def run(window, length, divisor):
        mask = causal & sliding(window) & ma.document(ids[:length] // divisor)
        ma.attention(q[:, :, :length], k[:, :, :length], v[:, :, :length], mask)

    run(100, 515, 7)
    before = compilations()
    assert before
    for window, length, divisor in [(1, 515, 16), (16, 512, 50), (128, 300, 100), (4096, 1, 1)]:
        run(window, length, divisor)
    assert compilations() == before
