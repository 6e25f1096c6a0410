"""NaN and infinities of dropped pairs in Triton's interpreter: `nan_safe`."""

import os
from dataclasses import replace

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from tests.cases.nan_safe import check, with_wild_rows

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
    ),
    pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning"),
]

LENGTH = 70
ROWS = ([44], [10, 21], [30], [60])  # of queries, keys, values and dO
NAN = (torch.nan,)


def inputs(dtype=torch.float32, heads=(4, 2), dims=(16, 16), lengths=(LENGTH, LENGTH), batch=1):
    torch.manual_seed(1)
    shapes = ((heads[0], lengths[0], dims[0]), *((heads[1], lengths[1], dim) for dim in dims))
    return [torch.randn(batch, *shape).to(dtype) for shape in shapes]


def masks():
    ids = torch.arange(LENGTH) // 13
    return {
        "window": causal & sliding(9),
        "documents": causal & ma.document(ids),
        "scattered": ma.document(torch.arange(LENGTH) * 7 % 5),
        "padding": ma.padding([26], queries=True),
        "every ninth": (ma.q_idx - ma.kv_idx) % 9 == 0,
        "nothing": ma.nothing,
    }


@pytest.mark.parametrize("name", masks())
def test_masks(name):
    spoiled, reached = check(masks()[name], inputs(), ROWS, backend="triton")
    assert not spoiled.all() and not reached.all()
    assert spoiled.any() == (name != "nothing")


@pytest.mark.parametrize("dims", [(24, 40), (40, 24)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_dimensions(dims, dtype):
    check(causal & sliding(9), inputs(dtype, dims=dims), ROWS, backend="triton")


def test_rows_that_keep_nothing():
    """Queries and their gradients behind the length hold anything: zeros, and no more."""
    mask = ma.padding([26], queries=True)
    rows = (range(26, LENGTH), range(26, LENGTH), range(26, LENGTH), range(26, LENGTH))
    spoiled, reached = check(mask, inputs(heads=(1, 1)), rows, backend="triton")
    assert not spoiled.any() and not reached.any()


def test_biases():
    tensors = inputs(heads=(2, 1))
    slopes = torch.rand(2, requires_grad=True)
    for rows in (ROWS, ([], [], [], [])):
        given = {"bias": ma.alibi(slopes), "learned": [slopes], "backend": "triton"}
        check(causal & sliding(9), tensors, rows, **given)
    bias = ma.softcap(3.0) @ ma.alibi(slopes.detach())
    check(causal & sliding(9), tensors, ROWS, bias=bias, queries=NAN, backend="triton")


@pytest.mark.parametrize("lse", [False, True])
def test_sinks(lse):
    tensors = inputs(heads=(2, 1))
    logits = torch.randn(2, requires_grad=True)
    weight = ma.softmax_with_sink(logits)
    for rows in (ROWS, ([], [], [], [])):
        given = {"lse": lse, "learned": [logits], "backend": "triton"}
        check(causal & sliding(9), tensors, rows, weight=weight, **given)


NORMALISED = replace(ma.sigmoid(), normalised=True)


@pytest.mark.parametrize("weight", [NORMALISED, ma.sigmoid(0.0), ma.relu, ma.linear], ids=str)
def test_other_weights(weight):
    tensors = inputs(heads=(2, 1))
    slopes = torch.rand(2, requires_grad=True)
    given = {"weight": weight, "lse": False, "queries": NAN, "backend": "triton"}
    for rows in (ROWS, ([], [], [], [])):
        check(causal & sliding(9), tensors, rows, **given)
    check(causal & sliding(9), tensors, ROWS, bias=ma.alibi(slopes), learned=[slopes], **given)


@pytest.mark.parametrize("weight", [ma.sigmoid, lambda _: ma.relu], ids=["sigmoid", "relu"])
def test_learned_tables_under_weights_of_half_precision(weight):
    """The output is no part of their gradients, rounded or not."""
    slopes, bias = torch.rand(2, requires_grad=True), torch.zeros(2, requires_grad=True)
    given = {"weight": weight(bias), "lse": False, "backend": "triton", "queries": NAN}
    learned = [slopes, bias] if given["weight"].tensors else [slopes]
    tensors = inputs(torch.float16, heads=(2, 1))
    check(
        causal & sliding(9),
        tensors,
        ([], [], [], []),
        bias=ma.alibi(slopes),
        learned=learned,
        **given,
    )


@pytest.mark.parametrize("scale", [0.7, -0.3, 0.0])
def test_scales(scale):
    check(causal & sliding(9), inputs(heads=(1, 1)), ROWS, scale=scale, backend="triton")


def test_orders_in_memory_and_batches():
    tensors = inputs(batch=2)
    tokens_first = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in tensors]
    mask = causal & ma.padding([70, 40])
    check(mask, tokens_first, ROWS, backend="triton")


def test_documents_that_tiles_begin_with():
    mask = causal & ma.document.from_lengths([20, 31, 19])
    check(mask, inputs(), ROWS, backend="aligned")


@pytest.mark.parametrize("queries", [1, 3])
def test_few_queries(queries, monkeypatch):
    from maskalg.backends.triton.families import decode

    monkeypatch.setattr(decode, "LEAST_KEYS", 150)
    monkeypatch.setattr(decode, "_LEAST_OF_SPLIT", 75)
    called = []
    of_parts = decode._parts
    monkeypatch.setattr(decode, "_parts", lambda *given: called.append(1) or of_parts(*given))
    mask = (causal & sliding(40)).shift(q=100)
    given = inputs(lengths=(queries, 150))
    check(mask, given, ([], [20, 120, 148], [40, 130], []), backend="triton")
    assert called
    spoiled, _ = check(mask, given, ([], [101], [], []), backend="triton")
    assert spoiled.any() == (queries == 3)


def test_compiled_and_transformed():
    torch._dynamo.reset()
    query, key, value = inputs(heads=(2, 2))
    key = with_wild_rows(key, [30])

    def attend(q, k, v):
        return ma.attention(q, k, v, causal, backend="triton", nan_safe=True)

    def results(function):
        leaves = [t.clone().requires_grad_() for t in (query, key, value)]
        out = function(*leaves)
        change = torch.ones_like(out)
        first = torch.autograd.grad(out, leaves, change, retain_graph=True)
        return [out, *first, *torch.autograd.grad(out, leaves, change)]

    want = results(attend)
    assert want[0].isnan().any() and not want[0].isnan().all()
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    for got in (
        results(compiled),
        results(torch.func.vmap(lambda *t: attend(*(x[None] for x in t))[0])),
    ):
        for a, b in zip(got, want, strict=True):
            assert torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))


