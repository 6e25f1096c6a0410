"""Keys in pages on a GPU: random tables, lengths, masks and biases against float64."""

import pytest
import torch

import maskalg as ma
from maskalg import causal
from maskalg.backends.triton.families import forward
from tests.cases.launched import launched, names
from tests.cases.paged import MASKS, QUANTISED, check, check_quantised, kinds, of_kind, paged

pytestmark = pytest.mark.gpu
hopper = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9,
    reason="needs a Hopper GPU",
)

TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@pytest.mark.parametrize("kind", range(5))
@pytest.mark.parametrize("name", MASKS)
def test_random_cases(name, kind):
    """14 of each kind, 1,050 in all. Twice: the second call is one that was launched before."""
    how = dict(kinds(name)[kind])
    quantised = how.pop("quantised")
    for seed in range(14):
        case = paged(name, **of_kind(seed, name, 1500, **how), device="cuda")
        for _ in range(2):
            if quantised:
                check_quantised(case, QUANTISED[seed % 2], "triton", TOLERANCE[how["dtype"]])
            else:
                check(case, "triton", TOLERANCE[how["dtype"]])


_OTHERS = [
    ("causal", (64, 64)), ("window", (128, 128)), ("causal", (192, 128)), ("causal", (256, 256)),
    ("alibi", (128, 128)), ("softcap", (128, 128)), ("causal", (96, 80)),
    ("causal", (160, 160)),
]  # fmt: skip


@hopper
@pytest.mark.parametrize("name, dims, page, packed", [
    *(("causal", (128, 128), page, packed)
      for page in (8, 16, 24, 48, 64, 128, 192, 256) for packed in (False, True)),
    *((*other, page, page != 48) for other in _OTHERS for page in (16, 48, 128)),
])  # fmt: skip
def test_chunks_by_the_hopper_kernel(name, dims, page, packed, monkeypatch):
    """Rows of tiles that end within a tile, and keys that no query keeps: before, between and
    behind those that some do."""
    launches = launched(monkeypatch, "forward", "hopper_forward")
    counts = [400, 260, 65] if packed else [330, 330, 330]
    dtype = torch.float16 if page % 48 == 0 else torch.bfloat16
    case = paged(name, [1400, 700, 900], counts, page, dims=dims, heads=(32, 8), packed=packed,
                 dtype=dtype, device="cuda", seed=page)  # fmt: skip
    out = check(case, "triton", TOLERANCE[dtype])
    assert names(launches) == ["hopper_forward"]
    for _ in range(100):  # a barrier that is missing shows once in many calls
        assert torch.equal(case.attend("triton")[0], out)


@hopper
@pytest.mark.parametrize("dims", [(128, 128), (64, 64)])
@pytest.mark.parametrize("page", [16, 128])
def test_a_request_gives_the_same_bits_alone_and_in_any_batch(page, dims, monkeypatch):
    """Of the kernel for chunks, packed in both calls."""
    monkeypatch.setattr(forward, "shared", lambda *_: None)
    monkeypatch.setattr(forward, "ragged_of", lambda *_: None)
    counts = [400, 1, 130, 8]
    case = paged("alibi", [1400, 1300, 800, 40], counts, page, dims=dims, heads=(8, 2), packed=True,
                 dtype=torch.bfloat16, device="cuda")  # fmt: skip
    whole, _ = case.attend("triton")
    pages, at = case.pages, 0
    slopes = next(t for _, t in ma_tables(case.score) if t.is_floating_point())
    for request, count in enumerate(counts):
        own = slice(request, request + 1)
        score = (causal + ma.alibi(slopes)).shift(q=pages.lengths[own] - count)
        cu_seqlens = torch.tensor([0, count], dtype=torch.int32, device="cuda")
        alone = ma.attention(
            case.query[:, :, at : at + count], case.key_pages, case.value_pages, score,
            pages=ma.Pages(pages.table[own], pages.lengths[own], cu_seqlens, count),
            backend="triton",
        )  # fmt: skip
        assert torch.equal(whole[:, :, at : at + count], alone)
        at += count


@pytest.mark.parametrize("page", [16, 64])
@pytest.mark.parametrize("count", [1, 300])
def test_other_requests_of_a_call_change_no_bit(count, page):
    """Lengths and tables of the others do not decide how keys are shared."""
    how = {"dims": (128, 128), "heads": (8, 2), "dtype": torch.bfloat16, "device": "cuda"}
    first = paged("causal", [3000, 700, 300], [count] * 3, page, spare=5, **how)
    one, _ = first.attend("triton")
    others = first.pages.lengths.clone()
    others[1:] = torch.tensor([2900, 301], device="cuda")
    table = first.pages.table.clone().clamp(min=0)
    pages = ma.Pages(table, others)
    pools = [pool.nan_to_num(0.0) for pool in (first.key_pages, first.value_pages)]
    two = ma.attention(first.query, *pools, first.score, pages=pages, backend="triton")
    assert torch.equal(one[0], two[0])


