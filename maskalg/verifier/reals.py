"""Biases and their derivatives, compared by SymPy as functions of real numbers.

Kernels compute a bias in another order than its formula, which rounds differently. So two things
are proved: text and formula are the same function of real numbers, and the text of the slope is the
derivative of the formula, as SymPy computes it. Integers in them (indices of tables, distances) are
compared as in masks. Choices are split into cases: in each, both must be equal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import sympy as sp

from . import terms
from .meaning import SCORE
from .solve import MILLISECONDS, Verdict, prove
from .terms import Term

_MOST_CASES: Final = 512
_OF_A_CASE: Final = 300  # milliseconds
_LEAVES: Final = ("entry", "whole", "of_bits")
_BY: Final = "SymPy, as functions of real numbers"


class _Undecided(Exception):
    """The case has to be split: a condition in it may be true or false."""


def prove_real(
    given: Sequence[Term],
    text: Term,
    formula: Term,
    scale: tuple[Term, bool] | None,
    *,
    slope: bool = False,
    milliseconds: int = MILLISECONDS,
) -> Verdict:
    """Whether a text computes a formula of the score, or (`slope`) its derivative.

    Args:
        given: assumptions about the integers.
        text: a term of the score, or of a product q . k where there is a scale.
        formula: the bias, a term of the score.
        scale: the factor from products to scores, and whether the text's result still has to be
            multiplied by it.
        slope: whether the text computes the derivative.
        milliseconds: time limit of a claim about integers.
    """
    started = time.perf_counter()
    text = _with_leaves_of(given, _decided(given, text, milliseconds), formula, milliseconds)
    unit = sp.Symbol("scale", positive=True)
    score = sp.Symbol("score", real=True)
    cases: list[dict[Any, bool]] = [{}]
    for _ in range(_MOST_CASES):
        if not cases:
            return Verdict("proved", _BY, time.perf_counter() - started)
        case = cases.pop()
        try:
            wanted = _Reals(score, case, given, ties=not slope)(formula)
            of = score if scale is None else score / unit
            own = (scale[0], unit) if scale else None
            found = _Reals(of, case, given, ties=not slope, unit=own)(text)
        except _Undecided as asked:
            cases += [{**case, asked.args[0]: value} for value in (True, False)]
            continue
        if slope:
            wanted = sp.diff(wanted, score).replace(sp.Derivative, _of_steps)
        elif scale is not None and scale[1]:
            found = found * unit
        difference = sp.expand(found - wanted)
        if difference != 0 and sp.simplify(difference) != 0:
            why = f"SymPy does not find both equal: {found} and {wanted}"
            return Verdict("open", why[:300], time.perf_counter() - started)
    return Verdict("open", f"more than {_MOST_CASES} cases", time.perf_counter() - started)


def _of_steps(function: Any, *by: Any) -> Any:
    """The derivative of `floor` and `ceiling`: 0 between the steps."""
    steps = isinstance(function, (sp.floor, sp.ceiling))
    return sp.Integer(0) if steps else sp.Derivative(function, *by)


def _decided(given: Sequence[Term], text: Term, milliseconds: int) -> Term:
    """The term without choices whose condition always holds, or never does."""

    def replace(part: Term) -> Term | None:
        if part.op != "choice" or not _of_integers(part.args[0]):
            return None
        if prove(given, part.args[0], milliseconds).outcome == "proved":
            return part.args[1]
        if prove(given, ~part.args[0], milliseconds).outcome == "proved":
            return part.args[2]
        return None

    return terms.replaced(text, replace)


def _with_leaves_of(given: Sequence[Term], text: Term, formula: Term, milliseconds: int) -> Term:
    """The text, with entries, integers and conditions written as the formula's equal ones."""
    wanted = [part for part in formula.walk() if part.op == "entry"]
    chosen = [part.args[0] for part in formula.walk() if part.op == "choice"]
    integers = [part.args[0] for part in formula.walk() if part.op == "real_of"]

    def equal_to(claim: Term) -> bool:
        return prove(given, claim, milliseconds).outcome == "proved"

    def replace(part: Term) -> Term | None:
        if part.op == "entry" and part not in wanted:
            for other in wanted:
                same = terms.equal(part.args[0], other.args[0])
                if other.data == part.data and equal_to(same):
                    return other
        if part.op == "real_of" and part.args[0] not in integers:
            for integer in integers:
                if equal_to(terms.equal(part.args[0], integer)):
                    return terms.real_of(integer)
        if part.op == "choice" and part.args[0] not in chosen and _of_integers(part.args[0]):
            for condition in filter(_of_integers, chosen):
                if equal_to(terms.same(condition, part.args[0])):
                    return terms.choice(condition, *part.args[1:])
        return None

    return terms.replaced(text, replace)


def _of_integers(condition: Term) -> bool:
    return not any(part.sort == "real" for part in condition.walk())


