"""The compiled kernels of the CPU backend against float64, and what happens without them."""

import os
import platform
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from maskalg.attention import checked_call
from maskalg.backends import cpu
from maskalg.backends.cpu.native import compile as door
from maskalg.backends.cpu.native import launch
from maskalg.engine.normal_form import bound
from tests.cases.compositions import BATCH, HEADS, composition, lengths

pytestmark = pytest.mark.skipif(door.compiler() is None, reason="needs a C++ compiler")

DIMS = [(8, 8), (17, 5), (64, 40), (33, 70)]


def inputs(q_len, kv_len, dims=(16, 16), dtype=torch.float32, *, seed=0, heads=(HEADS, 2)):
    generator = torch.Generator().manual_seed(seed)
    sizes = ((heads[0], q_len, dims[0]), (heads[1], kv_len, dims[0]), (heads[1], kv_len, dims[1]))
    made = [torch.randn(BATCH, *size, generator=generator).to(dtype) for size in sizes]
    if seed % 3 == 1:  # heads of a token together, and numbers of a row apart
        made[0] = made[0].transpose(1, 2).contiguous().transpose(1, 2)
        made[1] = made[1].transpose(2, 3).contiguous().transpose(2, 3)
    return [tensor.requires_grad_() for tensor in made]


def served(expression, tensors):
    return launch.kernel_for(checked_call(*tensors, expression)) is not None


def results(expression, tensors, backend="cpu"):
    """Output, lse and gradients of the inputs."""
    out, lse = ma.attention(*tensors, expression, return_lse=True, backend=backend)
    generator = torch.Generator().manual_seed(7)
    of_out, of_lse = (torch.randn(t.shape, generator=generator) for t in (out, lse))
    finite = torch.where(lse.isfinite(), lse, 0)
    loss = (out.double() * of_out).sum() + (finite.double() * of_lse).sum()
    return [out, lse, *torch.autograd.grad(loss, tensors)]


def assert_close(expression, tensors, tolerance=2e-5):
    assert served(expression, tensors)
    wide = [tensor.detach().double().requires_grad_() for tensor in tensors]
    found, wanted = results(expression, tensors), results(expression, wide, "reference")
    for got, want in zip(found, wanted, strict=True):
        assert torch.equal(got.isfinite(), want.isfinite())
        got, want = (torch.where(t.isfinite(), t, 0).double() for t in (got, want))
        error = (got - want).abs().max() / want.abs().max().clamp(min=1)
        assert error <= tolerance
    assert [t.dtype for t in found[2:]] == [t.dtype for t in tensors]


@pytest.mark.parametrize("seed", range(40))
def test_compositions(seed):
    q_len, kv_len = lengths(seed)
    tensors = inputs(q_len, kv_len, DIMS[seed % len(DIMS)], seed=seed)
    assert_close(composition(seed, q_len, kv_len), tensors)


@pytest.mark.parametrize("q_len", [1, 2, 4, 5, 16, 17, 47, 48, 49, 97])
@pytest.mark.parametrize("kv_len", [1, 63, 64, 65, 130])
def test_lengths(q_len, kv_len):
    mask = sliding(40).shift(q=kv_len - q_len) + ma.softcap(4.0)
    assert_close(mask, inputs(q_len, kv_len, (19, 21), seed=q_len))


@pytest.mark.parametrize(
    "dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 3e-3)]
)
@pytest.mark.parametrize("q_len", [1, 11, 130])
def test_dtypes(dtype, tolerance, q_len):
    torch.manual_seed(q_len)  # the same slopes whichever tests ran before
    expression = causal.shift(q=130 - q_len) & sliding(50).shift(q=130 - q_len)
    expression = expression + ma.alibi(torch.rand(HEADS, dtype=torch.float64))
    for seed in (0, 1):
        assert_close(expression, inputs(q_len, 130, dtype=dtype, seed=seed), tolerance)


FUNCTIONS = ["exp", "exp2", "expm1", "log", "log2", "log1p", "tanh", "sigmoid"]


