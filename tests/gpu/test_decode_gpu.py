"""Few queries against many keys on a GPU, against the float64 reference."""

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from tests.cases import decoding as decode_cases
from tests.cases import weights as weight_cases

pytestmark = pytest.mark.gpu

HEADS, LENGTH = decode_cases.HEADS, 2309
# Rounding of the output and of the weights to the dtype, times a margin for the sums.
TOLERANCE = {torch.float32: 4e-6, torch.float16: 2e-3, torch.bfloat16: 1.2e-2}


def inputs(q_len, kv_heads, dtype, *, batch=2, dims=(64, 64), length=LENGTH, heads=HEADS):
    shapes = [(heads, q_len, dims[0]), (kv_heads, length, dims[0]), (kv_heads, length, dims[1])]
    return [torch.randn(batch, *shape, device="cuda", dtype=dtype) for shape in shapes]


def check(tensors, expression, **options):
    dtype, shape = tensors[0].dtype, (*tensors[0].shape[:3], tensors[2].shape[3])
    # Memory that was NaN is handed out again: a part that is not written would be seen.
    poison = [torch.full(shape, float("nan"), device="cuda", dtype=dtype)]
    poison += [torch.full((n,), float("nan"), device="cuda") for n in (2**10, 2**16, 2**20)]
    del poison
    out, lse = ma.attention(*tensors, expression, return_lse=True, **options)
    wide = [t.double() for t in tensors]
    want, want_lse = ma.attention(
        *wide, expression, return_lse=True, backend="reference", **options
    )
    scale = want.abs().max().clamp(min=1e-6)
    most = TOLERANCE[dtype]
    if dtype == torch.float32:
        # Three tf32 products keep all but two or three bits of one in float32.
        dense = ma.attention(*tensors, expression, backend="reference", **options)
        most = max(most, 4 * ((dense - want).abs().max() / scale).item())
    assert ((out - want).abs().max() / scale).item() <= most
    finite = want_lse.isfinite()
    assert torch.equal(finite, lse.isfinite())
    assert (lse[~finite] == float("-inf")).all()
    if finite.any():
        assert (lse - want_lse)[finite].abs().max().item() <= max(TOLERANCE[dtype], 1e-5)
    return out


@pytest.mark.parametrize("name", decode_cases.NAMES)
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
def test_expressions(name, dtype):
    expression = decode_cases.expressions(LENGTH, "cuda")[name]
    for q_len, kv_heads in decode_cases.SHAPES:
        tensors = inputs(q_len, kv_heads, dtype)
        assert "few queries" in ma.explain(*tensors, expression).tier
        out = check(tensors, expression)
        assert torch.equal(out, ma.attention(*tensors, expression))  # the same bits every time


@pytest.mark.parametrize("dims", [(8, 8), (64, 128), (96, 96), (128, 128), (192, 128), (256, 256)])
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
def test_head_dimensions(dims, dtype):
    expressions = decode_cases.expressions(LENGTH, "cuda")
    for q_len in (1, 9, 40):
        for name in ("causal", "document", "alibi"):
            check(inputs(q_len, 2, dtype, dims=dims), expressions[name])


@pytest.mark.parametrize("dim", [64, 128])
def test_many_rows(dim):
    """More than three for each multiprocessor: smaller programs."""
    expressions = decode_cases.expressions(LENGTH, "cuda")
    for name in ("causal", "document", "alibi"):
        tensors = inputs(1, HEADS, torch.bfloat16, batch=128, dims=(dim, dim))
        check(tensors, expressions[name])


@pytest.mark.parametrize("length", [512, 513, 1000, 4096, 70001])
def test_lengths(length):
    for q_len, heads, kv_heads in ((1, 8, 1), (1, 32, 32), (2, 16, 4), (17, 8, 8)):
        tensors = inputs(
            q_len, kv_heads, torch.bfloat16, dims=(128, 128), length=length, heads=heads
        )
        check(tensors, causal.shift(q=length - q_len))


