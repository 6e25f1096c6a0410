"""The warp-specialised kernels compiled for sm_90 without the GPU."""

import os
import re
import subprocess
from collections import Counter

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from maskalg.engine.normal_form import bound
from maskalg.tiles.forward import hopper_tile_for
from maskalg.tiles.shapes import HopperTile
from tests.cases.many_numbers import windows

triton = pytest.importorskip("triton", reason="needs Triton")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter does not compile"
)

SHARED_LIMIT = 227 * 1024
MULTIPROCESSOR, RESERVED = 228 * 1024, 1024  # bytes: all, and a program's beside its own
IN_TURN = ("window", "document", "three")


def expressions():
    ids = torch.zeros(64, dtype=torch.int32)
    return {
        "everything": ma.everything,
        "causal": causal,
        "window": causal & sliding(64),
        "sinks": causal & (sliding(64) | ma.prefix(4)),
        "document": causal & ma.document(ids),
        "three": causal & sliding(64) & ma.document(ids),
        "rollouts": ma.shared_prefix.from_cu_seqlens([0, 40, 50, 64], [-1, 0, 0]),
        "alibi": causal + ma.alibi(torch.ones(4)),
        "softcap": causal + ma.softcap(30.0),
    }


def compiled(
    expression,
    dim,
    value_dim=None,
    dtype=torch.bfloat16,
    lse=True,
    weight=ma.softmax,
    tile=None,
    grain=1,
):
    """`tile`, or what the table chooses, compiled; None where it leaves it to plain."""
    from maskalg.backends.triton.families.forward import forward_constants, forward_spec
    from maskalg.backends.triton.launching.ahead import compile_kernel
    from maskalg.backends.triton.offline import table_dtypes
    from maskalg.backends.triton.plan import Inputs, Told, structure_plan
    from maskalg.backends.triton.trust import has_gluon
    from maskalg.codegen.hooks import Style

    if not has_gluon():
        pytest.skip("this Triton is not one the Gluon kernel was tested with")
    form = bound(weight.applied(expression))
    inputs = Inputs(dim, value_dim or dim, dtype, "sm_90", weight.formula is not None)
    plan = structure_plan(form.structure, Told(Style(ptx=True, grain=grain)), inputs)
    tile = tile or plan.hopper
    if tile is None:
        return None
    tables = table_dtypes(plan.hooks, form)
    held = {} if lse else {"lse": None}
    constants = forward_constants(plan, weight, tile)
    return compile_kernel(forward_spec(tile, dtype), "sm_90", constants, dtype, tables, held=held)


def check(result, spills=0):
    # The bounds are those of Triton 3.6 and of constraints.txt; newer ones put more aside.
    known = triton.__version__.startswith(("3.6.", "3.7."))
    assert result.spills <= (spills if known else max(spills, 256))
    assert result.shared <= SHARED_LIMIT
    assert "wgmma.mma_async" in result.assembly
    assert "setmaxnreg" in result.assembly
    assert "call.uni" not in result.assembly
    assert not result.remarks  # such as that its matrix products were serialised


@pytest.mark.parametrize("name", list(expressions()))
def test_128_dimensions(name):
    # Programs that take rows in turn may put a few numbers aside, once a row; the three bounds of
    # windows with sinks put three aside in masked tiles.
    spills = 64 if name in IN_TURN else 16 if name == "sinks" else 0
    check(compiled(expressions()[name], 128), spills)


@pytest.mark.parametrize("name", ["causal", "window"])
def test_each_arrival_follows_one_barrier(name):
    """All warps are past their reads when memory is given back, and wait for one another once."""
    kinds = r"bar\.sync|mbarrier\.arrive\.shared|mbarrier\.try_wait|wgmma\.\w+|[ls][td]\.shared"
    told = re.findall(kinds, compiled(expressions()[name], 128).assembly)
    arrivals = [i for i, what in enumerate(told) if what == "mbarrier.arrive.shared"]
    # The producer, a single warp, stores the row it drew and arrives.
    drawn = [i for i in arrivals if told[i - 1] == "st.shared"]
    assert len(drawn) == 1 and len(arrivals) > 5
    assert all(told[i - 1] == "bar.sync" != told[i - 2] for i in arrivals if i not in drawn)


@pytest.mark.parametrize("pattern", ["reading", "long documents"])
def test_documents_that_are_declared_to_be_contiguous(pattern):
    """Nothing is read of keys, so nothing is put aside: 208 bytes where ids may be scattered."""
    tile = hopper_tile_for("sm_90", 128, 2, pattern, biased=False)
    check(compiled(causal & ma.document.from_lengths([40, 24]), 128, tile=tile))


