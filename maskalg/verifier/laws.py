"""Laws of non-linear terms, such as products and quotients, for our own prover and for z3."""

from __future__ import annotations

from functools import lru_cache

from ..formula.laws import (
    LAWS,
    All,
    Condition,
    NotNegative,
    between,
    divided,
    implied,
    size_of_quotient,
)
from ..formula.meaning import MOST_WHOLE
from . import terms
from .terms import Term


@lru_cache(maxsize=8192)
def law_of(atom: Term) -> Term:
    """What an integer's operation alone says about it: 0 <= x - 4 q <= 3 for the quotient q of x
    by 4; for a table entry, the range of its dtype."""
    return _condition(_law(atom))


def _law(atom: Term) -> Condition:
    op, args = atom.op, atom.args
    if op in ("quotient", "remainder"):
        x, c = args
        quotient = x // c
        if terms.is_number(c):
            rest = x - c * quotient
            return divided(quotient, rest, x, c) if terms.value_of_number(c) >= 1 else All(())
        law = divided(quotient, x % c, x, c)
        return implied([NotNegative(c - 1)], law, size_of_quotient(quotient, x))
    if op == "entry" and atom.sort == "int":
        return between(atom.data.low, atom, atom.data.high)
    if op == "whole":
        return between(-int(MOST_WHOLE), atom, int(MOST_WHOLE))
    found = LAWS.get({"product": "mul"}.get(op, op))
    return found(atom, *args) if found is not None else All(())


def _condition(law: Condition) -> Term:
    """A law as a term."""
    if isinstance(law, NotNegative):
        return terms.at_least(law.expression)
    # x >= 0 and -x >= 0: z3 solves equalities before all else.
    match law:
        case All((NotNegative(x), NotNegative(y))) if y is -x:
            return terms.equal(x, terms.number(0))
    parts = map(_condition, law.parts)
    return terms.both(*parts) if isinstance(law, All) else terms.either(*parts)
