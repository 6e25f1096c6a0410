"""A small network on the relative distance of a key."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .. import errors, nodes
from ..algebra import Bias
from ..nodes import HEAD, SCORE, TRUE, K, Node, Q
from ..parameters import Table
from ..printing import called
from .arguments import real_table


@dataclass(frozen=True)
class FireParameters:
    """What FIRE learns; each tensor is floating and receives a gradient when it requires one.

    Attributes:
        w1: `[hidden]`, the first layer's weight.
        b1: `[hidden]`, its offset.
        w2: `[heads, hidden]`, the second layer's weight.
        b2: `[heads]`, its offset.
        c: `[1]`, > 0: how fast the logarithm grows.
        threshold: `[1]`, > 0: queries before it are treated as if they stood there.
    """

    w1: torch.Tensor
    b1: torch.Tensor
    w2: torch.Tensor
    b2: torch.Tensor
    c: torch.Tensor
    threshold: torch.Tensor


def fire(parameters: FireParameters) -> Bias:
    """s + f(log(1 + c * d) / log(1 + c * max(threshold, q)))[head] with d = max(q - k, 0).

    f(x) = w2 relu(w1 x + b1) + b2 is a network with one hidden layer, written out term by term: the
    formula grows with the number of hidden units (32 in the paper).

    Args:
        parameters: the six tensors, see `FireParameters`.

    Source: FIRE (Li et al., 2023).
    """
    call = "fire"
    shapes = {
        "w1": "[hidden]",
        "b1": "[hidden]",
        "w2": "[heads, hidden]",
        "b2": "[heads]",
        "c": "[1]",
        "threshold": "[1]",
    }
    hidden = parameters.w1.shape[0] if parameters.w1.ndim == 1 else -1
    tables: dict[str, Table] = {}
    for name, wanted in shapes.items():
        tensor: torch.Tensor = getattr(parameters, name)
        tables[name] = real_table(call, name, tensor, (wanted.count(",") + 1,), wanted)
        size = {"c": 1, "threshold": 1, "b2": parameters.w2.shape[0]}.get(name, hidden)
        if tensor.shape[-1] != size:
            raise errors.tensor_shape(call, name, list(tensor.shape), wanted)
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
