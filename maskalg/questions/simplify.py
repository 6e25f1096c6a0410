"""`mask.simplify()`: operands of `&`, `|` and `^` that change nothing are left out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Final, Generic, TypeVar, cast

from ..formula.expression import Expression, both, complement, either, exclusive, with_formula
from .decide import implies

M = TypeVar("M", bound=Expression)

_JOINED: Final = {"&": both, "|": either, "^": exclusive}


@dataclass(frozen=True)
class Simplifier(Generic[M]):
    """Equivalent masks with fewer operands; `everything` and `nothing` are what may be left."""

    everything: M
    nothing: M

    def simplified(self, mask: M) -> M:
        """An equivalent mask, or the mask itself; see `Mask.simplify`."""
        return self._within(mask, self.everything)

    def _within(self, mask: M, given: M) -> M:
        """A mask that keeps, of the pairs that `given` keeps, the same as `mask`."""
        if implies(given, mask):
            return self.everything
        if implies(both(given, mask), self.nothing):
            return self.nothing
        kind, operands = _operands(mask)
        if kind == "~":
            inner = self._within(operands[0], given)
            return mask if inner is operands[0] else complement(inner)
        if not kind:
            return mask
        return self._without_superfluous(mask, kind, operands, given)

    def _without_superfluous(self, mask: M, kind: str, operands: list[M], given: M) -> M:
        """Each operand simplified where it matters: where the others do not decide already."""
        parts, place = list(operands), 0
        while place < len(parts):
            others = parts[:place] + parts[place + 1 :]
            # b matters in `a & b` where a keeps, in `a | b` where a drops, in `a ^ b` everywhere.
            deciding = {"&": others, "|": [complement(other) for other in others], "^": []}[kind]
            part = self._within(parts[place], reduce(both, [given, *deciding]))
            if part == (self.everything if kind == "&" else self.nothing) and others:
                parts = others
            else:
                parts[place] = part
                place += 1
        same = len(parts) == len(operands)
        if same and all(a is b for a, b in zip(parts, operands, strict=True)):
            return mask
        return reduce(_JOINED[kind], parts)


def _operands(mask: M) -> tuple[str, list[M]]:
    """The operation a mask was made by and its operands, chains of one operation flattened."""
    if not mask.operands:
        kind = {"and": "&", "or": "|", "not": "~"}.get(mask.mask_node.op, "")
        if mask.label.kind not in (*_JOINED, "~", "formula"):
            return "", []
        return kind, [with_formula(mask, arg) for arg in mask.mask_node.args] if kind else []
    kind = mask.label.kind
    found: list[M] = []
    for operand in cast("tuple[M, ...]", mask.operands):
        joins = kind != "~" and operand.operands and operand.label.kind == kind
        found += _operands(operand)[1] if joins else [operand]
    return kind, found
