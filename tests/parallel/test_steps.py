"""The calls of each rank: every kept pair in one of them, and few queries without a kept key."""

import pytest
import torch

from maskalg import causal, document, nothing, parallel, prefix, sliding, spans
from maskalg.parallel.steps import steps_of

LENGTH, CHUNK = 203, 8
LENGTHS = torch.tensor([3, 40, 1, 57, 22, 80])
IDS = torch.arange(len(LENGTHS)).repeat_interleave(LENGTHS)
MASKS = {
    "causal": causal,
    "window": causal & sliding(19),
    "sinks": causal & (sliding(9) | prefix(2)),
    "documents": causal & document(IDS),
    "spans": causal | spans(torch.where(IDS % 2 == 0, IDS, -1)),
    "most dropped": causal & ~prefix(60) & document(IDS // 3),
    "nothing": nothing,
}


@pytest.mark.parametrize("method", ["gather", "ring"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("name", MASKS)
def test_calls_of_all_ranks(name, ranks, method):
    mask = MASKS[name]
    kept = mask.to_dense(LENGTH)[0, 0]
    plan = parallel.plan(mask, LENGTH, ranks, chunk=CHUNK)
    visited = torch.zeros(LENGTH, LENGTH, dtype=torch.int)
    for rank in range(ranks):
        steps, own = steps_of(plan, 0, rank, method, torch.device("cpu")), plan.tokens(rank)
        calls = [*steps.own, *(call for hop in steps.hops for call in hop.calls)]
        for call in calls:
            queries = own[call.queries]
            assert torch.equal(queries, call.q_start + torch.arange(len(queries)))
            keys = slice(call.kv_start, call.kv_start + call.keys.stop - call.keys.start)
            visited[queries, keys] += 1
            for outer in (queries[:CHUNK], queries[-CHUNK:]):  # the first and the last chunk
                assert kept[outer, keys].any()
        assert [place.start for place, _ in steps.merges] == [
            0, *(place.stop for place, _ in steps.merges[:-1])
        ]  # fmt: skip
        assert steps.merges[-1][0].stop == len(own)
        found = [[] for _ in calls]
        for place, of in steps.merges:
            for number, at in of:
                found[number] += range(place.start, place.stop)
                assert at.start == place.start - calls[number].queries.start
        for call, queries in zip(calls, found, strict=True):
            assert queries == [*range(call.queries.start, call.queries.stop)]
        if steps.whole is not None:
            assert calls[steps.whole].queries == slice(0, len(own))
    assert (visited[kept] == 1).all() and (visited <= 1).all()
