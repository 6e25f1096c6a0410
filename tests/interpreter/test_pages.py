"""Keys in pages in Triton's interpreter, by the kernels of few and of many queries."""

import os

import pytest
import torch

import maskalg as ma
from maskalg import causal
from tests.cases.paged import MASKS, QUANTISED, check, check_quantised, drawn, paged, quantised

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)


@pytest.fixture(params=["few", "many", "both"])
def kernel(request, monkeypatch):
    """The kernels that serve the calls of a test; "both", those of few queries serve packed
    requests with up to two of them, and that of many serves the others."""
    from maskalg.backends.triton.families import decode, forward, ragged

    if request.param == "many":
        monkeypatch.setattr(forward, "shared", lambda *_: None)
        monkeypatch.setattr(forward, "ragged_of", lambda *_: None)
    monkeypatch.setattr(decode, "_SHARE", 1e9)
    monkeypatch.setattr(decode, "LEAST_KEYS", 1)
    monkeypatch.setattr(ragged, "LEAST_KEYS", 1)
    monkeypatch.setattr(ragged, "_KEYS_OF_PART", 64)
    if request.param == "both":
        if not request.node.callspec.params.get("packed", True):
            pytest.skip("of requests that are packed")
        monkeypatch.setattr(ragged, "_ROWS", 4)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", MASKS)
def test_expressions(name, packed, kernel):
    counts = [3, 1, 0] if packed else [3, 3, 3]
    check(paged(name, [90, 40, 0], counts, packed=packed, seed=3), "triton", 2e-5)


@pytest.mark.parametrize("page", [16, 24, 64, 128])
def test_page_sizes(page, kernel):
    case = paged("sinks", [150, 2 * page + 1], [2, 2], page, shared=1, dims=(16, 24))
    check(case, "triton")


@pytest.mark.parametrize("name", MASKS)
def test_random_cases(name, kernel):
    for seed in range(2):
        case = paged(name, **drawn(seed, name, longest=100, pages=(16, 24), dims=(16, 24)))
        check(case, "triton", 2e-5)


def test_a_request_gives_the_same_bits_alone_and_in_any_batch(monkeypatch):
    """Where no programs share its keys, which the numbers of requests and queries decide."""
    from maskalg.backends.triton.families import forward

    monkeypatch.setattr(forward, "shared", lambda *_: None)
    case = paged("softcap", [90, 40, 130], [3, 1, 20], packed=True, seed=1)
    score = causal + ma.alibi(torch.tensor([0.5, 0.25, 0.1, 0.05]))
    case.score = score.shift(q=case.pages.lengths - torch.tensor(case.counts))
    case.key_pages.nan_to_num_(0.0)
    case.value_pages.nan_to_num_(0.0)
    whole, _ = case.attend("triton")
    pages, at = case.pages, 0
    for request, count in enumerate(case.counts):
        own = slice(request, request + 1)
        alone = ma.attention(
            case.query[:, :, at : at + count],
            case.key_pages,
            case.value_pages,
            score.shift(q=pages.lengths[own] - count),
            pages=ma.Pages(pages.table[own], pages.lengths[own]),
            backend="triton",
        )
        assert torch.equal(whole[:, :, at : at + count], alone)
        at += count


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["window", "per-head", "softcap", "table", "nothing"])
@pytest.mark.parametrize("of_pages", QUANTISED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_pages_of_8_bits(dtype, of_pages, name, packed, kernel):
    counts = [3, 1, 0] if packed else [3, 3, 3]
    case = paged(name, [90, 40, 0], counts, packed=packed, seed=3, dtype=dtype)
    check_quantised(case, of_pages, "triton", 2e-5 if dtype == torch.float32 else 4e-3)


@pytest.mark.parametrize("of_pages", QUANTISED)
def test_pages_of_8_bits_under_weights(of_pages, kernel):
    for weight in (ma.relu, ma.linear, ma.sigmoid(-1.0)):
        case, stands_for, descale = quantised(paged("window", [50, 20], [2, 2]), of_pages)
        given = (case.query, case.key_pages, case.value_pages, case.score)
        how = {"pages": case.pages, "weight": weight, "descale": descale}
        found = ma.attention(*given, **how, backend="triton")
        score = case.score & ma.padding(case.pages.lengths)
        wide = (stands_for.query, case.key, case.value)
        want = ma.attention(*wide, score, weight=weight, backend="reference")
        torch.testing.assert_close(found.double(), want, atol=1e-5, rtol=1e-5)


def test_steps_beside_a_chunk(kernel):
    check(paged("window", [130, 9, 77], [50, 1, 5], packed=True), "triton")


def test_tables_of_64_bits_and_other_orders_of_axes(kernel):
    case = paged("causal", [70, 30], [2, 2])
    case.pages = ma.Pages(case.pages.table.long(), case.pages.lengths.long())
    for name in ("key_pages", "value_pages"):
        pages = getattr(case, name)
        setattr(case, name, pages.transpose(1, 2).contiguous().transpose(1, 2))
    check(case, "triton")
    wider = torch.nn.functional.pad(case.pages.table, (0, 3))
    case.pages = ma.Pages(wider[:, : case.pages.table.shape[1]], case.pages.lengths)
    check(case, "triton")


def test_weights(kernel):
    for weight in (ma.relu, ma.softmax_with_sink(torch.tensor([0.5, 1.0, -1.0, 0.0]))):
        case = paged("window", [50, 20], [2, 2])
        given = (case.query, case.key_pages, case.value_pages, case.score)
        with torch.no_grad():
            found = ma.attention(*given, pages=case.pages, weight=weight, backend="triton")
        score = case.score & ma.padding(case.pages.lengths)
        wide = [t.double() for t in (case.query, case.key, case.value)]
        want = ma.attention(*wide, score, weight=weight, backend="reference")
        torch.testing.assert_close(found.double(), want, atol=1e-5, rtol=1e-5)


def test_numbers_that_name_no_page_are_clamped(kernel):
    case = paged("causal", [70, 30], [2, 2])
    case.key_pages.nan_to_num_(1.0)
    case.value_pages.nan_to_num_(1.0)
    # As on a GPU, where the host does not look at them.
    for wrong in (2**31 - 1, -5):
        case.pages.table.fill_(wrong)
        type(case.pages)._check_values, kept = lambda *_: None, type(case.pages)._check_values
        try:
            out, _ = case.attend("triton")
        finally:
            type(case.pages)._check_values = kept
        assert out.isfinite().all()
