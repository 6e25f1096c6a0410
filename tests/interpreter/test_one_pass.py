"""Whose turn it is to add to dQ, and dQ of sums: what goes around the kernel of all gradients."""

import os

import pytest
import torch

import maskalg as ma
from maskalg.attention import checked_call
from maskalg.backends.triton_constants import count_constants

triton = pytest.importorskip("triton", reason="needs Triton")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)

MASKS = {
    "everything": ma.everything,
    "nothing": ma.nothing,
    "causal": ma.causal,
    "prefix": ma.causal | ma.prefix(200),
    "middle": (ma.q_idx >= 150) & (ma.q_idx < 200),
    "stripes": (ma.q_idx // 128) % 2 == (ma.kv_idx // 128) % 2,
    "listed": ma.causal | (ma.kv_idx // 100 % 2 == 0),
}


def turns_of(mask, q_len, kv_len):
    """What the kernels mark, and count."""
    from maskalg.backends import triton_plan as backend
    from maskalg.backends.triton_arguments import scalars_of, tables_of
    from maskalg.backends.triton_one_pass import turn_launches, zeros_for_turns

    query, key = torch.randn(1, 1, q_len, 64), torch.randn(1, 1, kv_len, 64)
    call = checked_call(query, key, key, mask)
    plan = backend.plan_of(call)
    steps, shape = backend.steps_of(call, plan)
    turns = zeros_for_turns(call, 1, shape)
    numbers = (scalars_of(steps.hooks, call.form.values), tables_of(steps.hooks, call))
    constants = shape | steps.of_keys | count_constants(steps.hooks)
    visits, counts = turn_launches(call, turns, constants, numbers, mask)
    visits.run()
    visited = turns.clone()
    counts.run()
    return visited, turns


@pytest.mark.parametrize("q_len, kv_len", [(500, 500), (300, 140), (128, 256)])
@pytest.mark.parametrize("name", list(MASKS))
def test_turns(name, q_len, kv_len):
    visited, turns = turns_of(MASKS[name], q_len, kv_len)
    dense = MASKS[name].to_dense(q_len, kv_len)
    for row, column in torch.cartesian_prod(*map(torch.arange, visited.shape)).tolist():
        block = dense[..., column * 128 : column * 128 + 128, row * 128 : row * 128 + 128]
        # A tile that is visited for nothing costs time; one that is not visited is an error.
        assert visited[row, column] >= block.any()
        assert turns[row, column] == visited[row + 1 :, column].sum()


def test_query_gradients_of_sums():
    from maskalg_kernels.gradient_sums import query_gradients

    torch.manual_seed(0)
    heads, length, dim = 3, 300, 40
    sums = torch.randn(heads, length, dim)
    counters = torch.tensor([[1, 2, 1], [1, 0, 3], [0, 0, 0]], dtype=torch.int32)
    untouched = (counters == 0).repeat_interleave(128, 1)[:, :length]
    sums[untouched] = float("nan")
    found = torch.full_like(sums, float("nan"))
    query_gradients[3 * heads, 1](
        found, sums, counters, 0.25, length, 3, BLOCK=128, HEAD_DIM=dim, HEAD_PAD=64
    )
    wanted = torch.where(untouched[..., None], 0, sums * 0.25)
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("rows, tiles", [(1, 1), (3, 200), (65, 64), (200, 5)])
def test_counts_of_later_rows(rows, tiles):
    from maskalg_kernels.gradient_sums import turns

    torch.manual_seed(0)
    visited = torch.randint(0, 2, (rows, tiles), dtype=torch.int32)
    found = torch.cat([visited, torch.full((1, tiles), -7, dtype=torch.int32)])
    turns[-(-tiles // 64), 1](found, rows, tiles, ROWS=64, COLUMNS=64)
    wanted = visited.flip(0).cumsum(0).flip(0) - visited
    assert torch.equal(found[:rows], wanted.int()) and (found[rows:] == -7).all()


def test_what_is_launched(monkeypatch):
    """The order of the kernels on a Hopper GPU, up to the one that only it can run."""
    from dataclasses import replace

    from maskalg.backends import triton as entry
    from maskalg.backends import triton_backward as backend

    given = []
    monkeypatch.setattr(backend, "serves", lambda *_: True)
    monkeypatch.setattr(backend, "one_pass_launches", lambda *a: given.append(a) or [])
    steps_of = entry.steps_of
    monkeypatch.setattr(
        entry, "steps_of", lambda *a: (replace((f := steps_of(*a))[0], one_pass_from=1), f[1])
    )
    tensors = [torch.randn(1, 2, 300, 64).requires_grad_() for _ in range(3)]
    out = ma.attention(*tensors, ma.causal, backend="triton")
    torch.autograd.grad(out, tensors, torch.ones_like(out))
    ((call, turns, _shape, constants, _numbers, rows, outs, _fixed),) = given
    assert turns.tolist() == [[0, 1, 2], [0, 0, 1], [0, 0, 0]]
    delta = rows.delta.view(2, -1)[:, :300]
    torch.testing.assert_close(delta, out.detach()[0].sum(-1), atol=1e-4, rtol=1e-4)
    assert constants()["MASKED"] is not None
    assert [t.shape for t in outs[1:]] == [t.shape for t in tensors]
    assert call.query.shape == tensors[0].shape
