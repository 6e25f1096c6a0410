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
