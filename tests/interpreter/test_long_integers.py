"""Kernels whose masks, or the bounds of whose loops, leave 32 or 64 bits."""

import os
import random

import pytest
import torch

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs TRITON_INTERPRET=1", allow_module_level=True)

import triton
import triton.language as tl
from maskalg_kernels.long_integers import (
    long_add,
    long_at_least,
    long_floor_div,
    long_floor_mod,
    long_multiply,
    long_near,
)

import maskalg as ma
from maskalg import causal, head, kv_idx, q_idx, scalar, table
from tests.engine.test_long_integers import numbers, packed, unpacked

COUNT = 2048
LENGTH, HEADS = 40, 2
B, MOST = 2**31 - 1, 2**63 - 1


@triton.jit
def compute(a, b, out, N: tl.constexpr):
    at = tl.arange(0, N)
    x, y = (tl.load(a + at), tl.load(a + N + at)), (tl.load(b + at), tl.load(b + N + at))
    total, product = long_add(x, y), long_multiply(x, y)
    quotient, rest = long_floor_div(x, y), long_floor_mod(x, y)
    tl.store(out + at, total[0])
    tl.store(out + N + at, total[1])
    tl.store(out + 2 * N + at, product[0])
    tl.store(out + 3 * N + at, product[1])
    tl.store(out + 4 * N + at, quotient[0])
    tl.store(out + 5 * N + at, quotient[1])
    tl.store(out + 6 * N + at, rest[0])
    tl.store(out + 7 * N + at, rest[1])
    tl.store(out + 8 * N + at, long_at_least(x, y).to(tl.int64))
    tl.store(out + 9 * N + at, long_near(x, 2**61))


def test_operations_are_those_of_unbounded_integers():
    a, b = (numbers(126, seed)[:COUNT] for seed in (2, 3))
    out = torch.zeros(10, COUNT, dtype=torch.int64)
    compute[(1,)](torch.stack(packed(a, 2)), torch.stack(packed(b, 2)), out, COUNT)
    pairs = list(zip(a, b, strict=True))
    half = 2**127
    assert unpacked(out[0:2]) == [(m + n + half) % (2 * half) - half for m, n in pairs]
    assert unpacked(out[2:4]) == [(m * n + half) % (2 * half) - half for m, n in pairs]
    assert unpacked(out[4:6]) == [m // max(n, 1) for m, n in pairs]
    assert unpacked(out[6:8]) == [m % max(n, 1) for m, n in pairs]
    assert out[8].tolist() == [m >= n for m, n in pairs]
    assert out[9].tolist() == [max(-(2**61), min(m, 2**61)) for m in a]


def cases():
    rng = random.Random(0)
    near = [MOST, MOST - 1, MOST - 3, -MOST - 1, -MOST, 2**62, -(2**62), 5, 0]
    a, b = ([rng.choice(near) for _ in range(LENGTH)] for _ in range(2))
    c, d = [MOST, 1], [2**62, -(2**62)]
    x, y = table(torch.tensor(a), "x")[q_idx], table(torch.tensor(b), "y")[kv_idx]
    w, v = (table(torch.tensor(row), name)[head] for row, name in ((c, "w"), (d, "v")))
    large = [scalar(B, name, low=1) for name in "abc"]
    return {
        "limits": (causal & (kv_idx // 16 < w), lambda h, q, k: q >= k and k // 16 < c[h]),
        "reach": ((q_idx - kv_idx) // 16 <= w, lambda h, q, k: (q - k) // 16 <= c[h]),
        "sums": (x + 5 > y, lambda h, q, k: a[q] + 5 > b[k]),
        "equal sums": (x + v == y + w, lambda h, q, k: a[q] + d[h] == b[k] + c[h]),
        # Indices are clamped, whatever is added to them.
        "moved ids": (
            ma.document(torch.tensor(a)).shift(q=torch.tensor([3])),
            lambda h, q, k: a[min(q + 3, LENGTH - 1)] == a[k],
        ),
        "moved, and far": (
            table(torch.tensor(a), "x")[q_idx + w] >= y,
            lambda h, q, k: a[min(q + c[h], LENGTH - 1)] >= b[k],
        ),
        "quotients": ((x * 3) // 7 >= y * 2, lambda h, q, k: (a[q] * 3) // 7 >= b[k] * 2),
        "remainders": ((x + y) % 5 > 2, lambda h, q, k: (a[q] + b[k]) % 5 > 2),
        "squares": (x * y >= v + q_idx, lambda h, q, k: a[q] * b[k] >= d[h] + q),
        "numbers": (q_idx * B * B * B <= kv_idx * B, lambda h, q, k: q * B**3 <= k * B),
        "negative": (kv_idx // B > q_idx * -B, lambda h, q, k: k // B > q * -B),
        # Compared as a sum of two entries, and with the negative of an entry.
        "moved to the other side": (
            ma.where(q_idx > kv_idx, y, kv_idx) >= -x,
            lambda h, q, k: (b[k] if q > k else k) >= -a[q],
        ),
        "negated": (-x == y, lambda h, q, k: -a[q] == b[k]),
        "negated, beside positions": (-x < kv_idx, lambda h, q, k: -a[q] < k),
        # No table at all: a bound multiplies what the mask divides by.
        "32 bits": (
            kv_idx // scalar(2**20, "c", low=1) < scalar(2**20, "n"),
            lambda h, q, k: True,
        ),
        "bounds left out": (
            kv_idx // large[0] // large[1] // large[2] + v >= q_idx - 3,
            lambda h, q, k: d[h] >= q - 3,
        ),
    }


@pytest.mark.parametrize("name", list(cases()))
def test_attention_past_the_ends(name):
    mask, rule = cases()[name]
    kept = torch.tensor(
        [[[rule(h, q, k) for k in range(LENGTH)] for q in range(LENGTH)] for h in range(HEADS)]
    )
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, HEADS, LENGTH, 16).requires_grad_().unbind()
    scores = (q @ k.mT / 4).masked_fill(~kept, -1e30)
    wanted = (scores.softmax(-1) * kept.any(-1, keepdim=True)) @ v
    found = ma.attention(q, k, v, mask, backend="triton")
    torch.testing.assert_close(found, wanted, atol=2e-3, rtol=0)
    slope = torch.randn_like(found)
    for ours, theirs in zip(
        torch.autograd.grad(found, (q, k, v), slope),
        torch.autograd.grad(wanted, (q, k, v), slope),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, atol=5e-3, rtol=0)


def test_what_kernels_cannot_compute_is_refused():
    many = q_idx * B * B * B * B * B
    q = torch.randn(1, HEADS, LENGTH, 16)
    with pytest.raises(ma.MaskValueError, match=r"take integers of \d+ bits, and at most 127 are"):
        ma.attention(q, q, q, many >= kv_idx, backend="triton")
    assert (many >= kv_idx).to_dense(4)[0, 0].tolist()[0] == [True, False, False, False]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32], ids=str)
def test_unsigned_entries_keep_their_value(dtype):
    most = torch.iinfo(dtype).max
    entries = torch.tensor([0, 1, 3, most, most - 1] * 8)
    x, y = table(entries.to(dtype), "x")[q_idx], table(entries.flip(0).to(dtype), "y")[kv_idx]
    v = torch.eye(LENGTH, 16)[None, None]
    q = torch.zeros_like(v)
    for mask in (x >= kv_idx - q_idx, x - y > 1, -x < y - 3, (x + 5) // 2 > y, x == y):
        found = ma.attention(q, q, v, mask, backend="triton")
        torch.testing.assert_close(found, ma.attention(q, q, v, mask, backend="reference"))
