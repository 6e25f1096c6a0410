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
        check_ranges(steps.queries, [(call, call.queries) for call in calls], len(own))
        check_ranges(steps.keys, [(call, call.keys) for call in steps.own], len(own))
        for hop in steps.hops:
            check_ranges(hop.keys, [(call, call.keys) for call in hop.calls], sum(hop.back))
            check_returns(steps, hop, len(own))
    assert (visited[kept] == 1).all() and (visited <= 1).all()


def check_ranges(ranges, calls, count):
    """Ranges follow each other to the end, and those of a call are its tokens, in its order."""
    places = [place for place, _ in ranges.parts]
    assert [0, *(place.stop for place in places)] == [*(place.start for place in places), count]
    found = {call: [] for call, _ in calls}
    for place, of in ranges.parts:
        for call, at in of:
            found[call] += range(place.start, place.stop)
            assert at.start == place.start - dict(calls)[call].start
    for call, tokens in calls:
        assert found[call] == [*range(tokens.start, tokens.stop)]
    for call, tokens in calls:
        whole = slice(0, tokens.stop - tokens.start)
        assert [place or whole for _, place in ranges.of_call[call]] == [
            at for _, of in ranges.parts for other, at in of if other is call
        ]
    covered = [token for call in ranges.placed for token in found[call]]
    assert len({*covered}) == len(covered)


def check_returns(steps, hop, count):
    """Rows that come back are added to the tokens that went out, each once in an addition."""
    every, added = torch.arange(count), torch.zeros(sum(hop.to), count, dtype=torch.int)
    for rows, at in hop.sent:
        places = every[at] if steps.sent is None else every[steps.sent][at]
        assert len(places.unique()) == len(places)
        added[torch.arange(len(added))[rows], places] += 1
    assert torch.equal(added, torch.nn.functional.one_hot(every[hop.send], count).int())
    came = torch.arange(sum(hop.back))
    assert torch.equal(came[hop.order][hop.unsorted], came)