class _Reals:
    """Terms as SymPy's expressions, in one case of their conditions.

    Args:
        score: SymPy's expression for the score.
        case: conditions, and whether they hold.
        given: assumptions about the integers.
        ties: whether x > 0 and x >= 0 differ. For a derivative they do not: where two pieces meet,
            the slope of either one is right.
        unit: the variable of the scale, and SymPy's.
    """

    def __init__(
        self,
        score: Any,
        case: dict[Any, bool],
        given: Sequence[Term],
        *,
        ties: bool,
        unit: tuple[Term, Any] | None = None,
    ) -> None:
        self._score, self._case, self._ties, self._unit = score, case, ties, unit
        self._given = given
        self._known: dict[int, Any] = {}

    def __call__(self, term: Term) -> Any:
        if term.serial not in self._known:
            self._known[term.serial] = self._made(term)
        return self._known[term.serial]

    def _made(self, term: Term) -> Any:
        if term is SCORE:
            return self._score
        if self._unit is not None and term is self._unit[0]:
            return self._unit[1]
        if term.op == "choice":
            chosen, then, otherwise = term.args
            return self(then if self._holds(chosen) else otherwise)
        if term.op == "real":
            infinite = abs(term.data) == float("inf") or term.data != term.data
            return sp.Float(term.data) if infinite else sp.Rational(term.data)
        if term.op == "sum":
            constant, coefficients = term.data
            parts = zip(coefficients, map(self, term.args), strict=True)
            return sp.Integer(constant) + sum(times * part for times, part in parts)
        if term.op == "product":
            return sp.prod(map(self, term.args))
        if term.op in ("most", "least"):
            found = term.args[0]
            for arg in term.args[1:]:
                first = self._holds(found >= arg)
                found = found if first is (term.op == "most") else arg
            return self(found)
        if term.op == "real_of":
            return self(term.args[0])
        if term.op == "apply" and term.sort == "real":
            integer = _integer(term)
            if integer is not None:
                return self(integer)
            return self._applied(term.data, list(map(self, term.args)))
        # Equal terms are one object, and so one symbol.
        return sp.Symbol(f"x{term.serial}", real=True, integer=term.sort == "int" or None)

    def _applied(self, name: str, args: list[Any]) -> Any:
        if name.startswith(("minimum", "maximum")):
            return self._extreme(name.startswith("maximum"), args)
        if name == "abs":
            return args[0] if self._at_least(args[0], strict=False, tie=True) else -args[0]
        rule = _RULES.get(name)
        if rule is None:
            rule = getattr(sp, name, None) or sp.Function(name.replace(" ", "_"), real=True)
        return rule(*args)

    def _extreme(self, largest: bool, args: list[Any]) -> Any:
        found = args[0]
        for arg in args[1:]:
            first = self._at_least(found - arg, strict=False, tie=True)
            found = found if first is largest else arg
        return found

    def _holds(self, condition: Term) -> bool:
        if condition.op == "no":
            return not self._holds(condition.args[0])
        if condition.op in ("both", "either"):
            join = all if condition.op == "both" else any
            return join([self._holds(part) for part in condition.args])
        if condition is terms.TRUE or condition is terms.FALSE:
            return condition is terms.TRUE
        if condition.op == "apply" and condition.data in ("greater", "greater or equal"):
            left, right = map(self, condition.args)
            return self._at_least(left - right, strict=condition.data == "greater")
        if condition not in self._case and _of_integers(condition):
            held = [part if value else ~part for part, value in self._case.items()
                    if isinstance(part, Term)]  # fmt: skip
            for claim in (condition, ~condition):
                if prove([*self._given, *held], claim, _OF_A_CASE).outcome == "proved":
                    return claim is condition
        return self._known_case(condition)

    def _at_least(self, x: Any, *, strict: bool, tie: bool = False) -> bool:
        """Whether x >= 0, or x > 0 if `strict`; with `tie`, either answer is right at x = 0."""
        x = sp.expand(x)
        if x.is_number:
            return bool(x > 0 if strict else x >= 0)
        if sp.default_sort_key(-x) < sp.default_sort_key(x):
            # -x > 0 where x >= 0 does not hold.
            if self._ties and not tie:
                return not self._known_case((-x, not strict))
            return not self._known_case((-x, False))
        return self._known_case((x, strict and self._ties and not tie))

    def _known_case(self, key: Any) -> bool:
        if key not in self._case:
            raise _Undecided(key)
        return self._case[key]


def _integer(term: Term) -> Term | None:
    """The integer equal to a real number, if its form shows one."""
    if term.op == "real_of":
        return term.args[0]
    if term.op == "real" and term.data == int(term.data if abs(term.data) < 2**24 else 0):
        return terms.number(int(term.data))
    parts = [_integer(arg) for arg in term.args] if term.op == "apply" else []
    found = [part for part in parts if part is not None]
    if not found or len(found) < len(parts):
        return None
    if term.data == "abs":
        return terms.most(found[0], -found[0])
    if str(term.data).startswith(("minimum", "maximum")):
        return (terms.most if term.data.startswith("maximum") else terms.least)(*found)
    return None


_RULES: Final[dict[str, Callable[..., Any]]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y,
    "divide quickly": lambda x, y: x / y,
    "fma": lambda x, y, z: x * y + z,
    "negative": lambda x: -x,
    "power": lambda x, y: x**y,
    "exp2": lambda x: 2**x,
    "expm1": lambda x: sp.exp(x) - 1,
    "log1p": lambda x: sp.log(1 + x),
    "log2": lambda x: sp.log(x) / sp.log(2),
    "sqrt quickly": sp.sqrt,
    "ceil": sp.ceiling,
    "sigmoid": lambda x: 1 / (1 + sp.exp(-x)),
    "a double of": lambda x: x,
}
