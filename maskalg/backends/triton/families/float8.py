"""float8 inputs on GPUs: values in the order in which Hopper's products read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from maskalg_kernels.float8_values import float8_values

from ...call import Call
from ..constants import power_of_two
from ..launching.launch import Launch, Sizes

_WORDS: Final = 32  # of four keys, of a program: the most keys of a tile


def values_in_order(value: torch.Tensor) -> tuple[torch.Tensor, Launch]:
    """`[batch, kv_heads, value_dim, keys]`, the keys padded with zeros to a multiple of 128.

    And what fills it. The dimension of values is a multiple of 4.
    """
    dim = value.shape[-1]
    if not in_words(value):
        # What is contiguous may have other strides, where there is but one of an axis.
        value = value.new_empty(value.shape).copy_(value)
    sizes = _sizes_of(value.shape, value.stride()[:3])
    out = value.new_empty(sizes.made[0])

    def constants() -> dict[str, Any]:
        pad = power_of_two(dim)
        return {"VALUE_DIM": dim, "VALUE_PAD": pad, "WORDS": _WORDS, "num_warps": 4}

    return out, Launch(
        float8_values,
        ("float8 values", dim, value.device),
        [value, out],
        sizes,
        constants,
        _sizes,
        strided=(value,),
        made=(out,),
    )


def in_words(value: torch.Tensor) -> bool:
    """Whether keys lie in whole words of four bytes, as the kernel reads them."""
    along_batch, along_heads, along_keys, last = value.stride()
    return last == 1 and (along_batch | along_heads | along_keys | value.data_ptr()) & 3 == 0


def _sizes(call: Call, strides: list[int]) -> Sizes:
    return _sizes_of(call.value.shape, strides[:3])


def _sizes_of(shape: torch.Size, along: Sequence[int]) -> Sizes:
    batch, heads, kv_len, dim = shape
    words = -(-kv_len // (4 * _WORDS)) * _WORDS
    specialised = (heads, *[stride // 4 for stride in along])
    programs = batch * heads * (words // _WORDS)
    made = ((batch, heads, dim, 4 * words),)
    return Sizes(programs, (kv_len, words, *specialised), specialised, made)
