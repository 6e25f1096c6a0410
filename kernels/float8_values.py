"""Values of float8 in the order in which Hopper's products read them.

A product of float8 reads the keys of a dimension side by side in memory; values come with the
dimensions of a key side by side. In a group of 16 keys each thread of a product has weights of the
keys 2t, 2t + 1, 2t + 8 and 2t + 9, and wants the values of 4t to 4t + 3.
"""

import triton
import triton.language as tl


@triton.jit
def _byte(words, j: tl.constexpr):
    return (words >> (8 * j)) & 255


@triton.jit(do_not_specialize=["kv_len", "words"])
def float8_values(
    v_ptr,
    out_ptr,
    kv_len,
    words,
    kv_heads,
    stride_b,
    stride_h,
    stride_n,
    VALUE_DIM: tl.constexpr,
    VALUE_PAD: tl.constexpr,
    WORDS: tl.constexpr,
):
    """out `[batch * kv_heads, VALUE_DIM, 4 words]`, from v `[batch, kv_heads, kv_len, VALUE_DIM]`.

    Both are read as words of four bytes, of four dimensions of a key or four keys of a dimension,
    in which strides are counted too. A program moves WORDS words of keys of one head; keys past the
    length are zeros.
    """
    v_ptr = v_ptr.to(tl.pointer_type(tl.int32), bitcast=True)
    out_ptr = out_ptr.to(tl.pointer_type(tl.int32), bitcast=True)
    blocks = words // WORDS
    batch_head = tl.program_id(0) // blocks
    word = tl.program_id(0) % blocks * WORDS + tl.arange(0, WORDS)
    key = (word // 4 * 16 + word % 4 * 2)[:, None]
    d = tl.arange(0, VALUE_PAD // 4)[None, :]
    base = v_ptr + (batch_head // kv_heads).to(tl.int64) * stride_b
    base += (batch_head % kv_heads).to(tl.int64) * stride_h
    at = base + key.to(tl.int64) * stride_n + d
    inside = d < VALUE_DIM // 4
    first = tl.load(at, mask=inside & (key < kv_len), other=0)
    second = tl.load(at + stride_n, mask=inside & (key + 1 < kv_len), other=0)
    third = tl.load(at + 8 * stride_n, mask=inside & (key + 8 < kv_len), other=0)
    fourth = tl.load(at + 9 * stride_n, mask=inside & (key + 9 < kv_len), other=0)
    out = out_ptr + batch_head.to(tl.int64) * VALUE_DIM * words + word[:, None]
    for j in tl.static_range(4):
        low = _byte(first, j) | (_byte(second, j) << 8)
        high = (_byte(third, j) << 16) | (_byte(fourth, j) << 24)
        tl.store(out + (4 * d + j) * words, low | high, mask=inside)