def test_long_paths():
    """With Triton 3.6, on which it was measured, nothing is put aside."""
    tile = hopper_tile_for("sm_90", 128, 2, "long paths", biased=False)
    spills = 0 if triton.__version__.startswith("3.6.") else 148
    check(compiled(expressions()["rollouts"], 128, tile=tile), spills)


@pytest.mark.parametrize("name", ["everything", "causal"])
def test_64_dimensions(name):
    check(compiled(expressions()[name], 64, dtype=torch.float16))


def loads(result):
    """How often the kernel reads memory by each instruction, but for words."""
    found = Counter(re.findall(r"ld\.global\.([.\w]+)", result.assembly))
    return {kind: count for kind, count in found.items() if kind != "b32"}


def test_biases_of_pairs_are_read_by_lines():
    bias = ma.dense_bias(torch.zeros(64, 64, dtype=torch.bfloat16))
    wide = {dim: compiled(bias, dim, grain=8) for dim in (64, 128)}
    check(wide[64])
    check(wide[128], 16)  # once a row
    # A tile has 64 or 128 keys: 8 or 16 entries times 4 or 8 rows; of the first, and of others.
    assert loads(wide[64]) == {"v4.b32": 2 * 4}
    assert loads(wide[128]) == {"v4.b32": 2 * 2 * 8}
    odd = compiled(bias, 64, grain=1)
    check(odd)
    assert loads(odd) == {"b16": 2 * 32}


def test_masks_of_pairs_are_read_two_by_two():
    mask = ma.dense(torch.ones(64, 64, dtype=torch.bool))
    result = compiled(mask, 64, grain=2)
    check(result)
    assert loads(result) == {"b16": 2 * 16}
    assert loads(compiled(mask, 64)) == {"b8": 2 * 32}
    # Three groups of warps hold the marks of which tiles are whole as well.
    result = compiled(mask, 128, grain=8)
    check(result, 192)
    assert loads(result) == {"b16": 3 * 2 * 16}


@pytest.mark.parametrize("name, spills", [("window", 0), ("document", 12), ("three", 12)])
def test_three_programs_at_once_for_short_rows_of_64_dimensions(name, spills):
    result = compiled(expressions()[name], 64)
    check(result, spills)
    assert 3 * (result.shared + RESERVED) <= MULTIPROCESSOR


def test_two_programs_at_once_for_short_documents():
    result = compiled(expressions()["document"], 128)
    check(result)
    assert 2 * (result.shared + RESERVED) <= MULTIPROCESSOR


def test_biased_rows_of_64_dimensions_are_left_to_the_plain_kernel():
    assert compiled(expressions()["alibi"], 64) is None


@pytest.mark.parametrize(
    "dim, value_dim", [(256, 256), (256, 128), (128, 64), (192, 128), (160, 160), (96, 80)]
)
def test_other_dimensions(dim, value_dim):
    # Rows of 160 put a few numbers aside, once a row.
    check(compiled(causal, dim, value_dim), spills=32 if dim == 160 else 0)


@pytest.mark.parametrize("name, share", [("causal", 1 / 2), ("window", 1 / 2), ("document", 0)])
def test_queries_of_256_dimensions_lie_in_registers_where_these_suffice(name, share):
    """128 of them: a mask that reads ids of documents needs the registers."""
    operand = r"wgmma\.mma_async\S*\.m64n64k16\S*\s*\{[^}]*\},\s*(\{?)"
    of_scores = re.findall(operand, compiled(expressions()[name], 256).assembly)
    assert len(of_scores) > 0
    assert of_scores.count("{") == share * len(of_scores)


def products(result):
    """The widths of the matrix products of a kernel, once for each 16 of their depth."""
    return Counter(map(int, re.findall(r"wgmma\.mma_async\S*\.m64n(\d+)k16", result.assembly)))