def test_modules_and_what_is_told():
    query, key, value = inputs()
    key = with_wild_rows(key, [30])
    layer = ma.nn.Attention(causal, backend="triton", nan_safe=True)
    assert layer(query, key, value)[:, :2, :30].isfinite().all()
    told = ma.explain(query, key, value, causal, backend="triton", nan_safe=True)
    assert told.tier.endswith("of copies without NaN")


def test_what_it_does_not_serve():
    query, key, value = inputs()
    hides = ma.score(lambda s, b, h, q, k: torch.where(s > 1, s, 0.0))
    with pytest.raises(ma.BackendError, match="turn NaN into a number"):
        ma.attention(query, key, value, hides, backend="triton", nan_safe=True)
    pages = ma.Pages(torch.zeros(1, 1, dtype=torch.int32), torch.tensor([10], dtype=torch.int32))
    pool = torch.zeros(1, 16, 2, 16)
    with pytest.raises(ma.BackendError, match="pages are there to avoid"):
        ma.attention(query, pool, pool, pages=pages, backend="triton", nan_safe=True)


def dense(query, key, value, change, keep):
    """Output and gradients in float64, of kept pairs alone: others are not multiplied at all."""
    leaves = [t.double().requires_grad_() for t in (query, key, value)]
    q, k, v = leaves
    products = torch.where(keep[..., None], q[:, :, :, None], 0) * torch.where(
        keep[..., None], k[:, :, None], 0
    )
    score = torch.where(keep, products.sum(-1) / q.shape[-1] ** 0.5, -torch.inf)
    some = keep.any(-1, keepdim=True)
    weight = torch.where(some, score, 0).softmax(-1)
    out = (weight[..., None] * torch.where(keep[..., None], v[:, :, None], 0)).sum(-2)
    out = torch.where(some, out, 0)
    return [out, *torch.autograd.grad(out, leaves, change.double())]


@pytest.mark.parametrize("name", masks())
def test_against_float64(name):
    """Where a dense formula without dropped pairs is finite or NaN, so is the kernel's result."""
    mask, torch_inputs = masks()[name], inputs(heads=(2, 2), dims=(8, 8))
    change = torch.randn_like(torch_inputs[0])
    wild = [
        with_wild_rows(t, [r])
        for t, r in zip((*torch_inputs, change), (44, 10, 30, 60), strict=True)
    ]
    keep = mask.to_dense(LENGTH, LENGTH, heads=2).expand(1, 2, -1, -1)
    want = dense(*wild[:3], wild[3], keep)
    leaves = [t.clone().requires_grad_() for t in wild[:3]]
    out = ma.attention(*leaves, mask, backend="triton", nan_safe=True)
    got = [out, *torch.autograd.grad(out, leaves, wild[3])]
    for a, b in zip(got, want, strict=True):
        number = a.isfinite()
        assert number.any() and b[number].isfinite().all()
        torch.testing.assert_close(a[number].double(), b[number], atol=2e-5, rtol=2e-5)


def test_a_row_of_scores_near_the_lowest_number_beside_a_sink():
    """Its lse lies near that of spoiled queries, but the sink takes all the weight."""
    torch.manual_seed(0)
    lowest = torch.zeros(8, 8)
    lowest[3] = -8e37
    leaves = [torch.randn(1, 1, 8, 16, requires_grad=True) for _ in range(3)]
    sink = ma.softmax_with_sink(torch.zeros(1))

    def gradients(backend):
        out = ma.attention(*leaves, ma.dense_bias(lowest), weight=sink, backend=backend)
        return torch.autograd.grad(out, leaves, torch.ones_like(out))

    for found, wanted in zip(gradients("triton"), gradients("reference"), strict=True):
        torch.testing.assert_close(found, wanted, atol=2e-5, rtol=2e-5)
