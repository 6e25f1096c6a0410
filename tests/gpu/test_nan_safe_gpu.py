"""NaN and infinities of dropped pairs on a GPU: `nan_safe`, in each kernel."""

from dataclasses import replace

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from tests.cases.nan_safe import check, with_wild_rows

pytestmark = pytest.mark.gpu

LENGTH = 700
ROWS = ([44, 400], [10, 300], [130], [60, 600])  # of queries, keys, values and dO
NAN = (torch.nan,)
NORMALISED = replace(ma.sigmoid(), normalised=True)


def inputs(dims=(64, 64), dtype=torch.bfloat16, heads=(4, 2), lengths=(LENGTH, LENGTH)):
    torch.manual_seed(1)
    shapes = ((heads[0], lengths[0], dims[0]), *((heads[1], lengths[1], dim) for dim in dims))
    return [torch.randn(1, *shape, device="cuda").to(dtype) for shape in shapes]


def masks(device="cuda"):
    ids = torch.arange(LENGTH, device=device) // 90
    scattered = torch.arange(LENGTH, device=device) * 7 % 40
    return {
        "window": causal & sliding(50),
        "documents": causal & ma.document(ids.int()),
        "scattered": ma.document(scattered.int()),
        "padding": ma.padding(torch.tensor([260], device=device), queries=True),
        "every 40th": (ma.q_idx - ma.kv_idx) % 40 == 0,
        "nothing": ma.nothing,
    }


@pytest.fixture(params=["by size", "one pass"])
def passes(request, one_pass_from):
    """The gradients that a length has, and those of one pass, which longer ones have."""
    if request.param != "by size":
        one_pass_from(0)


DIMENSIONS = [(64, 64), (96, 96), (128, 128), (192, 128), (256, 256), (40, 24)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("dims", DIMENSIONS, ids=str)
@pytest.mark.parametrize("name", masks("cpu"))
def test_masks(name, dims, dtype, passes):
    spoiled, _ = check(masks()[name], inputs(dims, dtype), ROWS)
    assert not spoiled.all() and spoiled.any() == (name != "nothing")


@pytest.mark.parametrize("dims", [(64, 64), (128, 128)], ids=str)
def test_full_precision(dims):
    check(causal & sliding(50), inputs(dims, torch.float32), ROWS)


@pytest.mark.parametrize("dims", [(64, 64), (128, 128), (256, 256)], ids=str)
def test_rows_that_keep_nothing(dims, passes):
    mask = ma.padding(torch.tensor([260], device="cuda"), queries=True)
    rows = (range(260, LENGTH - 9),) * 4
    spoiled, reached = check(mask, inputs(dims, heads=(1, 1)), rows)
    assert not spoiled.any() and not reached.any()


@pytest.mark.parametrize("rows", [ROWS, ([], [], [], [])], ids=["wild", "finite"])
def test_biases_and_sinks(rows, passes):
    slopes = torch.rand(4, device="cuda", requires_grad=True)
    mask = causal & sliding(50)
    check(mask, inputs(), rows, bias=ma.alibi(slopes), learned=[slopes])
    check(mask, inputs(), rows, bias=ma.alibi(slopes.detach()))
    check(mask, inputs(), rows, bias=ma.softcap(3.0) @ ma.alibi(slopes.detach()), queries=NAN)
    for lse in (False, True):
        weight = ma.softmax_with_sink(slopes)
        check(mask, inputs(), rows, weight=weight, lse=lse, learned=[slopes])


@pytest.mark.parametrize("dims", [(64, 64), (128, 128), (256, 256)], ids=str)
@pytest.mark.parametrize("weight", [NORMALISED, ma.sigmoid(0.0), ma.relu], ids=str)
def test_other_weights(weight, dims):
    given = {"weight": weight, "lse": False, "queries": NAN}
    check(causal & sliding(50), inputs(dims), ROWS, **given)


@pytest.mark.parametrize("dims", [(64, 64), (128, 128), (256, 256)], ids=str)
@pytest.mark.parametrize("queries", [1, 3])
def test_few_queries(queries, dims):
    mask = (causal & sliding(900)).shift(q=3000)
    given = inputs(dims, lengths=(queries, 4096))
    check(mask, given, ([], [500, 3500, 4000], [100, 3700], []))
    spoiled, _ = check(mask, given, ([], [3000], [], []))
    assert spoiled.any()


@pytest.mark.parametrize("dim", [64, 128])
def test_float8(dim):
    tensors, descale = zip(*map(ma.to_float8, inputs((dim, dim))), strict=True)
    want = ma.attention(*tensors, causal, descale=descale)
    bits = [t.view(torch.uint8).clone() for t in tensors]
    bits[1][:, :, 150, 3], bits[2][:, :, 260, 4] = 0x7F, 0xFF
    wild = [t.view(torch.float8_e4m3fn) for t in bits]
    got = ma.attention(*wild, causal, descale=descale, nan_safe=True)
    assert torch.equal(got[:, :, :150], want[:, :, :150]) and got[:, :, 150:].isnan().all()


def test_calls_like_one_before_and_no_wait():
    """Nothing asks the GPU: a call that would wait raises."""
    tensors = inputs()
    mask = causal & sliding(50)
    want = check(mask, tensors, ROWS)
    assert want[0].any()
    leaves = [with_wild_rows(t, [130]).requires_grad_() for t in tensors]
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(4):
            out = ma.attention(*leaves, mask, nan_safe=True)
            out.backward(torch.ones_like(out))
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_in_a_graph():
    tensors = inputs()
    tensors[2] = with_wild_rows(tensors[2], [130])
    mask = causal & sliding(50)
    for _ in range(3):
        want = ma.attention(*tensors, mask, nan_safe=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = ma.attention(*tensors, mask, nan_safe=True)
    out.zero_()
    graph.replay()
    assert torch.equal(out.nan_to_num(7.0), want.nan_to_num(7.0)) and want.isnan().any()
