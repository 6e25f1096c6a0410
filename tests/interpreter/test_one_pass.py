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
}


def visits_of(mask, q_len, kv_len):
    """What the kernel marks, and the turns that follow."""
    from maskalg.backends import triton_plan as backend
    from maskalg.backends.triton_arguments import scalars_of, tables_of
    from maskalg.backends.triton_one_pass import Turns, visits_launch

    query, key = torch.randn(1, 1, q_len, 64), torch.randn(1, 1, kv_len, 64)
    call = checked_call(query, key, key, mask)
    plan = backend.plan_of(call)
    steps, shape = backend.steps_of(call, plan)
    visited = torch.zeros(-(-kv_len // 128), -(-q_len // 128), dtype=torch.int32)
    numbers = (scalars_of(steps.hooks, call.form.values), tables_of(steps.hooks, call))
    constants = shape | steps.of_keys | count_constants(steps.hooks)
    visits_launch(call, visited, constants, numbers, mask).run()
    kept = []
    turns = Turns(torch.empty_like(visited), visited, lambda: kept.append(True))
    turns.fill()
    assert kept
    return visited, turns.table


@pytest.mark.parametrize("q_len, kv_len", [(500, 500), (300, 140), (128, 256)])
@pytest.mark.parametrize("name", list(MASKS))
def test_turns(name, q_len, kv_len):
    visited, turns = visits_of(MASKS[name], q_len, kv_len)
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
    query_gradients[3, heads](
        found, sums, counters, 0.25, length, 3, BLOCK=128, HEAD_DIM=dim, HEAD_PAD=64
    )
    wanted = torch.where(untouched[..., None], 0, sums * 0.25)
    assert torch.equal(found, wanted)
