"""Keys in pages on backends that copy them in order, and what mistakes get."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

import maskalg as ma
from maskalg import causal, errors, sliding
from maskalg.backends.cpu.native.compile import compiler
from tests.cases.paged import MASKS, QUANTISED, check, check_quantised, drawn, paged, quantised

INT = {"dtype": torch.int32}


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", MASKS)
def test_expressions(name, packed, backend):
    counts = [3, 1, 0] if packed else [3, 3, 3]
    check(paged(name, [90, 40, 0], counts, packed=packed, seed=3), backend)


@pytest.mark.parametrize("page", [1, 7, 16, 48, 128])
def test_page_sizes_and_pages_that_are_shared(page):
    case = paged("sinks", [3 * page, 3 * page + 1], [1, 1], page, shared=2, dims=(8, 12))
    assert torch.equal(case.pages.table[0, :2], case.pages.table[1, :2])
    check(case, "cpu")


def test_chunks_of_prefill_beside_steps():
    check(paged("window", [130, 9, 77], [70, 1, 5], packed=True), "cpu")


@pytest.mark.parametrize("weight", [ma.linear, ma.relu, ma.softmax_with_sink(0.5)])
def test_weights(weight):
    case = paged("window", [50, 20], [2, 2])
    with torch.no_grad():
        found, _ = ma.attention(
            case.query, case.key_pages, case.value_pages, case.score, pages=case.pages,
            weight=weight,
        ), None  # fmt: skip
    score = case.score & ma.padding(case.pages.lengths)
    wide = [t.double() for t in (case.query, case.key, case.value)]
    want = ma.attention(*wide, score, weight=weight, backend="reference")
    torch.testing.assert_close(found.double(), want, atol=1e-5, rtol=1e-5)


def test_float8():
    case = paged("causal", [50, 20], [2, 2], dims=(32, 32))
    query, q_factor = ma.to_float8(case.query)
    pool = [p.nan_to_num(0.0).transpose(1, 2) for p in (case.key_pages, case.value_pages)]
    # One factor for a head in all pages.
    factors = [p.abs().amax(dim=(0, 2, 3))[None] / 448 for p in pool]
    numbers = [
        (p / f[:, :, None, None]).to(torch.float8_e4m3fn).transpose(1, 2)
        for p, f in zip(pool, factors, strict=True)
    ]
    out = ma.attention(query, *numbers, case.score, pages=case.pages, descale=(q_factor, *factors))
    want, _ = case.wanted()
    assert out.dtype == torch.bfloat16
    assert (out.double() - want).abs().max() < 0.15


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["window", "per-head", "softcap", "table", "nothing"])
@pytest.mark.parametrize("dtype", QUANTISED)
def test_pages_of_8_bits(dtype, name, packed, backend):
    counts = [3, 1, 0] if packed else [3, 3, 3]
    check_quantised(paged(name, [90, 40, 0], counts, packed=packed, seed=3), dtype, backend)


@pytest.mark.parametrize("dtype", QUANTISED)
def test_pages_of_8_bits_under_a_weight_and_compiled(dtype):
    case, stands_for, descale = quantised(paged("window", [50, 20], [2, 2]), dtype)
    score = case.score & ma.padding(case.pages.lengths)
    wide = (stands_for.query, case.key, case.value)
    want = ma.attention(*wide, score, weight=ma.relu, backend="reference")

    def step(query, key, value):
        return ma.attention(
            query, key, value, case.score, pages=case.pages, weight=ma.relu, descale=descale
        )

    for call in (step, torch.compile(step, fullgraph=True, backend="aot_eager")):
        found = call(case.query, case.key_pages, case.value_pages)
        torch.testing.assert_close(found.double(), want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("of_pages", QUANTISED)
def test_dtypes_of_results_are_those_that_compilers_are_told(of_pages, dtype, backend):
    case, stands_for, descale = quantised(paged("window", [50, 20], [2, 2], dtype=dtype), of_pages)

    def step(query, key, value):
        return ma.attention(
            query, key, value, case.score, pages=case.pages, descale=descale, return_lse=True,
            backend=backend,
        )  # fmt: skip

    given = case.query, case.key_pages, case.value_pages
    out, lse = step(*given)
    assert out.dtype == dtype
    assert lse.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    told = []

    def compiler(graph, _):
        [results] = [n.args[0] for n in graph.graph.nodes if n.op == "output"]
        told.extend(result.meta["example_value"].dtype for result in results)
        return graph.forward

    torch._dynamo.reset()
    torch.compile(step, fullgraph=True, backend=compiler)(*given)
    assert told == [out.dtype, lse.dtype]
    if dtype == torch.float64:
        exact, _ = stands_for.wanted()
        torch.testing.assert_close(out, exact, atol=1e-12, rtol=1e-12)


def test_float8_without_factors():
    """Caches of vLLM may have none: numbers are what they stand for."""
    case, _, _ = quantised(paged("causal", [32, 20], [2, 2]), torch.float8_e4m3fn)
    given = (case.query, case.key_pages, case.value_pages, case.score)
    found = ma.attention(*given, pages=case.pages)
    one = torch.ones(1)
    assert torch.equal(found, ma.attention(*given, pages=case.pages, descale=(one, one, one)))
    with pytest.raises(errors.MaskTypeError, match="share one dtype"):
        ma.attention(*given[:1], *(t.to(torch.float8_e5m2) for t in given[1:3]), pages=case.pages)


def test_int8_elsewhere_is_refused():
    case, _, descale = quantised(paged("causal", [32, 32], [2, 2]), torch.int8)
    rows = case.key.to(torch.int8)
    with pytest.raises(
        errors.MaskTypeError, match="if key and value are pages, both int8 or both float8_e4m3fn"
    ):
        ma.attention(case.query, rows, rows, causal, descale=descale)
    mixed = (case.query, case.key_pages, case.value_pages.float())
    with pytest.raises(
        errors.MaskTypeError, match="if key and value are pages, both int8 or both float8_e4m3fn"
    ):
        ma.attention(*mixed, case.score, pages=case.pages)


def test_compiled():
    def step(query, key, value, offset, table, lengths):
        pages = ma.Pages(table, lengths)
        return ma.attention(query, key, value, causal.shift(q=offset), pages=pages)

    case = paged("causal", [90, 40], [3, 3])
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    given = (case.query, case.key_pages, case.value_pages, case.pages.lengths - 3)
    out = compiled(*given, case.pages.table, case.pages.lengths)
    torch.testing.assert_close(out.double(), case.wanted()[0], atol=1e-5, rtol=1e-5)


def test_traced_with_symbols_for_sizes():
    case = paged("causal", [90, 40], [3, 3])

    def step(query, key, value, table, lengths):
        return ma.attention(query, key, value, causal, pages=ma.Pages(table, lengths))

    given = (case.query, case.key_pages, case.value_pages, case.pages.table, case.pages.lengths)
    graph = make_fx(step, tracing_mode="symbolic")(*given)
    assert torch.equal(graph(*given), step(*given))


@pytest.mark.parametrize("name", MASKS)
def test_random_cases(name):
    """Tables, lengths, numbers of queries and strange sizes; a part with pages of 8 bits."""
    for seed in range(12):
        how = drawn(seed, name, longest=300, pages=(1, 7, 16, 64), dims=(8, 20, 32))
        if seed % 4 == 3:
            check_quantised(paged(name, **how), QUANTISED[seed // 4 % 2], "cpu")
        else:
            check(paged(name, **how), "cpu")


@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("most", [4, 70])
@pytest.mark.parametrize("name", ["sinks", "alibi"])
@settings(max_examples=10, deadline=None)
@given(lengths=st.lists(st.integers(70, 400), min_size=1, max_size=5), data=st.data())
def test_a_request_gives_the_same_bits_alone_and_in_any_batch(name, most, dtype, lengths, data):
    """While all requests of a call have up to four queries, or all have more."""
    counts = [data.draw(st.integers(1 if most == 4 else 5, most)) for _ in lengths]
    case = paged(name, lengths, counts, packed=True, dims=(24, 24), dtype=dtype)
    pages, starts = case.pages, [0, *torch.tensor(counts).cumsum(0).tolist()]
    pools = [pool.nan_to_num(0.0) for pool in (case.key_pages, case.value_pages)]
    offset = torch.tensor([n - c for n, c in zip(lengths, counts, strict=True)])

    slopes = torch.tensor([0.5, 0.25, 0.1, 0.05])
    score = {"sinks": causal & (sliding(29) | ma.prefix(5)), "alibi": causal + ma.alibi(slopes)}[
        name
    ]

    def attend(query, chosen, cu=None):
        own = ma.Pages(pages.table[chosen], pages.lengths[chosen], cu)
        moved = score.shift(q=offset[chosen])
        return ma.attention(query, *pools, moved, pages=own, return_lse=True)

    whole = attend(case.query, torch.arange(len(lengths)), pages.cu_seqlens_q)
    for request in range(len(lengths)):
        own = slice(starts[request], starts[request + 1])
        alone = attend(case.query[:, :, own], torch.tensor([request]))
        for found, wanted in zip(whole, alone, strict=True):
            assert torch.equal(found[:, :, own], wanted)


def test_masks_that_read_tables_give_the_same_bits_alone_and_in_a_batch():
    """Few keys too: those of a call alone are few, those of the batch are not."""
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        pools = torch.randn(2, 150, 16, 4, 64, generator=generator)
        query = torch.randn(6, 8, 1, 64, generator=generator)
        kept = torch.rand(6, 400, generator=generator) < 0.5
        table = torch.arange(150, **INT).view(6, 25)
        lengths = torch.tensor([60 + 17 * seed, *[400] * 5], **INT)

        def attend(at, query=query, pools=pools, kept=kept, table=table, lengths=lengths):
            window = (causal & sliding(150)).shift(q=lengths[at] - 1)
            mask = window & ma.table(kept[at])[ma.batch, ma.kv_idx]
            pages = ma.Pages(table[at], lengths[at])
            return ma.attention(query[at], *pools, mask, pages=pages)

        assert torch.equal(attend(slice(0, 1)), attend(slice(0, 6))[:1])


def test_sinks_give_the_same_bits_alone_and_in_a_batch():
    """Their shares are computed for all requests at once."""
    pools = torch.randn(2, 4, 16, 1, 16, generator=torch.Generator().manual_seed(0))
    table = torch.tensor([[0, 1], [2, 3]], dtype=torch.int32)
    lengths = torch.tensor([20, 30], dtype=torch.int32)
    for seed in range(30):
        query = torch.randn(2, 16, 1, 16, generator=torch.Generator().manual_seed(seed))
        weight = ma.softmax_with_sink(torch.linspace(-1, 1, 16))

        def attend(at, query=query, weight=weight):
            mask = causal.shift(q=lengths[at] - 1)
            pages = ma.Pages(table[at], lengths[at])
            return ma.attention(query[at], *pools, mask, pages=pages, weight=weight)

        whole = attend(slice(0, 2))
        for at in (slice(0, 1), slice(1, 2)):
            assert torch.equal(attend(at), whole[at])


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_numbers_written_later_are_looked_at_again(backend):
    """By the same `Pages`, and in a compiled function, which is traced but once."""
    case = paged("causal", [40, 20], [1, 1])
    step = torch.compile(lambda: case.attend(backend), fullgraph=True, backend="aot_eager")
    for call in (lambda: case.attend(backend), step):
        call()
        case.pages.table[1, 0] += 1000
        with pytest.raises(errors.MaskValueError, match=r"table\[1, 0\] is 10"):
            call()
        case.pages.table[1, 0] -= 1000
        case.pages.lengths[0] += 1000
        with pytest.raises(errors.MaskValueError, match="lengths must lie between 0 and"):
            call()
        case.pages.lengths[0] -= 1000
        call()


def test_kernels_are_passed_what_a_strided_table_holds_now():
    table, starts = torch.zeros(2, 3, **INT).T, torch.zeros(8, **INT)[::2]
    pages = ma.Pages(table, torch.zeros(3, **INT), starts)
    for _ in range(2):
        table += 1
        starts += 1
        assert all(map(torch.equal, pages.tensors, (table, starts)))
    plain = ma.Pages(table.contiguous(), torch.zeros(3, **INT))
    assert plain.tensors is plain.tensors and plain.tensors[0] is plain.table


def test_no_pages_and_no_requests():
    empty = torch.zeros(0, 16, 2, 8)
    pages = ma.Pages(torch.zeros(2, 0, dtype=torch.int32), torch.zeros(2, dtype=torch.int32))
    out, lse = ma.attention(
        torch.ones(2, 4, 1, 8), empty, empty, causal, pages=pages, return_lse=True
    )
    assert not out.any() and (lse == -torch.inf).all()
    pages = ma.Pages(torch.zeros(0, 3, dtype=torch.int32), torch.zeros(0, dtype=torch.int32))
    assert ma.attention(torch.ones(0, 4, 1, 8), empty, empty, pages=pages).shape == (0, 4, 1, 8)


TABLE, LENGTHS = torch.tensor([[0, 1], [2, -1]], **INT), torch.tensor([20, 16], **INT)


@pytest.mark.parametrize(
    "given, text",
    [
        (([[0]], LENGTHS), "table must be an int32 or int64 tensor, got list"),
        ((TABLE.float(), LENGTHS), "got torch.float32"),
        ((TABLE[0], LENGTHS), r"table must have shape \[requests, most_pages\], got \[2\]"),
        (
            (TABLE, LENGTHS[:1]),
            r"2 rows, one per request, so lengths must have 2 entries, got \[1\]",
        ),
        ((TABLE, LENGTHS, LENGTHS), "cu_seqlens_q must have 3 entries"),
        ((TABLE, LENGTHS, None, 0), "most_queries must be an integer >= 1, got 0"),
        ((TABLE, LENGTHS, None, 3), "Pass cu_seqlens_q, or leave most_queries out"),
    ],
)
def test_what_are_no_pages(given, text):
    with pytest.raises(errors.MaskalgError, match=text):
        ma.Pages(*given)


@pytest.mark.parametrize(
    "pages, text",
    [
        ((TABLE + 2, LENGTHS), r"table\[1, 0\] is 4, and there are 4 pages, 0 to 3"),
        ((TABLE, LENGTHS + 20), "lengths must lie between 0 and 32, .* got 40"),
        ((TABLE, -LENGTHS), "got -20"),
        ((TABLE[:, :0], LENGTHS), "lengths must lie between 0 and 0, .* got"),
        ((torch.zeros_like(TABLE), LENGTHS), "names page 0 twice for request 0"),
        ((TABLE, LENGTHS + 1), "no page .* for keys of request 1"),
        ((TABLE[:1], LENGTHS[:1]), "the table has 1 requests, the query 2 batch entries"),
        ((TABLE, LENGTHS, torch.tensor([0, 1, 2], **INT)), "packed queries are one batch entry"),
        (TABLE, r"pages must be ma.Pages\(table, lengths\), got Tensor"),
    ],
)
def test_pages_that_do_not_fit_a_call(pages, text):
    pages = ma.Pages(*pages) if isinstance(pages, tuple) else pages
    query, pool = torch.zeros(2, 4, 1, 8), torch.zeros(4, 16, 2, 8)
    with pytest.raises(errors.MaskalgError, match=text):
        ma.attention(query, pool, pool, pages=pages)


@pytest.mark.parametrize(
    "starts, most, text",
    [
        ([0, 3, 2], None, r"must begin with 0, not fall, and end at most at 4.*got \[0, 3, 2\]"),
        ([1, 2, 3], None, "must begin with 0"),
        ([0, 2, 5], None, "end at most at 4"),
        ([0, 1, 4], 2, "most_queries is 2, and a request has 3 queries"),
    ],
)
def test_packed_queries_that_do_not_fit(starts, most, text):
    pages = ma.Pages(TABLE, LENGTHS, torch.tensor(starts, **INT), most)
    query, pool = torch.zeros(1, 4, 4, 8), torch.zeros(4, 16, 2, 8)
    with pytest.raises(errors.MaskValueError, match=text):
        ma.attention(query, pool, pool, pages=pages)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_a_pool_without_pages(backend):
    query, pool = torch.randn(2, 4, 1, 8), torch.zeros(0, 16, 2, 8)
    pages = ma.Pages(torch.full((2, 3), -1, **INT), torch.zeros(2, **INT))
    assert not ma.attention(query, pool, pool, pages=pages, backend=backend).any()


def test_packed_queries_whose_most_is_unknown():
    query, pool = torch.zeros(1, 4, 4, 8), torch.zeros(4, 16, 2, 8)
    starts = torch.tensor([0, 1, 4], **INT)
    pages, known = (ma.Pages(TABLE, LENGTHS, starts, most) for most in (None, 3))
    kept = ma.table(torch.zeros(2, 3, **INT))[ma.batch, ma.q_idx] == 0
    ma.attention(query, pool, pool, kept, pages=known)
    with pytest.raises(errors.MaskValueError, match=r"all 4 packed .* Pages\(…, most_queries=n\)"):
        ma.attention(query, pool, pool, kept, pages=pages)
    of_keys = kept & (ma.table(torch.zeros(2, 3, **INT))[ma.batch, ma.kv_idx] == 0)
    with pytest.raises(errors.MaskValueError, match=r"shift less.$"):
        ma.attention(query, pool, pool, of_keys, pages=pages)


def test_shapes_and_gradients():
    query, pool = torch.zeros(2, 4, 1, 8), torch.zeros(4, 16, 2, 8)
    pages = ma.Pages(TABLE, LENGTHS)
    with pytest.raises(errors.MaskValueError, match="4 query heads are no multiple of 3"):
        ma.attention(query, torch.zeros(4, 16, 3, 8), torch.zeros(4, 16, 3, 8), pages=pages)
    with pytest.raises(errors.MaskValueError, match="different head dimensions"):
        ma.attention(query, torch.zeros(4, 16, 2, 4), pool, pages=pages)
    with pytest.raises(
        errors.MaskValueError, match=r"key_pages must have shape \[pages, page_size"
    ):
        ma.attention(query, pool[0], pool, pages=pages)
    with pytest.raises(errors.BackendError, match=r"gradients are not built .* torch.no_grad"):
        ma.attention(query.requires_grad_(), pool, pool, pages=pages)
