"""Which formulas are compiled again and again, for nothing but other constants."""

from __future__ import annotations

import re
import warnings
from typing import Final

from ..engine.normal_form import Structure
from ..engine.recent import Recent
from ..formula.printing import formula_text
from . import messages

MANY: Final = 16
_NUMBER: Final = re.compile(r"\b\d+(\.\d+)?(e[+-]?\d+)?\b")
_SEEN: Final[Recent[str, set[str]]] = Recent(1024)


def count(structure: Structure) -> None:
    """Warn, once, when a formula comes with so many values of its constants."""
    formula = f"mask {formula_text(structure.mask)}, bias {formula_text(structure.bias)}"
    others = _SEEN.keep(_NUMBER.sub("#", formula), set())
    if len(others) < MANY and formula not in others:
        others.add(formula)
        if len(others) == MANY:
            warnings.warn(messages.recompiled(MANY, formula), stacklevel=2)
