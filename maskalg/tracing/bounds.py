"""Bounds of integer formulas while tracing: divisors, indices of tables.

Proofs and kernels divide by positive numbers only. A captured integer used as a divisor is declared
to be at least 1. Any other one is declared to be at least 0 if it is now. `bind` checks both.
"""

from __future__ import annotations

from typing import cast

import torch

from ..engine.evaluate import Environment, evaluate
from ..formula import nodes
from ..formula.nodes import Node
from ..formula.parameters import Parameter, Scalar, Slot, Table
from ..formula.positions import least
from ..formula.printing import formula_text
from ..formula.watched import watched
from . import messages


class Bounds:
    """Lower bounds of captured numbers, found as the trace needs them.

    Attributes:
        exact: whether real numbers are compared, as in a mask. Rounding them differently from
            torch would then keep other pairs.
        looked: whether a bound was read off the entries of a tensor or the value of a formula, and
            might not hold for other values. Signs of single numbers do not count.
    """

    def __init__(self, *, exact: bool) -> None:
        self.exact = exact
        self.looked = False
        self._lows: dict[int, int] = {}
        self._bounded: dict[int, Scalar] = {}

    def divisor(self, node: Node) -> Node:
        """`node` as a divisor that is known to be positive.

        Raises:
            ValueError: it is 0 or negative, or nothing shows that it is positive.
        """
        for scalar in _factors(node):
            if scalar.value < 1:
                raise messages.traced_divisor(formula_text(node), int(scalar.value))
            self._lows[id(scalar)] = 1
        if (low := self.low(node)) is not None and low >= 1:
            # The entries of a table are positive now; the maximum keeps later ones positive.
            tables = "read" in node.ops()
            return nodes.maximum(node, nodes.const(1)) if tables else node
        if not node.indices():
            self.looked = True
            value = _value(node)
            if value >= 1:
                return nodes.maximum(node, nodes.const(1))
            raise messages.traced_divisor(formula_text(node), value)
        raise messages.traced_divisor(formula_text(node), None)

    def never_negative(self, index: Node) -> bool:
        """Whether an index of a table is 0 or more at all positions."""
        low = self.low(index)
        return low is not None and low >= 0

    def check_place(self, table: Table, axis: int, index: Node) -> None:
        """Refuse entries of one tensor that are places outside of another.

        Raises:
            ValueError: an entry that is no place of `table` along `axis`.
        """
        if index.op != "read" or not (entries := cast(Table, index.own[0]).tensor).numel():
            return
        self.looked = True
        size = table.tensor.shape[axis]
        for entry in (int(entries.min()), int(entries.max())):
            if not -size <= entry < size:
                shape = tuple(table.tensor.shape)
                raise messages.traced_place(table.name, shape, formula_text(index), entry)

    def check_exact(self, table: Table) -> None:
        """Refuse float64 entries of a mask that float32, in which masks compare, does not hold.

        Raises:
            ValueError: an entry that float32 rounds.
        """
        if self.exact and rounds(table.tensor):
            raise messages.traced_float64(table.name)

    def low(self, node: Node) -> int | None:
        """A lower bound of an integer formula, or None."""
        return least(node, self._known)

    def _known(self, leaf: Node) -> int | None:
        if leaf.op == "scalar":
            return self._low(cast(Scalar, leaf.own[0]))
        self.looked = True
        return _smallest(leaf)

    def declared(self, node: Node) -> Node:
        """The formula, with the lower bounds that were found declared for its captured numbers."""
        return nodes.with_parameters(node, self.declared_parameter)

    def _low(self, scalar: Scalar) -> int | None:
        if scalar.kind != "int":
            return None
        return self._lows.get(id(scalar), 0 if scalar.value >= 0 else None)

    def declared_parameter(self, parameter: Parameter) -> Parameter:
        """A captured number with its lower bound; the same one every time."""
        if not isinstance(parameter, Scalar):
            return parameter
        low = self._low(parameter)
        if low is None:
            return parameter
        if id(parameter) not in self._bounded:
            self._bounded[id(parameter)] = Scalar(parameter.name, parameter.value, low)
        return self._bounded[id(parameter)]


def rounds_on_host(entries: torch.Tensor) -> bool:
    """As `rounds`, for tensors on the CPU alone: no device is waited for."""
    return entries.device.type == "cpu" and rounds(entries)


def rounds(entries: torch.Tensor) -> bool:
    """Whether float32 rounds a float64 entry; False where entries have no values to look at."""
    if entries.dtype != torch.float64 or entries.device.type == "meta" or watched(entries):
        return False
    entries = entries.detach()
    return bool(((entries.float().double() != entries) & ~entries.isnan()).any())


def _factors(node: Node) -> list[Scalar]:
    """The captured numbers of a product."""
    if node.op == "scalar" and isinstance(node.own[0], Scalar):
        return [node.own[0]]
    return [s for arg in node.args for s in _factors(arg)] if node.op == "mul" else []


def _smallest(read: Node) -> int | None:
    """The smallest entry of the table of a read, if it is an integer table with entries."""
    table = read.own[0]
    assert isinstance(table, Table)
    if table.kind != "int" or not table.tensor.numel():
        return None
    return int(table.tensor.min())


def _value(node: Node) -> int:
    """The value of a formula of captured numbers, and of entries at such places, alone."""
    own = cast("tuple[Scalar | Table, ...]", node.params)
    slots = {id(p): Slot(i, p.name, p) for i, p in enumerate(own)}
    values = [p.value if isinstance(p, Scalar) else p.tensor for p in own]
    formula = nodes.with_parameters(node, lambda p: slots[id(p)])
    tables = [p.tensor for p in own if isinstance(p, Table)]
    device = tables[0].device if tables else None
    indices = {"q_idx": torch.zeros((), dtype=torch.int64, device=device)}
    return int(evaluate(formula, Environment(indices, tuple(values))))
