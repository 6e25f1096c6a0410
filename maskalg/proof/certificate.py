"""A second opinion on a proof: each claim of its closed forms, proved again by other means.

The closed forms come from elimination over monotone functions, with sign proofs of our own. Here
each claim becomes a system of integer conditions that must have no solution. SymPy's
linear-arithmetic solver refutes it; what is not linear enters through the few laws of
`encoding.py`. Two kinds of claims, for every value of the parameters within their bounds:

- *sound*: a key that a query of the tile keeps (or drops) lies in one of the intervals;
- *exact*: each key of an interval is kept (or dropped) by some query of the tile. The query is
  named: the first or last of the tile, or one at which a comparison of the mask changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from .. import nodes
from ..nodes import Node
from ..printing import formula_text
from .arithmetic import All, AtLeastZero, Condition, negated
from .refutation import refuted
from .closed_forms import ClosedForms, Span
from .cubes import cubes, turning_points
from .encoding import Encoder
from .symbols import ROW_FIRST, ROW_LAST

UNCHECKED: Final = "unchecked"

# What certificates reason about; a closed form that says more is not verified by them.
# A section and a clause look at the positions of tiles that a span leaves open: no closed form.
_SPAN_FIELDS: Final = ("lows", "highs", "guards", "exact", "documents", "keys", "section", "clause")
_FORM_FIELDS: Final = ("touched", "unfull", "rung", "reasons")


@dataclass(frozen=True)
class Obligation:
    """A claim of a proof.

    Attributes:
        side: "touched" or "not full".
        kind: "sound" or "exact".
        claim: what is claimed, as text.
        by: how it was proved: "linear arithmetic", with the laws that entered, or "unchecked",
            with a reason.
    """

    side: str
    kind: Literal["sound", "exact"]
    claim: str
    by: str

    @property
    def proved(self) -> bool:
        return not self.by.startswith(UNCHECKED)


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
    for name in _additions(forms, _FORM_FIELDS):
        found.append(Obligation("both", "sound", f"blocks by {name}", f"{UNCHECKED}: {name}"))
    for side, holds, spans in (("touched", True, forms.touched), ("not full", False, forms.unfull)):
        found += _sound(side, cubes(mask, holds), spans)
        found += _exact(side, cubes(mask, holds), spans)
    return Certificate(tuple(found), forms.exact)


def _sound(side: str, alternatives: list[Node], spans: tuple[Span, ...]) -> Iterable[Obligation]:
    for span in spans:
        for name in _additions(span, _SPAN_FIELDS):
            yield Obligation(
                side, "sound", f"tiles thinned by a {name}: {span_text(span)}",
                f"{UNCHECKED}: certificates do not reason about a {name}",
            )  # fmt: skip
    for cube in alternatives:
        encoder = Encoder()
        q, k, q0, q1 = _positions(encoder)
        conditions = [encoder.condition(cube), AtLeastZero(q - q0), AtLeastZero(q1 - q)]
        conditions += [AtLeastZero(q0), AtLeastZero(k)]
        conditions += [negated(_holds(span, encoder)) for span in spans]
        text = formula_text(cube)
        claim = f"in an interval, where {text}" if spans else f"never {text}"
        yield Obligation(side, "sound", claim, _discharge(encoder, conditions))


def _exact(side: str, alternatives: list[Node], spans: tuple[Span, ...]) -> Iterable[Obligation]:
    for span in spans:
        claim = f"each key is met: {span_text(span)}"
        if not span.exact and span.section is not None:
            yield Obligation(side, "exact", claim, f"{UNCHECKED}: decided position by position")
        if not span.exact:
            continue
        why = f"{UNCHECKED}: no query was found for every key"
        if span.documents:
            why = f"{UNCHECKED}: rests on contiguous ids, which each call looks at"
        elif _additions(span, _SPAN_FIELDS):
            why = f"{UNCHECKED}: tiles are thinned"
        else:
            tries = (_reached(span, cube) for cube in alternatives)
            why = next((by for by in tries if not by.startswith(UNCHECKED)), why)
        yield Obligation(side, "exact", claim, why)


def _reached(span: Span, cube: Node) -> str:
    """How it is proved that each key of the span has a query of the tile in the cube."""
    encoder = Encoder()
    _, k, q0, q1 = _positions(encoder)
    conditions: list[Condition] = [AtLeastZero(q0), AtLeastZero(q1 - q0), AtLeastZero(k)]
    conditions.append(_holds(span, encoder))
    for point in (ROW_FIRST, ROW_LAST, *turning_points(cube)):
        at = encoder.term(point)
        moved = nodes.substitute(cube, lambda node, point=point: point if node == nodes.Q else None)  # type: ignore[misc]
        inside = (AtLeastZero(at - q0), AtLeastZero(q1 - at))
        conditions.append(negated(All((*inside, encoder.condition(moved)))))
    return _discharge(encoder, conditions)


def _holds(span: Span, encoder: Encoder) -> Condition:
    """The key lies in the span, is one of its keys, and its guards hold."""
    k = encoder.term(nodes.K)
    parts = [AtLeastZero(k - encoder.term(low)) for low in span.lows]
    parts += [AtLeastZero(encoder.term(high) - k) for high in span.highs]
    parts += [AtLeastZero(encoder.term(guard)) for guard in span.guards]
    if span.keys is not None:
        return All((*parts, encoder.condition(span.keys)))
    return All(tuple(parts))


def _discharge(encoder: Encoder, conditions: list[Condition]) -> str:
    if not refuted(encoder.complete(conditions)):
        return f"{UNCHECKED}: linear arithmetic does not decide it"
    laws = " and ".join(sorted(encoder.laws))
    return f"linear arithmetic with the laws of {laws}" if laws else "linear arithmetic"


def _positions(encoder: Encoder) -> tuple[Any, Any, Any, Any]:
    q, k, q0, q1 = (encoder.term(index) for index in (nodes.Q, nodes.K, ROW_FIRST, ROW_LAST))
    return q, k, q0, q1


def _additions(value: object, known: tuple[str, ...]) -> list[str]:
    """Names of what a span or closed form says beyond the fields that are known here."""
    names = [field.name for field in fields(value)]  # type: ignore[arg-type]
    return [name for name in names if name not in known and getattr(value, name)]


def span_text(span: Span) -> str:
    """A span as text over the key index."""
    bounds = [f"{formula_text(low)} <= kv_idx" for low in span.lows]
    bounds += [f"kv_idx <= {formula_text(high)}" for high in span.highs]
    bounds += [f"{formula_text(guard)} >= 0" for guard in span.guards]
    return " and ".join(bounds) or "every key"
