"""Integers of 128 bits as pairs (low, high) of 64, for what a mask computes past 64 bits.

The low one is counted without a sign. This is `maskalg/engine/long_integers.py` for two limbs.
"""

import triton
import triton.language as tl

_LEAST = tl.constexpr(-(2**63))
_UNIT = tl.constexpr(2.0**64)
_HALF = tl.constexpr(2.0**63)


@triton.jit
def long_of(x):
    """An integer of at most 64 bits."""
    x = tl.cast(x, tl.int64)
    return x, x >> 63


@triton.jit
def long_number(low: tl.constexpr, high: tl.constexpr):
    """A constant."""
    return tl.cast(low, tl.int64), tl.cast(high, tl.int64)


@triton.jit
def long_add(a, b):
    low = a[0] + b[0]
    carried = ((a[0] & b[0]) | ((a[0] | b[0]) & ~low)) < 0
    return low, a[1] + b[1] + tl.where(carried, 1, 0)


@triton.jit
def long_negate(a):
    return -a[0], ~a[1] + tl.where(a[0] == 0, 1, 0)


@triton.jit
def long_multiply(a, b):
    x, y = a[0].to(tl.uint64, bitcast=True), b[0].to(tl.uint64, bitcast=True)
    upper = tl.umulhi(x, y).to(tl.int64, bitcast=True)
    return a[0] * b[0], upper + a[1] * b[0] + a[0] * b[1]


@triton.jit
def _unsigned(x):
    real = x.to(tl.float64)
    return tl.where(x < 0, real + _UNIT, real)


@triton.jit
def long_real(a):
    """The number as a double."""
    size = long_where(a[1] < 0, long_negate(a), a)
    total = _unsigned(size[0]) + _unsigned(size[1]) * _UNIT
    return tl.where(a[1] < 0, -total, total)


@triton.jit
def _of_real(x):
    """The integer part of a double, rounded towards zero."""
    rest = tl.floor(tl.abs(x))
    high = tl.floor(rest / _UNIT)
    low = rest - high * _UNIT
    low = tl.where(low >= _HALF, low - _UNIT, low)
    size = low.to(tl.int64), high.to(tl.int64)
    return long_where(x < 0, long_negate(size), size)


@triton.jit
def _divided(a, c):
    """The quotient and the remainder for c >= 1: each step subtracts an estimate by doubles."""
    quotient = long_of(a[0] - a[0])
    rest = a
    for _ in tl.static_range(3):
        step = _of_real(long_real(rest) / long_real(c))
        quotient = long_add(quotient, step)
        rest = long_add(rest, long_negate(long_multiply(step, c)))
    below = long_of(tl.where(rest[1] < 0, 1, 0))
    quotient = long_add(quotient, long_negate(below))
    rest = long_add(rest, long_multiply(below, c))
    above = long_of(tl.where(long_at_least(rest, c), 1, 0))
    quotient = long_add(quotient, above)
    rest = long_add(rest, long_negate(long_multiply(above, c)))
    return quotient[0], quotient[1], rest[0], rest[1]


@triton.jit
def long_floor_div(a, c):
    """floor(a / c) for c >= 1."""
    found = _divided(a, long_maximum(c, long_number(1, 0)))
    return found[0], found[1]


@triton.jit
def long_floor_mod(a, c):
    """a - c * floor(a / c) for c >= 1."""
    found = _divided(a, long_maximum(c, long_number(1, 0)))
    return found[2], found[3]


@triton.jit
def long_at_least(a, b):
    """a >= b."""
    return (a[1] > b[1]) | ((a[1] == b[1]) & ((a[0] ^ _LEAST) >= (b[0] ^ _LEAST)))


@triton.jit
def long_equal(a, b):
    return (a[1] == b[1]) & (a[0] == b[0])


@triton.jit
def long_where(condition, a, b):
    return tl.where(condition, a[0], b[0]), tl.where(condition, a[1], b[1])


@triton.jit
def long_minimum(a, b):
    return long_where(long_at_least(b, a), a, b)


@triton.jit
def long_maximum(a, b):
    return long_where(long_at_least(a, b), a, b)


@triton.jit
def long_and(a, b):
    return a[0] & b[0], a[1] & b[1]


@triton.jit
def long_or(a, b):
    return a[0] | b[0], a[1] | b[1]


@triton.jit
def long_xor(a, b):
    return a[0] ^ b[0], a[1] ^ b[1]


@triton.jit
def long_near(a, most: tl.constexpr):
    """The number in 64 bits, clamped to `most` and its negative."""
    least = long_number(-most, -1)
    found = long_minimum(long_maximum(a, least), long_number(most, 0))
    return found[0]
