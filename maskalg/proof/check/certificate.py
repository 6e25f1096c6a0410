"""A second opinion on a proof: each claim of its closed forms, proved again by other means.

The closed forms come from elimination over monotone functions, with sign proofs of our own. Here
each claim becomes a system of integer conditions that must have no solution. SymPy's
linear-arithmetic solver refutes it; `encoding.py` adds a few laws of operations that are not
linear. There are two kinds of claims, for every value of the parameters within their bounds:

- *sound*: a key that a query of the tile keeps (or drops) lies in one of the intervals, and the
  pair of them is one that the interval's remainder and section count;
- *exact*: each key of an interval is kept (or dropped) by some query of the tile. The query is
  named: the first or last of the tile, one at which a comparison of the mask changes, or a member
  of a set that is next to those. Of documents this is claimed where equal ids are contiguous, which
  is declared or else looked at in each call. What a remainder or a section counts is kept (or
  dropped) pair by pair.

Claims about digits stand in `digit_certificate.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from ...formula import nodes
from ...formula.laws import Condition, NotNegative
from ...formula.nodes import Node
from ...formula.printing import formula_text
from ..closed_forms import ROW_FIRST, ROW_LAST, ClosedForms, Span
from .cubes import cubes
from .digit_certificate import digit_claims
from .encoding import Encoder
from .obligations import (
    UNCHECKED,
    Obligation,
    additions,
    excluded,
    met,
    reached,
)
from .span_formulas import hull_formula, residue_formula, section_formula, span_formula
from .witnesses import witnesses

# Fields of closed forms that certificates verify. A new field is added here with its claim; until
# then, closed forms that use it are not verified.
_FORM_FIELDS: Final = ("touched", "unfull", "rung", "reasons", "digits")
_SPAN_FIELDS: Final = (
    *("lows", "highs", "guards", "residue", "exact", "documents", "keys", "section", "clause"),
)


@dataclass(frozen=True)
class Certificate:
    """The claims of a proof, and which of them were proved again.

    Attributes:
        obligations: every claim.
        sound: no EMPTY and no FULL block of the closed forms can be wrong: every claim of
            soundness was proved.
        exact: the closed forms claim to be exact, and every claim was proved.
    """

    obligations: tuple[Obligation, ...]
    claims_exact: bool

    @property
    def sound(self) -> bool:
        return all(claim.proved for claim in self.obligations if claim.kind == "sound")

    @property
    def exact(self) -> bool:
        return self.claims_exact and all(claim.proved for claim in self.obligations)

    def __str__(self) -> str:
        lines = [
            f"{claim.side:<9} {claim.kind:<6} {claim.claim}\n{'':16} {claim.by}"
            for claim in self.obligations
        ]
        left = sum(not claim.proved for claim in self.obligations)
        verified = "sound and exact" if self.exact else "sound" if self.sound else "nothing"
        rest = f", {left} of {len(self.obligations)} claims unchecked" if left else ""
        return "\n".join([*lines, f"verified  {verified}{rest}"])


def certify(mask: Node, forms: ClosedForms) -> Certificate:
    """Prove the claims that closed forms make about a mask once more."""
    found: list[Obligation] = []
    for name in additions(forms, _FORM_FIELDS):
        found.append(Obligation("both", "sound", f"blocks by {name}", f"{UNCHECKED}: {name}"))
    if forms.digits is not None:
        return Certificate((*found, *digit_claims(mask, forms)), forms.exact)
    for side, holds, spans in (("touched", True, forms.touched), ("not full", False, forms.unfull)):
        alternatives = cubes(mask, holds)
        found += _sound(side, alternatives, spans)
        for span in spans:
            found += _exact(side, mask if holds else nodes.negation(mask), alternatives, span)
    return Certificate(tuple(found), forms.exact)


def _sound(side: str, alternatives: list[Node], spans: tuple[Span, ...]) -> Iterable[Obligation]:
    for span in spans:
        for name in additions(span, _SPAN_FIELDS):
            yield Obligation(side, "sound", f"blocks by {name}", f"{UNCHECKED}: {name}")
    for cube in alternatives:
        text = formula_text(cube)
        claim = f"in an interval, where {text}" if spans else f"never {text}"
        yield Obligation(side, "sound", claim, excluded([cube], map(span_formula, spans)))


def _exact(side: str, wanted: Node, alternatives: list[Node], span: Span) -> Iterable[Obligation]:
    if span.residue is not None and span.exact:
        pair = nodes.conjunction(hull_formula(span), residue_formula(span.residue))
        claim = f"each tile with a remainder in its box is met: {span_text(span)}"
        by = excluded([pair], [wanted], "distances in a box")
        yield Obligation(side, "exact", claim, by)
    elif span.exact:
        claim = f"some query keeps each key: {span_text(span)}"
        if span.documents:
            claim += ", if equal ids are contiguous"
        yield Obligation(side, "exact", claim, met(_tries(span, alternatives)))
    if span.section is not None:
        own, other = (("query", "key"), ("key", "query"))[span.section.own == "kv_idx"]
        claim = f"each {own} found for a {other} is met: {span_text(span)}"
        by = excluded([section_formula(span.section)], [wanted])
        yield Obligation(side, "exact", claim, by)


def _tries(span: Span, alternatives: list[Node]) -> Iterator[str]:
    """Attempts to prove that each key of the span has a query of the tile in one of the cubes."""
    proposed = [
        [(cube, points) for points in witnesses(cube, span.bounds)] for cube in alternatives
    ]
    for row in zip_longest(*proposed):
        for cube, points in filter(None, row):
            yield _reached(span, cube, points)


def _reached(span: Span, cube: Node, points: list[Node]) -> str:
    encoder = Encoder(contiguous=bool(span.documents))
    k, q0, q1 = (encoder.term(index) for index in (nodes.K, ROW_FIRST, ROW_LAST))
    conditions: list[Condition] = [NotNegative(q0), NotNegative(q1 - q0), NotNegative(k)]
    conditions.append(encoder.condition(hull_formula(span)))
    return reached(encoder, conditions, cube, points)


def span_text(span: Span) -> str:
    """A span as text over the key index."""
    bounds = [f"{formula_text(low)} <= kv_idx" for low in span.lows]
    bounds += [f"kv_idx <= {formula_text(high)}" for high in span.highs]
    bounds += [f"{formula_text(guard)} >= 0" for guard in span.guards]
    return " and ".join(bounds) or "every key"
