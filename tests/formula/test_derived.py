"""What is derived from a tensor follows what is written into it."""

import copy

import pytest
import torch

import maskalg as ma
from maskalg import causal, per_document, prefix

LENGTH = 96
OLD, NEW = torch.arange(LENGTH) // 20, (torch.arange(LENGTH) + 7) // 13
INNER = prefix(2) | causal


MASKS = {
    "restarted": lambda ids: per_document(INNER, ids),
    "keys of their own": lambda ids: per_document(INNER, OLD, ids),
    "media": lambda ids: ma.media(ids[:12], 8),
    "composed": lambda ids: (causal & per_document(INNER, ids)) | prefix(1),
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", MASKS)
def test_a_write_is_seen_by_all_that_is_derived(name, inference):
    q = torch.randn(1, 2, LENGTH, 16)
    with torch.inference_mode(inference):
        ids = OLD.clone()
        mask, wanted = MASKS[name](ids), MASKS[name](NEW.clone())
        ma.attention(q, q, q, mask)
        ids.copy_(NEW)
        assert torch.equal(mask.to_dense(LENGTH), wanted.to_dense(LENGTH))
        labels = [m.blocks(LENGTH, block=16).labels for m in (mask, wanted)]
        assert torch.equal(*labels)
        found, expected = (ma.attention(q, q, q, m) for m in (mask, wanted))
        torch.testing.assert_close(found, expected)


def test_a_write_before_the_first_call_is_seen():
    ids = OLD.clone()
    mask = per_document(INNER, ids)
    ids.copy_(NEW)
    assert torch.equal(mask.to_dense(LENGTH), per_document(INNER, NEW).to_dense(LENGTH))


def test_what_is_bound_or_copied_stays():
    first, past = torch.tensor([0, 8, 16]), torch.tensor([20, 20, 20])
    mask = ma.media(first, 2).bind(ends=past)
    wanted = ma.media(first, 2, past).to_dense(24, 6)
    for each in (mask, copy.deepcopy(mask), mask.to("cpu")):
        assert torch.equal(each.to_dense(24, 6), wanted)


def test_a_copy_sees_a_write():
    ids = OLD.clone()
    for copied in (copy.deepcopy(per_document(INNER, ids)), per_document(INNER, ids).to("cpu")):
        copied.parameters["ids"].copy_(NEW)
        assert torch.equal(copied.to_dense(LENGTH), per_document(INNER, NEW).to_dense(LENGTH))


@pytest.mark.parametrize("name", MASKS)
def test_a_compiled_function_sees_a_write(name):
    q = torch.randn(1, 2, LENGTH, 16)
    ids = OLD.clone()
    outside = MASKS[name](ids)

    def both(q, ids, new):
        inside = MASKS[name](ids)
        before = ma.attention(q, q, q, outside), ma.attention(q, q, q, inside)
        ids.copy_(new)
        return *before, ma.attention(q, q, q, outside), ma.attention(q, q, q, MASKS[name](ids))

    compiled = torch.compile(both, fullgraph=True, backend="aot_eager")
    for first, then in ((OLD, NEW), (NEW, OLD)):
        ids.copy_(first)
        wanted = [ma.attention(q, q, q, MASKS[name](each.clone())) for each in (first, then)]
        found = compiled(q, ids, then)
        for each, right in zip(found, (wanted[0], wanted[0], wanted[1], wanted[1]), strict=True):
            torch.testing.assert_close(each, right)


def test_layers_of_a_compiled_function_share_what_is_derived():
    graphs = []

    def layers(q, ids):
        mask = per_document(INNER, ids)
        for _ in range(3):
            q = ma.attention(q, q, q, mask)
        return q

    def noted(graph, _):
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    compiled = torch.compile(layers, fullgraph=True, backend=noted)
    compiled(torch.randn(1, 2, LENGTH, 16), OLD.clone())
    calls = [n for n in graphs[0].graph.nodes if "attention_forward" in str(n.target)]
    assert len(calls) == 3 and len({str(call.args[3]) for call in calls}) == 1


def test_a_compiled_function_takes_what_is_bound():
    first, past = torch.tensor([0, 8, 16]), torch.tensor([20, 20, 20])
    mask = ma.media(first, 2).bind(ends=past)
    q, k = torch.randn(1, 1, 24, 16), torch.randn(1, 1, 6, 16)
    compiled = torch.compile(
        lambda q: ma.attention(q, k, k, mask), fullgraph=True, backend="aot_eager"
    )
    torch.testing.assert_close(compiled(q), ma.attention(q, k, k, ma.media(first, 2, past)))


def test_operators_see_a_write():
    ids = OLD.clone()
    mask = per_document(INNER, ids)
    q = torch.randn(3, 1, 2, LENGTH, 16)
    attend = torch.func.vmap(lambda q: ma.attention(q, q, q, mask))
    attend(q)
    ids.copy_(NEW)
    wanted = torch.stack([ma.attention(x, x, x, per_document(INNER, NEW)) for x in q])
    torch.testing.assert_close(attend(q), wanted)


@pytest.mark.parametrize("inference", [False, True])
def test_two_calls_before_a_backward_pass(inference):
    """Where nobody counts writes it is computed in each call, and autograd hears of none."""
    with torch.inference_mode(inference):
        ids = OLD.clone()
    mask = per_document(INNER, ids)
    q = torch.randn(1, 2, LENGTH, 16, requires_grad=True)
    other = per_document(INNER, OLD.clone())
    gradients = []
    for each in (mask, other):
        outs = [ma.attention(q, q, q, each) for _ in range(2)]
        gradients.append(torch.autograd.grad(sum(out.square().sum() for out in outs), q)[0])
    torch.testing.assert_close(*gradients)
