"""How two masks relate: what only one of them keeps, each way.

Is a mask empty at every position? Proofs without lengths, for bound values or for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import Final, cast

import torch

from ..engine.extents import Extents, Lengths
from ..engine.normal_form import Bound, bound
from ..formula import nodes
from ..formula.expression import Expression, both, complement, with_formula
from ..formula.laws import NotNegative
from ..formula.nodes import Node
from ..formula.parameters import Slot, Table
from ..formula.positions import moved
from ..formula.separation import positions
from ..proof.check.encoding import Encoder
from ..proof.check.refutation import refuted
from .domain import Reach, counted, extents_of, reach, sharing
from .search import Place, Search, kept_near, search, search_near

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
        if node.op in ("floordiv", "mod") and positions(node.args[0]):
            divisor = node.args[1]
            if divisor.op == "scalar":
                period = lcm(period, cast(int, form.values[cast(Slot, divisor.own[0]).index]))
            elif divisor.op == "const":
                period = lcm(period, cast(int, divisor.data))
    return period


def _at_remainders(mask: Node, period: int, of_q: int, of_k: int) -> Node:
    """The mask at positions `period * q + of_q` and `period * k + of_k`."""
    places = {
        index: nodes.add(nodes.mul(nodes.const(period), node), nodes.const(remainder))
        for index, node, remainder in (("q_idx", nodes.Q, of_q), ("kv_idx", nodes.K, of_k))
    }
    return moved(mask, places)


_SPREAD: Final = 1024
_ELEMENTS: Final = 1 << 24
_LONGEST: Final = 1 << 20  # positions looked at where no length is given
_CHANGES: Final = 128  # entries at which two tensors differ, whose positions are looked at


@dataclass(frozen=True)
class Side:
    """The pairs that one mask keeps and the other does not.

    Attributes:
        mask: those pairs.
        empty: whether there are none; None where that was not found out.
        place: one of them, where one was found.
    """

    mask: Expression
    empty: bool | None
    place: Place | None


@dataclass(frozen=True)
class Comparison:
    """The pairs that only `a` keeps, and those that only `b` keeps."""

    only_a: Side
    only_b: Side

    @property
    def equivalent(self) -> bool | None:
        """True (proved, or looked at everywhere), False (a pair was found), or None."""
        states = (self.only_a.empty, self.only_b.empty)
        return False if False in states else None if None in states else True

    def __str__(self) -> str:
        a, b = self.only_a.empty, self.only_b.empty
        if a and b:
            return "equivalent"
        if a or b:
            one, other = ("A", "B") if a else ("B", "A")
            if (b if a else a) is False:
                return f"{one} implies {other}, and {other} does not imply {one}"
            return f"{one} implies {other}; whether {other} implies {one} is not known"
        if a is False and b is False:
            return "different: neither implies the other"
        if self.equivalent is False:
            one, other = ("A", "B") if a is False else ("B", "A")
            open_side = f"whether {other} implies {one} is not known"
            return f"different: {one} does not imply {other}; {open_side}"
        return "not known: neither a proof nor a pair that tells them apart was found"


def compare(a: Expression, b: Expression, lengths: Lengths) -> Comparison:
    """Ask about both sides; a proof comes first, for it costs nothing by the position.

    Tensors with the same entries are taken as one.
    """
    known: list[torch.Tensor] = []
    a, b = sharing(a, known), sharing(b, known)
    places = _differing(a, b)
    return Comparison(_side(a, b, lengths, places), _side(b, a, lengths, places))


def _differing(a: Expression, b: Expression) -> list[int]:
    """Positions at which tensors of one shape, one of each mask, have different entries."""
    places: set[int] = set()
    for own in _tensors(a):
        for other in _tensors(b):
            if own.shape == other.shape and own.ndim:
                changes = (own != other).nonzero()[:, -1]
                step = max(1, len(changes) // _CHANGES)
                places |= {int(at) for at in changes[::step][:_CHANGES]}
    return sorted({max(0, at + step) for at in places for step in (-1, 0, 1)})


def _tensors(mask: Expression) -> list[torch.Tensor]:
    return [value for value in mask.parameters.values() if isinstance(value, torch.Tensor)]


def _within(a: Node, b: Node) -> bool:
    """Whether `b` is `a` without some of its conditions, or with more alternatives."""
    if set(_parts(a, "and")) >= set(_parts(b, "and")):
        return True
    return set(_parts(a, "or")) <= set(_parts(b, "or"))


def _parts(node: Node, op: str) -> tuple[Node, ...]:
    return node.args if node.op == op else (node,)


def _side(a: Expression, b: Expression, lengths: Lengths, places: list[int]) -> Side:
    mask = both(a, complement(b))
    form = bound(mask)
    extents = extents_of(form, lengths)  # lengths that do not fit are an error, whatever is proved
    proved = _within(a.mask_node, b.mask_node)
    if proved or never_kept(bound(_with_numbers(counted(mask, lengths))), for_all=False):
        return Side(mask, True, None)
    within = reach(form, lengths) if extents is None else Reach(extents, whole=True)
    looked = _looked(form, _shortened(within), places)
    if looked.found is not None:
        return Side(mask, False, looked.found)
    return Side(mask, True if looked.complete else None, None)


def _with_numbers(mask: Expression) -> Expression:
    """A mask with numbers in place of integer tensors of one entry, which a proof can use."""

    def replace(node: Node) -> Node | None:
        if node.op != "read" or node.kind != "int":
            return None
        tensor = cast(Table, node.own[0]).tensor
        return nodes.const(int(tensor.item())) if tensor.numel() == 1 else None

    return with_formula(mask, nodes.substitute(mask.mask_node, replace))


def _shortened(within: Reach) -> Reach:
    """At most `_LONGEST` positions where no length is given: what is further is seldom needed."""
    whole, extents = within.whole, within.extents
    q_len, kv_len = (min(length, _LONGEST) for length in (extents.q_len, extents.kv_len))
    if whole or (q_len, kv_len) == (extents.q_len, extents.kv_len):
        return within
    return Reach(Extents(q_len, kv_len, extents.batch, extents.heads), whole=False)


def _looked(form: Bound, within: Reach, places: list[int]) -> Search:
    """The outcome of a search of about a second.

    Where masks differ is seldom where the first tiles lie: numbers of the formula come first, then
    where tensors differ and positions spread over the lengths, then tiles that a proof leaves.
    """
    near = search_near(form, Reach(within.extents, whole=False))
    if near.found is not None:
        return near
    extents = within.extents
    for side in sorted({extents.q_len, extents.kv_len}):
        step = max(1, side // _SPREAD)
        found = kept_near(form, within, sorted({*places, *range(0, side, step)}))
        if len(found):
            return Search(Place(*found[0].tolist()), True)
    looked = search(form, extents, _ELEMENTS)
    return Search(looked.found, looked.complete and (within.whole or looked.found is not None))
