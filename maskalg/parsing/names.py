"""The white list: every name that the text of an expression may use."""

from __future__ import annotations

import math
from functools import reduce
from types import ModuleType
from typing import Final

from ..formula.expression import Expression
from ..values import biases, choice, elementary, index, masks
from ..values.algebra import Bias, Mask, Score
from ..values.index import Index
from . import tensors

Operand = Index | float


def _least(first: Operand, second: Operand, *others: Operand) -> Index:
    """The smallest of index expressions; formulas print it so."""
    return reduce(elementary.minimum, others, elementary.minimum(first, second))


def _most(first: Operand, second: Operand, *others: Operand) -> Index:
    """The largest of index expressions."""
    return reduce(elementary.maximum, others, elementary.maximum(first, second))


def _absolute(value: object) -> Index:
    """The distance of an index expression from 0."""
    return abs(index.Index(index.as_node(value)))


def _public(*modules: ModuleType) -> dict[str, object]:
    return {name: getattr(module, name) for module in modules for name in module.__all__}


_MASKS: Final = _public(masks)
NAMES: Final[dict[str, object]] = {
    **_MASKS,
    **_public(biases, index, elementary, choice),
    "min": _least,
    "max": _most,
    "abs": _absolute,
    "trunc": elementary.truncate,  # as formulas are printed
    "inf": math.inf,  # likewise
    "lengths": tensors.lengths,
    "arange": tensors.arange,
    "load": tensors.load,
}

_OF_EXPRESSIONS = ("at", "shift", "bind")


def methods_of(value: object) -> tuple[str, ...]:
    """The methods that may be called on a value."""
    if isinstance(value, Expression):
        return _OF_EXPRESSIONS
    if any(value is mask for mask in _MASKS.values()):
        return tuple(name for name in vars(type(value)) if name.startswith("from_"))
    return ()


def described(value: object) -> str:
    """A value's kind, in words."""
    words = {
        Mask: "a mask",
        Bias: "a bias",
        Score: "a score",
        Index: "an index expression",
        int: "a number",
        float: "a number",
        bool: "a truth value",
        str: "a text",
        tensors.Listed: "a list",
        tuple: "a tuple",
    }
    if type(value) not in words and callable(value):
        name = next((name for name, known in NAMES.items() if known is value), None)
        if name is not None:
            return f"the function {name}"
    return words.get(type(value), f"a {type(value).__name__}")
