"""Steps, trees and chunks in one call, in Triton's interpreter."""

import math
import os

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from tests.cases.paged import MASKS, QUANTISED, Paged, check, check_quantised, paged
from tests.interpreter.test_ready import found_anew  # noqa: F401

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)

KEYS = 64  # of a part: two tiles


@pytest.fixture(autouse=True)
def launches(monkeypatch):
    """Launches, as kernels' names and the launches themselves. Requests with up to four rows, of
    queries and of heads that share keys, are those with few queries. What launches make holds NaN,
    or integers that point nowhere."""
    from maskalg.backends.triton.families import ragged
    from maskalg.backends.triton.launching.launch import Launch

    monkeypatch.setattr(ragged, "LEAST_KEYS", 1)
    monkeypatch.setattr(ragged, "_KEYS_OF_PART", KEYS)
    monkeypatch.setattr(ragged, "_ROWS", 8)
    found, run = [], Launch.run

    def noted(launch):
        for tensor in launch.made:
            tensor.fill_(torch.nan if tensor.is_floating_point() else 2**30)
        found.append((launch.spec.path.rpartition(".")[2], launch))
        return run(launch)

    monkeypatch.setattr(Launch, "run", noted)
    return found


def names(launches):
    return [name for name, _ in launches]


def listed(launches):
    """Items and parts of each entry, of the last list that was made."""
    made = [launch.tensors["list"] for name, launch in launches if name == "listed"]
    return made[-1][:2].tolist()


OF_FEW = ["listed", "ragged", "ragged_joined"]
MIXED = {"lengths": [330, 90, 5, 0, 200], "counts": [1, 40, 3, 0, 4], "packed": True}


@pytest.mark.parametrize("name", MASKS)
def test_steps_trees_and_chunks(name, launches):
    counts = MIXED["counts"] if name != "tree" else [1, 8, 3, 0, 4]
    check(paged(name, **{**MIXED, "counts": counts}, seed=4), "triton", 2e-5)
    assert names(launches) == [*OF_FEW, "forward"]


@pytest.mark.parametrize("name", ["sinks", "per-head", "softcap", "scattered", "tree"])
def test_few_queries_alone(name, launches):
    check(paged(name, [330, 90, 5, 0, 200], [1, 0, 3, 0, 4], packed=True, seed=5), "triton", 2e-5)
    assert names(launches) == OF_FEW


@pytest.mark.parametrize("heads, page, dims", [
    ((4, 4), 16, (16, 16)), ((4, 1), 24, (24, 16)), ((6, 2), 64, (16, 40)), ((1, 1), 128, (8, 8)),
])  # fmt: skip
def test_heads_pages_and_dimensions(heads, page, dims):
    check(paged("window", **MIXED, heads=heads, page=page, dims=dims), "triton", 2e-5)


def test_requests_have_parts_by_the_tiles_that_they_visit(launches):
    """In a window they are those of the window, whatever the cache holds before it."""
    lengths, counts = [640, 90, 33, 0, 200, 64], [1, 1, 1, 0, 0, 40]
    parts_of = lambda name: (check(paged(name, lengths, counts, packed=True), "triton", 2e-5),  # noqa: E731
                             listed(launches))[1]  # fmt: skip
    items, parts = parts_of("causal")
    assert parts == [10, 2, 1, 0, 0, 0]
    assert items == [2 * n for n in parts]  # heads of keys
    _, parts = parts_of("window")  # of 37 keys
    assert parts == [1, 1, 1, 0, 0, 0]
    _, parts = parts_of("per-head")  # causal, and a window, in turn
    assert parts[:8] == [10, 1, 10, 1, 2, 1, 2, 1]
    assert parts[12:] == [0] * 12


def test_longer_parts_with_more_tiles_of_rows(launches, monkeypatch):
    from maskalg.backends.triton.families import ragged

    monkeypatch.setattr(ragged, "_ROWS", 80)
    check(paged("causal", [640, 640], [1, 20], packed=True), "triton", 2e-5)
    items, parts = listed(launches)
    assert parts == [10, 4] and items == [2 * 10, 2 * 4 * 3]
    room = launches[1][1].sizes.numbers["room"]
    assert sum(items) <= room


