"""Head dimensions in parts that are powers of two: 192 as 128 and 64, 80 as 64 and 16.

Tensors of Gluon have sides that are powers of two. Blocks of shared memory are padded to one or to
the sum of two, with zeros that cost no reads of memory; products take the parts of a block that
hold dimensions, and sums over rows are a tensor for each part. A dimension of 64, 128 or 256 is one
part, or two where the first 128 of 256 lie in registers.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma, warpgroup_mma_wait

from .gluon_names import builtin
from .hopper_common import ROWS, matrix_of


@gluon.constexpr_function
def _depths(size, held=0):
    """First and width of the parts that products over dimensions sum up, the first `held` apart."""
    parts = []
    first = 0
    past = (size + 15) // 16 * 16
    while first < past:
        left = (held if first < held < past else past) - first
        width = 1 << (left.bit_length() - 1)
        parts.append((first, width))
        first += width
    return parts


@gluon.constexpr_function
def _widths(size):
    """First and width of the parts of sums: two at most, since each product reads its weights anew,
    and the last is rounded up."""
    widths = [width for _, width in _depths(size)]
    first = widths[0]
    more = sum(widths) - first
    if more > first // 2:
        return [(0, 2 * first)]
    if more > 0:
        return [(0, first), (first, 1 << (more - 1).bit_length())]
    return [(0, first)]


@gluon.constexpr_function
def products_of(size, held=0):
    """How many products `dots` starts."""
    return len(_depths(size, held))


@gluon.constexpr_function
def sums_of(size):
    """How many tensors hold sums, and how many products `add_rows` starts."""
    return len(_widths(size))


@gluon.constexpr_function
def _first(parts, part):
    return parts[part][0]


@gluon.constexpr_function
def _width(parts, part):
    return parts[part][1]


@gluon.constexpr_function
def first_width(size):
    """Columns of the first tensor of sums."""
    return _widths(size)[0][1]


@gluon.jit
def _columns_within(side, FIRST: gl.constexpr, WIDTH: gl.constexpr):
    if WIDTH == side.shape[1]:
        return side
    else:
        return side.slice(FIRST, WIDTH, dim=1)


@gluon.jit
def _columns(block, FIRST: gl.constexpr, WIDTH: gl.constexpr):
    """Columns of a block of shared memory, which lie in one of its tensors."""
    if FIRST < block[0].shape[1]:
        return _columns_within(block[0], FIRST, WIDTH)
    else:
        return _columns_within(block[1], FIRST - block[0].shape[1], WIDTH)


@gluon.jit
def rows_of(block, SIZE: gl.constexpr, HELD: gl.constexpr = 0, layout: gl.constexpr = None):
    """The rows of a block as `dots` reads them: in parts of their SIZE dimensions, the first HELD
    in registers, for products with this layout."""
    PARTS: gl.constexpr = _depths(SIZE, HELD)
    rows = ()
    for part in gl.static_range(products_of(SIZE, HELD)):
        each = _columns(block, _first(PARTS, part), _width(PARTS, part))
        if _first(PARTS, part) < HELD:
            each = each.load(gl.DotOperandLayout(0, layout, k_width=2))
        rows = rows + (each,)
    return rows


@gluon.jit
def dots(rows, block, zero, SIZE: gl.constexpr, HELD: gl.constexpr = 0):
    """Products of each row with each row of a block, over SIZE dimensions; `products_of` products
    are under way."""
    product = zero
    PARTS: gl.constexpr = _depths(SIZE, HELD)
    for part in gl.static_range(products_of(SIZE, HELD)):
        right = _columns(block, _first(PARTS, part), _width(PARTS, part)).permute((1, 0))
        product = warpgroup_mma(rows[part], right, product, use_acc=part > 0, is_async=True)
    return product


@gluon.jit
def _no_sum(WIDTH: gl.constexpr, BITS: gl.constexpr):
    return gl.zeros([ROWS, WIDTH], gl.float32, matrix_of(WIDTH, BITS))


@gluon.jit
def no_sums(SIZE: gl.constexpr, BITS: gl.constexpr = 16):
    """Zero sums for 64 rows, a tensor for each part; for products of numbers of this many bits."""
    sums = ()
    for part in gl.static_range(sums_of(SIZE)):
        sums = sums + (_no_sum(_width(_widths(SIZE), part), BITS),)
    return sums


@gluon.jit
def operand_of(weights, dtype: gl.constexpr, SIZE: gl.constexpr):
    """Weights as products of SIZE dimensions read them, made before other products are started."""
    layout: gl.constexpr = gl.DotOperandLayout(0, matrix_of(first_width(SIZE)), 2)
    return gl.convert_layout(weights.to(dtype), layout)


@gluon.jit
def _add_columns(sum, weights, rows, use_acc):
    K_WIDTH: gl.constexpr = 32 // rows.dtype.primitive_bitwidth
    operand = gl.convert_layout(weights, gl.DotOperandLayout(0, sum.type.layout, K_WIDTH))
    return under_way(warpgroup_mma(operand, rows, sum, use_acc=use_acc, is_async=True))


@gluon.jit
def add_rows(sums, weights, block, SIZE: gl.constexpr, use_acc=True):
    """Sums, if any, plus rows of a block times their weights; `sums_of` products are under way."""
    dtype: gl.constexpr = block[0].dtype
    if weights.dtype != dtype:
        weights = operand_of(weights, dtype, SIZE)
    PARTS: gl.constexpr = _widths(SIZE)
    added = ()
    for part in gl.static_range(sums_of(SIZE)):
        rows = _columns(block, _first(PARTS, part), _width(PARTS, part))
        added = added + (_add_columns(sums[part], weights, rows, use_acc),)
    return added


@gluon.jit
def _scaled(sum, factor):
    by_row: gl.constexpr = gl.SliceLayout(1, sum.type.layout)
    return sum * gl.convert_layout(factor, by_row, assert_trivial=True)[:, None]


@gluon.jit
def scaled(sums, factor):
    """Sums with each row times a factor."""
    found = ()
    for part in gl.static_range(len(sums)):
        found = found + (_scaled(sums[part], factor),)
    return found


@builtin
def under_way(product, _semantic=None):
    """A product that is not waited for yet, as a tensor."""
    return gl.tensor(product.handle, product.type.tensor_type)


@builtin
def wait_for(sums, pending=0, _semantic=None):
    """Sums of all parts, once at most this many later products are under way."""
    found = warpgroup_mma_wait(pending, deps=list(sums), _semantic=_semantic)
    return gl.tuple([found] if len(sums) == 1 else list(found))


@gluon.jit
def _store_columns(ptr, sum, count, column, SIZE: gl.constexpr):
    layout: gl.constexpr = sum.type.layout
    row = gl.arange(0, ROWS, gl.SliceLayout(1, layout))[:, None]
    columns = column + gl.arange(0, sum.shape[1], gl.SliceLayout(0, layout))[None, :]
    gl.store(ptr + row * SIZE + columns, sum, mask=(row < count) & (columns < SIZE))


@gluon.jit
def store_part(ptr, sums, factor, first, count, SIZE: gl.constexpr):
    """Store `count` rows of sums times a factor in memory, from row `first` on, SIZE numbers each.

    These are sums of a part of the query heads that share keys, which are added later.
    """
    PARTS: gl.constexpr = _widths(SIZE)
    for part in gl.static_range(sums_of(SIZE)):
        column = _first(PARTS, part)
        _store_columns(ptr + first * SIZE, sums[part] * factor, count, column, SIZE)


@gluon.jit
def store_sums(block, sums, factor, SIZE: gl.constexpr):
    """Store sums times a factor as the rows of a block."""
    PARTS: gl.constexpr = _widths(SIZE)
    for part in gl.static_range(sums_of(SIZE)):
        rows = _columns(block, _first(PARTS, part), _width(PARTS, part))
        rows.store((sums[part] * factor).to(block[0].dtype))