@pytest.mark.parametrize(
    "dim, widths", [(128, [128]), (112, [128]), (96, [64, 32]), (80, [64, 16])]
)
def test_products_are_of_the_dimensions_there_are(dim, widths):
    """Weights of 128 keys times values, in the loop and at its end; scores, of the first tile and
    of others, sum up 16 dimensions at a time, of which there are no more than `dim`."""
    wanted = Counter(dict.fromkeys(widths, 2 * 2 * 128 // 16))
    wanted[128] += 2 * 2 * -(-dim // 16)
    assert products(compiled(causal, dim)) == wanted


def machine_code(assembly, folder):
    """What NVIDIA's assembler, which orders instructions anew, makes of a kernel."""
    from triton.backends.nvidia.compiler import get_ptxas

    (folder / "kernel.ptx").write_text(assembly)
    binary = str(folder / "kernel.cubin")
    source = ["--gpu-name=sm_90a", str(folder / "kernel.ptx"), "-o", binary]
    subprocess.run([get_ptxas(90).path, *source], check=True, capture_output=True)
    disassembled = [triton.knobs.nvidia.nvdisasm.path, "-c", binary]
    return subprocess.run(disassembled, check=True, capture_output=True, text=True).stdout


# Waits for all products but the last, and for all, with exponentials between.
@pytest.mark.parametrize("name", ["everything", "causal"])
def test_tiles_are_weighed_while_values_are_multiplied(name, tmp_path):
    code = machine_code(compiled(expressions()[name], 128).assembly, tmp_path)
    events = re.findall(r"HGMMA|DEPBAR\.LE gsb0, 0x[01]|MUFU\.EX2", code)
    short = {"HGMMA": "m", "DEPBAR.LE gsb0, 0x0": "0", "DEPBAR.LE gsb0, 0x1": "1", "MUFU.EX2": "e"}
    order = "".join([short[event] for event in events])
    assert len(re.findall(r"m{16}1e{66}0", order)) == 2  # in each consumer


def arithmetic(assembly):
    """How many real additions, multiplications, both in one, and conversions there are."""
    kinds = (r"(?:add|sub)\S*\.f32", r"mul\S*\.f32", r"fma\S*\.f32", r"cvt\.rn\.f32\.s32")
    return [len(re.findall(rf"\b{kind}\b", assembly)) for kind in kinds]


# ALiBi costs an element one multiplication and addition, and a diagonal of a thread's elements one
# addition: of 64 elements of two rows, 16 or 8 columns apart, 34 or 36 diagonals. No conversion.
@pytest.mark.parametrize(
    "of, bodies, diagonals", [("forward", 4, 34), ("queries", 2, 36), ("keys", 1, 36)]
)
def test_linear_biases(of, bodies, diagonals):
    def assembly(name):
        if of == "forward":
            return compiled(expressions()[name], 128).assembly
        return compiled_backward(expressions()[name], of, 128).assembly

    more = [
        a - b for a, b in zip(*map(arithmetic, map(assembly, ("alibi", "causal"))), strict=True)
    ]
    assert more == [diagonals * bodies, 0, 64 * bodies, 0]


def test_linear_biases_leave_three_consumers_enough_registers():
    tile = HopperTile(3, 128, 2, 128, 160, 32, True, False)
    check(compiled(expressions()["alibi"], 64, tile=tile))


@pytest.mark.parametrize(
    "backward, kernels",
    [(False, ["forward"]), (True, [f"backward, {of}" for of in ("queries", "keys", "one pass")])],
)
def test_many_numbers(backward, kernels):
    """Each consumer loads those past 24 before its loop, the producer where it finds runs."""
    from maskalg.backends.triton.offline import compile_offline
    from maskalg.backends.triton.trust import has_gluon

    if not has_gluon():
        pytest.skip("this Triton is not one the Gluon kernels were tested with")
    mask = windows(13) | ma.prefix(2)
    found = list(compile_offline(mask, "sm_90", 128, torch.bfloat16, backward=backward))
    assert [report.kernel for report in found] == kernels
    for report in found:
        assert report.tier.startswith("Gluon")
        assert report.shared <= report.shared_limit


def test_many_numbers_beside_entries_that_are_loaded_ahead():
    bias = ma.dense_bias(torch.zeros(64, 64, dtype=torch.bfloat16))
    result = compiled(windows(13) + bias, 128, grain=8)
    assert loads(result) == {"v4.b32": 2 * 4}


def test_without_lse():
    check(compiled(causal, 128, lse=False))


def compiled_backward(expression, of, dim, dtype=torch.bfloat16, weight=ma.softmax, value_dim=None):
    """The gradient kernel that the table chooses, compiled; None where it leaves it to plain."""
    from maskalg.backends.triton.constants import weight_constants
    from maskalg.backends.triton.families.backward import gradient_constants, gradient_spec
    from maskalg.backends.triton.launching.ahead import compile_kernel
    from maskalg.backends.triton.offline import table_dtypes
    from maskalg.backends.triton.plan import Inputs, Told, backward_plan
    from maskalg.backends.triton.trust import has_gluon
    from maskalg.codegen.hooks import Style

    if not has_gluon():
        pytest.skip("this Triton is not one the Gluon kernels were tested with")
    form = bound(weight.applied(expression))
    inputs = Inputs(dim, value_dim or dim, dtype, "sm_90", weight.formula is not None)
    plan = backward_plan(form.structure, Told(Style(ptx=True)), inputs)
    tile = plan.sides[of].hopper
    if tile is None:
        return None
    constants = weight_constants(weight) | gradient_constants(plan, of, tile)
    tables = table_dtypes(plan.hooks, form)
    return compile_kernel(gradient_spec(of, tile), "sm_90", constants, dtype, tables)


@pytest.mark.parametrize("name", list(expressions()))
def test_gradients_of_queries_of_128_dimensions(name):
    check(compiled_backward(expressions()[name], "queries", 128), spills=32 * (name == "document"))


@pytest.mark.parametrize("name", ["everything", "causal", "window", "three", "alibi"])
def test_gradients_of_keys_of_128_dimensions(name):
    # Two tiles of products and two of sums leave a thread no register to spare; on an H200 what
    # spills is 1.2 times as fast as smaller tiles that do not.
    # Most are of the branch that compares scattered ids.
    spills = 480 if name == "three" else 240
    check(compiled_backward(expressions()[name], "keys", 128), spills)


@pytest.mark.parametrize("name", ["everything", "causal", "window", "three", "alibi"])
def test_gradients_of_keys_of_64_dimensions(name):
    # 128 queries at a time are a tenth faster than 64 on an H200 where every key is kept.
    spills = 32 if name == "everything" else 0
    check(compiled_backward(expressions()[name], "keys", 64, dtype=torch.float16), spills)


@pytest.mark.parametrize("of", ["queries", "keys"])
@pytest.mark.parametrize("name", ["everything", "window", "document", "softcap"])
@pytest.mark.parametrize("dim, value_dim", [(256, 256), (192, 128)])
def test_gradients_of_wide_heads(dim, value_dim, name, of):
    result = compiled_backward(expressions()[name], of, dim, value_dim=value_dim)
    # Sums of 64 queries of 256 dimensions take half of a thread's registers.
    check(result, 256 if (of, dim) == ("queries", 256) else 64)


def in_one_pass(expression, dim=64):
    """The plan of the gradients, and the structure."""
    from maskalg.backends.triton.plan import Inputs, Told, backward_plan
    from maskalg.codegen.hooks import Style

    form = bound(expression)
    inputs = Inputs(dim, dim, torch.float16, "sm_90")
    return backward_plan(form.structure, Told(Style(ptx=True)), inputs), form


@pytest.mark.parametrize("mask", [ma.nothing, causal & (ma.kv_idx > ma.q_idx), causal, windows(13)])
def test_visits(mask):
    """Triton 3.6 fails on a loop that it knows to have no step."""
    from maskalg.backends.triton.families.one_pass import VISITS
    from maskalg.backends.triton.launching.ahead import compile_kernel

    plan, _form = in_one_pass(mask)
    constants = plan.in_one_pass | {"KEYS": 128, "BLOCK": 128}
    made = compile_kernel(VISITS, "sm_90", constants, torch.bfloat16, [torch.int32] * 8)
    assert "st.global" in made.assembly


# Of 64 dimensions two tiles of 64 x 128 products, and what follows from masks: on an H200 1.3 times
# as fast as two kernels that spill nothing, with documents of 4000 tokens 1.2 times.
# With 128 dimensions Triton 3.6 spills nothing, 3.7 one word of the causal kernel.
@pytest.mark.parametrize("dim, spills", [(64, 128), (96, 32), (128, 4)])
@pytest.mark.parametrize(
    "name, more",
    [
        ("everything", 0),
        ("causal", 0),
        ("window", 0),
        ("alibi", 0),
        ("causal, in parts", 0),
        ("document", 100),
        ("rollouts", 8),
    ],
)
def test_all_gradients(name, more, dim, spills):
    from maskalg.backends.triton.families.one_pass import ONE_PASS, one_pass_constants
    from maskalg.backends.triton.launching.ahead import compile_kernel
    from maskalg.backends.triton.offline import table_dtypes
    from maskalg.backends.triton.trust import has_gluon

    if not has_gluon():
        pytest.skip("this Triton is not one the Gluon kernels were tested with")
    name, *parts = name.split(", ")
    plan, form = in_one_pass(expressions()[name], dim)
    assert plan.one_pass_from is not None
    constants = one_pass_constants(plan)
    sums = dict.fromkeys(("key_sum", "value_sum"), torch.float32) | {"part_counter": torch.int32}
    tables, held = table_dtypes(plan.hooks, form), sums if parts else {}
    result = compile_kernel(ONE_PASS, "sm_90", constants, torch.float16, tables, held=held)
    check(result, spills + more)
    added = "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add"
    assert added in result.assembly
    # Products keep shared memory busy: nothing of a query is read from it, and parts of dQ, of the
    # loop and the last, are stored by four numbers of both consumers.
    assert "ld.shared.v2" not in result.assembly and "ld.shared.b32" not in result.assembly
    assert result.assembly.count("st.shared.v4.b32") == 2 * 2 * 8
    # What is subtracted from products is a product, whatever the type of the inputs.
    assert "f32.bf16.bf16" in result.assembly and "f32.f16.f16" in result.assembly


@pytest.mark.parametrize(
    "expression",
    [
        causal + ma.softcap(30.0),
        causal + ma.score(lambda score, *_: score + torch.floor(score)),
        (ma.q_idx + ma.table(torch.tensor(9))[()] == 64 * ma.kv_idx) | causal,
    ],
    ids=["derivative", "steps", "marked for keys alone"],
)
def test_gradients_left_to_two_kernels(expression):
    assert in_one_pass(expression)[0].one_pass_from is None


def test_gradients_left_to_the_plain_kernels():
    assert compiled_backward(expressions()["causal"], "queries", 64) is None


WEIGHTS = {
    "sigmoid": ma.sigmoid(-1.0),
    "linear": ma.linear,
    "normalised": ma.Weight("sigmoids", ma.sigmoid(torch.zeros(4)).formula, normalised=True),
}


@pytest.mark.parametrize(
    "weight, name, spills",
    [("sigmoid", "causal", 0), ("linear", "window", 64), ("normalised", "three", 0)],
)
def test_weights(weight, name, spills):
    check(compiled(expressions()[name], 128, weight=WEIGHTS[weight]), spills)


# How many bodies of the loop there are: the queries' first tile is computed before it.
@pytest.mark.parametrize("of, bodies", [("queries", 2), ("keys", 1)])
@pytest.mark.parametrize("weight, name", [("sigmoid", "causal"), ("normalised", "window")])
def test_gradients_of_weights(of, bodies, weight, name):
    spills = 240 if of == "keys" else 0
    result = compiled_backward(expressions()[name], of, 128, weight=WEIGHTS[weight])
    check(result, spills)
    # One exponential for an element and one reciprocal for two, though the slope needs them too:
    # 64 x 64 elements by 128 threads, of two consumers.
    assert result.assembly.count("ex2.approx") == 64 * bodies
    assert result.assembly.count("rcp.approx") == 32 * bodies


def test_gradients_of_weights_left_to_the_plain_kernels():
    causal_documents = expressions()["document"]
    assert compiled_backward(causal_documents, "keys", 128, weight=WEIGHTS["sigmoid"]) is None
    assert compiled(causal, 64, weight=WEIGHTS["sigmoid"]) is None


OF_PARTS = {"key_part": torch.float32, "value_part": torch.float32}


@pytest.mark.parametrize("dims", [(64, 64), (96, 80), (192, 128), (256, 256)], ids=str)
def test_gradients_of_parts_of_the_heads_that_share_keys(dims):
    """They are stored in float32, in two tensors where dimensions are no power of two."""
    from maskalg.backends.triton.constants import weight_constants
    from maskalg.backends.triton.families import backward
    from maskalg.backends.triton.launching.ahead import compile_kernel
    from maskalg.backends.triton.plan import Inputs, Told, backward_plan
    from maskalg.backends.triton.trust import has_gluon
    from maskalg.codegen.hooks import Style

    if not has_gluon():
        pytest.skip("this Triton is not one the Gluon kernel was tested with")
    dtype = torch.bfloat16
    plan = backward_plan(
        bound(causal).structure, Told(Style(ptx=True)), Inputs(*dims, dtype, "sm_90")
    )
    tile = plan.sides["keys"].hopper
    constants = backward.gradient_constants(plan, "keys", tile) | weight_constants(ma.softmax)
    spec = backward.gradient_spec("keys", tile)
    found = compile_kernel(spec, "sm_90", constants, dtype, [torch.int32] * 3, held=OF_PARTS)
    check(found)


@pytest.mark.parametrize("dims", [(96, 80), (256, 256)], ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_120", "gfx942"])
def test_sums_of_parts(target, dtype, dims):
    from maskalg.backends.triton.constants import shape_constants
    from maskalg.backends.triton.families import backward
    from maskalg.backends.triton.launching.ahead import compile_kernel

    shape = shape_constants(*dims, dtype, False, target)
    constants = {**shape, "ROWS": backward._rows_summed(shape)}
    found = compile_kernel(backward._SUMS, target, constants, dtype, [], held=OF_PARTS)
    assert not found.spills
