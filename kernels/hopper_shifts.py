"""Shifts of the products of `hopper_gradients`: the sum of three pieces of bfloat16.

The sum is a matrix product with ones. bfloat16 has the range of all shifts, whatever the dtype of
the inputs.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .gradient_rows import PIECES, SHIFT_COLUMNS
from .hopper_common import ROWS

shift_layout = gl.NVMMASharedLayout(swizzle_byte_width=32, element_bitwidth=16, rank=2)
"""How descriptors lay rows of pieces into shared memory."""


@gluon.jit
def sum_of_pieces(first: gl.constexpr, products: gl.constexpr):
    """The matrix that takes rows of pieces to the sums of their pieces from `first` on."""
    layout: gl.constexpr = gl.DotOperandLayout(0, products, 2)
    piece = gl.arange(0, SHIFT_COLUMNS, gl.SliceLayout(0, layout))[None, :] - first
    one = gl.where((piece >= 0) & (piece < PIECES), 1.0, 0.0)
    return (one + gl.zeros([ROWS, SHIFT_COLUMNS], gl.float32, layout)).to(gl.bfloat16)
