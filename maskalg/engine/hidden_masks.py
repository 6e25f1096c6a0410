"""Biases that drop pairs by very negative numbers, which no proof sees."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, cast

from ..formula.nodes import Node
from ..formula.parameters import Slot
from .normal_form import Bound

# Of the numbers that are written for -inf: -1e4, the least of float16, -1e9, the least of others.
_LEAST: Final = -1e4


def hidden(form: Bound) -> str:
    """A remark of `explain` where a bias is -inf, or nearly so, under a condition."""
    found = min(_amounts(form), default=0.0)
    if found > _LEAST:
        return ""
    amount = "-inf" if found == -math.inf else f"{found:.4g}"
    return f"; it holds {amount} under a condition, which skips no tile: write mask + bias"


def _amounts(form: Bound) -> Iterator[float]:
    """Numbers that a choice adds, or that a truth value or an entry is multiplied by."""
    for node in form.structure.bias.walk():
        if node.op in ("where", "mul"):
            product = node.op == "mul"
            for part in node.args if product else node.args[1:]:
                # (1 - x) * -1e9 is -1e9 + 1e9 * x here.
                yield from (-abs(n) if product else n for n in _number(part, form))


def _number(node: Node, form: Bound) -> Iterator[float]:
    if node.op == "const":
        yield float(cast(float, node.data))
    if node.op == "scalar":
        slot = node.own[0]
        assert isinstance(slot, Slot)
        yield float(cast(float, form.values[slot.index]))
