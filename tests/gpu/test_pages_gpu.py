"""Keys in pages on a GPU: random tables, lengths, masks and biases against float64."""

import pytest
import torch

import maskalg as ma
from maskalg import causal
from maskalg.backends.triton.families import forward
from tests.cases.launched import launched, names
from tests.cases.paged import MASKS, check, check_int8, kinds, of_kind, paged

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
    int8 = how.pop("int8")
    for seed in range(14):
        case = paged(name, **of_kind(seed, name, 1500, **how), device="cuda")
        for _ in range(2):
            (check_int8 if int8 else check)(case, "triton", TOLERANCE[how["dtype"]])


_OTHERS = [
    ("causal", (64, 64)), ("window", (128, 128)), ("causal", (192, 128)), ("causal", (256, 256)),
    ("alibi", (128, 128)), ("softcap", (64, 64)), ("causal", (96, 80)),
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
    launches = launched(monkeypatch, "hopper_forward")
    counts = [400, 260, 65] if packed else [330, 330, 330]
    dtype = torch.float16 if page % 48 == 0 else torch.bfloat16
    case = paged(name, [1400, 700, 900], counts, page, dims=dims, heads=(32, 8), packed=packed,
                 dtype=dtype, device="cuda", seed=page)  # fmt: skip
    check(case, "triton", TOLERANCE[dtype])
    assert names(launches) == ["hopper_forward"]


@hopper
@pytest.mark.parametrize("dims", [(128, 128), (64, 64)])
@pytest.mark.parametrize("page", [16, 128])
def test_a_request_gives_the_same_bits_alone_and_in_any_batch(page, dims, monkeypatch):
    """Where no programs share its keys, which the numbers of requests and queries decide."""
    monkeypatch.setattr(forward, "shared", lambda *_: None)
    counts = [400, 1, 130, 8]
    case = paged("alibi", [1400, 1300, 800, 40], counts, page, dims=dims, heads=(8, 2), packed=True,
                 dtype=torch.bfloat16, device="cuda")  # fmt: skip
    whole, _ = case.attend("triton")
    pages, at = case.pages, 0
    slopes = next(t for _, t in ma_tables(case.score) if t.is_floating_point())
    for request, count in enumerate(counts):
        own = slice(request, request + 1)
        score = (causal + ma.alibi(slopes)).shift(q=pages.lengths[own] - count)
        alone = ma.attention(
            case.query[:, :, at : at + count], case.key_pages, case.value_pages, score,
            pages=ma.Pages(pages.table[own], pages.lengths[own]), backend="triton",
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


def ma_tables(score):
    """Names and tensors of an expression."""
    return [(n, t) for n, t in score.parameters.items() if isinstance(t, torch.Tensor)]
