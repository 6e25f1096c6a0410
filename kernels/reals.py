"""Real functions for every target: Triton's own library serves NVIDIA's and AMD's GPUs alone."""

import triton
import triton.language as tl


@triton.jit
def tanh(x):
    """tanh through exp of a non-positive number, so that nothing overflows."""
    e = tl.exp(-2.0 * tl.abs(x))
    y = (1.0 - e) / (1.0 + e)
    return tl.where(x < 0.0, -y, y)


@triton.jit
def tanh_ptx(x):
    """tanh by two special functions, on NVIDIA; within 2e-7 of the result everywhere.

    1 - 2 / (1 + exp(2 x)): an exp that overflows gives 1, one that underflows -1.
    """
    return tl.inline_asm_elementwise(
        """{
        .reg .f32 t;
        mul.f32 t, $1, 0f4038AA3B;
        ex2.approx.ftz.f32 t, t;
        add.f32 t, t, 0f3F800000;
        rcp.approx.ftz.f32 t, t;
        fma.rn.f32 $0, t, 0fC0000000, 0f3F800000;
        }""",
        "=f,f",
        [x],
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def sigmoid(x):
    """The logistic function; an exp that overflows gives 0."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def sigmoid_ptx(x):
    """sigmoid by three special functions for two elements, on NVIDIA.

    exp(x) / (1 + exp(x)), where r = 1 / ((1 + a) (1 + b)) gives 1 / (1 + a) = r (1 + b): one
    reciprocal serves both. Relative to the result within 5e-7 + 1e-7 |x|, however small it is: as
    if x had been rounded once more.

    Neither element sees the other, which is undefined where a thread holds one alone: a
    denominator is cut at 2**60, NaN too, and the last minimum cuts what that left too large and
    keeps the element's own NaN.
    """
    return tl.inline_asm_elementwise(
        """{
        .reg .f32 a, b, c, d, r;
        mul.f32 a, $2, 0f3FB8AA3B;
        mul.f32 b, $3, 0f3FB8AA3B;
        ex2.approx.ftz.f32 a, a;
        ex2.approx.ftz.f32 b, b;
        add.f32 c, a, 0f3F800000;
        add.f32 d, b, 0f3F800000;
        min.f32 c, c, 0f5D800000;
        min.f32 d, d, 0f5D800000;
        mul.f32 r, c, d;
        rcp.approx.ftz.f32 r, r;
        mul.f32 d, d, r;
        mul.f32 c, c, r;
        mul.f32 a, a, d;
        mul.f32 b, b, c;
        min.NaN.f32 $0, a, 0f3F800000;
        min.NaN.f32 $1, b, 0f3F800000;
        }""",
        "=f,=f,f,f",
        [x],
        dtype=tl.float32,
        is_pure=True,
        pack=2,
    )


@triton.jit
def fma(x, y, z):
    """x y + z, rounded once."""
    return tl.fma(x, y, z)


@triton.jit
def fma_ptx(x, y, z):
    """x y + z, rounded once, for each element as it stands, on NVIDIA.

    LLVM makes vectors of products it sees, and takes them apart again: it compiles these faster.
    """
    return tl.inline_asm_elementwise(
        "fma.rn.f32 $0, $1, $2, $3;", "=f,f,f,f", [x, y, z], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def times(x, y):
    """x y, rounded before anything is added to it: in masks."""
    return x * y


@triton.jit
def times_ptx(x, y):
    """x y, rounded before anything is added to it, on NVIDIA: the compiler makes no fma of it."""
    return tl.inline_asm_elementwise(
        "mul.rn.f32 $0, $1, $2;", "=f,f,f", [x, y], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def whole(x):
    """x clamped so that 32 bits hold its integer part; 0 for NaN."""
    x = tl.where(x == x, x, 0.0)
    return tl.minimum(tl.maximum(x, -2147483520.0), 2147483520.0)


@triton.jit
def tan(x):
    return tl.sin(x) / tl.cos(x)


@triton.jit
def expm1(x):
    """exp(x) - 1, by its series where the difference would cancel."""
    series = x * (1.0 + x * (0.5 + x * (1.0 / 6.0 + x * (1.0 / 24.0))))
    return tl.where(tl.abs(x) < 0.05, series, tl.exp(x) - 1.0)


@triton.jit
def log1p(x):
    """log(1 + x), by its series where the sum would lose x."""
    series = x * (1.0 - x * (0.5 - x * (1.0 / 3.0 - x * (0.25 - x * 0.2))))
    return tl.where(tl.abs(x) < 0.02, series, tl.log(1.0 + x))


@triton.jit
def power(x, y):
    """x ** y; NaN for negative x unless y is whole, 1 where y is 0."""
    size = tl.exp2(y * tl.log2(tl.abs(x)))
    whole = tl.floor(y) == y
    odd = whole & (tl.floor(y * 0.5) * 2.0 != y)
    signed = tl.where(x < 0.0, tl.where(odd, -size, tl.where(whole, size, float("nan"))), size)
    return tl.where(y == 0.0, 1.0, signed)