@pytest.mark.parametrize("name", [*FUNCTIONS, "sqrt", "sin", "erf"])
def test_functions_of_a_bias(name):
    function = getattr(torch, name)
    distance = 4.0 if name in ("exp", "exp2", "expm1") else 0.01
    tensors = inputs(70, 70)

    def of_distance(s, b, h, q, k):
        return s + function((abs(q - k) + 1) / distance * 0.25)

    assert_close(causal + ma.score(of_distance), tensors)
    if name not in ("log", "log2", "log1p", "sqrt"):
        assert_close(causal + ma.score(lambda s, b, h, q, k: function(s)), tensors)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_at_their_ends(name):
    """One key for each query: the lse is the bias itself."""
    points = [-torch.inf, -104.0, -88.0, -20.0, -1.0, -0.99, -1e-4, -1e-30, 0.0, 1e-40, 1e-30]
    points += [1e-6, 0.2, 0.25, 0.3, 1.0, 5.0, 88.0, 127.5, 1e4, 3e38, torch.inf, torch.nan]
    entries = torch.tensor(points)
    zeros = torch.zeros(1, 1, len(points), 4)
    function = getattr(torch, name)
    expression = (ma.q_idx == ma.kv_idx) + ma.score(lambda s, b, h, q, k: s + function(entries[k]))
    assert served(expression, [zeros] * 3)
    _, lse = ma.attention(zeros, zeros, zeros, expression, return_lse=True)
    wanted = function(entries)
    wanted[wanted.abs() < 2.0**-126] = 0  # what is under the normal numbers
    wanted[wanted == torch.inf] = torch.nan  # an infinite score has no softmax
    torch.testing.assert_close(lse[0, 0], wanted, rtol=2e-6, atol=1e-37, equal_nan=True)


def test_what_no_query_visits_is_not_read():
    tensors = [t.detach() for t in inputs(100, 400)]
    wanted = ma.attention(*tensors, causal & sliding(9))
    for tensor in tensors[1:]:
        tensor[:, :, 100:] = torch.nan
    assert torch.equal(ma.attention(*tensors, causal & sliding(9)), wanted)


def test_memory_that_was_used_before_leaves_no_trace():
    """Outputs and gradients are written whole, rows that keep nothing among them."""
    mask = ma.padding(torch.tensor([20, 90]), queries=True) & causal
    tensors = inputs(90, 90)
    first = results(mask, tensors)
    poison = [torch.full_like(tensor, torch.nan) for tensor in (*first, *tensors) * 3]
    del poison
    for got, want in zip(results(mask, tensors), first, strict=True):
        assert torch.equal(got, want)
    assert not first[0][0, :, 20:].any() and (first[1][0, :, 20:] == -torch.inf).all()
    assert not any(gradient[0, :, 20:].any() for gradient in first[2:])


