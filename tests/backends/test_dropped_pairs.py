"""Pairs that the mask drops take no part, whatever the bias is there: NaN, infinite, or steep."""

import pytest
import torch

import maskalg as ma
from maskalg import causal, head, kv_idx, log, power, q_idx, table

LENGTH = 9
AWAY = q_idx != kv_idx
EXP = ma.Weight("exp", ma.score(lambda s, b, h, q, k: torch.exp(s)), normalised=False)


def at_five(value):
    entries = torch.zeros(LENGTH)
    entries[5] = value
    return ma.key_bias(entries)


def biases():
    """Name: what is computed, and the same with other values at dropped pairs."""
    distance = ma.maximum(abs(q_idx - kv_idx), 1)
    kept = causal + ma.bias(-log(1 + ma.maximum(q_idx - kv_idx, 0)))
    fifth = kv_idx != 5
    return {
        "NaN above the diagonal": (causal + ma.bias(-log(1 + q_idx - kv_idx)), kept),
        "infinite": (AWAY + ma.bias(1 / abs(q_idx - kv_idx)), AWAY + ma.bias(1 / distance)),
        "NaN": (fifth + at_five(torch.nan), fifth + at_five(0.0)),
        "infinite entry": (fifth + at_five(torch.inf), fifth + at_five(0.0)),
        "capped": (
            fifth + ma.softcap(3.0) @ at_five(torch.nan),
            fifth + ma.softcap(3.0) @ at_five(0.0),
        ),
    }


def compared(pair, learned, weight, backend):
    """Output without gradients, output and gradients, of each of two expressions."""
    torch.manual_seed(0)
    tensors = [torch.randn(1, 2, LENGTH, 8, requires_grad=True) for _ in range(3)]
    change, found = torch.randn(1, 2, LENGTH, 8), []
    for score in pair:
        with torch.no_grad():
            plain = ma.attention(*tensors, score, weight=weight, backend=backend)
        out = ma.attention(*tensors, score, weight=weight, backend=backend)
        found.append([plain, out, *torch.autograd.grad((out * change).sum(), [*tensors, *learned])])
    for got, want in zip(*found, strict=True):
        assert want.isfinite().all()
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("weight", [ma.softmax, EXP, ma.linear, ma.relu, ma.sigmoid(0.0)])
@pytest.mark.parametrize("name", list(biases()))
def test_values_there(name, weight, backend):
    compared(biases()[name], [], weight, backend)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("weight", [ma.softmax, EXP])
def test_slopes_there(weight, backend):
    p = torch.tensor([0.5, 1.0], requires_grad=True)
    steepness, distance = table(p, "p")[head], abs(q_idx - kv_idx)
    for of_distance in (
        lambda d: -steepness * log(d),
        lambda d: power(d, -1.0 * steepness),
        lambda d: steepness / d,
    ):
        scores = [of_distance(d) for d in (distance, ma.maximum(distance, 1))]
        compared([(q_idx > kv_idx) + ma.bias(s) for s in scores], [p], weight, backend)


@pytest.mark.parametrize("mask", [ma.everything, causal], ids=str)
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_slopes_of_what_a_choice_leaves_out(mask, backend):
    p = torch.tensor([0.5, 1.0], requires_grad=True)
    cap = torch.tensor([2.0, 0.0], requires_grad=True)
    after, distance = q_idx > kv_idx, q_idx - kv_idx
    scores = [table(p, "p")[head] * log(d) for d in (distance, ma.maximum(distance, 1))]
    chosen = [mask + ma.where(after, ma.bias(s), 0) for s in scores]
    compared(chosen, [p], ma.softmax, backend)
    compared([mask + ma.bias(ma.where(after, s, 0.0)) for s in scores], [p], ma.softmax, backend)
    caps = [ma.softcap(table(cap, "cap")[head] + more) for more in (0.0, ma.where(head < 1, 0, 1))]
    compared([mask + ma.where(head < 1, c, 0) for c in caps], [cap], ma.softmax, backend)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_kept_pairs_show_what_is_not_a_number(backend):
    q = torch.randn(1, 1, LENGTH, 8, requires_grad=True)
    score = (kv_idx != 4) + at_five(torch.nan)
    for lse in (False, True):
        out = ma.attention(q.detach(), q.detach(), q.detach(), score, return_lse=lse)
        assert (out[0] if lse else out).isnan().all()
    out = ma.attention(q, q, q, score, backend=backend)
    assert torch.autograd.grad(out.sum(), q)[0].isnan().any()
