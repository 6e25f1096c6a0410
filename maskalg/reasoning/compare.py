"""How two masks relate: what only one of them keeps, each way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast

import torch

from ..algebra import Mask
from ..extents import Extents
from ..node import Node
from ..normalform import Bound, bound
from .decide import find
from .domain import Lengths, Reach
from .search import Place, Search, kept_near, search, search_near

_SPREAD: Final = 1024
_ELEMENTS: Final = 1 << 24


@dataclass(frozen=True)
class Side:
    """What one mask keeps and the other does not.

    Attributes:
        mask: those pairs.
        empty: whether there are none; None where that was not found out.
        place: one of them, where one was found.
    """

    mask: Mask
    empty: bool | None
    place: Place | None


@dataclass(frozen=True)
class Comparison:
    """What only `a` keeps and what only `b` keeps."""

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
        if a:
            return "A implies B" + (", and B does not imply A" if b is False else "")
        if b:
            return "B implies A" + (", and A does not imply B" if a is False else "")
        if a is False and b is False:
            return "different: neither implies the other"
        if self.equivalent is False:
            return "different: " + ("A does not imply B" if a is False else "B does not imply A")
        return "not known: neither a proof nor a pair that tells them apart was found"


def compare(a: Mask, b: Mask, lengths: Lengths) -> Comparison:
    """Ask about both sides; a proof comes first, for it costs nothing by the position.

    Tensors with the same entries are taken as one.
    """
    b = _sharing(a, b)
    return Comparison(_side(a, b, lengths), _side(b, a, lengths))


def _sharing(a: Mask, b: Mask) -> Mask:
    """`b` on the tensors of `a` where they hold the same entries, which proofs do not look at."""
    own = [value for value in a.parameters.values() if isinstance(value, torch.Tensor)]
    same = {}
    for name, value in b.parameters.items():
        if isinstance(value, torch.Tensor):
            for tensor in own:
                if tensor.dtype == value.dtype and torch.equal(tensor, value):
                    same[name] = tensor
    return b.bind(same)


def _within(a: Node, b: Node) -> bool:
    """Whether `b` is `a` without some of its conditions, or with more alternatives."""
    if set(_parts(a, "and")) >= set(_parts(b, "and")):
        return True
    return set(_parts(a, "or")) <= set(_parts(b, "or"))


def _parts(node: Node, op: str) -> tuple[Node, ...]:
    return node.args if node.op == op else (node,)


def _side(a: Mask, b: Mask, lengths: Lengths) -> Side:
    from ..proof.emptiness import never_kept

    mask = cast(Mask, a & ~b)

    form = bound(mask)
    extents = lengths.extents(form)  # lengths that do not fit are an error, whatever is proved
    if _within(a.mask_node, b.mask_node) or never_kept(form, for_all=False):
        return Side(mask, True, None)
    looked = find(mask, lengths) if extents is None else _looked(form, extents)
    if looked.found is not None:
        return Side(mask, False, looked.found)
    return Side(mask, True if looked.complete else None, None)


def _looked(form: Bound, extents: Extents) -> Search:
    """What a search within lengths finds in about a second.

    Where masks differ is seldom where the first tiles lie: numbers of the formula come first,
    then positions spread over the lengths.
    """
    within = Reach(extents, whole=False)
    near = search_near(form, within)
    if near.found is not None:
        return near
    for side in {extents.q_len, extents.kv_len}:
        step = max(1, side // _SPREAD)
        places = kept_near(form, within, list(range(0, side, step)))
        if len(places):
            return Search(Place(*places[0].tolist()), True)
    return search(form, extents, _ELEMENTS)
