"""The formula of a mask in LaTeX, as it stands, straight from its nodes."""

from __future__ import annotations

import re
from typing import Final

from ...formula.node import Node
from ...formula.printing import formula_text

_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _UNARY = range(7)
_INFIX: Final = {
    "or": (r" \lor ", _OR),
    "and": (r" \land ", _AND),
    "ge": (r" \ge ", _COMPARE),
    "gt": (" > ", _COMPARE),
    "eq": (" = ", _COMPARE),
    "mul": (r" \, ", _PRODUCT),
    "mod": (r" \bmod ", _PRODUCT),
}
_NAMES: Final = {"q_idx": "q", "kv_idx": "k"}


def formula_latex(node: Node, around: int = _OR) -> str:
    """A mask's formula, or an index expression within one."""
    op, args = node.op, node.args
    if op in _INFIX:
        sign, level = _INFIX[op]
        inner = level + (op == "mod" or level == _COMPARE)
        return _wrap(sign.join(formula_latex(arg, inner) for arg in args), level, around)
    if op == "const":
        if isinstance(node.data, bool):
            return r"\top" if node.data else r"\bot"
        return str(node.data)
    if op == "index":
        return name_latex(str(node.data))
    if op == "scalar":
        return name_latex(formula_text(node))
    if op == "not":
        return rf"\lnot {formula_latex(args[0], _UNARY)}"
    if op == "add":
        return _wrap(_sum(args), _SUM, around)
    if op == "floordiv":
        x, c = (formula_latex(arg) for arg in args)
        return rf"\left\lfloor \frac{{{x}}}{{{c}}} \right\rfloor"
    inner_text = ", ".join(formula_latex(arg) for arg in args)
    if op in ("min", "max"):
        return rf"\{op}\left({inner_text}\right)"
    if op == "read":
        table = name_latex(node.own[0].name)
        return rf"{table}\left[{inner_text}\right]" if args else table
    return name_latex(formula_text(node))


def name_latex(name: str) -> str:
    """A name: letters with an index as in mathematics (`q0`), others upright (`window`)."""
    named = _NAMES.get(name, name)
    if re.fullmatch(r"-?[0-9.]+", named):
        return named
    if re.fullmatch(r"[A-Za-z][0-9]?", named):
        return named[0] + (f"_{{{named[1:]}}}" if named[1:] else "")
    plain = re.sub(r"\bq_idx\b", "q", re.sub(r"\bkv_idx\b", "k", named))
    return rf"\mathrm{{{escaped(plain)}}}"


def escaped(text: str) -> str:
    """Text with the characters that LaTeX would read as its own set apart."""
    return re.sub(r"([_%&#$])", r"\\\1", text).replace("~", r"\lnot ")


def _sum(terms: tuple[Node, ...]) -> str:
    plus, minus = [], []
    for term in sorted(terms, key=lambda t: (t.op == "const", t.op != "index", t.data != "q_idx")):
        factor = next((a for a in term.args if a.op == "const"), None) if term.op == "mul" else None
        number = term.data if term.op == "const" else factor.data if factor else 0
        if not isinstance(number, (int, float)) or number >= 0:
            plus.append(formula_latex(term, _SUM))
            continue
        rest = [formula_latex(arg, _PRODUCT) for arg in term.args if arg is not factor]
        scale = [] if factor is not None and number == -1 else [str(-number)]
        minus.append(r" \, ".join(scale + rest))
    return " + ".join(plus) + "".join(f" - {text}" for text in minus)


def _wrap(text: str, level: int, around: int) -> str:
    return rf"\left({text}\right)" if level < around else text
