"""float8 inputs on GPUs: values in the order in which Hopper's products read them."""

from __future__ import annotations

from typing import Final

import torch
from maskalg_kernels.float8_values import float8_values

from .triton_constants import power_of_two
from .triton_launch import Launch, variant_key

_WORDS: Final = 32  # of four keys, of a program: the most keys of a tile


def values_in_order(value: torch.Tensor) -> torch.Tensor:
    """`[batch, kv_heads, value_dim, keys]`, the keys padded with zeros to a multiple of 128.

    The dimension of values is a multiple of 4.
    """
    batch, heads, kv_len, dim = value.shape
    *strides, last = value.stride()
    if last != 1 or any(number % 4 for number in (*strides, value.data_ptr())):
        value = value.contiguous()
    words = -(-kv_len // (4 * _WORDS)) * _WORDS
    out = value.new_empty(batch, heads, dim, 4 * words)
    source, target = value.view(torch.int32), out.view(torch.int32)
    numbers = (heads, *source.stride()[:3])
    constants = {"VALUE_DIM": dim, "VALUE_PAD": power_of_two(dim), "WORDS": _WORDS, "num_warps": 4}

    def again() -> list[object]:
        return [source, target, kv_len, words, *numbers]

    variant = ("float8 values", dim, value.device)
    specialised = variant_key((source, target), numbers, (words,))
    programs = batch * heads * (words // _WORDS)
    Launch(
        float8_values, (programs, 1), (variant, specialised), lambda: (again(), constants), again
    ).run()
    return out
