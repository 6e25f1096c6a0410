"""`mask.simplify()`: operands of `&` and `|` that change nothing are left out."""

from __future__ import annotations

from functools import reduce

from ..values.algebra import Mask, everything, formula, nothing
from .decide import implies


def simplify(mask: Mask) -> Mask:
    """An equivalent mask with fewer operands, or the mask itself; see `Mask.simplify`."""
    return _simplified(mask, everything)


def _simplified(mask: Mask, given: Mask) -> Mask:
    """A mask that keeps, of the pairs that `given` keeps, the same as `mask`."""
    if implies(given, mask):
        return everything
    if implies(given & mask, nothing):
        return nothing
    kind, operands = _operands(mask)
    if kind == "~":
        inner = _simplified(operands[0], given)
        return mask if inner is operands[0] else ~inner
    if not kind:
        return mask
    return _without_superfluous(mask, kind, operands, given)


def _without_superfluous(mask: Mask, kind: str, operands: list[Mask], given: Mask) -> Mask:
    """Each operand simplified where it matters: where the others do not decide already."""
    parts, place = list(operands), 0
    while place < len(parts):
        others = parts[:place] + parts[place + 1 :]
        # In `a & b`, b matters where a keeps; in `a | b`, where a drops.
        deciding = [other if kind == "&" else ~other for other in others]
        part = _simplified(parts[place], _all([given, *deciding]))
        if part == (everything if kind == "&" else nothing) and others:
            parts = others
        else:
            parts[place] = part
            place += 1
    if len(parts) == len(operands) and all(a is b for a, b in zip(parts, operands, strict=True)):
        return mask
    return _all(parts) if kind == "&" else reduce(lambda a, b: a | b, parts)


def _operands(mask: Mask) -> tuple[str, list[Mask]]:
    """The operation a mask was made by and its operands, chains of `&` or `|` flattened."""
    if not mask.operands:
        kind = {"and": "&", "or": "|", "not": "~"}.get(mask.mask_node.op, "")
        if mask.label.kind not in ("&", "|", "~", "formula"):
            return "", []
        return kind, [formula(arg) for arg in mask.mask_node.args] if kind else []
    kind = mask.label.kind
    found: list[Mask] = []
    for operand in mask.operands:
        joins = kind != "~" and operand.operands and operand.label.kind == kind
        found += _operands(operand)[1] if joins else [operand]
    return kind, found


def _all(masks: list[Mask]) -> Mask:
    return reduce(lambda a, b: a & b, masks)