@pytest.mark.parametrize("count", [1, 330])
@pytest.mark.parametrize("page", [16, 128])
def test_no_key_is_read_outside_of_the_pool(page, count):
    """With NaN on both sides of the pool, numbers that name no page are those of its ends."""
    how = {"dims": (128, 128), "heads": (8, 2), "dtype": torch.bfloat16, "device": "cuda"}
    case = paged("causal", [1400, 700], [count] * 2, page, **how)
    for name in ("key_pages", "value_pages"):
        pages = getattr(case, name).nan_to_num(0.5)
        around = pages.new_full((len(pages) + 200, *pages.shape[1:]), torch.nan)
        around[100:-100] = pages
        setattr(case, name, around[100:-100])
    table, last = case.pages.table, len(case.key_pages) - 1
    table[0, ::3], table[1, ::2] = -7, last + 90
    found = case.attend("triton")
    table.clamp_(0, last)
    for one, other in zip(found, case.attend("triton"), strict=True):
        assert one.isfinite().all() and torch.equal(one, other)


def test_tables_that_point_outside_read_nothing_elsewhere():
    case = paged("causal", [700, 300], [1, 1], 16, dims=(128, 128), heads=(8, 2),
                 dtype=torch.bfloat16, device="cuda")  # fmt: skip
    case.pages.table.fill_(2**31 - 1)
    case.attend()
    case.pages.table.fill_(-5)
    case.pages.lengths.fill_(2**31 - 1)
    case.attend()
    torch.cuda.synchronize()


@pytest.mark.parametrize("packed", [False, True])
def test_in_a_graph_whose_lengths_change(packed):
    how = {"dims": (128, 128), "heads": (8, 2), "dtype": torch.bfloat16, "device": "cuda"}
    first, second = (
        paged("window", n, [1, 1, 1], 16, packed=packed, spare=s, seed=1, **how)
        for n, s in (([700, 300, 9], 10), ([850, 123, 64], 0))
    )
    assert first.pages.table.shape == second.pages.table.shape
    pool = max(first.key_pages.shape[0], second.key_pages.shape[0])
    for name in ("key_pages", "value_pages"):
        pages = getattr(first, name)
        setattr(first, name, pages.new_full((pool, *pages.shape[1:]), torch.nan))
        getattr(first, name)[: len(pages)] = pages
    offset = next(t for _, t in ma_tables(first.score))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            first.attend()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, _ = first.attend()
    for name in ("query", "key_pages", "value_pages"):
        other = getattr(second, name)
        getattr(first, name)[: len(other)] = other
    first.pages.table.copy_(second.pages.table)
    first.pages.lengths.copy_(second.pages.lengths)
    offset.copy_(next(t for _, t in ma_tables(second.score)))
    graph.replay()
    want, _ = second.wanted()
    torch.testing.assert_close(out.double(), want, atol=3e-2, rtol=3e-2)


OF_FEW = ["listed", "ragged", "ragged_joined"]
RAGGED = [[2900, 1, 700, 0, 333, 1500], [1, 1, 300, 0, 8, 16]]


