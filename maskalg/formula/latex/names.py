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

_CALLS: Final = {
    "exp": r"\exp\left({}\right)",
    "exp2": r"2^{{{}}}",
    "expm1": r"\left(\exp\left({}\right) - 1\right)",
    "log": r"\ln\left({}\right)",
    "log2": r"\log_2\left({}\right)",
    "log1p": r"\ln\left(1 + {}\right)",
    "sqrt": r"\sqrt{{{}}}",
    "sin": r"\sin\left({}\right)",
    "cos": r"\cos\left({}\right)",
    "tan": r"\tan\left({}\right)",
    "tanh": r"\tanh\left({}\right)",
    "sigmoid": r"\sigma\left({}\right)",
    "erf": r"\operatorname{{erf}}\left({}\right)",
    "abs": r"\left\lvert {} \right\rvert",
    "floor": r"\left\lfloor {} \right\rfloor",
    "ceil": r"\left\lceil {} \right\rceil",
}


def index_latex(name: str) -> str:
    """An index by its letter."""
    return _INDICES.get(name) or name_latex(name)


def name_latex(name: str) -> str:
    """A name in upright letters, whatever characters it has."""
    return rf"\mathrm{{{''.join(_SPECIAL.get(character, character) for character in name)}}}"


def call_latex(function: str, argument: str) -> str:
    """A real function of an argument that is LaTeX already."""
    return _CALLS[function].format(argument)


def text_latex(text: str) -> str:
    """Words among formulas."""
    return rf"\text{{{''.join(_SPECIAL.get(c, c) if c in '_{}$&#%' else c for c in text)}}}"
