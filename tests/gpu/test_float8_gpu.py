"""float8 inputs on a GPU, against the float64 reference of the numbers they stand for."""

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from tests.gpu.test_hopper_gpu import expressions, launches  # noqa: F401

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 9),
        reason="needs a GPU that knows float8",
    ),
]

hopper = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9,
    reason="needs a Hopper GPU",
)
ROUNDING = 2.0**-4  # of weights in float8, at most
OUTPUT = 2.0**-8  # of what is returned, in bfloat16


def inputs(dim, *, q_len=515, kv_len=515, kv_heads=2, value_dim=None):
    torch.manual_seed(1)
    shapes = ((4, q_len, dim), (kv_heads, kv_len, dim), (kv_heads, kv_len, value_dim or dim))
    # Heads of unlike sizes: a factor taken from another head would be seen.
    made = [
        torch.randn(2, *shape, device="cuda")
        * torch.logspace(-0.5, 0.5, 2 * shape[0]).cuda().view(2, -1, 1, 1)
        for shape in shapes
    ]
    query, key, value = (ma.to_float8(t) for t in made)
    return (query[0], key[0], value[0]), (query[1] * 0.3, key[1] * 0.3, value[1])


@pytest.fixture
def on_hopper(launches):  # noqa: F811
    """The kernel that multiplies float8 serves every call of the test, on a Hopper GPU."""
    yield
    assert launches or torch.cuda.get_device_capability()[0] != 9


