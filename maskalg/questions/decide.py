"""True, False or None: statements about masks, each as the emptiness of one mask.

False comes from a pair that was evaluated, True from a proof or from evaluating all pairs.
"""

from __future__ import annotations

from ..engine.extents import Lengths
from ..engine.normal_form import bound
from ..errors import not_a_mask
from ..formula.expression import Expression, both, complement
from .domain import counted, extents_of, reach, sharing
from .search import ELEMENTS_LOOKED_AT, Place, Search, search, search_near


def implies(
    a: Expression,
    b: Expression,
    q_len: int | None = None,
    kv_len: int | None = None,
    *,
    batch: int | None = None,
    heads: int | None = None,
    for_all: bool = False,
) -> bool | None:
    """Whether `b` keeps every pair that `a` keeps.

    The question ranges over every batch entry, head and position from 0 on, or over the lengths
    given; with bound tensors, over the positions, batch entries and heads they hold.

        >>> implies(causal & sliding(4), window(3, 0))
        True

    Args:
        a: a mask. Numbers have the values bound to them.
        b: a mask, likewise.
        q_len: number of queries to ask about; None asks about all positions.
        kv_len: number of keys; None means `q_len`.
        batch: batch size, as in `mask.blocks`.
        heads: number of heads, likewise.
        for_all: ask about all values of the parameters within their declared bounds. A parameter
            is shared where the same `ma.scalar` or tensor is used twice.

    Returns:
        True (proved), False (`a.witness(b)` finds a pair), or None (neither).

    Raises:
        TypeError: an argument that is not a mask.
        ValueError: lengths that the bound tensors do not fit.
    """
    _check_masks("implies", a, b)
    return empty(both(a, complement(b)), Lengths(q_len, kv_len, batch, heads), for_all=for_all)


def equivalent(
    a: Expression,
    b: Expression,
    q_len: int | None = None,
    kv_len: int | None = None,
    *,
    batch: int | None = None,
    heads: int | None = None,
    for_all: bool = False,
) -> bool | None:
    """Whether `a` and `b` keep the same pairs; arguments and answers as for `implies`.

        >>> equivalent(causal & sliding(4), window(3, 0))
        True
        >>> equivalent(causal, ~causal, 8)
        False

    `a == b` compares formulas; this compares what they mean.
    """
    _check_masks("equivalent", a, b)
    lengths = Lengths(q_len, kv_len, batch, heads)
    forward = empty(both(a, complement(b)), lengths, for_all=for_all)
    if forward is False:
        return False
    backward = empty(both(b, complement(a)), lengths, for_all=for_all)
    if backward is False:
        return False
    return True if forward and backward else None


def witness(a: Expression, b: Expression, lengths: Lengths) -> Place | None:
    """A pair that one mask keeps and the other does not; see `Mask.witness`."""
    _check_masks("witness", a, b)
    for mask in (both(a, complement(b)), both(b, complement(a))):
        found = find(mask, lengths).found
        if found is not None:
            return found
    return None


def empty(mask: Expression, lengths: Lengths, *, for_all: bool) -> bool | None:
    """Whether a mask keeps no pair; see `Mask.is_empty`."""
    # SymPy is loaded when something is asked, not with the package.
    from .compare import never_kept

    if not for_all:
        mask = sharing(mask, [])
    looked = find(mask, lengths)
    if looked.found is not None:
        return False
    if looked.complete and not for_all:
        return True
    return True if never_kept(bound(counted(mask, lengths)), for_all=for_all) else None


def find(mask: Expression, lengths: Lengths) -> Search:
    """A kept pair of a mask, with the values bound to it."""
    form = bound(mask)
    extents = extents_of(form, lengths)
    if extents is not None:
        return search(form, extents)
    within = reach(form, lengths)
    near = search_near(form, within)
    size = within.extents.q_len * within.extents.kv_len
    if near.found is None and within.whole and size <= ELEMENTS_LOOKED_AT:
        return search(form, within.extents)
    return near


def _check_masks(call: str, *masks: object) -> None:
    for mask in masks:
        if not isinstance(mask, Expression) or mask.kind != "mask":
            raise not_a_mask(f"{call} asks about", mask)
