"""Which formulas are compiled again and again, for nothing but other constants."""

from __future__ import annotations

import re
import warnings
from typing import Final

from .. import errors
from ..normalform import Structure
from ..printing import formula_text

MANY: Final = 16
_NUMBER: Final = re.compile(r"\b\d+(\.\d+)?(e[+-]?\d+)?\b")
_SEEN: Final[dict[str, set[str]]] = {}


def count(structure: Structure) -> None:
    """Warn, once, when a formula comes with so many values of its constants."""
    formula = f"mask {formula_text(structure.mask)}, bias {formula_text(structure.bias)}"
    others = _SEEN.setdefault(_NUMBER.sub("#", formula), set())
    if formula not in others:
        others.add(formula)
        if len(others) == MANY:
            warnings.warn(errors.recompiled(MANY, formula), stacklevel=2)