def test_runs_behind_those_that_are_counted(launches, monkeypatch):
    import maskalg_kernels.ragged as kernels
    import triton.language as tl

    monkeypatch.setattr(kernels, "_MOST_RUNS", tl.constexpr(2))
    case = clean(paged("everything", [640, 30], [1, 1], packed=True))
    near = lambda first: (ma.kv_idx >= first) & (ma.kv_idx < first + 20)  # noqa: E731
    case.score = near(0) | near(200) | near(400) | near(520)
    check(case, "triton", 2e-5)
    # Tiles 0 and 6, and all of 21 that follow; and one tile.
    assert listed(launches)[1] == [8, 1]


def test_more_entries_than_a_program_looks_at_together(monkeypatch):
    import maskalg_kernels.ragged as kernels
    import triton.language as tl

    monkeypatch.setattr(kernels, "_AT_ONCE", tl.constexpr(2))
    for name in ("causal", "per-head"):
        check(paged(name, **MIXED), "triton", 2e-5)


def test_parts_are_longer_where_they_would_take_too_much_memory(launches, monkeypatch):
    from maskalg.backends.triton.families import ragged

    monkeypatch.setattr(ragged, "_BYTES_OF_PARTS", 4 * 16 * 16 * 20)
    check(paged("causal", **MIXED, seed=2), "triton", 2e-5)
    _, parts = listed(launches)
    assert parts == [2, 0, 1, 0, 2]
    part = next(launch for name, launch in launches if name == "ragged").tensors["part"]
    assert part.shape[0] <= 20 + 2 * 5  # and for each further tile of rows


def clean(case):
    """The case with pages in which any key may be read."""
    case.key_pages.nan_to_num_(0.0)
    case.value_pages.nan_to_num_(0.0)
    return case


def only(case, request, spare=0):
    """One request of a case, with as many queries of none behind it."""
    at, count = sum(case.counts[:request]), case.counts[request]
    own = slice(request, request + 1)
    query = case.query[:, :, at : at + count]
    query = torch.cat([query, torch.ones_like(query[:, :, :1]).expand(-1, -1, spare, -1)], 2)
    starts = torch.tensor([0, count], dtype=torch.int32)
    pages = ma.Pages(case.pages.table[own], case.pages.lengths[own], starts)
    return Paged(query, case.key_pages, case.value_pages, pages, None, None, None, [count])


@pytest.mark.parametrize("name", ["softcap", "sinks", "per-head"])
def test_a_request_gives_the_same_bits_alone_and_in_any_batch(name, launches):
    case = clean(paged(name, **MIXED, seed=1))
    of = {
        "softcap": (causal & sliding(90)) + ma.softcap(4.0) @ ma.alibi(torch.rand(4)),
        "sinks": causal & (sliding(200) | ma.prefix(5)),
        "per-head": ma.where(ma.head % 2 == 0, causal, sliding(40)),
    }[name]
    offset = case.pages.lengths - torch.tensor(case.counts)
    case.score = of.shift(q=offset)
    whole = case.attend("triton")
    order = [4, 2, 1, 0]
    ends = torch.tensor(case.counts).cumsum(0).tolist()
    columns = [slice(e - c, e) for e, c in zip(ends, case.counts, strict=True)]
    starts = torch.tensor([0, *[case.counts[r] for r in order]]).cumsum(0).int()
    other = Paged(
        torch.cat([case.query[:, :, columns[r]] for r in order], 2),
        case.key_pages, case.value_pages,
        ma.Pages(case.pages.table[order], case.pages.lengths[order], starts),
        None, None, of.shift(q=offset[order]), [case.counts[r] for r in order],
    ).attend("triton")  # fmt: skip
    for request, at in ((4, 0), (1, 7)):
        count = case.counts[request]
        alone = only(case, request, spare=3)
        alone.score = of.shift(q=offset[request : request + 1])
        for one, two, three in zip(whole, alone.attend("triton"), other, strict=True):
            one = one[:, :, columns[request]]
            assert torch.equal(one, two[:, :, :count])
            assert torch.equal(one, three[:, :, at : at + count])
    assert set(names(launches)) == {*OF_FEW, "forward"}


def test_more_queries_than_was_said(launches, monkeypatch):
    """As on a GPU, where the host does not look at them."""
    monkeypatch.setattr(ma.Pages, "_check_values", lambda *_: None)
    case = paged("causal", **MIXED)
    starts = case.pages.cu_seqlens_q
    case.pages = ma.Pages(case.pages.table, case.pages.lengths, starts, 1)
    check(case, "triton", 2e-5)
    assert names(launches) == OF_FEW


