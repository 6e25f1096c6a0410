"""Keys and values in pages beside the same keys one after another, for tests of every backend."""

import random
from dataclasses import dataclass, replace

import torch

import maskalg as ma
from maskalg import causal, sliding

MASKS = [
    "causal", "window", "sinks", "documents", "scattered", "padding", "dilated", "per-head",
    "alibi", "softcap", "everything", "nothing", "table", "key-bias", "tree",
]  # fmt: skip


def expression(name, offset, room, heads):
    """A mask, a bias or both of queries from `offset` on, `[requests]`; tables have `room` keys."""
    device, requests = offset.device, len(offset)
    draw = torch.Generator().manual_seed(len(name))
    ids = (torch.arange(room + 600, device=device) // 50).int()
    scattered = torch.randint(0, 3, (requests, room + 600), generator=draw).to(device)
    slopes = torch.rand(heads, generator=draw).to(device)
    if name == "table":
        rows = torch.rand(requests, 1, 600, room, generator=draw) > 0.6
        return ma.dense(rows.to(device))
    if name == "key-bias":
        entries = torch.rand(room, generator=draw).to(device)
        return causal.shift(q=offset) + ma.key_bias(entries)
    if name == "tree":  # a prefix, and behind it a tree: each token sees its ancestors
        tree = torch.tensor([-1, 0, 0, 1, 1, 2, 2, 5], device=device)
        q, k = ma.q_idx, ma.kv_idx
        seen = ma.table(_ancestors(tree), "seen")
        at = ma.table(offset.int(), "start")[ma.batch]
        node = seen[ma.minimum(q, 7), ma.maximum(ma.minimum(k - at, 7), 0)]
        return (k < at) | ((k >= at) & node)
    return {
        "causal": causal,
        "window": causal & sliding(37),
        "sinks": causal & (sliding(29) | ma.prefix(5)),
        "documents": causal & ma.document(ids),
        "scattered": ma.document(scattered),
        "padding": causal & ma.padding(torch.full((requests,), 70, device=device)),
        "dilated": causal & ma.dilated(3),
        "per-head": ma.where(ma.head % 2 == 0, causal, sliding(40)),
        "alibi": causal + ma.alibi(slopes),
        "softcap": (causal & sliding(90)) + ma.softcap(4.0) @ ma.alibi(slopes),
        "everything": ma.everything,
        "nothing": ma.nothing,
    }[name].shift(q=offset)


def _ancestors(parents):
    n = len(parents)
    seen = torch.eye(n, dtype=torch.bool)
    for node in range(n):
        up = int(parents[node])
        while up >= 0:
            seen[node, up] = True
            up = int(parents[up])
    return seen.to(parents.device)


@dataclass
class Paged:
    """Requests in pages, and what they stand for.

    key and value are `[requests, kv_heads, room, dim]`; pages that nobody has, rows past a length
    and keys that no query keeps hold NaN in the pages.
    """

    query: torch.Tensor
    key_pages: torch.Tensor
    value_pages: torch.Tensor
    pages: ma.Pages
    key: torch.Tensor
    value: torch.Tensor
    score: ma.Mask | ma.Bias | ma.Score
    counts: list[int]

    def attend(self, backend=None, **how):
        given = (self.query, self.key_pages, self.value_pages, self.score)
        return ma.attention(*given, pages=self.pages, return_lse=True, backend=backend, **how)

    def wanted(self, **how):
        """In float64, a request at a time, by the reference."""
        batch, heads, most, _ = self.query.shape
        dim = self.value.shape[-1]
        out = self.query.new_zeros(batch, heads, most, dim, dtype=torch.float64)
        lse = self.query.new_full((batch, heads, most), -torch.inf, dtype=torch.float64)
        apart = self.pages.cu_seqlens_q is None
        queries = self.query.double()
        if not apart:
            whole = queries.new_zeros(len(self.counts), heads, max(self.counts), queries.shape[-1])
            at = 0
            for r, n in enumerate(self.counts):
                whole[r, :, :n] = queries[0, :, at : at + n]
                at += n
            queries = whole
        mask, bias = split(self.score)
        score = mask & ma.padding(self.pages.lengths)
        score = score if bias is None else score + bias
        found, sums = ma.attention(
            queries, self.key.double(), self.value.double(), score,
            return_lse=True, backend="reference", **how,
        )  # fmt: skip
        if apart:
            return found, sums
        at = 0
        for r, n in enumerate(self.counts):
            out[0, :, at : at + n] = found[r, :, :n]
            lse[0, :, at : at + n] = sums[r, :, :n]
            at += n
        return out, lse


def split(score):
    """The mask and the bias of an expression."""
    if isinstance(score, ma.Mask):
        return score, None
    if isinstance(score, ma.Bias):
        return ma.everything, score
    return score.mask, score.bias


def paged(
    name,
    lengths,
    counts,
    page=16,
    *,
    heads=(4, 2),
    dims=(16, 16),
    dtype=torch.float32,
    packed=False,
    device="cpu",
    spare=2,
    seed=0,
    shared=0,
):
    """Requests of `lengths` keys and their last `counts` queries.

    Args:
        spare: pages that a request might have more.
        shared: pages that all requests begin with.
    """
    draw = torch.Generator().manual_seed(seed)
    requests, most = len(lengths), -(-max(lengths) // page) + spare
    owned = [-(-n // page) for n in lengths]
    order = torch.randperm(sum(owned) + 3, generator=draw)
    table = torch.full((requests, most), -1, dtype=torch.int32)
    at = 0
    for r, n in enumerate(owned):
        table[r, :n] = order[at : at + n]
        table[r, :shared] = order[:shared]
        at += n
    room = most * page
    offset = torch.tensor([max(n - c, 0) for n, c in zip(lengths, counts, strict=True)])
    score = expression(name, offset.int().to(device), room, heads[0])
    mask, _ = split(score)
    most_queries = max([*counts, 1])
    keeps = (mask & ma.padding(torch.tensor(lengths, device=device))).to_dense(
        most_queries, room, batch=requests, heads=heads[0]
    )
    own = torch.arange(most_queries) < torch.tensor(counts)[:, None]
    used = (keeps.cpu() & own[:, None, :, None]).any(2).any(1)  # [requests, room]

    def made(dim):
        rows = torch.randn(requests, heads[1], room, dim, generator=draw)
        rows[:, :, : shared * page] = rows[:1, :, : shared * page]
        pool = torch.full((len(order), page, heads[1], dim), torch.nan)
        for r in range(requests):
            for slot in range(owned[r]):
                keys = slice(slot * page, (slot + 1) * page)
                into = pool[table[r, slot]]
                kept = used[r, keys]
                into[kept] = rows[r, :, keys].transpose(0, 1)[kept]
        return rows.to(device, dtype), pool.to(device, dtype)

    (key, key_pages), (value, value_pages) = made(dims[0]), made(dims[1])
    cu = None
    if packed:
        cu = torch.tensor([0, *counts]).cumsum(0).int().to(device)
        query = torch.randn(1, heads[0], sum(counts) + 2, dims[0], generator=draw)
    else:
        query = torch.randn(requests, heads[0], most_queries, dims[0], generator=draw)
    lengths = torch.tensor(lengths, dtype=torch.int32, device=device)
    pages = ma.Pages(table.to(device), lengths, cu, most_queries if packed else None)
    return Paged(query.to(device, dtype), key_pages, value_pages, pages, key, value, score, counts)


def drawn(seed, name, longest=1500, pages=(16, 48, 64, 128), dims=(64, 128)):
    """The arguments of a random case of a mask, for `paged`; page sizes and dimensions of these."""
    draw = random.Random(f"{seed} {name}")
    kind = {
        "most": 8 if name == "tree" else draw.choice([1, 1, 1, 3, 8, 130]),
        "packed": draw.random() < 0.5,
        "page": draw.choice(pages),
        "heads": draw.choice([(8, 2), (4, 4)]),
        "dims": (draw.choice(dims), draw.choice(dims)),
    }
    return of_kind(seed, name, longest, **kind)


def kinds(name):
    """Five kinds of calls of a mask, each with kernels of its own. Between them they have every
    page size, both dtypes, pages of 8 bits, queries packed and apart, steps and chunks."""
    draw = random.Random(name)
    pages = draw.sample([16, 32, 48, 64, 128, 256], 5)
    most = [1, 8, 3, 8, 5] if name == "tree" else [1, 300, 3, 400, 130]
    dims = draw.sample([(64, 64), (128, 128), (128, 128), (64, 128), (128, 64)], 5)
    heads = draw.sample([(8, 2), (4, 4), (8, 2), (6, 2), (8, 1)], 5)
    dtypes = [torch.bfloat16, torch.bfloat16, torch.float16, torch.float16, torch.bfloat16]
    return [
        {
            "most": most[n], "packed": n % 2 == 1, "page": pages[n], "heads": heads[n],
            "dims": dims[n], "dtype": dtypes[n], "quantised": n == 4,
        }
        for n in range(5)
    ]  # fmt: skip


def of_kind(seed, name, longest, most, **kind):
    """The arguments of a case of a kind: requests with up to `longest` keys, `most` queries."""
    draw = random.Random(f"{seed} {name} {most}")
    requests = draw.randint(1, 5)
    lengths = [draw.choice([0, 1, draw.randint(1, longest)]) for _ in range(requests)]
    lengths[0] = max(lengths[0], 1)
    counts = [min(draw.randint(0, most), n) for n in lengths]
    counts[0] = max(counts[0], 1)
    if not kind["packed"]:
        counts = [max(counts)] * requests
    return {
        "lengths": lengths,
        "counts": counts,
        "spare": draw.choice([0, 3, 60]),
        "seed": seed,
        **kind,
    }


QUANTISED = [torch.int8, torch.float8_e4m3fn]


def quantised(case, dtype):
    """The case with pages of 8 bits, and `descale`: one factor for each head, a number of each
    request for its queries. Where rows hold NaN, int8 has the largest number."""

    def rounded(numbers):
        if dtype == torch.int8:
            return numbers.round().nan_to_num(127.0).to(dtype)
        return numbers.clamp(-448, 448).to(dtype)

    requests, (_, heads, _, _) = len(case.counts), case.query.shape
    of_query = torch.rand(requests, heads, generator=torch.Generator().manual_seed(5)) + 0.5
    of_query = of_query.to(case.query.device)
    found, factors = [], [of_query]
    for pool, rows in ((case.key_pages, case.key), (case.value_pages, case.value)):
        largest = 127 if dtype == torch.int8 else 448
        factor = rows.float().abs().amax(dim=(0, 2, 3)) / largest  # [kv_heads]
        numbers = rounded(pool.float() / factor[:, None])
        wide = rounded(rows.float() / factor[:, None, None]).double() * factor[:, None, None]
        found.append((numbers, wide))
        factors.append(factor[None])
    (key_pages, key), (value_pages, value) = found
    if case.pages.cu_seqlens_q is None:
        of_rows = of_query[:, :, None, None].double()
    else:
        counts = torch.tensor([*case.counts, case.query.shape[2] - sum(case.counts)])
        wide = torch.cat([of_query, torch.ones_like(of_query[:1])]).double()
        of_rows = wide.repeat_interleave(counts.to(wide.device), dim=0).T[None, :, :, None]
    made = replace(case, key_pages=key_pages, value_pages=value_pages, key=key, value=value)
    stands_for = replace(made, query=case.query.double() * of_rows)
    return made, stands_for, tuple(factors)


def check_quantised(case, dtype, backend, tolerance=2e-5, **how):
    """What a backend computes of pages of 8 bits, beside what they stand for in float64."""
    made, stands_for, descale = quantised(case, dtype)
    out, lse = made.attend(backend, descale=descale, **how)
    want, want_lse = stands_for.wanted(**how)
    assert out.dtype == case.query.dtype and out.shape == want.shape
    torch.testing.assert_close(out.double(), want, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(lse.double(), want_lse, atol=tolerance, rtol=tolerance)


def check(case, backend, tolerance=1e-5, **how):
    """What a backend computes, beside float64."""
    out, lse = case.attend(backend, **how)
    want, want_lse = case.wanted(**how)
    assert out.dtype == case.query.dtype and out.shape == want.shape
    torch.testing.assert_close(out.double(), want, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(lse.double(), want_lse, atol=tolerance, rtol=tolerance)
    return out
