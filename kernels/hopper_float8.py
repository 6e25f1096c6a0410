"""Operands of float8 products on Hopper: weights in float8 too, and values in another order.

float8 numbers below 2^-9 are zero, so weights and their sums are multiplied by 2^8. A thread has
the weights of other keys than a float8 product reads from it; values come in the order of these
weights (`float8_values`).
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .hopper_common import ROWS, block_at

RAISED = gl.constexpr(8.0)
"""Power of two by which weights are multiplied before they become float8."""


@gluon.jit
def raised(dtype: gl.constexpr):
    """The power of two by which weights are multiplied, for inputs of this dtype."""
    if dtype == gl.float8e4nv:
        return RAISED
    else:
        return 0.0


@gluon.jit
def packed(weight, output: gl.constexpr, dtype: gl.constexpr):
    """Weights as they pass from one tile to the next: float8 weights, four in an integer.

    Single bytes would be unpacked and packed again. NVIDIA's assembler (12.8, 12.9) loses one half
    of an integer if one instruction makes both halves from the same two numbers: hence `relu`,
    which changes no weight.
    """
    if dtype == gl.float8e4nv:
        pairs = weight.reshape([ROWS, weight.shape[1] // 16, 2, 4, 2])
        even, odd = gl.split(pairs.permute((0, 1, 3, 2, 4)))
        first, third = gl.split(even)
        second, fourth = gl.split(odd)
        return gl.inline_asm_elementwise(
            """{
            .reg .b16 low, high;
            cvt.rn.satfinite.e4m3x2.f32 low, $2, $1;
            cvt.rn.satfinite.relu.e4m3x2.f32 high, $4, $3;
            mov.b32 $0, {low, high};
            }""",
            "=r,f,f,f,f",
            [first, second, third, fourth],
            dtype=gl.int32,
            is_pure=True,
            pack=1,
        )
    else:
        return gl.convert_layout(weight.to(dtype), gl.DotOperandLayout(0, output, k_width=2))


@gluon.constexpr_function
def _bytes_together(groups):
    """A layout of `[ROWS, groups, 4, 2, 2]` in which registers count the last two axes first."""
    rows, columns = ([[1 << i, 0, 0, 0, 0] for i in range(6)], [[0, 0, 1, 0, 0], [0, 0, 2, 0, 0]])
    across = [[0, 1 << i, 0, 0, 0] for i in range(groups.bit_length() - 1)]
    return gl.DistributedLinearLayout(
        reg_bases=[[0, 0, 0, 0, 1], [0, 0, 0, 1, 0], rows[3], *across],
        lane_bases=[*columns, *rows[:3]],
        warp_bases=rows[4:],
        block_bases=[],
        shape=[ROWS.value, groups, 4, 2, 2],
    )


@gluon.jit
def as_operand(p, output: gl.constexpr, dtype: gl.constexpr):
    """Packed weights as the left operand of a product with the layout `output`."""
    if dtype == gl.float8e4nv:
        pair = gl.join(p, p)
        together: gl.constexpr = _bytes_together(p.shape[1])
        four = gl.convert_layout(gl.join(pair, pair), together, assert_trivial=True)
        each = gl.inline_asm_elementwise(
            "mov.b32 $0, $1;",
            "=r,r,r,r,r",
            [four],
            dtype=gl.float8e4nv,
            is_pure=True,
            pack=4,
        )
        operand: gl.constexpr = gl.DotOperandLayout(0, output, k_width=4)
        each = each.reshape([ROWS, 16 * p.shape[1]])
        return gl.convert_layout(each, operand, assert_trivial=True)
    else:
        return p


@gluon.jit
def value_of(values, stage):
    """A tile of values, keys by dimensions; float8 products read a column's keys side by side."""
    tile = block_at(values, stage)
    if values[0].dtype == gl.float8e4nv:
        tile = (tile[0].permute((1, 0)),)
    return tile
