"""Formulas and proofs in LaTeX, by SymPy's printer with the functions of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import sympy as sp
from sympy.printing.latex import LatexPrinter

from ..projection import KeyInterval
from .formula_latex import escaped, formula_latex, name_latex
from .story import Step, story_of

if TYPE_CHECKING:
    from ..proof import Proof


class _Printer(LatexPrinter):  # type: ignore[misc]
    def _as_ordered_terms(self, expr: Any, order: Any = None) -> list[Any]:
        """What is added before what is subtracted, the query first, numbers last."""
        return sorted(
            expr.args,
            key=lambda t: (t.could_extract_minus_sign(), t.is_number, "q" not in str(t), str(t)),
        )

    def _print_Symbol(self, symbol: Any, style: str = "plain") -> str:
        return name_latex(symbol.name)

    def _print_FloorDiv(self, division: Any, exp: Any = None) -> str:
        x, c = (self._print(arg) for arg in division.args)
        return _raised(rf"\left\lfloor \frac{{{x}}}{{{c}}} \right\rfloor", exp)

    def _print_Step(self, step: Any, exp: Any = None) -> str:
        prime = "'" if step.inverse else ""
        name = rf"\operatorname{{{step.table}}}{prime}_{{{name_latex(step.family)}}}"
        return _raised(rf"{name}\left({self._print(step.position)}\right)", exp)

    def _print_Entry(self, entry: Any, exp: Any = None) -> str:
        return _raised(name_latex(str(entry.args[0])), exp)


_PRINTER: Final = _Printer()


def expression_latex(expression: Any) -> str:
    """An expression of the proof."""
    return str(_PRINTER.doprint(expression))


def proof_latex(proof: Proof) -> str:
    """A proof's mask and closed forms; see `Proof.to_latex`."""
    rows = [rf"\text{{mask}} && {formula_latex(proof.mask)}"]
    if proof.assumptions:
        given = ", \\ ".join(_assumption(text) for text in proof.assumptions)
        rows.append(rf"\text{{given}} && {given}")
    story = story_of(proof.mask)
    for name, steps, texts in (
        ("touched", story.kept, proof.touched),
        ("not full", story.dropped, proof.unfull),
    ):
        if story.digits or steps is None:
            found = [rf"\text{{{escaped(text)}}}" for text in texts]
        else:
            found = [_keys(step) for step in steps if step.interval is not None]
        for number, text in enumerate(found or [r"\text{no key}"]):
            rows.append(rf"\text{{{name if number == 0 else 'or'}}} && {text}")
    return "\\begin{aligned}\n" + " \\\\\n".join(rows) + "\n\\end{aligned}"


def _keys(step: Step) -> str:
    assert step.interval is not None
    interval: KeyInterval = step.interval
    low, high = _extreme("max", interval.lows), _extreme("min", interval.highs)
    text = (rf"{low} \le " if low else "") + "k" + (rf" \le {high}" if high else "")
    if not low and not high:
        text = r"\text{every key}"
    congruence = interval.congruence
    if congruence is not None:
        distance = expression_latex(sp.Symbol("q") - sp.Symbol("k") + congruence.offset)
        sign = r"\equiv" if congruence.holds else r"\not\equiv"
        residue, modulus = map(expression_latex, (congruence.residue, congruence.modulus))
        text += rf", \ \exists q: {distance} {sign} {residue} \pmod{{{modulus}}}"
    for node in interval.keys:
        text += rf", \ {formula_latex(node)}"
    for guard in interval.guards:
        text += rf" \ \text{{if}}\ {expression_latex(guard)} \ge 0"
    return text if interval.exact else text + r" \ \text{(at most)}"


def _extreme(name: str, expressions: list[Any]) -> str:
    texts = [expression_latex(expression) for expression in expressions]
    if len(texts) < 2:
        return "".join(texts)
    return rf"\{name}\left({', '.join(texts)}\right)"


def _assumption(text: str) -> str:
    name, sign, bound = text.partition(" >= ")
    return rf"{name_latex(name)} \ge {bound}" if sign else rf"\text{{{escaped(text)}}}"


def _raised(text: str, exponent: Any) -> str:
    return text if exponent is None else rf"\left({text}\right)^{{{exponent}}}"