@pytest.mark.parametrize("name", list(weight_cases.weights()))
def test_weights(name):
    weight = weight_cases.weights("cuda")[name]
    expression = (causal & sliding(700)).shift(q=LENGTH - 3)
    for kept in (expression, ma.nothing):
        tensors = inputs(3, 2, torch.bfloat16)
        with torch.no_grad():
            found = ma.attention(*tensors, kept, weight=weight)
        wanted = ma.attention(
            *[t.double() for t in tensors], kept, weight=weight, backend="reference"
        )
        worst = (found - wanted).abs().max() / wanted.abs().max().clamp(min=1e-6)
        assert worst.item() <= 1.5e-2


def test_strided_caches():
    expression = causal.shift(q=LENGTH - 2)
    for q_len in (2, 30):  # by pointers, by descriptors
        q, k, v = inputs(q_len, 2, torch.bfloat16)
        of_tokens = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v)]
        check(of_tokens, expression)
        wider = torch.randn(2, 2, LENGTH + 50, 128, device="cuda", dtype=torch.bfloat16)
        check(
            (q, wider[:, :, 7 : LENGTH + 7, :64], wider[:, :, 3 : LENGTH + 3, 61:125]), expression
        )


def test_float8():
    tensors = [t * (1 + torch.arange(t.shape[1], device="cuda")).view(-1, 1, 1)
               for t in inputs(3, 2, torch.float32, dims=(128, 128))]  # fmt: skip
    numbers, factors = zip(*[ma.to_float8(t) for t in tensors], strict=True)
    how = {"descale": factors, "return_lse": True}
    for name in ("causal", "document", "alibi", "softcap"):
        expression = decode_cases.expressions(LENGTH, "cuda")[name]
        out, lse = ma.attention(*numbers, expression, **how)
        want, want_lse = ma.attention(*numbers, expression, **how, backend="reference")
        assert ((out - want).abs() <= 2.0**-7 * want.abs() + 4e-3).all()
        assert torch.allclose(lse, want_lse, atol=1e-3)


def test_a_graph_of_steps():
    """An offset that is updated in place between replays; keys are written between them too."""
    offset = torch.tensor([600, 40], device="cuda")
    expression = causal.shift(q=offset)
    q, k, v = inputs(1, 2, torch.bfloat16)
    for _ in range(3):
        ma.attention(q, k, v, expression)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = ma.attention(q, k, v, expression)
    for step in range(4):
        offset += 1
        k[:, :, 600 + step] = torch.randn(64, device="cuda", dtype=torch.bfloat16)
        q.copy_(torch.randn_like(q))
        graph.replay()
        want = ma.attention(q.double(), k.double(), v.double(), expression, backend="reference")
        assert (out - want).abs().max().item() <= 1.2e-2 * want.abs().max().item()


def test_steps_on_two_streams():
    """The kernel that joins parts starts before they are there; what follows waits for it."""
    expression = causal.shift(q=LENGTH - 1)
    tensors = inputs(1, 2, torch.bfloat16, dims=(128, 128))
    want = check(tensors, expression)
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    found = []
    for _ in range(50):
        for stream in streams:
            with torch.cuda.stream(stream):
                found.append(ma.attention(*tensors, expression) + 0)
    torch.cuda.synchronize()
    assert all(torch.equal(one, want) for one in found)


def test_gradients():
    leaves = [t.requires_grad_() for t in inputs(5, 2, torch.bfloat16)]
    expression = (causal & sliding(900)).shift(q=LENGTH - 5)
    out = ma.attention(*leaves, expression)
    change = torch.randn_like(out)
    wide = [t.detach().double().requires_grad_() for t in leaves]
    wanted = ma.attention(*wide, expression, backend="reference")
    found = torch.autograd.grad(out, leaves, change)
    for one, other in zip(found, torch.autograd.grad(wanted, wide, change.double()), strict=True):
        assert ((one - other).abs().max() / other.abs().max()).item() <= 2e-2
