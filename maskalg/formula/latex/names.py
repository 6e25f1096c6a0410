"""Names and functions in LaTeX."""

from __future__ import annotations

from typing import Final

_INDICES: Final = {
    "q_idx": "q",
    "kv_idx": "k",
    "batch": "b",
    "head": "h",
    "q0": "q_{0}",
    "q1": "q_{1}",
}
_SPECIAL: Final = {
    "\\": r"\backslash ",
    "^": r"\wedge ",
    "~": r"\sim ",
    "<": r"\lt ",
    ">": r"\gt ",
    " ": r"\ ",
    **{character: f"\\{character}" for character in "_{}$&#%"},
}


def index_latex(name: str) -> str:
    """An index by its letter."""
    return _INDICES.get(name) or name_latex(name)


def name_latex(name: str) -> str:
    """A name in upright letters, whatever characters it has."""
    return rf"\mathrm{{{''.join(_SPECIAL.get(character, character) for character in name)}}}"


def text_latex(text: str) -> str:
    """Words among formulas."""
    return rf"\text{{{''.join(_SPECIAL.get(c, c) if c in '_{}$&#%' else c for c in text)}}}"
