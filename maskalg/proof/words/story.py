"""The steps of a proof, for a person: literals, what is eliminated from them, and what remains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy as sp

from ...formula.node import Node
from ...formula.nodes import substitute
from ...formula.printing import formula_text
from ..closed_forms import Section
from ..digits.forms import digit_texts
from ..digits.prove import digit_proof
from ..literals import (
    AtLeastZero,
    Clause,
    Clauses,
    Condition,
    Congruence,
    Equal,
    Literal,
    Opaque,
    Related,
    in_order,
)
from ..projection import KeyInterval, Projection
from ..section import section_of
from ..signs import OverBudget, Signs
from ..symbols import Symbols


@dataclass(frozen=True)
class Step:
    """One clause and the keys that some query of a tile satisfies it with.

    Attributes:
        literals: what holds together.
        interval: keys left after the query was eliminated; None where there are none.
        section: how each position is decided where the interval is not exact.
    """

    literals: tuple[Literal, ...]
    interval: KeyInterval | None
    section: Section | None


@dataclass(frozen=True)
class Story:
    """The proof of a mask, step by step.

    Attributes:
        kept, dropped: steps of the mask and of its negation; None past the proof's budget.
        digits: how each digit is computed from a position x, where digits decide: such a proof has
            no steps.
    """

    kept: tuple[Step, ...] | None
    dropped: tuple[Step, ...] | None
    digits: tuple[str, ...]


def story_of(mask: Node) -> Story:
    """The steps by which `prove` comes to the closed forms of a mask without values."""
    by_digits = digit_proof(mask)
    if by_digits is not None:
        digits = [text for part in by_digits.forms.parts for text in digit_texts(part.tree)]
        return Story((), (), tuple(dict.fromkeys(digits)))
    symbols = Symbols()
    signs = Signs(symbols)
    clauses, projection = Clauses(symbols, signs), Projection(symbols, signs)
    sides: list[tuple[Step, ...] | None] = []
    for holds in (True, False):
        signs.restart()
        try:
            found = [_step(c, projection, symbols, signs) for c in clauses.of(mask, holds)]
            sides.append(tuple(found))
        except OverBudget:
            sides.append(None)
    return Story(sides[0], sides[1], ())


def _step(clause: Clause, projection: Projection, symbols: Symbols, signs: Signs) -> Step:
    interval = projection.interval(clause)
    literals = tuple(in_order(clause, signs))
    if interval is None:
        return Step(literals, None, None)
    open_tiles = not interval.exact or bool(interval.documents)
    return Step(literals, interval, section_of(clause, projection, symbols) if open_tiles else None)


def literal_text(literal: Literal) -> str:
    """A literal as a person writes it."""
    if isinstance(literal, AtLeastZero):
        left, right = sides(literal.expression)
        return f"{left} >= {right}"
    sign = "==" if literal.holds else "!="
    if isinstance(literal, Congruence):
        distance = "q - k" if literal.offset == 0 else f"q - k + {literal.offset}"
        return f"({distance}) % {literal.modulus} {sign} {literal.residue}"
    if isinstance(literal, Equal):
        return f"{_short(literal.left)} {sign} {_short(literal.right)}"
    node = formula_of_literal(literal)
    return _short(node) if literal.holds else f"not ({_short(node)})"


def formula_of_literal(literal: Condition | Related | Opaque) -> Node:
    """What holds, or does not; an entry of a table of pairs is read at both categories."""
    if not isinstance(literal, Related):
        return literal.node
    read = {"q_idx": literal.f, "kv_idx": literal.g}

    def replaced(node: Node) -> Node | None:
        return read.get(str(node.data)) if node.op == "index" else None

    return substitute(literal.relation, replaced)


def sides(expression: Any) -> tuple[Any, Any]:
    """`expression >= 0` as `left >= right` without minus signs: `q - k` gives (q, k)."""
    terms = sp.Add.make_args(expression)
    minus = [term for term in terms if term.could_extract_minus_sign()]
    plus = [term for term in terms if not term.could_extract_minus_sign()]
    return sp.Add(*plus), sp.Add(*[-term for term in minus])


def _short(node: Node) -> str:
    return formula_text(node).replace("q_idx", "q").replace("kv_idx", "k")
