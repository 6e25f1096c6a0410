"""Division by a factor that the host finds, against Python's."""

import os
import random

import pytest
import torch

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs TRITON_INTERPRET=1", allow_module_level=True)

import triton
import triton.language as tl
from maskalg_kernels.integers import quotient, quotient_of_any, remainder, remainder_of_any

import maskalg as ma
from maskalg import kv_idx, q_idx
from maskalg.codegen.divisors import factor_and_shift

MOST = 2**31 - 1


@triton.jit
def divide(x, out, c, factor, shift, N: tl.constexpr, SIGNED: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x + at)
    c, factor, shift = tl.load(c), tl.load(factor), tl.load(shift)
    if SIGNED:
        tl.store(out + at, quotient_of_any(x, factor, shift))
        tl.store(out + N + at, remainder_of_any(x, c, factor, shift))
    else:
        tl.store(out + at, quotient(x, factor, shift))
        tl.store(out + N + at, remainder(x, c, factor, shift))


def divided(x, c, signed):
    factor, shift = factor_and_shift(c)
    factor = factor - 2**32 if factor >= 2**31 else factor
    out = torch.zeros(2, len(x), dtype=torch.int32)
    numbers = [torch.tensor([n], dtype=torch.int32) for n in (c, factor, shift)]
    divide[(1,)](torch.tensor(x, dtype=torch.int32), out, *numbers, len(x), signed)
    return out.tolist()


@pytest.mark.parametrize("signed", [False, True])
def test_quotients(signed):
    rng = random.Random(0)
    divisors = [1, 2, 3, 5, 7, 128, 641, 2**16 + 1, 2**30 - 1, 2**30, 2**30 + 1, MOST - 1, MOST]
    for c in divisors + [rng.randint(1, 2 ** rng.randint(1, 31) - 1) for _ in range(40)]:
        near = [min(c * n + d, MOST) for n in (1, 2, MOST // c) for d in (-1, 0, 1)]
        x = [0, 1, MOST, MOST - 1, *near, *[rng.randint(0, MOST) for _ in range(19)]]
        x = [-n - 1 for n in x] if signed else x
        assert divided(x, c, signed) == [[n // c for n in x], [n % c for n in x]], c


LARGE = {
    "no limit": q_idx - kv_idx > -MOST,
    "quotient": (q_idx + MOST) // 2 >= kv_idx + 2**30,
    "factor": q_idx * 15_000_000 + 2**30 + 2**29 >= kv_idx,
    "factors": q_idx * 10_000 - kv_idx * 10_000 >= -(MOST - 4),
    "remainder": (q_idx + MOST) % 7 >= kv_idx % 7,
    "branches": ma.where(q_idx > kv_idx, q_idx + MOST, kv_idx - MOST) > 0,
}


@pytest.mark.parametrize("name", LARGE)
def test_constants_near_the_end_of_32_bits(name):
    torch.manual_seed(0)
    q, k = torch.randn(1, 1, 70, 16), torch.randn(1, 1, 90, 16)
    found, wanted = [ma.attention(q, k, k, LARGE[name], backend=b) for b in ("triton", "reference")]
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "mask",
    [
        q_idx - kv_idx <= 1_000_000_000 * ma.head - 5,
        ma.causal & (kv_idx <= 2_000_000_000 * ma.head),
        ma.nothing,
    ],
)
def test_multiples_of_the_head(mask):
    """The head has 32 bits, which 3 * 10**9 positions leave."""
    query, key, value = (torch.randn(1, 4, 70, 16) for _ in range(3))
    found = ma.attention(query, key, value, mask, backend="triton")
    wanted = ma.attention(query, key, value, mask, backend="reference")
    assert torch.allclose(found, wanted, atol=1e-5)
