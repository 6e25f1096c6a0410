"""The inner product of sinusoidal positions as a bias."""

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
from ...formula.parameters import Constant, plain_number, whole_number
from ...formula.printing import called
from ..algebra import Bias
from ..arguments import real_table, shown
from ..by_hand import HEADS, WINDOWED, BiasRows, Floats, numbers

__all__ = ["sandwich"]


def sandwich(factors: Entries, length: int, *, dim: int = 128) -> Bias:
    """s + factors[head] * sum over i = 1 … dim / 2 of cos((q - k) / 10000^(2 i / dim)).

    The sum is written out once, for all distances below `length`.

    Args:
        factors: floating `[heads]`; H / (8 h) for head h = 1 … H is the paper's compression.
            Receives a gradient when it requires one.
        length: the most positions of a call, >= 1: distances reach `length - 1`.
        dim: number of sines and cosines, even, >= 2.

    Source: Sandwich (Chi et al., 2022).
    """
    call = f"sandwich(…, {shown(length)}, dim={shown(dim)})"
    table = real_table(call, "factors", factors, (1,), "[heads]")
    factors = table.tensor
    length, dim = plain_number(length), plain_number(dim)
    for name, value, low in (("length", length, 1), ("dim", dim, 2)):
        whole_number(call, name, value, low)
    if dim % 2:
        raise errors.MaskValueError(f"{call}: dim must be even, got {dim}.")
    place = "cpu" if factors.is_meta else factors.device
    distances = torch.arange(1 - length, length, dtype=torch.float64, device=place)
    steps = torch.arange(1, dim // 2 + 1, dtype=torch.float64, device=place)
    rates = 10000.0 ** (-2 * steps / dim)
    waves = sum((distances * rate).cos() for rate in rates)
    assert isinstance(waves, torch.Tensor)
    curve = Constant.beside("curve", waves, factors)  # in float64, for calls in float64
    middle = nodes.floordiv(nodes.extent(curve, 0), nodes.const(2))
    away = nodes.add(nodes.subtract(Q, K), middle)
    added = nodes.mul(nodes.read(table, HEAD), nodes.read(curve, away))
    return Bias(TRUE, nodes.add(SCORE, added), called("sandwich", table, shown(length)))


# The second definition, and the rows of the catalogue.


def sandwich_by_hand(factors: ArrayLike, dim: int, **at: int) -> Floats:
    """`factors[h] Σ cos((q − k) / 10000^(2i/dim))` over i = 1 … dim/2."""
    values = np.asarray(factors, np.float64)

    def value(b: int, h: int, q: int, k: int) -> float:
        waves = [math.cos((q - k) / 10000 ** (2 * i / dim)) for i in range(1, dim // 2 + 1)]
        return float(values[h] * sum(waves))

    return numbers(value, 1, len(values), **at)


def rows() -> BiasRows:
    factors = np.random.default_rng(7).uniform(0.2, 1.5, HEADS)
    return {
        "Sandwich": (
            partial(sandwich, length=WINDOWED, dim=8),
            partial(sandwich_by_hand, dim=8),
            (factors,),
        )
    }
