"""Whose turn it is to add to dQ, and dQ of sums: what goes around the kernel of all gradients."""

import os
from types import SimpleNamespace

import pytest
import torch

import maskalg as ma
from maskalg.attention import checked_call
from maskalg.schedule.summaries import labels
from maskalg.tiles.shapes import Least
from tests.cases.many_numbers import windows

triton = pytest.importorskip("triton", reason="needs Triton")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)

ANY = Least(0, 0, 0, 0)

MASKS = {
    "everything": ma.everything,
    "nothing": ma.nothing,
    "causal": ma.causal,
    "prefix": ma.causal | ma.prefix(200),
    "middle": (ma.q_idx >= 150) & (ma.q_idx < 200),
    "documents": ma.causal & ma.document(torch.arange(500) // 150),
    "scattered": ma.document(torch.arange(500) * 7 % 3),
    "many numbers": windows(15, 90),
    "shared prefix": ma.shared_prefix.from_cu_seqlens(
        [0, 190, 250, 430, 480], [-1, 0, 0, 2], total=500
    ),
    "spans": ma.causal & (ma.table(torch.arange(500) // 70 * 70 + 90)[ma.kv_idx] > ma.q_idx),
    "stripes": (ma.q_idx // 128) % 2 == (ma.kv_idx // 128) % 2,
}


def plan_from(least):
    """As much of a plan as says from what sizes on one kernel serves."""
    return SimpleNamespace(one_pass_from=least, shape={"HEAD_PAD": 64, "VALUE_PAD": 64})


LOOKED_UP = ("shared prefix", "spans")


def turns_of(mask, q_len, kv_len):
    """What the kernels mark, and count."""
    from maskalg.backends.triton import plan as backend
    from maskalg.backends.triton.arguments import hooked
    from maskalg.backends.triton.families.one_pass import turn_launches

    query, key = torch.randn(1, 1, q_len, 64), torch.randn(1, 1, kv_len, 64)
    call = checked_call(query, key, key, mask)
    plan = backend.plan_of(call)
    steps = backend.backward_plan_of(call, plan)
    numbers = hooked(steps.hooks, call)
    visits, counts = turn_launches(call, steps, numbers, mask)
    (turns,) = visits.made
    turns.fill_(7)
    visits.run()
    visited = turns[0].clone()
    counts.run()
    return visited, turns


@pytest.mark.parametrize("q_len, kv_len", [(500, 500), (300, 140), (128, 256)])
@pytest.mark.parametrize("name", list(MASKS))
def test_turns(name, q_len, kv_len, monkeypatch):
    monkeypatch.setattr(labels, "_FEWEST_TILES", 0)
    visited, turns = turns_of(MASKS[name], q_len, kv_len)
    dense = MASKS[name].to_dense(q_len, kv_len)
    for row, column in torch.cartesian_prod(*map(torch.arange, visited.shape)).tolist():
        block = dense[..., column * 128 : column * 128 + 128, row * 128 : row * 128 + 128]
        # A tile that is visited for nothing costs time; one that is not visited is an error.
        assert visited[row, column] >= block.any()
        assert turns[0, row, column] == visited[row + 1 :, column].sum()
        assert turns[1, row, column] == visited[:row, column].sum()
        assert name not in LOOKED_UP or visited[row, column] == block.any()


def as_it_lies(part):
    """A part of dQ, `[64, 64]`, in the order that its threads store it: four numbers of each.

    A thread of a warp has two columns of every eight, of a row and of the eighth below it.
    """
    rows = []
    for warp in range(4):
        for eight in range(8):
            for four in range(4):
                lanes = range(8 * four, 8 * four + 8)
                tops = [(16 * warp + lane // 4, 8 * eight + 2 * (lane % 4)) for lane in lanes]
                numbers = [part[r + down, c : c + 2] for r, c in tops for down in (0, 8)]
                rows.append(torch.cat(numbers))
    return torch.stack(rows)


@pytest.mark.parametrize("of_tokens", [False, True])
@pytest.mark.parametrize("block, dim, pad", [(128, 40, 64), (64, 80, 128)])
def test_query_gradients_of_sums(block, dim, pad, of_tokens):
    from maskalg_kernels.gradient_sums import query_gradients

    torch.manual_seed(0)
    # The last of the first two dimensions is that of heads.
    heads, tiles, length = 6, 3, 3 * block - 84
    steps = (1, 3) if of_tokens else (length, 1)
    added = torch.randn(heads, tiles, block, pad)
    parts = added.unflatten(2, (-1, 64)).unflatten(4, (-1, 64)).transpose(3, 4)
    sums = torch.stack([as_it_lies(part) for part in parts.reshape(-1, 64, 64)])
    sums = sums.view(heads, tiles, -1)
    counters = torch.tensor([[1, 2, 1], [1, 0, 3], [0, 0, 0]] * 2, dtype=torch.int32)
    sums[counters == 0] = float("nan")
    found = torch.full((heads * length, dim), float("nan"))
    query_gradients[tiles * heads, 1](
        found, sums, counters.repeat_interleave(2), 0.25, length, tiles, 3, *steps, block, dim, pad
    )
    if of_tokens:
        found = found.view(2, length, 3, dim).transpose(1, 2)
    wanted = torch.where((counters == 0)[..., None, None], 0, added * 0.25)
    assert torch.equal(found.reshape(heads, length, dim), wanted.flatten(1, 2)[:, :length, :dim])


@pytest.mark.parametrize("scale, counted", [(0.125, 64), (1e-9, 128)])
def test_what_products_are_shifted_by(scale, counted):
    """Sums of pieces are numbers of float32; those that no query has, and NaN, among them."""
    from maskalg_kernels.gradient_rows import gradient_rows

    torch.manual_seed(0)
    length, heads = 100, 2
    out, grad_out = torch.randn(2, 1, heads, length, 64)
    grad_out[0, 1, 7] = float("nan")
    lse = torch.randn(1, heads, length) * 10.0 ** torch.randint(-3, 4, (length,))
    lse[0, 0, 3] = float("-inf")
    statistic, delta = torch.empty(2, heads, 256)
    shifts = torch.full((heads * 256, 16), float("nan"), dtype=torch.bfloat16)
    tiles = -(-length // counted)
    counters = torch.full((heads * tiles * 2 + 1,), 7, dtype=torch.int32)
    of_parts = torch.full((73,), 7, dtype=torch.int32)
    gradient_rows[heads * 4, 1](
        grad_out, out, lse, None, None, statistic, delta, shifts, counters, of_parts, 70, scale,
        length, 256, heads, length, 1, *grad_out.stride(), VALUE_DIM=64, VALUE_PAD=64,
        WEIGHTED=False, ROWS=64, COUNTED=counted,
    )  # fmt: skip
    assert counters.tolist() == [0] * (heads * tiles * 2) + [7]
    assert of_parts.tolist() == [0] * 70 + [7] * 3
    shifts = shifts.double().view(heads, 256, 16)
    assert (shifts[..., 6:] == 0).all()
    assert (shifts[:, length:, :3].sum(-1) == torch.tensor(-3e38).double()).all()
    assert shifts[0, 3, :3].sum() == torch.tensor(-3e38).double()
    kept = torch.isfinite(lse[0])
    of_score = shifts[:, :length, :3].sum(-1) * scale
    torch.testing.assert_close(of_score[kept], -lse[0].double()[kept], rtol=3e-7, atol=0)
    assert shifts[1, 7, 3].isnan()
    of_product = shifts[..., 3:6].sum(-1)
    torch.testing.assert_close(of_product, -delta.double(), rtol=1e-7, atol=1e-30, equal_nan=True)


@pytest.mark.parametrize("rows, tiles", [(1, 1), (3, 200), (65, 64), (200, 5)])
def test_counts_of_other_rows(rows, tiles):
    from maskalg_kernels.gradient_sums import turns

    torch.manual_seed(0)
    visited = torch.randint(0, 2, (rows, tiles), dtype=torch.int32)
    behind = torch.full((rows + 1, tiles), -7, dtype=torch.int32)
    found = torch.cat([visited, behind])
    turns[-(-tiles // 64), 1](found, rows, tiles, ROWS=64, COLUMNS=64)
    later, earlier, behind = found.split([rows, rows, 1])
    assert torch.equal(later, (visited.flip(0).cumsum(0).flip(0) - visited).int())
    assert torch.equal(earlier, (visited.cumsum(0) - visited).int()) and (behind == -7).all()


@pytest.mark.parametrize(
    "heads, kv_heads, q_len, kv_len, served",
    [
        (4, 2, 515, 515, True),  # 5 tiles of keys, of queries too; 40 and 20 of 2 entries' heads
        (4, 1, 515, 515, False),  # pairs, of which twice as many are needed with 10 of key heads
        (4, 1, 900, 900, True),
        (4, 4, 1000, 512, False),  # keys
        (4, 2, 385, 515, False),  # pairs
        (4, 2, 384, 1200, False),  # queries
        (16, 8, 384, 384, True),
    ],
)
def test_few_tiles_are_left_to_two_kernels(heads, kv_heads, q_len, kv_len, served):
    from maskalg.backends.triton.families.one_pass import tiles_in_turn

    query, key = torch.randn(2, heads, q_len, 64), torch.randn(2, kv_heads, kv_len, 64)
    call = checked_call(query, key, key, ma.causal)
    least = Least(kv_keys=20, keys=40, pairs=200, queries=4)
    tiles = tiles_in_turn(call, plan_from(least))
    assert (tiles is not None) == served


@pytest.mark.parametrize(
    "mask, served",
    [
        (ma.causal & ma.sliding(384), True),  # 3.6 tiles a row
        (ma.causal & ma.sliding(256), False),  # 2.8
        (ma.causal & (ma.sliding(384) | ma.prefix(4)), False),  # 4.6, of two intervals
        (ma.causal & (ma.sliding(900) | ma.prefix(4)) + ma.alibi(torch.ones(4)), True),  # 7.8
    ],
)
def test_short_bands_are_left_to_two_kernels(mask, served):
    from maskalg.backends.triton.families.one_pass import tiles_in_turn

    tensor = torch.randn(2, 4, 2048, 64)
    least = Least(kv_keys=0, keys=0, pairs=0, queries=0, band=3.1)
    tiles = tiles_in_turn(checked_call(tensor, tensor, tensor, mask), plan_from(least))
    assert (tiles is not None) == served


@pytest.mark.parametrize(
    "mask, served",
    [
        (ma.kv_idx <= ma.q_idx + ma.head, False),
        (ma.causal | ma.prefix(torch.tensor([3, 4])), False),  # of batch entries
        (ma.causal & ma.document(torch.zeros((2, 515), dtype=torch.int32)), False),
        (ma.causal & ma.document(torch.zeros((1, 515), dtype=torch.int32)), True),
        (ma.causal + ma.alibi(torch.ones(4)), True),  # biases may differ
    ],
)
def test_masks_that_differ_are_left_to_two_kernels(mask, served):
    from maskalg.backends.triton.families.one_pass import tiles_in_turn

    tensor, least = torch.randn(2, 4, 515, 64), Least(kv_keys=0, keys=0, pairs=0, queries=0)
    tiles = tiles_in_turn(checked_call(tensor, tensor, tensor, mask), plan_from(least))
    assert (tiles is not None) == served


LENGTHS = [500, 700, 848]
CUTS = torch.tensor([0, 500, 1200, 2048])


@pytest.mark.parametrize(
    "mask, served",
    [
        (ma.document.from_lengths(LENGTHS), True),  # of a token 5.6 tiles of 128
        (ma.causal & ma.document.from_cu_seqlens(CUTS, total=2048), True),
        (ma.document.from_cu_seqlens(CUTS, torch.tensor([0, 0, 1000, 2048])), True),  # of keys 8
        (ma.document.from_lengths([*LENGTHS[:-1], 400, 448]), False),  # 4.2
        (ma.document(torch.arange(2048) // 1000), False),  # not known
        (ma.document.from_lengths(LENGTHS) & (ma.table(torch.ones(2048))[ma.kv_idx] > 0), False),
        (ma.document.from_lengths([]), False),
    ],
)
def test_short_documents_are_left_to_two_kernels(mask, served):
    from maskalg.backends.triton.families.one_pass import tiles_in_turn

    tensor = torch.randn(1, 1, 2048, 64)
    least = Least(kv_keys=0, keys=0, pairs=0, queries=0, document=5)
    if not mask.parameters["ids"].numel():
        mask = mask.bind(ids=torch.zeros(2048, dtype=torch.int32))
    call = checked_call(tensor, tensor, tensor, mask)
    tiles = tiles_in_turn(call, plan_from(least))
    assert (tiles is not None) == served


@pytest.mark.parametrize(
    "group, kv_len, members", [(1, 300, 1), (4, 300, 1), (5, 2**16, 1), (4, 2**17, 4)]
)
def test_query_heads_of_a_program(group, kv_len, members):
    """One, but all that share keys where counters would outnumber queries."""
    from maskalg.backends.triton.families import one_pass

    query, key = torch.randn(2, 2 * group, 300, 64), torch.randn(1, 1, 1, 64)
    key = key.expand(2, 2, kv_len, 64)
    call = checked_call(query, key, key, ma.everything)
    block, counters = one_pass.one_pass_counts(64, call)
    assert block == 128
    assert counters == (0 if members == group else 2 * 2 * -(-kv_len // 128) * 2)
    assert one_pass._members(call) == members


def test_what_is_launched(monkeypatch):
    """The order of the kernels on a Hopper GPU, up to the one that only it can run."""
    from dataclasses import replace

    from maskalg.backends.triton import backend as entry
    from maskalg.backends.triton.families import backward as backend

    given, counted = [], []
    monkeypatch.setattr(backend, "serves", lambda *_: True)
    of_turns = backend.turn_launches
    monkeypatch.setattr(
        backend, "turn_launches", lambda *a: counted.append(a[1].in_one_pass) or of_turns(*a)
    )
    monkeypatch.setattr(backend, "one_pass_launches", lambda *a: given.append(a) or [])
    plan_of = entry.backward_plan_of
    monkeypatch.setattr(
        entry, "backward_plan_of", lambda *a: replace(plan_of(*a), one_pass_from=ANY)
    )
    tensors = [torch.randn(1, 2, 300, 64).requires_grad_() for _ in range(3)]
    out = ma.attention(*tensors, ma.causal, backend="triton")
    torch.autograd.grad(out, tensors, torch.ones_like(out))
    ((call, plan, _numbers, tensors_given, _fixed),) = given
    later, earlier = tensors_given["turn"].tolist()
    assert later == [[0, 1, 2], [0, 0, 1], [0, 0, 0]]
    assert earlier == [[0, 0, 0], [1, 1, 1], [1, 2, 2]]
    assert tensors_given["counter"].tolist() == [0] * 12
    delta = -tensors_given["shift"].view(2, -1, 16)[:, :300, 3:6].float().sum(-1)
    torch.testing.assert_close(delta, out.detach()[0].sum(-1), atol=1e-4, rtol=1e-4)
    assert plan.in_one_pass["MASKED"] is not None
    # A visit more or less than there are turns for would be a wrong sum.
    assert counted == [plan.in_one_pass]
    outs = [tensors_given[name] for name in ("dq", "dk", "dv")]
    assert [t.shape for t in outs] == [t.shape for t in tensors]
    assert call.query.shape == tensors[0].shape
