"""The positions a question is asked over: given lengths, or every position there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

from .. import errors
from ..engine.extents import Extents, Lengths, check, is_untold, longest, resolve
from ..engine.normal_form import Bound
from ..formula import nodes
from ..formula.expression import Expression, with_formula

FAR: Final = 1 << 24  # as far as positions are looked at where no tensor ends them
_TRIED: Final = 4  # batch entries and heads to look at where no tensor tells how many there are


def extents_of(form: Bound, lengths: Lengths) -> Extents | None:
    """The lengths for a formula, checked, or None where they are not given.

    Raises:
        ValueError: as `mask.blocks` does, or `kv_len` without `q_len`.
    """
    if lengths.q_len is not None:
        return resolve(form, lengths)
    if lengths.kv_len is not None:
        raise errors.MaskValueError(
            f"kv_len={lengths.kv_len!r} was given without q_len: pass both, or neither for every "
            "position."
        )
    return None


def counted(mask: Expression, lengths: Lengths) -> Expression:
    """The mask among the batch entries and heads that are given: a proof knows of no others."""
    node = mask.mask_node
    for index, count in ((nodes.BATCH, lengths.batch), (nodes.HEAD, lengths.heads)):
        if type(count) is int and index.data in mask.mask_node.indices():
            node = nodes.conjunction(node, nodes.gt(nodes.const(count), index))
    return with_formula(mask, node)


@dataclass(frozen=True)
class Reach:
    """Positions that can be looked at; `whole` says that there are no others."""

    extents: Extents
    whole: bool


def reach(form: Bound, lengths: Lengths) -> Reach:
    """The positions that the tensors of a formula hold, at most `FAR`."""
    batch, heads = _asked(form, "batch", lengths.batch), _asked(form, "head", lengths.heads)
    told = resolve(form, Lengths(0, 0, batch, heads))

    def within(q_len: int, kv_len: int) -> Extents:
        return Extents(q_len, kv_len, told.batch, told.heads)

    def fits(q_len: int, kv_len: int) -> bool:
        try:
            check(form, within(q_len, kv_len))
        except errors.MaskValueError:
            return False
        return True

    q_len = longest(lambda length: fits(length, 1), FAR)
    kv_len = longest(lambda length: fits(1, length), FAR)
    if not fits(q_len, kv_len):
        side = longest(lambda length: fits(length, length), FAR)
        return Reach(within(side, side), False)
    counted = (batch, heads) == (lengths.batch, lengths.heads)
    return Reach(within(q_len, kv_len), counted and max(q_len, kv_len) < FAR)


def _asked(form: Bound, index: str, given: int | None) -> int | None:
    """How many batch entries or heads to look at; None for as many as the tensors tell."""
    return _TRIED if given is None and is_untold(form, index) else given


def sharing(mask: Expression, known: list[torch.Tensor]) -> Expression:
    """A mask on tensors that are known where it holds the same entries; others become known.

    Proofs look at which tensor is read, not at its entries.
    """
    same = {}
    for name, value in mask.parameters.items():
        if not isinstance(value, torch.Tensor) or value.is_meta:
            continue
        alike = [t for t in known if (t.dtype, t.device) == (value.dtype, value.device)]
        found = next((t for t in alike if torch.equal(t, value)), None)
        if found is None:
            known.append(value)
        elif found is not value:
            same[name] = found
    return mask.bind(same)
