"""All gradients in one pass on a Hopper GPU, and whose turn it is, against float64."""

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from maskalg.schedule.summaries import labels
from tests.gpu.test_hopper_backward_gpu import check, inputs, launches  # noqa: F401

pytest.importorskip("triton", reason="needs Triton")
from tests.cases.launched import names

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9,
        reason="needs a Hopper GPU",
    ),
]

MASKS = {
    "everything": ma.everything,
    "causal": causal,
    "anticausal": ma.kv_idx >= ma.q_idx,
    "prefix": causal | ma.prefix(300),
    "middle": (ma.q_idx >= 260) & (ma.q_idx < 300),
    "nothing": ma.nothing,
    "far": causal & ~sliding(70),
    "window": causal & sliding(300),
    "sinks": causal & (sliding(70) | ma.prefix(4)),
    "thirds": causal & ((ma.q_idx - ma.kv_idx) % 3 == 0),
}


@pytest.fixture(autouse=True)
def least(one_pass_from):
    """Lengths that the float64 reference can have are served by two kernels otherwise."""
    one_pass_from(0)


@pytest.fixture
def in_one_pass(launches):  # noqa: F811
    yield
    assert set(names(launches)) == {"hopper_gradients"}


@pytest.fixture(params=[1, 20])
def turned(request, monkeypatch):
    """How many programs start with the first keys: those of one head, or of some; else all do."""
    from maskalg.backends.triton.families import one_pass

    monkeypatch.setattr(one_pass, "_PROGRAMS_TURNED", request.param)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("name", list(MASKS))
def test_masks(name, dim, dtype, in_one_pass, turned):
    check(MASKS[name], inputs(dim, dtype, q_len=700, kv_len=700))


@pytest.mark.parametrize(
    "q_len, kv_len", [(1, 1), (1, 515), (65, 129), (515, 100), (191, 257), (128, 128), (2000, 2000)]
)
def test_lengths(q_len, kv_len, in_one_pass):
    check(causal | ma.prefix(5), inputs(64, torch.bfloat16, q_len=q_len, kv_len=kv_len))


@pytest.mark.parametrize("kv_heads", [1, 4])
@pytest.mark.parametrize("dim", [40, 64, 80, 96, 112, 128])
def test_groups(kv_heads, dim, in_one_pass):
    check(causal, inputs(dim, torch.bfloat16, kv_heads=kv_heads))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("q_len, kv_len", [(1, 1), (515, 300), (100, 515), (1500, 1500)])
@pytest.mark.parametrize("dim", [80, 128])
def test_no_mask_at_128_dimensions(dim, q_len, kv_len, dtype, in_one_pass):
    slopes = torch.rand(4, device="cuda")
    tensors = inputs(dim, dtype, q_len=q_len, kv_len=kv_len)
    check(ma.everything, tensors)
    check(ma.everything + ma.alibi(slopes), tensors)


@pytest.mark.parametrize("dim, value_dim, kernels", [(128, 64, 1), (64, 128, 2)])
def test_values_of_another_dimension(dim, value_dim, kernels, launches):  # noqa: F811
    query, key, _value = inputs(dim, torch.bfloat16)
    value = inputs(value_dim, torch.bfloat16)[2]
    leaves = [t.requires_grad_() for t in (query, key, value)]
    wide = [t.detach().double().requires_grad_() for t in leaves]
    change = torch.randn(*query.shape[:-1], value_dim, device="cuda")
    out = ma.attention(*leaves, ma.everything)
    found = torch.autograd.grad(out, leaves, change.to(out.dtype))
    out = ma.attention(*wide, ma.everything, backend="reference")
    wanted = torch.autograd.grad(out, wide, change.to(torch.bfloat16).double())
    for got, want in zip(found, wanted, strict=True):
        assert ((got - want).abs().max() / want.abs().max()).item() <= 2e-2
    assert ("hopper_gradients" in names(launches)) == (kernels == 1)


