"""Integer division as Python and the proofs mean it: Triton's own truncates, and is slow."""

import triton
import triton.language as tl


@triton.jit
def floor_div(x, c):
    """floor(x / c) for c >= 1 and any sign of x."""
    whole = tl.where(x < 0, ~x, x) // c  # ~x = -x - 1, which no integer is too small for
    return tl.where(x < 0, ~whole, whole)


@triton.jit
def floor_mod(x, c):
    """x - c * floor(x / c), between 0 and c - 1 for c >= 1."""
    rest = x % c
    return rest + tl.where(rest < 0, c, 0)


@triton.jit
def saturated(x, y):
    """x + y, clamped to 32 bits."""
    total = x + y
    return tl.where(((x ^ total) & (y ^ total)) < 0, (x >> 31) ^ 2147483647, total)


@triton.jit
def quotient(x, factor, shift):
    """floor(x / c) for 0 <= x < 2**31, of the divisor that factor and shift stand for
    (`codegen/divisors.py`)."""
    twice = (x + x).to(tl.uint32)
    high = tl.umulhi(twice, factor.to(tl.uint32, bitcast=True))
    return (high >> shift.to(tl.uint32)).to(tl.int32)


@triton.jit
def quotient_of_any(x, factor, shift):
    """`quotient` for any sign of x: of a negative one, floor(x / c) = ~(~x // c)."""
    sign = x >> 31
    return quotient(x ^ sign, factor, shift) ^ sign


@triton.jit
def remainder(x, c, factor, shift):
    """x - c * floor(x / c) for 0 <= x < 2**31."""
    return x - quotient(x, factor, shift) * c


@triton.jit
def remainder_of_any(x, c, factor, shift):
    """x - c * floor(x / c) for any sign of x."""
    return x - quotient_of_any(x, factor, shift) * c


@triton.jit
def inside(index, size):
    """The index moved into a table of `size` entries, so that padding reads no other memory."""
    return tl.minimum(tl.maximum(index, 0), size - 1)


@triton.jit
def widened(x):
    """An entry of a table as a signed integer of 32 or 64 bits, where small ones would wrap."""
    small = x.to(tl.int32) if x.dtype.primitive_bitwidth < 32 else x
    return small.to(tl.int64) if x.dtype == tl.uint32 else small


@triton.jit
def count(low, high):
    """How many integers `low..high` holds, of which low is not negative; at most 2**31 - 1."""
    high = tl.maximum(tl.minimum(high, 2147483646), -1)
    return tl.maximum(high - low + 1, 0)
