"""The results of the kernels' library functions, stated as terms.

Kernels divide by a number of the call with a multiplication and a shift, from which no solver
recovers the quotient. So results are not read from the text of these functions but stated here.
Tests prove them from the text (`tests/verifier/test_library.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .. import terms
from ..meaning import NotDefined
from ..solve import ANYTHING
from ..terms import Table, Term
from .triton import address, alike, as_number, of_reals
from .values import BOOL, FLOAT32, INT64, Number, converted


@dataclass(frozen=True)
class Long:
    """An integer held in parts of 64 bits."""

    term: Term
    limbs: int = 2


class Library:
    """The functions, by name. A divisor is known by the factor and shift that stand for it.

    Args:
        divisors: divisors, by the names of the variables of their factor and shift.
    """

    def __init__(self, divisors: Mapping[tuple[str, str], Term]) -> None:
        self._divisors = divisors

    def summaries(self) -> dict[str, Callable[..., Any]]:
        found: dict[str, Callable[..., Any]] = {
            "floor_div": floored(terms.quotient),
            "floor_mod": floored(terms.remainder),
            "quotient": lambda x, m, s: self._by_factor(terms.quotient, x, m, s, any_sign=False),
            "quotient_of_any": lambda x, m, s: self._by_factor(terms.quotient, x, m, s),
            "remainder": lambda x, c, m, s: self._remainder(x, c, m, s, any_sign=False),
            "remainder_of_any": lambda x, c, m, s: self._remainder(x, c, m, s),
            "whole": lambda x: Number(terms.apply("cut to 32 bits", as_number(x).term), FLOAT32),
            **_LONG,
        }
        for name in ("tanh", "sigmoid", "tan", "expm1", "log1p", "power"):
            found[name] = found[f"{name}_ptx"] = of_reals(name)
        return found

    def _by_factor(
        self,
        operation: Callable[[Term, Term], Term],
        x: Any,
        factor: Any,
        shift: Any,
        any_sign: bool = True,
    ) -> Number:
        """A quotient or remainder of a 32-bit integer by the divisor with this factor and shift."""
        divisor = self._divisor(factor, shift)
        value = as_number(x)
        if value.type.kind != "int" or value.type.bits != 32:
            raise NotDefined(f"a division of {value.type} by a factor")
        found = operation(value.term, divisor)
        known = [divisor >= 1]
        if not any_sign:
            known.append(value.term >= 0)
        return Number(where_known(known, found, value.term), value.type)

    def _remainder(self, x: Any, c: Any, m: Any, s: Any, any_sign: bool = True) -> Number:
        divisor, by = self._divisor(m, s), as_number(c)
        if terms.replaced(by.term, unwrapped) is not terms.replaced(divisor, unwrapped):
            raise NotDefined("a remainder by another number than its factor stands for")
        return self._by_factor(terms.remainder, x, m, s, any_sign)

    def _divisor(self, factor: Any, shift: Any) -> Term:
        names = str(as_number(factor).term.data), str(as_number(shift).term.data)
        found = self._divisors.get(names)
        if found is None:
            raise NotDefined(f"the factor and shift {names}")
        return found


def unwrapped(term: Term) -> Term | None:
    """The term inside a wrapped one, else None; for `terms.replaced`."""
    return term.args[0] if term.op == "wrapped" else None


def where_known(conditions: list[Term], found: Term, x: Term) -> Term:
    """The result where all conditions hold, else an unknown function of x."""
    anything = Table(ANYTHING, found.sort, -(2**1024), 2**1024)
    return terms.choice(terms.both(*conditions), found, terms.entry(anything, x))


def floored(operation: Callable[[Term, Term], Term]) -> Callable[[Any, Any], Number]:
    """A division that rounds down, by a divisor of at least 1."""

    def summary(x: Any, c: Any) -> Number:
        left, right = alike(x, c)
        known = [right.term >= 1]
        return Number(where_known(known, operation(left.term, right.term), left.term), left.type)

    return summary


# --- integers of 128 bits ------------------------------------------------------------------------


def _long(term: Term) -> Long:
    return Long(terms.wrapped(term, 128))


def _of_long(op: str) -> Callable[[Long, Long], Long]:
    rule = terms.OF_INTEGERS[op]
    made = _long if op in ("add", "mul") else Long
    return lambda a, b: made(rule(a.term, b.term))


def _long_near(a: Long, most: int) -> Number:
    ends = terms.most(a.term, terms.number(-most)), terms.number(most)
    return Number(terms.least(*ends), INT64)


_OPERATIONS: Final = {
    "add": "add", "multiply": "mul", "minimum": "min", "maximum": "max", "floor_div": "floordiv",
    "floor_mod": "mod", "and": "bitand", "or": "bitor", "xor": "bitxor",
}  # fmt: skip
_LONG: Final[dict[str, Callable[..., Any]]] = {
    **{f"long_{name}": _of_long(op) for name, op in _OPERATIONS.items()},
    "long_of": lambda x: Long(converted(address(x), INT64).term),
    "long_number": lambda low, high: Long(terms.number((high << 64) + low % (1 << 64))),
    "long_negate": lambda a: _long(-a.term),
    "long_at_least": lambda a, b: Number(a.term >= b.term, BOOL),
    "long_equal": lambda a, b: Number(terms.equal(a.term, b.term), BOOL),
    "long_where": lambda c, a, b: Long(terms.choice(as_number(c).as_condition, a.term, b.term)),
    "long_near": _long_near,
    "long_real": lambda a: Number(terms.apply("a double of", terms.real_of(a.term)), FLOAT32),
}