LOOKED_UP = {
    "shared prefix": lambda length: ma.shared_prefix.from_cu_seqlens(
        [0, 190, 250, 430, 480, 690], [-1, 0, 0, 2, 0], total=length, device="cuda"
    ),
    "prefixes of documents": lambda length: ma.shared_prefix.from_cu_seqlens(
        torch.tensor([0, 300, 301, 690], device="cuda"),
        torch.tensor([-1, 0, -1], device="cuda"),
        total=length,
    ),
    "gaps": lambda length: (
        causal
        & (ma.table(torch.arange(length, device="cuda") // 70 * 70 + 90)[ma.kv_idx] > ma.q_idx)
    ),
}


@pytest.mark.parametrize("length", [700, 704, 769])
@pytest.mark.parametrize("fewest", [0, 1 << 10])
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("name", list(LOOKED_UP))
def test_masks_that_are_looked_up(name, dim, fewest, length, in_one_pass, turned, monkeypatch):
    """Tiles are labelled, or all are visited."""
    monkeypatch.setattr(labels, "_FEWEST_TILES", fewest)
    check(LOOKED_UP[name](length), inputs(dim, torch.bfloat16, q_len=length, kv_len=length))


CUTS = [0, 130, 131, 500, 700]
DOCUMENTS = {
    "lengths": lambda: causal & ma.document.from_lengths([200, 1, 499], device="cuda"),
    "not causal": lambda: ma.document.from_cu_seqlens(torch.tensor(CUTS, device="cuda")),
    "cut short": lambda: (
        causal & ma.document.from_cu_seqlens(torch.tensor(CUTS[:-1], device="cuda"), total=700)
    ),
    "scattered": lambda: causal & ma.document(torch.arange(700, device="cuda") * 7 % 3),
    "others": lambda: ~ma.document(torch.arange(700, device="cuda") // 200),
    "prefix": lambda: causal | ma.prefix(torch.tensor(300, device="cuda")),
}


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("name", list(DOCUMENTS))
def test_documents(name, dim, in_one_pass):
    mask = DOCUMENTS[name]()
    check(mask, inputs(dim, torch.bfloat16, q_len=700, kv_len=700))
    slopes = torch.rand(4, device="cuda")
    check(mask + ma.alibi(slopes), inputs(dim, torch.float16, q_len=700, kv_len=700))


@pytest.mark.parametrize("name", ["documents", "prefix"])
def test_tensors_that_change(name, in_one_pass):
    """What is visited is found anew: a program would wait for one that does not come."""
    tensor = {
        "documents": torch.arange(700, device="cuda") // 300,
        "prefix": torch.tensor(100, device="cuda"),
    }[name]
    mask = causal & ma.document(tensor) if name == "documents" else causal | ma.prefix(tensor)
    tensors = inputs(64, torch.bfloat16, q_len=700, kv_len=700)
    for _ in range(3):
        for _ in range(3):
            check(mask, tensors)
        tensor.copy_(tensor.flip(0) + 1 if tensor.ndim else tensor * 2)


LINES = {
    "keys after": lambda limit: (ma.kv_idx >= ma.q_idx) & (ma.kv_idx >= limit),
    "first queries": lambda limit: (ma.kv_idx >= ma.q_idx) & (ma.q_idx < limit),
    "causal": lambda limit: causal & (ma.q_idx < limit),
}


@pytest.mark.parametrize("name", list(LINES))
def test_lines_that_tensors_place(name):
    """So long that tiles of keys look up what they visit, if a kernel can."""
    moved, limit = [ma.table(torch.tensor(n, device="cuda"))[()] for n in (15360, 300)]
    mask = (ma.q_idx + moved == 256 * ma.kv_idx) | LINES[name](limit)
    check(mask, inputs(64, torch.bfloat16, q_len=4096, kv_len=4096))


def test_biases(in_one_pass):
    slopes = torch.rand(4, device="cuda")
    check(causal + ma.alibi(slopes) + ma.bias(0.01 * ma.kv_idx), inputs(64, torch.bfloat16))


def test_keys_past_the_length_add_nothing(in_one_pass):
    """Scores of -400 everywhere: a key of zeros would have a weight of exp(400)."""
    query, key, value = inputs(64, torch.bfloat16, kv_len=515)
    check(causal, [torch.ones_like(query) * 7, -torch.ones_like(key) * 7, value])


def test_strided_inputs(in_one_pass):
    torch.manual_seed(3)
    packed = torch.randn(2, 515, 3, 4, 64, device="cuda", dtype=torch.bfloat16)
    query, key, value = packed.permute(2, 0, 3, 1, 4)
    check(causal, [query, key, value])
    check(causal, [query, key.contiguous(), value.contiguous()])
    check(causal, [query.contiguous(), key[:, :2], value[:, :2]])


def test_sinks(in_one_pass):
    torch.manual_seed(0)
    found, wanted = {}, {}
    for backend, into, dtype in (("triton", found, torch.bfloat16), ("reference", wanted, None)):
        tensors = [t.to(dtype or torch.float64) for t in inputs(64, torch.bfloat16)]
        leaves = [t.requires_grad_() for t in tensors]
        sinks = torch.tensor([0.5, -3.0, 9.0, 2.0], device="cuda").requires_grad_()
        out = ma.attention(*leaves, causal, weight=ma.softmax_with_sink(sinks), backend=backend)
        names = ("query", "key", "value", "sinks")
        # A gradient that changes from query to query, the same in both.
        change = torch.linspace(-1, 1, out[0].numel(), device="cuda").view(out[0].shape)
        grads = torch.autograd.grad(out, [*leaves, sinks], change.expand_as(out).to(out.dtype))
        into |= dict(zip(names, grads, strict=True))
    for name, want in wanted.items():
        error = (found[name] - want).abs().max() / want.abs().max()
        assert error.item() <= 2e-2, name


def test_a_sink_far_above_all_scores(in_one_pass):
    """Every weight is 0, and so is the gradient of an lse that nobody used."""
    leaves = [t.requires_grad_() for t in inputs(64, torch.bfloat16)]
    weight = ma.softmax_with_sink(300.0)
    out, lse = ma.attention(*leaves, causal, weight=weight, return_lse=True)
    change = (torch.ones_like(out), torch.zeros_like(lse))
    assert not any(g.any() for g in torch.autograd.grad((out, lse), leaves, change))


@pytest.mark.parametrize("dim", [64, 128])
def test_a_large_bias(dim, in_one_pass):
    """What is subtracted from scores is rounded to once, however large it is.

    A score of 2^18 in units of log 2 is rounded by 1.1 % of its weight, some seven times from the
    forward pass on; were each step of a product rounded to it, that would be twice as much.
    """
    leaves = [t.requires_grad_() for t in inputs(dim, torch.bfloat16)]
    wide = [t.detach().double().requires_grad_() for t in leaves]
    bias = causal + ma.score(lambda score, b, h, q, k: score + 200_000.0)
    change = torch.randn_like(leaves[0])
    found = torch.autograd.grad(ma.attention(*leaves, bias), leaves, change)
    out = ma.attention(*wide, causal, backend="reference")
    for got, want in zip(found, torch.autograd.grad(out, wide, change.double()), strict=True):
        assert (got - want).abs().max() <= 8e-2 * want.abs().max()


def test_the_same_bits_every_time(in_one_pass, turned):
    """Many programs for each tile of queries, most of which wait for others."""
    tensors = inputs(64, torch.bfloat16, q_len=4000, kv_len=4000)
    leaves = [t.requires_grad_() for t in tensors]
    wide = inputs(128, torch.bfloat16, q_len=4000, kv_len=4000)
    for mask in (ma.everything, causal, causal | ma.prefix(1000), None):
        if mask is None:
            leaves, mask = [t.requires_grad_() for t in wide], ma.everything
        out = ma.attention(*leaves, mask)
        first, *others = (
            torch.autograd.grad(out.float().square().sum(), leaves, retain_graph=True)
            for _ in range(20)
        )
        for grads in others:
            assert all(torch.equal(a, b) for a, b in zip(grads, first, strict=True))


def test_in_a_graph():
    """What a graph needs is its own: nothing that is freed or written later."""
    mask = causal & sliding(5000) | ma.prefix(77)
    leaves = [t.requires_grad_() for t in inputs(64, torch.bfloat16, q_len=333, kv_len=333)]

    def step():
        return torch.autograd.grad(ma.attention(*leaves, mask).float().square().sum(), leaves)

    wanted = step()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        captured = step()
    junk = [torch.full((2**18,), 2**30, device="cuda", dtype=torch.int32) for _ in range(50)]
    graph.replay()
    torch.cuda.synchronize()
    del junk
    for got, again, want in zip(captured, step(), wanted, strict=True):
        assert torch.equal(got, want) and torch.equal(again, want)


def test_a_formula_of_the_score_is_left_to_two_kernels(launches):  # noqa: F811
    """Its derivative is 1 almost everywhere, and yet it is not only added."""
    steps = ma.score(lambda score, *_: score + torch.floor(score))
    check(causal + steps, inputs(64, torch.bfloat16))
    assert "hopper_gradients" not in names(launches)


@pytest.mark.parametrize("members", [1, 3, 6])
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("name", ["everything", "causal", "thirds"])
def test_query_heads_of_a_program(name, dim, members, in_one_pass, turned, monkeypatch):
    from maskalg.backends.triton.families import one_pass

    monkeypatch.setattr(one_pass, "_members", lambda _: members)
    query = torch.randn(2, 12, 700, dim, device="cuda", dtype=torch.bfloat16)
    key, value = torch.randn(2, 2, 2, 900, dim, device="cuda", dtype=torch.bfloat16)
    check(MASKS[name], [query, key, value])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("factor, scale", [(60.0, None), (1.0, 2.0**-60), (1.0, 3.0)])
@pytest.mark.parametrize("dim", [64, 128])
def test_scores_of_any_size(dim, factor, scale, dtype, one_pass_from):
    """What products are shifted by is far from what half precision holds, or next to it."""
    query, key, value = inputs(dim, dtype)
    leaves = [t.requires_grad_() for t in (query * factor, key * factor, value)]
    change = torch.randn_like(query)
    found = {}
    for kernels, most in ((1, 0), (2, 2**60)):
        one_pass_from(most)
        out = ma.attention(*leaves, causal, scale=scale)
        found[kernels] = torch.autograd.grad(out, leaves, change)
    for one, two in zip(found[1], found[2], strict=True):
        error = (one.float() - two.float()).abs().max()
        assert error <= 1e-2 * two.float().abs().max()


def test_masks_of_heads_are_left_to_two_kernels(launches):  # noqa: F811
    per_head = ma.kv_idx <= ma.q_idx + ma.head
    check(per_head, inputs(64, torch.bfloat16))
    assert "hopper_gradients" not in names(launches)
