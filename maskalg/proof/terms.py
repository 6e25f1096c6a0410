"""A mask as a signed sum of clauses, so that kept pairs are counted clause by clause.

Clauses of a mask may overlap: |A or B| = |A| + |B| - |A and B|. A conjunction of clauses is a
clause; contradictory and repeated ones are dropped as clauses are joined.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from ..engine.normal_form import Structure
from .closed_forms import Section
from .literals import Alone, AtLeastZero, Clause, Clauses, Congruence
from .section import congruence_formula, section_by
from .signs import OverBudget, Signs
from .symbols import Symbols

_MOST_TERMS: Final = 48


@dataclass(frozen=True)
class Term:
    """A clause that counts `sign` times, as a section.

    `keys` has the key as its own index, `queries` the query; at least one is not None.
    """

    sign: int
    keys: Section | None
    queries: Section | None


@dataclass(frozen=True)
class SignedSum:
    """The kept pairs (if `dropped`, the dropped ones) as the sum of the terms times their signs."""

    terms: tuple[Term, ...]
    dropped: bool


@lru_cache(maxsize=4096)
def signed_sum(structure: Structure) -> SignedSum | None:
    """The sum of a structure's mask; None if a clause is not a section, or there are too many."""
    symbols = Symbols()
    signs = Signs(symbols)
    clauses = Clauses(symbols, signs)
    for dropped in (False, True):
        signs.restart()
        try:
            found = clauses.of(structure.mask, not dropped)
            joined = _joined([_without_documents(clause) for clause in found], clauses)
        except OverBudget:
            continue
        terms = [_term(clause, sign, signs, symbols) for clause, sign in joined.items()]
        counted = tuple(term for term in terms if term is not None)
        if len(counted) == len(terms):
            return SignedSum(counted, dropped)
    return None


def _without_documents(clause: Clause) -> Clause:
    """The clause without inequalities of document tables, which follow from an equality.

    Conjunctions of clauses then compare equalities alone.
    """
    return tuple(
        literal
        for literal in clause
        if not (isinstance(literal, AtLeastZero) and literal.documents)
    )


def _joined(clauses: list[Clause], of: Clauses) -> Counter[Clause]:
    """Each conjunction of clauses and how often it counts, without those that count 0 times."""
    terms: Counter[Clause] = Counter()
    for clause in clauses:
        both = Counter({clause: 1})
        for other, sign in terms.items():
            common = of.tidy(other + clause)
            if common is not None:
                both[common] -= sign
        for term, sign in both.items():
            terms[term] += sign
        terms = Counter({term: sign for term, sign in terms.items() if sign})
        if len(terms) > _MOST_TERMS:
            raise OverBudget(f"more than {_MOST_TERMS} clauses and conjunctions of them")
    return terms


def _term(clause: Clause, sign: int, signs: Signs, symbols: Symbols) -> Term | None:
    by_key, by_query = (_section(clause, own, signs, symbols) for own in ("kv_idx", "q_idx"))
    if by_key is None and by_query is None:
        return None
    return Term(sign, by_key, by_query)


def _section(clause: Clause, own: str, signs: Signs, symbols: Symbols) -> Section | None:
    """A section of the clause, with remainders as sets of distances if that helps."""
    by_distance = _remainders_as_distances(clause, symbols)
    return section_by(by_distance, own, signs, symbols) or section_by(clause, own, signs, symbols)


def _remainders_as_distances(clause: Clause, symbols: Symbols) -> Clause:
    """The clause with its remainders of q - k as conditions on the distance."""
    return tuple(
        Alone(congruence_formula(literal, symbols), "distance", literal.holds)
        if isinstance(literal, Congruence)
        else literal
        for literal in clause
    )
