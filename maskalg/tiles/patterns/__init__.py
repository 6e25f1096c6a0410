"""The patterns: each file in this folder holds one, with the fields that `pattern.py` describes."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from ...engine.normal_form import Structure
from ..pattern import Counted, Pattern, Rows


def _found() -> dict[str, Pattern]:
    modules = [import_module(f".{module.name}", __name__) for module in iter_modules(__path__)]
    patterns: list[Pattern] = [module.PATTERN for module in modules]
    return {pattern.name: pattern for pattern in sorted(patterns, key=lambda found: found.place)}


PATTERNS: Final = _found()
"""The patterns by name, in their order."""


def pattern_of(structure: Structure, *, gradients: bool = False) -> str:
    """The name of the pattern that an expression's structure has, whatever its values are.

    For gradients, the tensors that a bias reads do not count, except tables of pairs: reading them
    is little beside the cost of gradients.
    """
    rows = Rows(structure, gradients=gradients)
    return next(pattern.name for pattern in PATTERNS.values() if pattern.holds(rows))


def as_short(pattern: str) -> str:
    """The pattern of rows of few keys.

    With few long programs, multiprocessors are idle at the end; with small tiles they are less so.
    """
    return PATTERNS[pattern].short or pattern


def as_counted(pattern: str, counted: Counted, *, gradients: bool = False) -> str:
    """The pattern for rows whose tiles were counted."""
    if counted == "small":
        return "reading"
    served = counted == "large, in long runs" or not gradients
    return (served and PATTERNS[pattern].large) or pattern


def as_long(pattern: str, paths: bool) -> str:
    """The pattern where documents, or `paths` of them, are known to be long."""
    found = PATTERNS[pattern]
    return (found.long_paths if paths else found.long_documents) or pattern