@pytest.mark.parametrize("most", [4, 40])
@pytest.mark.parametrize(
    "starts", [[0, 48, 0, 48, 3, 90], [3, 6, 9, 12, 12, 12], [5, 5, 10, 0, 12, 12]]
)
def test_starts_that_fall_read_and_write_nothing_elsewhere(starts, most, monkeypatch):
    from maskalg.backends.triton.launching.launch import Launch

    monkeypatch.setattr(ma.Pages, "_check_values", lambda *_: None)
    init, around = Launch.__post_init__, []

    def guarded(launch, call, given):
        init(launch, call, given)
        for name in launch.sizes.made:
            tensor = launch.tensors[name]
            poison = math.nan if tensor.is_floating_point() else 7
            wider = tensor.new_full((tensor.numel() + 2000,), poison)
            inner = wider[1000:-1000].zero_().view(tensor.shape)
            around.append((wider[:1000], wider[-1000:]))
            at = [one is tensor for one in launch.arguments].index(True)
            launch.tensors[name] = launch.arguments[at] = inner

    monkeypatch.setattr(Launch, "__post_init__", guarded)
    case = clean(paged("causal", **MIXED))
    wrong = torch.tensor(starts, dtype=torch.int32)
    case.pages = ma.Pages(case.pages.table, case.pages.lengths, wrong, most)
    assert not any(result.isnan().any() for result in case.attend("triton"))
    assert around
    for side in (side for pair in around for side in pair):
        assert (side.isnan() if side.is_floating_point() else side == 7).all()


@pytest.mark.parametrize("of_pages", QUANTISED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_pages_of_8_bits(dtype, of_pages):
    case = paged("window", **MIXED, seed=3, dtype=dtype)
    check_quantised(case, of_pages, "triton", 2e-5 if dtype == torch.float32 else 4e-3)


def test_weights():
    case = paged("window", **MIXED)
    check(case, "triton", 2e-5, weight=ma.softmax_with_sink(torch.tensor([0.5, 1.0, -1.0, 0.0])))
    for weight in (ma.relu, ma.sigmoid(-1.0)):
        found = ma.attention(
            case.query, case.key_pages, case.value_pages, case.score,
            pages=case.pages, weight=weight, backend="triton",
        )  # fmt: skip
        want, at = torch.zeros_like(found, dtype=torch.float64), 0
        for request, count in enumerate(case.counts):
            if not count:
                continue
            own, end = slice(request, request + 1), int(case.pages.lengths[request])
            want[:, :, at : at + count] = ma.attention(
                case.query[:, :, at : at + count].double(), case.key[own, :, :end].double(),
                case.value[own, :, :end].double(), (causal & sliding(37)).shift(q=end - count),
                weight=weight, backend="reference",
            )  # fmt: skip
            at += count
        torch.testing.assert_close(found.double(), want, atol=1e-5, rtol=1e-5)


def test_integers_of_64_bits():
    case = paged("window", **MIXED)
    table, lengths, starts, most = (
        case.pages.table.long(), case.pages.lengths.long(), case.pages.cu_seqlens_q.long(), 40,
    )  # fmt: skip
    case.pages = ma.Pages(table, lengths, starts, most)
    check(case, "triton", 2e-5)


def test_calls_like_one_before(found_anew):  # noqa: F811
    """With other lengths, and then with other numbers of queries and requests."""
    for lengths, counts in [([100, 90], [1, 30])] * 2 + [([200, 10], [1, 30])] * 2:
        check(paged("causal", lengths, counts, packed=True, spare=2 if lengths[0] == 200 else 9),
              "triton", 2e-5)  # fmt: skip
    for lengths, counts in (([100, 90, 70], [9, 30, 2]), ([50], [20])):
        check(paged("causal", lengths, counts, packed=True), "triton", 2e-5)
    assert len(found_anew) == 2


def test_what_is_explained():
    told = ma.explain
    case = paged("causal", **MIXED)
    given = (case.query, case.key_pages, case.value_pages, case.score)
    found = told(*given, pages=case.pages, backend="triton")
    assert found.tier == (
        "plain Triton, few queries, where a request has up to 4 queries; plain Triton, forward, "
        "where it has more"
    )
    assert "programs take parts of 64 keys of each request" in found.tile
