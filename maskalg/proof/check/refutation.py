"""Refutations: a system of integer conditions has no solution, by SymPy's linear solver.

Alternatives are tried one after the other. A solution of the inequalities chosen so far (`simplex`)
either violates a choice, whose alternatives are tried next, or satisfies all. Inequalities that
contradict each other name the choices to blame; other choices are not tried again. SymPy's solver
confirms every contradiction by itself, so the search need only cover all cases.

Arithmetic is over rational numbers, with two additions for integers: `2 x - 1 >= 0` becomes
`x - 1 >= 0`, and a number between n and n + 1 is at most n or at least n + 1. A refuted system has
no integer solution; one that is not refuted may still have none. Steps are counted, not time, so
the answer is the same on any machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import floor, gcd
from typing import Any, Final, Literal

import sympy as sp

from ...formula.laws import All, Any_, Condition, Linear, NotNegative
from .simplex import Number, Simplex, TooLarge

Verdict = Literal["refuted", "open", "too large"]


@dataclass(frozen=True)
class Budget:
    """The most pivots and alternatives of a search."""

    pivots: int = 1500
    choices: int = 400


DEEPEST: Final = 120  # alternatives below each other: Python's stack is not ours alone
_SPLITS: Final = 4  # of a number between two integers, one below the other

Atom = tuple[int, int]  # form, and the least that it may be
Plain = tuple[tuple[tuple[int, int], ...], int]  # terms as unknown and coefficient, and the least


class _Solvable(Exception):
    """Every condition holds at a solution over the rational numbers."""


def refuted(conditions: Iterable[Condition]) -> bool:
    """True only if no integers satisfy all conditions."""
    return refutation(conditions) == "refuted"


def refutation(
    conditions: Iterable[Condition], budget: Budget = Budget(), *, by_sums: bool = False
) -> Verdict:
    """Whether a system of conditions is refuted, left open, or too large to decide.

    Args:
        conditions: the system.
        budget: a system that needs more is too large.
        by_sums: confirm contradictions by adding up their inequalities instead of by SymPy.
    """
    search = _Search(budget)
    read = search.read(All(tuple(conditions)))
    if isinstance(read, bool):
        return "open" if read else "refuted"
    try:
        search.excluded([], read, _SPLITS)
    except _Solvable:
        return "open"
    except TooLarge:
        return "too large"
    return "refuted" if search.confirmed(by_sums=by_sums) else "open"


@dataclass(frozen=True)
class _Choice:
    """A choice of alternatives: at least one holds."""

    parts: tuple[Part, ...]


@dataclass(frozen=True)
class _Together:
    """Parts that all hold."""

    parts: tuple[Part, ...]


Part = Atom | _Choice | _Together


class _Search:
    def __init__(self, budget: Budget) -> None:
        self._simplex = Simplex(budget.pivots)
        self._choices = budget.choices
        self._depth = 0
        self._forms: dict[int, dict[Any, int]] = {}
        self._active: list[Atom] = []
        self._cores: dict[frozenset[Atom], dict[Atom, Number]] = {}

    def read(self, condition: Condition) -> Part | bool:
        """The condition over numbered forms; True or False if it holds no unknown."""
        if isinstance(condition, NotNegative):
            return self._atom(condition.expression)
        parts = [self.read(part) for part in condition.parts]
        decisive = isinstance(condition, Any_)
        if any(part is decisive for part in parts):
            return decisive
        kept = tuple(dict.fromkeys(part for part in parts if not isinstance(part, bool)))
        if not kept:
            return not decisive
        if len(kept) == 1:
            return kept[0]
        return _Choice(kept) if decisive else _Together(kept)

    def _atom(self, expression: Any) -> Atom | bool:
        plain = isinstance(expression, Linear)
        terms, constant = (
            _divided(expression.terms, expression.constant) if plain else _tightened(expression)
        )
        return (self._form(dict(terms)), -constant) if terms else constant >= 0

    def _form(self, coefficients: dict[Any, int]) -> int:
        form = self._simplex.form(coefficients)
        self._forms[form] = coefficients
        return form

    def excluded(self, choices: list[_Choice], added: Part, splits: int) -> frozenset[Atom]:
        """The active inequalities that have no solution together with `added` and the open choices.

        Raises:
            _Solvable: there is a solution, over the rational numbers.
            TooLarge: a budget is spent.
        """
        before, later = len(self._active), list(choices)
        self._depth += 1
        try:
            self._take(added, later)
            return self._decided(later, splits)
        finally:
            self._depth -= 1
            while len(self._active) > before:
                self._simplex.release(*self._active.pop())

    def _take(self, part: Part, later: list[_Choice]) -> None:
        """Switch on the inequalities of a part, and put its choices into `later`."""
        if isinstance(part, _Choice):
            later.append(part)
        elif isinstance(part, _Together):
            for inner in part.parts:
                self._take(inner, later)
        else:
            self._active.append(part)
            self._simplex.require(*part)

    def _decided(self, choices: list[_Choice], splits: int) -> frozenset[Atom]:
        conflict = self._simplex.conflict()
        if conflict is not None:
            core = frozenset(conflict)
            self._cores.setdefault(core, conflict)
            return core
        self._choices -= 1
        if self._choices < 0 or self._depth > DEEPEST:
            raise TooLarge
        undecided = [choice for choice in choices if not self._met(choice)]
        if undecided:
            chosen = min(undecided, key=lambda choice: len(choice.parts))
            choices = [choice for choice in choices if choice is not chosen]
        else:
            chosen, splits = self._split(splits), splits - 1
        before, blamed = frozenset(self._active), frozenset[Atom]()
        for part in chosen.parts:
            core = self.excluded(choices, part, splits)
            if core <= before and not _chooses(part):
                # The part was not to blame, so neither are its siblings.
                return core
            blamed |= core & before
        return blamed

    def _met(self, part: Part) -> bool:
        """Whether the present solution satisfies a part."""
        if isinstance(part, _Choice):
            return any(self._met(inner) for inner in part.parts)
        if isinstance(part, _Together):
            return all(self._met(inner) for inner in part.parts)
        return self._simplex.level(part[0]) >= part[1]

    def _split(self, splits: int) -> _Choice:
        """The choice x <= n or x >= n + 1, for an unknown whose value is between n and n + 1."""
        unknowns = dict.fromkeys(unknown for form in self._forms.values() for unknown in form)
        between = (m for m in unknowns if self._simplex.value(m).denominator != 1)
        unknown = next(between, None)
        if unknown is None or not splits:
            raise _Solvable
        below = floor(self._simplex.value(unknown))
        up, down = self._form({unknown: 1}), self._form({unknown: -1})
        return _Choice(((up, below + 1), (down, -below)))

    def confirmed(self, *, by_sums: bool) -> bool:
        """Whether each blamed set of inequalities is contradictory, by SymPy or by sums."""
        if by_sums:
            return all(map(self._adds_up, self._cores.values()))
        return all(_contradictory(self._plain(core)) for core in self._cores)

    def _adds_up(self, weights: dict[Atom, Number]) -> bool:
        """Whether inequalities times their weights add up to a contradiction: 0 >= some n > 0."""
        total: dict[Any, Number] = {}
        for (form, _), weight in weights.items():
            for unknown, coefficient in self._forms[form].items():
                total[unknown] = total.get(unknown, 0) + weight * coefficient
        above = sum([weight * least for (_, least), weight in weights.items()])
        return min(weights.values()) > 0 and not any(total.values()) and above > 0

    def _plain(self, core: frozenset[Atom]) -> tuple[Plain, ...]:
        """The inequalities with unknowns numbered in order of appearance, sorted by shape."""
        numbers: dict[Any, int] = {}
        rows = []
        for form, least in sorted(core, key=self._shape):
            terms = [(numbers.setdefault(m, len(numbers)), c) for m, c in self._forms[form].items()]
            rows.append((tuple(terms), least))
        return tuple(rows)

    def _shape(self, atom: Atom) -> tuple[object, ...]:
        form, least = atom
        return len(self._forms[form]), least, sorted(self._forms[form].values()), form


def _chooses(part: Part) -> bool:
    """Whether a part contains further choices."""
    if isinstance(part, _Together):
        return any(_chooses(inner) for inner in part.parts)
    return isinstance(part, _Choice)


@lru_cache(maxsize=16384)
def _tightened(expression: Any) -> tuple[tuple[tuple[Any, int], ...], int]:
    """Terms and constant of expression >= 0, as tight as integers allow: 2x - 1 is x - 1."""
    terms = dict(sp.expand(expression).as_coefficients_dict())
    if not all(number.is_Integer for number in terms.values()):
        raise ValueError(f"{expression} has coefficients that are not integers")
    constant = int(terms.pop(sp.S.One, 0))
    return _divided([(m, int(c)) for m, c in terms.items()], constant)


def _divided(
    terms: Sequence[tuple[Any, int]], constant: int
) -> tuple[tuple[tuple[Any, int], ...], int]:
    divisor = gcd(*[c for _, c in terms]) or 1
    return tuple([(m, c // divisor) for m, c in terms]), constant // divisor


@lru_cache(maxsize=4096)
def _contradictory(rows: tuple[Plain, ...]) -> bool:
    relations = []
    for terms, least in rows:
        total = sp.Add(*[c * sp.Symbol(f"m{number}", real=True) for number, c in terms])
        relations.append(sp.Ge(total, least, evaluate=False))
    return sp.satisfiable(sp.And(*relations), use_lra_theory=True) is False
