"""Is a mask empty at every position? Proofs without lengths, for bound values or for all."""

from __future__ import annotations

from math import lcm
from typing import Final, cast

from ..engine.normal_form import Bound
from ..formula import nodes
from ..formula.nodes import Node
from ..formula.parameters import Slot
from ..proof.check.arithmetic import NotNegative
from ..proof.check.encoding import Encoder
from ..proof.check.refutation import refuted

# Remainders of both positions are told apart, so the largest period costs its square.
LONGEST_PERIOD: Final = 16


def never_kept(form: Bound, *, for_all: bool) -> bool:
    """True only if no pair of positions >= 0 is kept.

    Args:
        form: the mask; its bias is not looked at.
        for_all: whether the numbers are free within their declared bounds, and tensors in what
            they hold; otherwise numbers have the values bound to them.
    """
    mask = form.structure.mask
    if _refuted(mask, form, for_all):
        return True
    period = 1 if for_all else _period(mask, form)
    return 1 < period <= LONGEST_PERIOD and all(
        _refuted(_at_remainders(mask, period, of_q, of_k), form, for_all)
        for of_q in range(period)
        for of_k in range(period)
    )


def _refuted(mask: Node, form: Bound, for_all: bool) -> bool:
    encoder = Encoder(None if for_all else form.values)
    conditions = [encoder.condition(mask)]
    conditions += [NotNegative(encoder.term(index)) for index in (nodes.Q, nodes.K)]
    return refuted(encoder.complete(conditions))


def _period(mask: Node, form: Bound) -> int:
    """A common multiple of the numbers that positions are divided by."""
    period = 1
    for node in mask.walk():
        if node.op in ("floordiv", "mod") and node.args[0].indices() & {"q_idx", "kv_idx"}:
            divisor = node.args[1]
            if divisor.op == "scalar":
                period = lcm(period, cast(int, form.values[cast(Slot, divisor.own[0]).index]))
            elif divisor.op == "const":
                period = lcm(period, cast(int, divisor.data))
    return period


def _at_remainders(mask: Node, period: int, of_q: int, of_k: int) -> Node:
    """The mask at positions `period * q + of_q` and `period * k + of_k`."""
    moved = {
        index: nodes.add(nodes.mul(nodes.const(period), node), nodes.const(remainder))
        for index, node, remainder in (("q_idx", nodes.Q, of_q), ("kv_idx", nodes.K, of_k))
    }
    return nodes.substitute(
        mask, lambda node: moved.get(str(node.data)) if node.op == "index" else None
    )
