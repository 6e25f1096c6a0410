"""Biases on the distance between query and key whose strength each head chooses or learns."""

from __future__ import annotations

import math
from functools import partial
from typing import Final

import numpy as np
import torch
from numpy.typing import ArrayLike

from ... import errors
from ...formula import nodes
from ...formula.entries import Entries
from ...formula.nodes import BATCH, HEAD, SCORE, TRUE, K, Node, Q
from ...formula.parameters import Table, plain_number, whole_number
from ...formula.printing import called
from ..algebra import Bias
from ..arguments import real_table
from ..by_hand import BATCH_SIZE, HEADS, WINDOWED, BiasRows, Floats, numbers, places

__all__ = ["alibi", "decay", "kerple_log", "kerple_power", "sandwich"]

_APART: Final = nodes.maximum(nodes.subtract(Q, K), nodes.subtract(K, Q))


def alibi(slopes: Entries) -> Bias:
    """s + slopes[head] * (k - q): distant keys before the query count less.

    Args:
        slopes: floating `[heads]` or `[batch, heads]`; receives a gradient when it requires one.

    Raises:
        TypeError: slopes that are no floating-point tensor.
        ValueError: slopes of another rank; at the call, of another number of heads.

    Source: Press, Smith, Lewis, "Train Short, Test Long" (2021).

    Examples:
        >>> causal & sliding(64) + alibi(torch.tensor([0.5, 0.25]))
        causal & sliding(64) + alibi(slopes[2])
    """
    if isinstance(plain_number(slopes), (int, float)):
        raise errors.MaskTypeError(
            f"alibi: slopes must be a floating-point tensor [heads], got {slopes!r}. Write "
            "alibi(2.0 ** (-8 / n * torch.arange(1, n + 1))) for the slopes of the paper for n "
            "heads."
        )
    table = real_table("alibi", "slopes", slopes, (1, 2), "[heads] or [batch, heads]")
    slope = nodes.read(table, *(BATCH, HEAD)[2 - table.tensor.ndim :])
    added = nodes.mul(slope, nodes.subtract(K, Q))
    return Bias(TRUE, nodes.add(SCORE, added), called("alibi", table))


def decay(log_rates: Entries) -> Bias:
    """s * exp(log_rates[head] * |q - k|): the retention's decay, for `weight=ma.linear`.

    Args:
        log_rates: floating `[heads]`, the natural log of each head's rate, below 0 for decay;
            receives a gradient when it requires one.

    Source: Sun et al., "Retentive Network" (2023).
    """
    table = real_table("decay", "log_rates", log_rates, (1,), "[heads]")
    exponent = nodes.mul(nodes.read(table, HEAD), _APART)
    faded = nodes.mul(SCORE, nodes.call("exp", exponent))
    return Bias(TRUE, faded, called("decay", table))


def kerple_log(r1: Entries, r2: Entries) -> Bias:
    """s - r1[head] * log(1 + r2[head] * |q - k|).

    Args:
        r1: floating `[heads]`, > 0.
        r2: floating `[heads]`, > 0. Both receive a gradient when they require one; keeping them
            positive is the model's task.

    Source: the logarithmic variant of KERPLE (Chi et al., 2022).
    """
    first, second = _shapes("kerple_log", r1, r2)
    grown = nodes.add(nodes.mul(nodes.read(second, HEAD), _APART), nodes.const(1.0))
    added = _scaled(first, nodes.call("log", grown))
    return Bias(TRUE, nodes.add(SCORE, added), called("kerple_log", first, second))


def kerple_power(r1: Entries, r2: Entries) -> Bias:
    """s - r1[head] * |q - k| ** r2[head].

    Args:
        r1: floating `[heads]`, > 0.
        r2: floating `[heads]`, in (0, 2]. Both receive a gradient when they require one; keeping
            them in range is the model's task.

    Source: the power variant of KERPLE (Chi et al., 2022).
    """
    first, second = _shapes("kerple_power", r1, r2)
    # log(0) would make the gradient of r2 NaN on the diagonal.
    apart = nodes.maximum(_APART, nodes.const(1.0))
    power = nodes.call("exp", nodes.mul(nodes.read(second, HEAD), nodes.call("log", apart)))
    bent = nodes.where(nodes.eq(Q, K), nodes.const(0.0), power)
    added = _scaled(first, bent)
    return Bias(TRUE, nodes.add(SCORE, added), called("kerple_power", first, second))


def _scaled(factor: Table, value: Node) -> Node:
    return nodes.negate(nodes.mul(nodes.read(factor, HEAD), value))


