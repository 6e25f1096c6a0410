"""Integer division as Python and the proofs mean it: Triton's own truncates."""

import triton
import triton.language as tl


@triton.jit
def floor_div(x, c):
    """floor(x / c) for c >= 1 and any sign of x."""
    return (x - tl.where(x < 0, c - 1, 0)) // c


@triton.jit
def floor_mod(x, c):
    """x - c * floor(x / c), between 0 and c - 1 for c >= 1."""
    rest = x % c
    return rest + tl.where(rest < 0, c, 0)


@triton.jit
def inside(index, size):
    """The index moved into a table of `size` entries, so that padding reads no other memory."""
    return tl.minimum(tl.maximum(index, 0), size - 1)


@triton.jit
def widened(x):
    """An integer entry of a table in at least 32 bits, where small integers would wrap."""
    return x.to(tl.int32) if x.dtype.primitive_bitwidth < 32 else x


@triton.jit
def count(low, high):
    """How many integers `low..high` holds, of which low is not negative; at most 2**31 - 1."""
    high = tl.maximum(tl.minimum(high, 2147483646), -1)
    return tl.maximum(high - low + 1, 0)
