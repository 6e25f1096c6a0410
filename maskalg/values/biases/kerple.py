"""Kernels of the distance, with a shape that each head learns."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from ... import errors
from ...formula import nodes
from ...formula.entries import Entries
from ...formula.nodes import HEAD, SCORE, TRUE, K, Node, Q
from ...formula.parameters import Table
from ...formula.printing import called
from ..algebra import Bias
from ..arguments import real_table
from ..by_hand import HEADS, BiasRows, Floats, numbers

__all__ = ["kerple_log", "kerple_power"]

DISTANCE = nodes.maximum(nodes.subtract(Q, K), nodes.subtract(K, Q))


def kerple_log(r1: Entries, r2: Entries) -> Bias:
    """s - r1[head] * log(1 + r2[head] * |q - k|).

    Args:
        r1: floating `[heads]`, > 0.
        r2: floating `[heads]`, > 0. Both receive a gradient when they require one; keeping them
            positive is the model's task.

    Source: the logarithmic variant of KERPLE (Chi et al., 2022).
    """
    first, second = _shapes("kerple_log", r1, r2)
    grown = nodes.add(nodes.mul(nodes.read(second, HEAD), DISTANCE), nodes.const(1.0))
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
    apart = nodes.maximum(DISTANCE, nodes.const(1.0))
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


# The second definition, and the rows of the catalogue.


def kerple_log_by_hand(r1: ArrayLike, r2: ArrayLike, **at: int) -> Floats:
    """`−r1[h] log(1 + r2[h] |q − k|)`."""
    a, b = np.asarray(r1, np.float64), np.asarray(r2, np.float64)
    return numbers(lambda _, h, q, k: -a[h] * math.log(1 + b[h] * abs(q - k)), 1, len(a), **at)


def kerple_power_by_hand(r1: ArrayLike, r2: ArrayLike, **at: int) -> Floats:
    """`−r1[h] |q − k|^r2[h]`."""
    a, b = np.asarray(r1, np.float64), np.asarray(r2, np.float64)
    return numbers(lambda _, h, q, k: -a[h] * abs(q - k) ** b[h], 1, len(a), **at)


def rows() -> BiasRows:
    r1, r2, r3, r4 = np.random.default_rng(8).uniform(0.2, 1.5, (4, HEADS))
    return {
        "KERPLE, logarithmic": (kerple_log, kerple_log_by_hand, (r1, r2)),
        "KERPLE, power": (kerple_power, kerple_power_by_hand, (r3, r4)),
    }