@pytest.mark.parametrize("page, dtype, dims, heads", [
    (16, torch.bfloat16, (128, 128), (32, 8)), (64, torch.float16, (64, 64), (8, 8)),
    (48, torch.float32, (64, 128), (8, 2)),
])  # fmt: skip
@pytest.mark.parametrize("name", MASKS)
def test_ragged_batches(name, page, dtype, dims, heads, monkeypatch):
    """Steps, trees and a chunk, and a request without queries; then all but the chunk."""
    launches = launched(monkeypatch, *OF_FEW, "forward", "hopper_forward")
    counts = [min(n, 8) for n in RAGGED[1]] if name == "tree" else RAGGED[1]
    for most in (counts, [min(n, 8) for n in counts]):
        case = paged(name, RAGGED[0], most, page, dims=dims, heads=heads, packed=True, dtype=dtype,
                     device="cuda")  # fmt: skip
        check(case, "triton", TOLERANCE[dtype])
        ran = names(launches)
        assert ran[:3] == OF_FEW
        assert len(ran) == (4 if max(most) * (heads[0] // heads[1]) > 64 else 3)
        launches.clear()


@pytest.mark.parametrize("name", ["causal", "softcap"])
@pytest.mark.parametrize("page", [16, 64])
def test_ragged_requests_give_the_same_bits_alone_and_in_any_batch(page, name):
    lengths, counts = [[*range(400, 4400, 130)], [1, 5, 1, 200, 1, 16, 1]]
    counts = (counts * 5)[: len(lengths)]
    how = {"dims": (128, 128), "heads": (32, 8), "dtype": torch.bfloat16, "device": "cuda"}
    case = paged("causal", lengths, counts, page, packed=True, **how)
    pools = [pool.nan_to_num(0.0) for pool in (case.key_pages, case.value_pages)]
    offset = case.pages.lengths - torch.tensor(counts, device="cuda")
    score = causal if name == "causal" else causal + ma.softcap(20.0)

    def attend(query, own, starts):
        pages = ma.Pages(case.pages.table[own], case.pages.lengths[own], starts)
        return ma.attention(query, *pools, score.shift(q=offset[own]), pages=pages)

    whole = attend(case.query, slice(0, len(counts)), case.pages.cu_seqlens_q)
    assert torch.equal(whole, attend(case.query, slice(0, len(counts)), case.pages.cu_seqlens_q))
    at = 0
    for request, count in enumerate(counts):
        own = slice(request, request + 1)
        starts = torch.tensor([0, count], dtype=torch.int32, device="cuda")
        alone = attend(case.query[:, :, at : at + count], own, starts)
        assert torch.equal(whole[:, :, at : at + count], alone), request
        at += count


@pytest.mark.parametrize("page", [16, 64])
def test_ragged_batches_in_a_graph_whose_lengths_change(page):
    """Requests change from steps to chunks and back, and some leave."""
    most, queries = 3000, 700
    turns = [
        ([2900, 1400, 300, 77], [1, 512, 7, 77]), ([50, 2999, 2000, 0], [50, 1, 16, 0]),
        ([3000, 3000, 3000, 3000], [1, 1, 1, 1]), ([10, 5, 900, 2500], [2, 5, 600, 17]),
    ]  # fmt: skip
    draw = torch.Generator(device="cuda").manual_seed(0)
    random = {"device": "cuda", "dtype": torch.bfloat16, "generator": draw}
    slots = -(-most // page)
    pools = [torch.randn(4 * slots, page, 2, 128, **random) for _ in range(2)]
    table = torch.randperm(4 * slots, device="cuda", generator=draw).int().view(4, slots)
    query = torch.randn(1, 8, queries, 128, **random)
    int32 = {"dtype": torch.int32, "device": "cuda"}
    lengths, starts, offset = (torch.zeros(n, **int32) for n in (4, 5, 4))
    pages = ma.Pages(table, lengths, starts)
    score = (causal & ma.sliding(2000)).shift(q=offset)

    def set_to(turn):
        of_keys, of_queries = (torch.tensor(numbers, **int32) for numbers in turn)
        lengths.copy_(of_keys)
        starts[1:].copy_(of_queries.cumsum(0))
        offset.copy_(of_keys - of_queries)

    attend = lambda: ma.attention(query, *pools, score, pages=pages, return_lse=True)  # noqa: E731
    set_to(turns[0])
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            attend()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = attend()
    for turn in (*turns, turns[0]):
        set_to(turn)
        for tensor in captured:
            tensor.fill_(torch.nan)
        graph.replay()
        for one, other in zip(captured, attend(), strict=True):
            assert torch.equal(one, other)
        at = 0
        for request, (keys, count) in enumerate(zip(*turn, strict=True)):
            rows = [pool[table[request].long()].flatten(0, 1)[:keys].transpose(0, 1)[None].double()
                    for pool in pools]  # fmt: skip
            own = query[:, :, at : at + count].double()
            if count:
                mask = (causal & ma.sliding(2000)).shift(q=keys - count)
                want = ma.attention(own, *rows, mask, backend="reference")
                found = captured[0][:, :, at : at + count].double()
                torch.testing.assert_close(found, want, atol=3e-2, rtol=3e-2)
            at += count
        assert (captured[0][:, :, at:] == 0).all() and (captured[1][:, :, at:] == -torch.inf).all()


def test_ragged_batches_of_many_requests():
    """More than a program looks at side by side."""
    draw = torch.Generator().manual_seed(0)
    lengths = torch.randint(0, 600, (700,), generator=draw).tolist()
    counts = [min(n, 1 + (r % 90 == 5) * 100 + (r % 7 == 0) * 4) for r, n in enumerate(lengths)]
    case = paged("causal", lengths, counts, 16, dims=(64, 64), heads=(8, 2), packed=True,
                 dtype=torch.bfloat16, device="cuda")  # fmt: skip
    check(case, "triton", TOLERANCE[torch.bfloat16])


def test_ragged_starts_that_fall_read_and_write_nothing_elsewhere():
    case = paged("causal", *RAGGED, 16, dims=(128, 128), heads=(8, 2), packed=True,
                 dtype=torch.bfloat16, device="cuda")  # fmt: skip
    queries = case.query.shape[2]
    for most in (None, 1):
        for starts in (
            [0, queries, 0, queries, -5, 2**31 - 1, 3], [2**31 - 1] * 7, [-1] * 7,
            [3, 6, 9, 12, 15, 18, 21], [5, 5, 10, 0, 15, 18, 21],
        ):  # fmt: skip
            wrong = torch.tensor(starts, dtype=torch.int32, device="cuda")
            case.pages = ma.Pages(case.pages.table, case.pages.lengths, wrong, most)
            case.attend()
    torch.cuda.synchronize()


def ma_tables(score):
    """Names and tensors of an expression."""
    return [(n, t) for n, t in score.parameters.items() if isinstance(t, torch.Tensor)]
