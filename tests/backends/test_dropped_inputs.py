"""What a mask drops does not matter: NaN and infinities in keys, values and queries it drops."""

import subprocess
import sys

import pytest
import torch

import maskalg as ma
from maskalg import causal
from maskalg.backends.cpu.native.compile import compiler
from tests.cases import nan_safe

KEYS = 200
MASKS = {
    "padding": (causal & ma.padding([77]), KEYS),
    "padding of queries": (causal & ma.padding([77], queries=True), KEYS),
    "cache": (causal.shift(q=100), 3),
    "cache of a chunk": (causal.shift(q=100), 60),
    "holes": (ma.dilated(2) & (ma.kv_idx % 2 == 1), 50),
}
EXP = ma.Weight("exp", ma.score(lambda s, b, h, q, k: torch.exp(s)), normalised=False)


def results(tensors, change, mask, backend, weight):
    tensors = [tensor.clone().requires_grad_() for tensor in tensors]
    out = ma.attention(*tensors, mask, backend=backend, weight=weight)
    return [out, *torch.autograd.grad((out * change).sum(), tensors)]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("which", ["query", "key", "value"])
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize(
    ("backend", "dtype", "weight"),
    [
        ("cpu", torch.float32, ma.softmax),
        ("cpu", torch.bfloat16, ma.softmax),
        ("cpu", torch.float64, ma.softmax),
        ("cpu", torch.float32, EXP),
        ("reference", torch.float32, ma.softmax),
    ],
)
def test_what_is_dropped_by_all_does_not_matter(backend, dtype, weight, name, which, bad):
    """Not to a bit: output and all gradients are those of zeros there."""
    mask, queries = MASKS[name]
    torch.manual_seed(0)
    sizes = ((4, queries), (2, KEYS), (2, KEYS))
    tensors = [torch.randn(1, heads, length, 24).to(dtype) for heads, length in sizes]
    change = torch.randn(1, 4, queries, 24).to(dtype)
    dense = mask.to_dense(queries, KEYS)[0, 0]
    dropped = ~dense.any(dim=1 if which == "query" else 0)
    place = ("query", "key", "value").index(which)
    found = []
    for filled in (0.0, bad):
        tensors[place] = tensors[place].clone()
        tensors[place][:, :, dropped] = filled
        found.append(results(tensors, change, mask, backend, weight))
    for wanted, got in zip(*found, strict=True):
        assert wanted.isfinite().all() and torch.equal(got, wanted)


@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("queries", [1, 3, 70])
def test_a_value_reaches_the_queries_that_keep_it_alone(queries):
    """One NaN among values: in a causal mask earlier queries of its tile stay as they are."""
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 2, queries, 24), *torch.randn(2, 1, 2, 90, 24)
    mask = causal.shift(q=20)
    wanted = ma.attention(q, k, v, mask)
    v[:, :, 50, 7] = torch.nan
    got = ma.attention(q, k, v, mask)
    sees = mask.to_dense(queries, 90)[0, 0][:, 50]
    assert torch.equal(got[:, :, ~sees], wanted[:, :, ~sees])
    assert got[:, :, sees, 7].isnan().all()
    assert got[:, :, sees, :7].isfinite().all()


@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("which", range(4))
def test_dropped_pairs_change_no_bit_of_the_compiled_kernel(which, dtype):
    """Of queries, keys, values and the output's gradient, in either pass, without an option."""
    torch.manual_seed(0)
    inputs = [torch.randn(1, heads, 150, 24).to(dtype) for heads in (4, 2, 2)]
    rows = [[10, 70] if which == place else [] for place in range(4)]
    mask = causal & ma.sliding(20)
    spoiled, reached = nan_safe.check(mask, inputs, rows, whole=False, backend="cpu")
    assert spoiled.any() and reached.any() and not spoiled.all() and not reached.all()


REFUSED = """
import resource, torch, maskalg as ma
x = torch.randn(1, 1, 64, 8)
ma.attention(x, x, x, ma.causal)
wide = torch.zeros(1, 1, 64, 2_000_000)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 1200 * 2**20,) * 2)
try:
    ma.attention(x, x, wide, ma.causal)
except MemoryError as problem:
    print("refused:", problem)
ma.attention(x, x, x, ma.causal)
print("and on")
"""


@pytest.mark.skipif(compiler() is None or sys.platform != "linux", reason="needs a compiler, Linux")
def test_memory_that_is_refused_is_an_error_and_no_end():
    done = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "refused: the machine gave the kernel no memory" in done.stdout
    assert done.stdout.endswith("and on\n")