@pytest.mark.parametrize("stray", [False, True], ids=["finite", "stray infinity"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dims", [(32, 32), (20, 72)], ids=str)
@pytest.mark.parametrize("expression", [causal & sliding(70), causal + ma.softcap(3.0)], ids=str)
def test_bits_do_not_depend_on_threads(expression, dims, dtype, stray):
    """Gradients by heads, which few threads compute, are those by tiles."""
    tensors, before = inputs(300, 300, dims, dtype), torch.get_num_threads()
    if stray:
        for tensor in tensors[1:]:
            tensor.detach()[0, 1, 299, 3] = torch.inf
    try:
        found = []
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            found.append(results(expression, tensors))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(
            torch.equal(a.nan_to_num(7), b.nan_to_num(7))
            for a, b in zip(found[0], other, strict=True)
        )


def test_masks_agree_with_the_dense_matrix_where_real_numbers_tie():
    """Sums and quotients of a mask round step by step, as its matrix does."""
    numbers = torch.tensor([0.1, 0.2, 0.3, 1 / 3, 0.7, 1e-8, 1.0, 3.0]).repeat(12)
    x = ma.table(numbers, "x")
    mask = x[ma.q_idx] * 3.0 + x[ma.kv_idx] >= x[ma.kv_idx] / x[ma.q_idx] + 0.1
    dense = ma.dense(mask.to_dense(96))
    tensors = inputs(96, 96)
    assert served(mask, tensors)
    for got, want in zip(results(mask, tensors), results(dense, tensors), strict=True):
        torch.testing.assert_close(got, want)


def test_integers_past_64_bits_are_left_to_torch():
    large = torch.full((96,), 2**62)
    ids = ma.table(large, "ids")
    mask = ids[ma.q_idx] * ma.q_idx >= ids[ma.kv_idx] * ma.kv_idx
    tensors = inputs(96, 96)
    assert not served(mask, tensors)
    got, want = (results(m, tensors) for m in (mask, causal))
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(got, want, strict=True))
    # The same structure with entries that fit.
    assert served(mask.bind(ids=torch.ones(96, dtype=torch.int64)), tensors)


def test_entries_written_to_are_looked_at_again():
    lengths_of = torch.tensor([20, 90])
    mask, tensors = ma.padding(lengths_of), inputs(90, 90)
    assert served(mask, tensors)
    lengths_of[0] = 2**63 - 1
    assert not served(mask, tensors)
    lengths_of[0] = 5
    assert_close(mask, tensors)


def test_what_has_no_kernel():
    tensors = inputs(40, 40)
    assert not served(causal, [tensor.double() for tensor in tensors])
    opaque = ma.mask(lambda b, h, q, k: q >= k, opaque=True)
    assert not served(opaque, tensors)
    weighted = checked_call(*tensors, causal, weight=ma.sigmoid(0.0))
    assert launch.kernel_for(weighted) is None


def test_learned_tables_are_left_to_torch_backward_alone():
    slopes = torch.rand(HEADS, requires_grad=True)
    call = checked_call(*inputs(40, 40), causal + ma.alibi(slopes))
    assert launch.kernel_for(call) is not None
    assert launch.kernel_for(call, tables=True) is None


def test_layers_and_passes_share_the_runs_of_a_step(monkeypatch):
    made, find = [], launch.rung_of
    monkeypatch.setattr(launch, "rung_of", lambda of: made.append(1) or find(of))
    kept = torch.rand(60) < 0.7
    for count in (1, 2, 3):
        mask = causal & ma.table(kept)[ma.kv_idx]
        for _ in range(3):
            q, k, v = inputs(60, 60)
            ma.attention(q, k, v, mask).sum().backward()
        assert len(made) == count
        exact = [x.double() for x in (q, k, v)]
        wanted = ma.attention(*exact, mask, backend="reference")
        assert (ma.attention(q, k, v, mask) - wanted).abs().max() < 1e-5
        kept[count] = ~kept[count]


def test_few_products_need_no_runs(monkeypatch):
    """Of one tile of queries: to find the runs of a new mask would take longer."""
    monkeypatch.setattr(launch, "rung_of", lambda of: pytest.fail("runs were looked for"))
    kept = torch.rand(40) < 0.7
    mask = (causal & sliding(9)).shift(q=37) & ma.table(kept)[ma.kv_idx]
    q, k, v = inputs(3, 40)
    wanted = ma.attention(q.double(), k.double(), v.double(), mask, backend="reference")
    assert (ma.attention(q, k, v, mask) - wanted).abs().max() < 1e-5
    found = ma.attention(q, k, v, mask)
    monkeypatch.undo()
    monkeypatch.setattr(launch, "_FEWEST_PRODUCTS", 0)
    assert (ma.attention(q, k, v, mask) - found).abs().max() < 1e-6


def test_a_new_window_compiles_nothing(monkeypatch):
    tensors = [tensor.detach() for tensor in inputs(90, 90)]
    ma.attention(*tensors, causal & sliding(9))
    monkeypatch.setattr(launch, "library", None)
    for window in (10, 11):
        got = ma.attention(*tensors, causal & sliding(window))
        want = ma.attention(*tensors, causal & sliding(window), backend="reference")
        torch.testing.assert_close(got, want)


@pytest.fixture
def new_structures():
    """Structures met in a test are forgotten by kernels before and after it."""
    structure = bound(causal & sliding(3)).structure

    def forget():
        structure.remembered.clear()
        launch._loop.cache_clear()
        door.compiler.cache_clear()

    forget()
    yield
    forget()


def compared_without_kernels():
    tensors = inputs(90, 90)
    assert not served(causal & sliding(3), tensors)
    wanted = results(causal & sliding(3), tensors, "reference")
    for got, want in zip(results(causal & sliding(3), tensors), wanted, strict=True):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


def test_without_a_compiler(monkeypatch, new_structures):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    compared_without_kernels()
    assert "by torch's operations" in cpu.where()
    with pytest.raises(door.CompileError, match="no C\\+\\+ compiler"):
        door.library("int x;")


def test_a_compiler_that_fails(monkeypatch, new_structures, tmp_path):
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\necho no license >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.warns(UserWarning, match=r"c\+\+ could not compile .*\(no license\)"):
        compared_without_kernels()


def test_kernels_are_turned_off(monkeypatch):
    monkeypatch.setenv("MASKALG_NATIVE", "0")
    compared_without_kernels()
    assert "MASKALG_NATIVE=0" in cpu.where()


SOURCE = 'extern "C" long answer() { return 42; }\n'


def test_a_library_is_compiled_once_and_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert door.library(SOURCE).answer() == 42
    monkeypatch.setattr(subprocess, "run", None)
    assert door.library(SOURCE).answer() == 42


@pytest.mark.parametrize("damage", [b"", b"not a library", None])
def test_a_damaged_library_is_compiled_again(monkeypatch, tmp_path, damage):
    source = SOURCE + f"// {damage}\n"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    door.library(source)
    (kept,) = tmp_path.rglob("*.so")
    content = bytearray(kept.read_bytes())
    content[len(content) // 2] ^= 1
    # Under a name of its own: this process has the file mapped.
    kept.unlink()
    kept.write_bytes(bytes(content) if damage is None else damage)
    assert door.library(source).answer() == 42
    assert kept.read_bytes() != content


def test_a_folder_that_cannot_be_written(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert door.library(SOURCE + "// unkept\n").answer() == 42


def test_half_numbers_of_every_kind():
    """All 65536 numbers of 16 bits pass through: the value of the only key is the output."""
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    for dtype in (torch.float16, torch.bfloat16):
        value = bits.view(dtype).view(1, 1, 64, 1024)
        value = torch.where(value.isfinite(), value, 1.0)
        same = torch.ones(1, 1, 64, 8, dtype=dtype)
        for rows in (64, 1):
            query = same[:, :, :rows]
            out = ma.attention(query, same, value, ma.q_idx == ma.kv_idx)
            assert torch.equal(out, value[:, :, :rows] + 0)


def test_forked_processes_and_threads_compute_alike():
    """A fork has none of the workers of its parent; callers share them."""
    tensors = [tensor.detach() for tensor in inputs(400, 400, (32, 32))]
    expected = ma.attention(*tensors, causal)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(ma.attention, *tensors, causal) for _ in range(40)]
            assert all(torch.equal(call.result(), expected) for call in calls)
        child = os.fork()
        if child == 0:
            found = [ma.attention(*tensors, causal) for _ in range(9)]
            torch.set_num_threads(1)  # torch's own threads do not survive a fork
            os._exit(0 if all(torch.equal(out, expected) for out in found) else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        torch.set_num_threads(before)


def test_explain_names_what_computes(monkeypatch):
    tensors = inputs(40, 40)
    assert ma.explain(*tensors, causal).tier == "one kernel compiled from the expression"
    weighted = ma.explain(*tensors, causal, weight=ma.relu)
    monkeypatch.setenv("MASKALG_NATIVE", "0")
    assert ma.explain(*tensors, causal).tier == weighted.tier
    assert weighted.tier == "tiles by torch's operations"


def negative(tensor):
    """The same numbers, of which memory holds the negatives."""
    return torch.complex(torch.zeros_like(tensor), -tensor).conj().imag


@pytest.mark.parametrize("place", range(4))
def test_numbers_that_memory_holds_with_another_sign(place):
    given = [tensor.detach() for tensor in inputs(20, 33)]
    slopes = torch.rand(HEADS)
    expected = ma.attention(*given, causal + ma.alibi(slopes), backend="reference")
    if place < 3:
        given[place] = negative(given[place])
    else:
        slopes = negative(slopes)
    found = ma.attention(*given, causal + ma.alibi(slopes))
    assert negative(slopes).is_neg() and (found - expected).abs().max() < 1e-5


@pytest.mark.parametrize("kind", ["negative", "zeros", "expanded"])
def test_gradients_that_lie_nowhere(kind):
    """Autograd gives gradients that memory holds negated, or that nobody wrote."""
    tensors = inputs(20, 33)

    def gradients(backend):
        out = ma.attention(*tensors, causal, backend=backend)
        change = {
            "negative": negative(torch.ones_like(out)),
            "zeros": torch._efficientzerotensor(out.shape),
            "expanded": torch.ones(()).expand(out.shape),
        }[kind]
        return torch.autograd.grad(out, tensors, change)

    for found, wanted in zip(gradients("cpu"), gradients("reference"), strict=True):
        assert (found - wanted).abs().max() < 1e-4


def test_storage_that_was_freed_is_not_read():
    query, key, value = (tensor.detach() for tensor in inputs(20, 33))
    value.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError):
        ma.attention(query, key, value, causal)


def test_subclasses_that_keep_numbers_elsewhere():
    from torch.testing._internal.two_tensor import TwoTensor

    query, key, value = (tensor.detach() for tensor in inputs(20, 33))
    assert not launch.in_memory(TwoTensor(value, value))
    slopes = torch.rand(HEADS)
    expected = ma.attention(query, key, value, causal + ma.alibi(slopes), return_lse=True)
    biased = causal + ma.alibi(TwoTensor(slopes, slopes))
    assert (ma.attention(query, key, value, biased) - expected[0]).abs().max() < 1e-5
    found = ma.attention(query, key, value, biased, return_lse=True)
    for got, want in zip(found, expected, strict=True):
        assert (got - want).abs().max() < 1e-5


def test_another_default_device():
    tensors = inputs(20, 33)
    with torch.device("meta"):
        out, lse = ma.attention(*tensors, causal, return_lse=True)
        found = torch.autograd.grad(out.sum(), tensors)
    assert {t.device.type for t in (out, lse, *found)} == {"cpu"}
    wanted = torch.autograd.grad(ma.attention(*tensors, causal).sum(), tensors)
    assert all(map(torch.equal, found, wanted))


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="reads x86 assembly")
@pytest.mark.parametrize("processor", ["x86-64", "x86-64-v3", "x86-64-v4"])
def test_sums_of_products_stay_in_registers(processor, tmp_path):
    """A vector wider than the machine's lies on the stack, and each product waits for it."""
    skeleton, text = Path(launch.__file__).with_name("skeleton.cpp"), tmp_path / "text.s"
    flags = (*door._FLAGS, "-ffp-contract=fast", f"-march={processor}", "-S", "-o", str(text))
    subprocess.run([door.compiler(), *flags, str(skeleton)], check=True, timeout=300)
    functions = re.findall(r"^_Z\d+product_of.*?\.cfi_endproc", text.read_text(), re.M | re.S)
    products = re.findall(r"^\s*v?(?:f[n]?madd\w+ps|mulps|addps)\b.*", "\n".join(functions), re.M)
    assert products
    assert not [line for line in products if re.search(r"%[re][sb]p", line)]


def test_a_number_that_changes_as_a_constant_is_told_of(monkeypatch):
    def compiles_nothing(source):
        raise door.CompileError("not tried")

    monkeypatch.setattr(launch, "library", compiles_nothing)
    monkeypatch.setattr(launch, "_loop", lru_cache(lambda: "compiled"))
    monkeypatch.setattr(launch, "_warn", lambda problem: None)
    with pytest.warns(ma.RecompilationWarning, match=r"16 values .*ma\.scalar\(value\)"):
        for n in range(16):
            launch._compiled(bound(causal & (ma.q_idx * 5 - ma.kv_idx < 700 + n)).structure, ())
