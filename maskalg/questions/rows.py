"""Statements about the rows of a mask: has each a key, and how far are its keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..engine.normal_form import bound
from ..formula import nodes
from ..formula.expression import Expression, both, with_formula
from ..formula.nodes import K, Q
from .counts import kept_keys
from .decide import empty
from .domain import Lengths, reach
from .search import candidates, kept_near

_ELEMENTS_LOOKED_AT: Final = 1 << 28


@dataclass(frozen=True)
class Bandwidth:
    """How far kept keys lie from their query: `-left <= kv_idx - q_idx <= right`.

    None where no limit was proved. A limit is reached by some pair, so it is the smallest one;
    it is negative where every key lies on the other side.
    """

    left: int | None
    right: int | None


def bandwidth(mask: Expression) -> Bandwidth:
    """The band that holds every kept pair; see `Mask.bandwidth`."""
    form = bound(mask)
    places = kept_near(form, reach(form, Lengths()), candidates(form))
    if not len(places):
        limit = 0 if empty(mask, Lengths(), for_all=False) else None
        return Bandwidth(limit, limit)
    ahead = places[:, 3] - places[:, 2]
    left, right = int(-ahead.min()), int(ahead.max())
    beyond = (
        nodes.gt(nodes.subtract(Q, K), nodes.const(left)),
        nodes.gt(nodes.subtract(K, Q), nodes.const(right)),
    )
    further = (both(mask, with_formula(mask, far)) for far in beyond)
    holds = [empty(pairs, Lengths(), for_all=False) for pairs in further]
    return Bandwidth(left if holds[0] else None, right if holds[1] else None)


def rows_have_a_key(mask: Expression, lengths: Lengths) -> bool | None:
    """Whether each query keeps a key; see `Mask.rows_have_a_key`."""
    form = bound(mask)
    extents = lengths.extents(form)
    assert extents is not None
    if 0 in (extents.q_len, extents.batch, extents.heads):
        return True
    if extents.kv_len == 0:
        return False
    counts = kept_keys(form, extents, _ELEMENTS_LOOKED_AT)
    return None if counts is None else bool((counts > 0).all())
