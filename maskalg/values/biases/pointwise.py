"""Biases given as tensors: one number for each key, or for each pair."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ...errors import MaskValueError
from ...formula import nodes
from ...formula.entries import Entries
from ...formula.nodes import BATCH, HEAD, SCORE, TRUE, K
from ...formula.printing import called
from ..algebra import Bias
from ..arguments import at_pair, real_table
from ..by_hand import BATCH_SIZE, HEADS, WINDOWED, BiasRow, BiasRows, Floats, entry, numbers, padded

__all__ = ["key_bias", "dense_bias"]


def key_bias(tensor: Entries) -> Bias:
    """s + tensor[batch, head, k]: the same number for a key at every query.

    Args:
        tensor: floating `[length]` or `[batch, heads, length]`; batch and heads of size 1 are
            broadcast. Receives a gradient when it requires one.

    Raises:
        TypeError: a tensor that is not floating-point.
        ValueError: a tensor of another rank. Two dimensions are refused, since they may mean
            `[batch, length]` or `[heads, length]`: add the missing dimension, of size 1.
    """
    shapes = "[length] or [batch, heads, length]"
    table = real_table("key_bias", "tensor", tensor, (1, 2, 3), shapes)
    shape = table.tensor.shape
    if len(shape) == 2:
        raise MaskValueError(
            f"key_bias: tensor of shape {list(shape)} may be [batch, length] or [heads, length]. "
            "Write tensor[:, None] for the former, tensor[None] for the latter."
        )
    added = nodes.read(table, *[BATCH, HEAD, K][-len(shape) :])
    return Bias(TRUE, nodes.add(SCORE, added), called("key_bias", table))


def dense_bias(tensor: Entries) -> Bias:
    """s + tensor[batch, head, q, k]: a bias written out for every pair.

    Args:
        tensor: floating `[q, k]`, `[heads, q, k]` or `[batch, heads, q, k]`; dimensions of size 1
            are broadcast. Receives a gradient when it requires one.

    Source: `attn_mask` of torch's `scaled_dot_product_attention`; pair biases of AlphaFold (Jumper
    et al., 2021), edge biases of Graphormer (Ying et al., 2021).
    """
    shapes = "[q, k], [heads, q, k] or [batch, heads, q, k]"
    table = real_table("dense_bias", "tensor", tensor, (2, 3, 4), shapes)
    return Bias(TRUE, nodes.add(SCORE, at_pair(table)), called("dense_bias", table))


# The second definition, and the rows of the catalogue.


def key_bias_by_hand(tensor: ArrayLike, **at: int) -> Floats:
    """`tensor[b, h, k]`."""
    values = padded(tensor, 3)
    return numbers(lambda b, h, q, k: entry(values, b, h, k), *values.shape[:2], **at)


def dense_bias_by_hand(tensor: ArrayLike, **at: int) -> Floats:
    """`tensor[b, h, q, k]`."""
    values = padded(tensor, 4)
    return numbers(lambda b, h, q, k: entry(values, b, h, q, k), *values.shape[:2], **at)


def rows() -> BiasRows:
    def keys(*shape: int) -> BiasRow:
        return key_bias, key_bias_by_hand, (random.normal(size=shape),)

    def pairs(*shape: int) -> BiasRow:
        return dense_bias, dense_bias_by_hand, (random.normal(size=shape),)

    random = np.random.default_rng(6)
    return {
        "bias of keys": keys(WINDOWED),
        "bias of keys per batch": keys(BATCH_SIZE, 1, WINDOWED),
        "bias of pairs": pairs(BATCH_SIZE, HEADS, WINDOWED, WINDOWED),
        "bias of pairs per head": pairs(HEADS, WINDOWED, WINDOWED),
        "bias of queries": pairs(HEADS, WINDOWED, 1),
    }
