"""Learned biases on the distance of two cells of an image."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from numpy.typing import ArrayLike

from ... import errors
from ...formula import nodes
from ...formula.entries import Entries
from ...formula.nodes import BATCH, HEAD, SCORE, TRUE, K, Q
from ...formula.parameters import Constant, whole_number
from ...formula.printing import called
from ..algebra import Bias
from ..arguments import real_table, shown
from ..by_hand import BATCH_SIZE, HEADS, WINDOW, WINDOWED, BiasRows, Floats, entry, numbers

__all__ = ["relative_2d", "decomposed"]


def relative_2d(table: Entries, window: tuple[int, int]) -> Bias:
    """s + table[(y_q - y_k + H - 1) * (2 W - 1) + x_q - x_k + W - 1, head] in a window of H x W.

    Token i stands at y = i // W, x = i mod W; the sequence is one window of H * W tokens. Several
    windows of n = H * W tokens, one after the other, are
    `chunked(n) + relative_2d(table, (H, W)).at(q=q_idx % n, kv=kv_idx % n)`.

    Args:
        table: floating `[(2 H - 1) * (2 W - 1), heads]`, as Swin's `relative_position_bias_table`.
            Receives a gradient when it requires one.
        window: (H, W), both >= 1.

    Source: Swin Transformer (Liu et al., 2021).
    """
    call = f"relative_2d(…, window={shown(window)})"
    if not isinstance(window, tuple) or len(window) != 2:
        raise errors.tensor_dtype(call, "window", repr(window), "a pair (height, width)")
    for name, length in zip(("height", "width"), window, strict=True):
        whole_number(call, name, length, 1)
    entries = real_table(call, "table", table, (2,), "[(2 H - 1) * (2 W - 1), heads]")
    height, width = window
    count = (2 * height - 1) * (2 * width - 1)
    if entries.tensor.shape[0] != count:
        raise errors.MaskValueError(
            f"{call}: a window of {window} has {count} relative places, but table has "
            f"{entries.tensor.shape[0]} entries along dimension 0."
        )
    tokens = torch.arange(height * width, dtype=torch.int32, device="cpu")
    # The difference of two tokens' places is one of the relative places.
    places = tokens // width * (2 * width - 1) + tokens % width
    of_token = Constant.beside("places", places, entries.tensor)
    last = nodes.read(of_token, nodes.subtract(nodes.extent(of_token, 0), nodes.const(1)))
    place = nodes.add(nodes.read(of_token, Q), last, nodes.negate(nodes.read(of_token, K)))
    added = nodes.read(entries, place, HEAD)
    return Bias(TRUE, nodes.add(SCORE, added), called("relative_2d", entries, shown(window)))


def decomposed(rel_h: Entries, rel_w: Entries) -> Bias:
    """s + rel_h[batch, head, q, y_k] + rel_w[batch, head, q, x_k] on keys in W columns.

    Key k stands at y = k // W, x = k mod W. The tensors are scores of queries with rows and with
    columns: `rel_h = einsum("bhqd,qyd->bhqy", query, rows)` and `rel_w` alike.

    Args:
        rel_h: floating `[batch, heads, queries, H]`.
        rel_w: floating `[batch, heads, queries, W]`. Both receive a gradient when they require one,
            and batch and heads of size 1 are broadcast.

    Source: MViTv2 (Li et al., 2022); Segment Anything (Kirillov et al., 2023).
    """
    of_rows = real_table("decomposed", "rel_h", rel_h, (4,), "[batch, heads, queries, H]")
    of_columns = real_table("decomposed", "rel_w", rel_w, (4,), "[batch, heads, queries, W]")
    rel_h, rel_w = of_rows.tensor, of_columns.tensor
    if rel_h.shape[:3] != rel_w.shape[:3]:
        wanted = f"{list(rel_h.shape[:3])} and W, as rel_h has"
        raise errors.tensor_shape("decomposed", "rel_w", list(rel_w.shape), wanted)
    if rel_w.shape[3] < 1:
        raise errors.tensor_shape("decomposed", "rel_w", list(rel_w.shape), "[…, W] with W >= 1")
    width = nodes.extent(of_columns, 3)
    added = (
        nodes.read(of_rows, BATCH, HEAD, Q, nodes.floordiv(K, width)),
        nodes.read(of_columns, BATCH, HEAD, Q, nodes.mod(K, width)),
    )
    return Bias(TRUE, nodes.add(SCORE, *added), called("decomposed", of_rows, of_columns))


# The second definition, and the rows of the catalogue.


def relative_2d_by_hand(table: ArrayLike, window: tuple[int, int], **at: int) -> Floats:
    """`table[(Δy + H − 1)(2W − 1) + Δx + W − 1, h]` with Δ from key to query."""
    values, (height, width) = np.asarray(table, np.float64), window

    def value(b: int, h: int, q: int, k: int) -> float:
        (y_q, x_q), (y_k, x_k) = divmod(q, width), divmod(k, width)
        place = (y_q - y_k + height - 1) * (2 * width - 1) + x_q - x_k + width - 1
        return float(values[place, h])

    return numbers(value, 1, values.shape[1], **at)


def decomposed_by_hand(rel_h: ArrayLike, rel_w: ArrayLike, **at: int) -> Floats:
    """`rel_h[b, h, q, k // W] + rel_w[b, h, q, k mod W]`."""
    rows, columns = np.asarray(rel_h, np.float64), np.asarray(rel_w, np.float64)
    width = columns.shape[3]
    return numbers(
        lambda b, h, q, k: entry(rows, b, h, q, k // width) + entry(columns, b, h, q, k % width),
        *rows.shape[:2],
        **at,
    )


def rows() -> BiasRows:
    random = np.random.default_rng(3)
    by_row, by_column = (random.normal(size=(BATCH_SIZE, HEADS, WINDOWED, side)) for side in WINDOW)
    return {
        "relative in a window": (
            partial(relative_2d, window=WINDOW),
            partial(relative_2d_by_hand, window=WINDOW),
            (random.normal(size=(45, HEADS)),),
        ),
        "decomposed": (decomposed, decomposed_by_hand, (by_row, by_column)),
    }
