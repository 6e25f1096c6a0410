"""Claims of a proof, each discharged by a system of conditions without solution."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final, Literal

from ...formula import nodes
from ...formula.laws import All, Any_, Condition, NotNegative, negated
from ...formula.nodes import Node
from ..closed_forms import ROW_FIRST, ROW_LAST
from .encoding import Encoder
from .refutation import refutation

UNCHECKED: Final = "unchecked"


@dataclass(frozen=True)
class Obligation:
    """A claim of a proof.

    Attributes:
        side: "touched" or "not full".
        kind: "sound" or "exact".
        claim: the claim, as text.
        by: "linear arithmetic", with the laws that it used, or "unchecked", with a reason.
    """

    side: str
    kind: Literal["sound", "exact"]
    claim: str
    by: str

    @property
    def proved(self) -> bool:
        return not self.by.startswith(UNCHECKED)


def discharged(encoder: Encoder, conditions: list[Condition]) -> str:
    """How it is proved that the conditions have no common solution, or "unchecked"."""
    verdict = refutation(encoder.complete(conditions))
    if verdict != "refuted":
        why = "too large" if verdict == "too large" else "linear arithmetic does not decide it"
        return f"{UNCHECKED}: {why}"
    laws = " and ".join(sorted(encoder.laws))
    return f"linear arithmetic with the laws of {laws}" if laws else "linear arithmetic"


def excluded(held: Iterable[Node], failing: Iterable[Node] = (), *laws: str) -> str:
    """How it is proved that no pair of a tile satisfies all formulas in `held` and none of those in
    `failing`, or "unchecked"; `laws` are used beside those of the encoder."""
    encoder = Encoder()
    encoder.laws.update(laws)
    order = (nodes.const(0), ROW_FIRST, nodes.Q, ROW_LAST)
    low, q0, q, q1 = (encoder.term(node) for node in order)
    gaps = (q0 - low, q - q0, q1 - q, encoder.term(nodes.K))
    conditions: list[Condition] = [NotNegative(gap) for gap in gaps]
    conditions += [encoder.condition(formula) for formula in held]
    conditions += [encoder.condition(formula, False) for formula in failing]
    return discharged(encoder, conditions)


def reached(
    encoder: Encoder, conditions: list[Condition], cube: Node, points: Iterable[Node]
) -> str:
    """How it is proved that the conditions put one of the points inside q0..q1 and the cube."""
    q0, q1 = (encoder.term(index) for index in (ROW_FIRST, ROW_LAST))
    for point in points:
        at = encoder.term(point)
        moved = nodes.substitute(cube, {nodes.Q: point}.get)
        inside = negated(All((NotNegative(at - q0), NotNegative(q1 - at))))
        conditions = [*conditions, Any_((inside, encoder.condition(moved, False)))]
    return discharged(encoder, conditions)


def met(tries: Iterable[str]) -> str:
    """The first of several attempts that proves that some query keeps each key."""
    proofs = (by for by in tries if not by.startswith(UNCHECKED))
    return next(proofs, f"{UNCHECKED}: no query was found for every key")


def additions(value: object, known: tuple[str, ...]) -> list[str]:
    """The names of a value's fields that are set and not among `known`."""
    names = [field.name for field in fields(value)]  # type: ignore[arg-type]
    return [name for name in names if name not in known and getattr(value, name)]