def check(expression, tensors, descale, *, rounding=ROUNDING, **how):
    poison = torch.full((*tensors[0].shape[:-1], tensors[2].shape[-1]), torch.nan, device="cuda")
    del poison
    out, lse = ma.attention(*tensors, expression, descale=descale, return_lse=True, **how)
    factors = [1.0] * 3 if descale is None else [d.double()[..., None, None] for d in descale]
    query, key, value = (t.double() * f for t, f in zip(tensors, factors, strict=True))
    dense = {"return_lse": True, "backend": "reference", **how}
    want, want_lse = ma.attention(query, key, value, expression, **dense)
    assert out.dtype == torch.bfloat16 and lse.dtype == torch.float32
    # Each weight may be wrong by its rounding; and below the least of float8, by 2^-18 of the
    # largest, whose weight is at most the sum.
    size = ma.attention(query, key, value.abs(), expression, backend="reference", **how)
    least = 2.0**-18 * value.abs().sum(2, keepdim=True).repeat_interleave(4 // value.shape[1], 1)
    bound = rounding * size + least * (rounding == ROUNDING) + OUTPUT * want.abs() + 1e-30
    assert ((out.double() - want).abs() <= bound).all()
    # Errors of many weights are no larger than those of one.
    assert (out.double() - want).norm() <= (rounding / 1.6 + OUTPUT) * want.norm()
    finite = want_lse.isfinite()
    assert torch.equal(finite, lse.isfinite())
    assert (lse[~finite] == float("-inf")).all()
    if finite.any():
        assert (lse - want_lse)[finite].abs().max().item() <= 1e-2


@hopper
@pytest.mark.parametrize("name", list(expressions("cpu")))
def test_expressions(name, launches):  # noqa: F811
    check(expressions("cuda")[name], *inputs(128))
    assert len(launches) == 1


@hopper
@pytest.mark.parametrize("name", ["everything", "causal", "window"])
@pytest.mark.parametrize("dim", [64, 96])
def test_head_dimensions(dim, name, launches):  # noqa: F811
    check(expressions("cuda")[name], *inputs(dim))
    assert len(launches) == 1


@pytest.mark.parametrize("dim, value_dim", [(16, 16), (40, 72), (128, 64), (192, 128), (256, 256)])
def test_other_head_dimensions(dim, value_dim):
    check(causal, *inputs(dim, value_dim=value_dim))


@pytest.mark.parametrize("q_len, kv_len", [(1, 1), (1, 255), (65, 128), (129, 500), (515, 100)])
def test_lengths(q_len, kv_len, on_hopper):
    check(causal | ma.prefix(5), *inputs(128, q_len=q_len, kv_len=kv_len))


@pytest.mark.parametrize("kv_heads", [1, 4])
def test_grouped_heads(kv_heads, on_hopper):
    check(causal, *inputs(128, kv_heads=kv_heads))


def test_plain_kernel():
    """A key that no descriptor reaches is left to the plain kernel, which rounds no weight so."""
    (query, key, value), descale = inputs(128)
    apart = torch.stack([key.view(torch.uint8)] * 2, -1)[..., 0].view(torch.float8_e4m3fn)
    assert apart.stride(-1) == 2
    check(causal & sliding(99), (query, apart, value), descale, rounding=2.0**-10)


def test_values_of_any_stride(on_hopper):
    (query, key, value), descale = inputs(128)
    apart = torch.stack([value.view(torch.uint8)] * 2, -1)[..., 0].view(torch.float8_e4m3fn)
    check(causal, (query, key, apart), descale)


def test_sinks(on_hopper):
    weight = ma.softmax_with_sink(torch.tensor([0.5, -3.0, 9.0, 2.0], device="cuda"))
    check(causal & sliding(90), *inputs(128), weight=weight)


def test_without_factors(on_hopper):
    tensors, _ = inputs(128)
    check(causal, [(t.float() / 64).to(t.dtype) for t in tensors], None)


def test_long_rows(on_hopper):
    """Sums of products are added up in float32: the mean of equal values is that value.

    Hopper's sums of float8 products have 13 bits, and lose the others of each addition.
    """
    torch.manual_seed(0)
    (query, a), (key, b) = (ma.to_float8(torch.randn(1, 8, n, 128).cuda()) for n in (2048, 40_000))
    ones = torch.ones_like(key.float()).to(key.dtype)
    out = ma.attention(query, key, ones, descale=(a, b, torch.ones_like(b)))
    assert (out.float() - 1).abs().max().item() <= 2.0**-7


def test_equal_weights(on_hopper):
    """The compiler knows that they are, and NVIDIA's assembler lost half of them (see `packed`)."""
    tensors, descale = inputs(128)
    mean = causal + ma.score(lambda score, b, h, q, k: score * 0.0)
    out = ma.attention(*tensors, mean, descale=descale)
    value = tensors[2].double() * descale[2].double()[..., None, None]
    counts = torch.arange(1, 516, device="cuda")[:, None]
    want, size = ((v.cumsum(2) / counts).repeat_interleave(2, 1) for v in (value, value.abs()))
    # Within a tile sums have 13 bits.
    assert ((out - want).abs() <= OUTPUT * want.abs() + 2.0**-11 * size).all()


def test_factors_that_are_not_positive(on_hopper):
    tensors, descale = inputs(128)
    descale[0][1, 2] = -descale[0][1, 2]
    out = ma.attention(*tensors, causal, descale=descale)
    assert out[1, 2].isnan().all()
    assert not out[0].isnan().any() and not out[1, :2].isnan().any()


@pytest.mark.parametrize("dim", [16, 64, 128, 256])
def test_calls_like_one_before(dim):
    """From the third on, a launch is remembered; memory and factors are others each time."""
    expression, made = causal & sliding(300), []
    for i in range(5):
        tensors, descale = inputs(dim)
        tensors = [torch.roll(t.view(torch.uint8), 7 * i, 2).view(t.dtype) for t in tensors]
        descale = [d * (1 + 0.1 * i) for d in descale]
        made.append((tensors, descale))
        check(expression, tensors, descale)


def test_repeats_bitwise():
    tensors, descale = inputs(128, q_len=2000, kv_len=2000)
    expression = causal & sliding(300)
    first = ma.attention(*tensors, expression, descale=descale)
    for _ in range(20):
        assert torch.equal(ma.attention(*tensors, expression, descale=descale), first)


def test_compiled():
    tensors, descale = inputs(128)
    compiled = torch.compile(
        lambda q, k, v, *d: ma.attention(q, k, v, causal, descale=d), fullgraph=True
    )
    want = ma.attention(*tensors, causal, descale=descale)
    assert torch.equal(compiled(*tensors, *descale), want)
