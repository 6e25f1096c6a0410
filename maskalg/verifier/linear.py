"""Linear claims, proved by the prover of certificates and without z3.

The assumptions and the negation of the claim become one system of integer inequalities, which
`proof.check.refutation` shows to have no solution. A contradiction is a weighted sum of these
inequalities that reads 0 >= n for some n > 0; the sum is computed a second time. Minima, maxima,
choices and signs are split into cases. A quotient by a constant is a new unknown f
with c f <= x <= c f + c - 1, the remainder is x - c f, and a wrapped number is x + 2**bits t. Any
other operation, such as a product, is an unknown with the few laws of `laws.py`. A missing law
leaves a claim open, and z3 is asked; it never proves a false one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..formula.laws import NEVER, All, Any_, Condition, Linear, NotNegative
from ..proof.check.refutation import Budget, refutation
from . import terms
from .laws import law_of
from .terms import Term

QUICK: Final = Budget(pivots=400, choices=100)
"""Limits of the search before z3 is asked: a few hundredths of a second at most."""

LONG: Final = Budget()
"""Limits of the search where z3 is not installed."""

_MOST_CASES: Final = 500


def is_refuted(
    given: Sequence[Term], denied: Sequence[Sequence[Term]], budget: Budget = QUICK
) -> bool:
    """Whether each of these conjunctions contradicts the assumptions, for all integers."""
    reader = _Reader()
    try:
        known = [reader.condition(term) for term in given]
        systems = [[reader.condition(term) for term in every] for every in denied]
    except _TooManyCases:
        return False
    known += reader.facts
    return all(
        refutation([*known, *system], budget, by_sums=True) == "refuted" for system in systems
    )


class _TooManyCases(Exception):
    """More cases than are worth trying."""


class _Reader:
    """Translates terms to conditions, and collects the laws of their unknowns in `facts`."""

    def __init__(self) -> None:
        self.facts: list[Condition] = []
        self._known: dict[tuple[Term, bool], Condition] = {}
        self._learned: set[Term] = set()
        self._entries: list[Term] = []
        self._left = _MOST_CASES

    def condition(self, term: Term, holds: bool = True) -> Condition:
        found = self._known.get((term, holds))
        if found is None:
            found = self._known[term, holds] = self._condition(term, holds)
        return found

    def _condition(self, term: Term, holds: bool) -> Condition:
        op, args = term.op, term.args
        if op in ("true", "false"):
            return All(()) if (op == "true") == holds else NEVER
        if op == "no":
            return self.condition(args[0], not holds)
        if op in ("both", "either"):
            parts = tuple([self.condition(arg, holds) for arg in args])
            return All(parts) if (op == "both") == holds else Any_(parts)
        if op == "same":
            left, right = args
            sides = [(left, right, True, holds), (left, right, False, not holds)]
            return Any_(
                tuple([All((self.condition(x, a), self.condition(y, b))) for x, y, a, b in sides])
            )
        if op == "at_least":
            return self._at_least(args[0] if holds else _less_one(-args[0]))
        if op == "zero":
            return self._zero(args[0], holds)
        if op == "divides":
            return self._zero(args[1] % args[0], holds)
        sign = 1 if holds else -1
        return NotNegative(Linear(((term, sign),), -1 if holds else 0))

    def _zero(self, x: Term, holds: bool) -> Condition:
        minus = -x
        if holds:
            return All((self._at_least(x), self._at_least(minus)))
        return Any_((self._at_least(_less_one(x)), self._at_least(_less_one(minus))))

    def _at_least(self, x: Term) -> Condition:
        """x >= 0."""
        self._left -= 1
        if self._left < 0:
            raise _TooManyCases
        if terms.is_number(x):
            return All(()) if terms.value_of_number(x) >= 0 else NEVER
        constant, coefficients = x.data if x.op == "sum" else (0, (1,))
        atoms = x.args if x.op == "sum" else (x,)
        for atom, times in zip(atoms, coefficients, strict=True):
            if not _is_replaced(atom):
                continue

            def put(value: Term, atom: Term = atom, times: int = times) -> Condition:
                more = times * (value - atom)
                return self._at_least(x + more)

            if atom.op in ("least", "most"):
                parts = tuple([put(arg) for arg in atom.args])
                return All(parts) if (atom.op == "least") == (times > 0) else Any_(parts)
            if atom.op == "choice":
                chosen, then, otherwise = atom.args
                first = All((self.condition(chosen), put(then)))
                return Any_((first, All((self.condition(chosen, False), put(otherwise)))))
            if atom.op == "sign":
                natural = atom.args[0] >= 0
                first = All((self.condition(natural), put(terms.number(0))))
                return Any_((first, All((self.condition(natural, False), put(terms.number(-1))))))
            self._learn(atom)
            return put(_linear(atom))
        for atom in atoms:
            self._learn(atom)
        return NotNegative(Linear(tuple(zip(atoms, coefficients, strict=True)), constant))

    def _learn(self, atom: Term) -> None:
        """Add the laws of an unknown."""
        if atom in self._learned:
            return
        self._learned.add(atom)
        if atom.op == "wrapped":
            self._learn_wrapped(atom)
            return
        self.facts.append(self.condition(law_of(atom)))
        if atom.op == "entry":
            for other in self._entries:
                if other.data == atom.data:
                    apart = ~terms.equal(atom.args[0], other.args[0])
                    self.facts.append(self.condition(apart | terms.equal(atom, other)))
            self._entries.append(atom)

    def _learn_wrapped(self, atom: Term) -> None:
        bits, signed = atom.data
        self.facts.append(self.condition(terms.stays(_linear(atom), bits, signed)))
        turns = _turns(atom)
        ways = terms.equal(turns, terms.number(0)), turns >= 1
        less = turns <= -1
        self.facts.append(Any_(tuple([self.condition(way) for way in (*ways, less)])))


def _less_one(x: Term) -> Term:
    return x - 1


def _is_replaced(atom: Term) -> bool:
    """Whether an atom is rewritten by simpler terms, as max(x, y) is by x and by y in two cases."""
    if atom.op == "remainder":
        return terms.is_number(atom.args[1]) and terms.value_of_number(atom.args[1]) >= 1
    return atom.op in ("least", "most", "choice", "sign", "wrapped")


def _turns(atom: Term) -> Term:
    """The unknown t of a wrapped number x + 2**bits t."""
    return terms.variable(f"turns {atom.serial}")


def _linear(atom: Term) -> Term:
    """A remainder by a constant as x - c f, or a wrapped number as x + 2**bits t."""
    if atom.op == "wrapped":
        bits: int = atom.data[0]
        return atom.args[0] + (1 << bits) * _turns(atom)
    x, c = atom.args
    return x - c * (x // c)