def _shapes(call: str, r1: Entries, r2: Entries) -> tuple[Table, Table]:
    tables = [real_table(call, name, r, (1,), "[heads]") for name, r in (("r1", r1), ("r2", r2))]
    first, second = (list(table.tensor.shape) for table in tables)
    if first != second:
        raise errors.tensor_shape(call, "r2", second, f"{first}, as r1")
    return tables[0], tables[1]


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
    call = f"sandwich(…, {length!r}, dim={dim!r})"
    table = real_table(call, "factors", factors, (1,), "[heads]")
    factors = table.tensor
    length, dim = plain_number(length), plain_number(dim)
    for name, value, low in (("length", length, 1), ("dim", dim, 2)):
        whole_number(call, name, value, low)
    if dim % 2:
        raise errors.MaskValueError(f"{call}: dim must be even, got {dim}.")
    distances = torch.arange(1 - length, length, dtype=torch.float64, device=factors.device)
    steps = torch.arange(1, dim // 2 + 1, dtype=torch.float64, device=factors.device)
    rates = 10000.0 ** (-2 * steps / dim)
    waves = sum((distances * rate).cos() for rate in rates)
    assert isinstance(waves, torch.Tensor)
    curve = Table("curve", waves)  # in float64, for calls in float64
    middle = nodes.floordiv(nodes.extent(curve, 0), nodes.const(2))
    place = nodes.add(nodes.subtract(Q, K), middle)
    added = nodes.mul(nodes.read(table, HEAD), nodes.read(curve, place))
    return Bias(TRUE, nodes.add(SCORE, added), called("sandwich", table, str(length)))


# The second definition, and the rows of the catalogue.


def alibi_by_hand(slopes: ArrayLike, **at: int) -> Floats:
    """`slopes[h] · (k − q)`; `slopes` is `[heads]` or `[batch, heads]`."""
    q, k = places(**at)
    m = np.atleast_2d(np.asarray(slopes, np.float64))
    return m[:, :, None, None] * (k - q)


def decay_by_hand(s: ArrayLike, log_rates: ArrayLike) -> Floats:
    """`s · exp(log_rates[h] · |q - k|)`, of scores `s` `[batch, heads, q_len, kv_len]`."""
    scores, rates = np.asarray(s, np.float64), np.asarray(log_rates, np.float64)
    q, k = places(*scores.shape[2:])
    return np.asarray(scores * np.exp(rates[:, None, None] * abs(q - k)))


def kerple_log_by_hand(r1: ArrayLike, r2: ArrayLike, **at: int) -> Floats:
    """`−r1[h] log(1 + r2[h] |q − k|)`."""
    a, b = np.asarray(r1, np.float64), np.asarray(r2, np.float64)
    return numbers(lambda _, h, q, k: -a[h] * math.log(1 + b[h] * abs(q - k)), 1, len(a), **at)


def kerple_power_by_hand(r1: ArrayLike, r2: ArrayLike, **at: int) -> Floats:
    """`−r1[h] |q − k|^r2[h]`."""
    a, b = np.asarray(r1, np.float64), np.asarray(r2, np.float64)
    return numbers(lambda _, h, q, k: -a[h] * abs(q - k) ** b[h], 1, len(a), **at)


def sandwich_by_hand(factors: ArrayLike, dim: int, **at: int) -> Floats:
    """`factors[h] Σ cos((q − k) / 10000^(2i/dim))` over i = 1 … dim/2."""
    values = np.asarray(factors, np.float64)

    def value(b: int, h: int, q: int, k: int) -> float:
        waves = [math.cos((q - k) / 10000 ** (2 * i / dim)) for i in range(1, dim // 2 + 1)]
        return float(values[h] * sum(waves))

    return numbers(value, 1, len(values), **at)


def rows() -> BiasRows:
    random = np.random.default_rng(1)
    slopes, of_entries = (
        random.uniform(0.2, 1.5, HEADS),
        random.uniform(0.2, 1.5, (BATCH_SIZE, HEADS)),
    )
    r1, r2, r3, r4 = np.random.default_rng(8).uniform(0.2, 1.5, (4, HEADS))
    factors = np.random.default_rng(7).uniform(0.2, 1.5, HEADS)
    return {
        "alibi": (alibi, alibi_by_hand, (slopes,)),
        "alibi of batch entries": (alibi, alibi_by_hand, (of_entries,)),
        "KERPLE, logarithmic": (kerple_log, kerple_log_by_hand, (r1, r2)),
        "KERPLE, power": (kerple_power, kerple_power_by_hand, (r3, r4)),
        "Sandwich": (
            partial(sandwich, length=WINDOWED, dim=8),
            partial(sandwich_by_hand, dim=8),
            (factors,),
        ),
    }
