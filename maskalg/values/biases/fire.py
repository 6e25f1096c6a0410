"""A small network on the relative distance of a key."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ... import errors
from ...formula import nodes
from ...formula.entries import Entries
from ...formula.nodes import HEAD, SCORE, TRUE, K, Node, Q
from ...formula.printing import called
from ..algebra import Bias
from ..arguments import real_table
from ..by_hand import HEADS, BiasRows, Floats, numbers

__all__ = ["FireParameters", "fire"]


@dataclass(frozen=True)
class FireParameters:
    """Learned tensors of FIRE; each is floating and receives a gradient when it requires one.

    Attributes:
        w1: `[hidden]`, the first layer's weight.
        b1: `[hidden]`, its offset.
        w2: `[heads, hidden]`, the second layer's weight.
        b2: `[heads]`, its offset.
        c: `[1]`, > 0: how fast the logarithm grows.
        threshold: `[1]`, > 0: queries before it are treated as if they stood there.
    """

    w1: Entries
    b1: Entries
    w2: Entries
    b2: Entries
    c: Entries
    threshold: Entries


def fire(parameters: FireParameters) -> Bias:
    """s + f(log(1 + c * d) / log(1 + c * max(threshold, q)))[head] with d = max(q - k, 0).

    f(x) = w2 relu(w1 x + b1) + b2 is a network with one hidden layer, written out term by term: the
    formula grows with the number of hidden units (32 in the paper).

    Args:
        parameters: the six tensors, see `FireParameters`.

    Source: FIRE (Li et al., 2023).
    """
    call = "fire"
    if not isinstance(parameters, FireParameters):
        raise errors.MaskTypeError(
            f"fire: parameters must be FireParameters, got {type(parameters).__name__}. Write "
            "fire(ma.FireParameters(w1, b1, w2, b2, c, threshold))."
        )
    shapes = {
        "w1": "[hidden]",
        "b1": "[hidden]",
        "w2": "[heads, hidden]",
        "b2": "[heads]",
        "c": "[1]",
        "threshold": "[1]",
    }
    tables = {
        name: real_table(call, name, getattr(parameters, name), (wanted.count(",") + 1,), wanted)
        for name, wanted in shapes.items()
    }
    hidden, heads = len(tables["w1"].tensor), len(tables["w2"].tensor)
    for name, wanted in shapes.items():
        shape = list(tables[name].tensor.shape)
        if shape[-1] != {"c": 1, "threshold": 1, "b2": heads}.get(name, hidden):
            raise errors.tensor_shape(call, name, shape, wanted)
    zero = nodes.const(0)
    c, threshold = (nodes.read(tables[name], zero) for name in ("c", "threshold"))
    behind = nodes.maximum(nodes.subtract(Q, K), zero)
    x = nodes.divide(_grown(c, behind), _grown(c, nodes.maximum(threshold, Q)))
    terms = [nodes.read(tables["b2"], HEAD)]
    for unit in range(hidden):
        place = nodes.const(unit)
        inside = nodes.add(
            nodes.mul(nodes.read(tables["w1"], place), x), nodes.read(tables["b1"], place)
        )
        active = nodes.maximum(inside, nodes.const(0.0))
        terms.append(nodes.mul(nodes.read(tables["w2"], HEAD, place), active))
    return Bias(TRUE, nodes.add(SCORE, *terms), called(call, *tables.values()))


def _grown(c: Node, distance: Node) -> Node:
    return nodes.call("log", nodes.add(nodes.mul(c, distance), nodes.const(1.0)))


# The second definition, and the rows of the catalogue.


def fire_by_hand(
    w1: Floats, b1: Floats, w2: Floats, b2: Floats, c: Floats, threshold: Floats, **at: int
) -> Floats:
    """A network of one hidden layer on `ψ(q − k) / ψ(max(threshold, q))`, ψ(x) = log(cx + 1).

    Keys after the query count as 0.
    """

    def value(b: int, h: int, q: int, k: int) -> float:
        x = math.log(c[0] * max(q - k, 0) + 1) / math.log(c[0] * max(threshold[0], q) + 1)
        return float(w2[h] @ np.maximum(w1 * x + b1, 0) + b2[h])

    return numbers(value, 1, len(b2), **at)


def rows() -> BiasRows:
    random, hidden = np.random.default_rng(9), 5
    tables = (
        random.normal(size=hidden),
        random.normal(size=hidden),
        random.normal(size=(HEADS, hidden)),
        random.normal(size=HEADS),
        random.uniform(0.2, 1.5, 1),
        random.uniform(0.9, 6.75, 1),
    )
    return {"FIRE": (lambda *given: fire(FireParameters(*given)), fire_by_hand, tables)}
