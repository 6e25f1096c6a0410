"""float8 inputs on GPUs: values in the order in which Hopper's products read them."""

from __future__ import annotations

from typing import Final

import torch
from maskalg_kernels.float8_values import float8_values

from .triton_constants import power_of_two
from .triton_launch import Launch, variant_key

_WORDS: Final = 32  # of four keys, of a program: the most keys of a tile


def values_in_order(value: torch.Tensor) -> tuple[torch.Tensor, Launch]:
    """`[batch, kv_heads, value_dim, keys]`, the keys padded with zeros to a multiple of 128.

    And what fills it. The dimension of values is a multiple of 4.
    """
    batch, heads, kv_len, dim = value.shape
    along_batch, along_heads, along_keys, last = value.stride()
    # In one number, whether all of them are whole words of four bytes.
    if last != 1 or (along_batch | along_heads | along_keys | value.data_ptr()) & 3:
        # What is contiguous may have other strides, where there is but one of an axis.
        value = value.new_empty(value.shape).copy_(value)
        along_batch, along_heads, along_keys, _ = value.stride()
    words = -(-kv_len // (4 * _WORDS)) * _WORDS
    out = value.new_empty((batch, heads, dim, 4 * words))
    numbers = (heads, along_batch // 4, along_heads // 4, along_keys // 4)

    def again() -> list[object]:
        return [value, out, kv_len, words, *numbers]

    def first() -> tuple[list[object], dict[str, object]]:
        pad = power_of_two(dim)
        return again(), {"VALUE_DIM": dim, "VALUE_PAD": pad, "WORDS": _WORDS, "num_warps": 4}

    key = ("float8 values", dim, value.device, variant_key((value, out), numbers, (words,)))
    programs = (batch * heads * (words // _WORDS), 1)
    return out, Launch(float8_values, programs, key, first, again, made=(out,))
