"""Learned biases on buckets of distances that grow with the distance."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch
from numpy.typing import ArrayLike

from ... import errors
from ...formula import nodes
from ...formula.entries import Entries
from ...formula.nodes import HEAD, SCORE, TRUE, K, Q
from ...formula.parameters import Constant, whole_number
from ...formula.printing import called
from ..algebra import Bias
from ..arguments import real_table
from ..by_hand import HEADS, BiasRows, Floats, numbers

__all__ = ["t5"]


def t5(table: Entries, *, bidirectional: bool = True, max_distance: int = 128) -> Bias:
    """s + table[bucket(k - q), head].

    With n buckets for a direction, distances d < n // 2 have a bucket each. Farther distances share
    buckets of equal width in log d; all distances from `max_distance` on share the last one. With
    `bidirectional` half of the buckets are for keys up to the query, half for keys after it;
    otherwise keys after the query count as distance 0.

    Args:
        table: floating `[buckets, heads]`, as T5's `relative_attention_bias.weight`; an even number
            of buckets, at least 4 with `bidirectional`, at least 2 without. Receives a gradient
            when it requires one.
        bidirectional: True for encoders, False for decoders.
        max_distance: distance from which on all share the last bucket; more than half of the
            buckets of a direction.

    Source: T5 (Raffel et al., 2020).
    """
    call = f"t5(…, bidirectional={bidirectional!r}, max_distance={max_distance!r})"
    entries = real_table(call, "table", table, (2,), "[buckets, heads]")
    weight = entries.tensor
    count = weight.shape[0] // 2 if bidirectional else weight.shape[0]
    if count < 2 or weight.shape[0] % 2:
        wanted = "[buckets, heads] with an even number of buckets, 4 or more when bidirectional"
        raise errors.tensor_shape(call, "table", list(weight.shape), wanted)
    whole_number(call, "max_distance", max_distance, count // 2 + 1)
    buckets = Constant.beside("buckets", _buckets(count, max_distance), weight)
    ahead = nodes.subtract(K, Q)
    zero, last = nodes.const(0), nodes.subtract(nodes.extent(buckets, 0), nodes.const(1))
    if not bidirectional:
        distance = nodes.maximum(nodes.subtract(Q, K), zero)
        bucket = nodes.read(buckets, nodes.minimum(distance, last))
    else:
        distance = nodes.maximum(nodes.subtract(Q, K), ahead)
        half = nodes.floordiv(nodes.extent(entries, 0), nodes.const(2))
        side = nodes.where(nodes.gt(ahead, zero), half, zero)
        bucket = nodes.add(nodes.read(buckets, nodes.minimum(distance, last)), side)
    added = nodes.read(entries, bucket, HEAD)
    printed = [] if bidirectional else ["bidirectional=False"]
    return Bias(TRUE, nodes.add(SCORE, added), called("t5", entries, *printed))


def _buckets(count: int, max_distance: int) -> torch.Tensor:
    """The bucket of each distance 0 … max_distance of one direction, int32.

    Computed in float32 and in the order of the original code, since rounding decides where a bucket
    ends.
    """
    exact = count // 2
    distances = torch.arange(max_distance + 1, device="cpu")
    growth = torch.log(distances.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    far = (exact + (growth * (count - exact)).to(torch.int64)).clamp(max=count - 1)
    return torch.where(distances < exact, distances, far).to(torch.int32)


# The second definition, and the rows of the catalogue.


def t5_bucket_by_hand(distance: int, buckets: int, bidirectional: bool, max_distance: int) -> int:
    """The bucket of a key `distance` after the query."""
    first = 0
    if bidirectional:
        buckets //= 2
        first = buckets if distance > 0 else 0
        away = abs(distance)
    else:
        away = max(-distance, 0)
    exact = buckets // 2
    if away < exact:
        return first + away
    growth = math.log(away / exact) / math.log(max_distance / exact)
    return first + min(exact + int(growth * (buckets - exact)), buckets - 1)


def t5_by_hand(table: ArrayLike, bidirectional: bool, max_distance: int, **at: int) -> Floats:
    """`table[bucket(k − q), h]`."""
    values = np.asarray(table, np.float64)
    return numbers(
        lambda b, h, q, k: values[
            t5_bucket_by_hand(k - q, len(values), bidirectional, max_distance), h
        ],
        1,
        values.shape[1],
        **at,
    )


def rows() -> BiasRows:
    random = np.random.default_rng(4)
    return {
        "T5 encoder": (
            partial(t5, max_distance=11),
            partial(t5_by_hand, bidirectional=True, max_distance=11),
            (random.normal(size=(12, HEADS)),),
        ),
        "T5 decoder": (
            partial(t5, bidirectional=False, max_distance=9),
            partial(t5_by_hand, bidirectional=False, max_distance=9),
            (random.normal(size=(8, HEADS)),),
        ),
    }
