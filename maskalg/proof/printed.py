"""A proof as printed: in LaTeX, and in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import sympy as sp

from ..formula import nodes
from ..formula.latex import latex, name_latex, text_latex
from ..formula.nodes import Node
from ..formula.printing import formula_text
from .closed_forms import Residue, Span
from .digits.forms import DigitForms, digit_texts
from .elimination import ClauseStep, Elimination, interval_text
from .literals import AtLeastZero, Congruence, Equal
from .literals import Literal as ProofLiteral
from .section import literal_formula

if TYPE_CHECKING:
    from .proof import Proof

Line = tuple[Literal["heading", "text"], str]

_INDENT: Final = "   "


def told(proof: Proof) -> list[Line]:
    """The lines of a proof; a heading stands before each of its parts."""
    lines = _mask(proof)
    if proof.elimination is not None:
        lines += [*_literals(proof.elimination), *_eliminated(proof.elimination)]
    elif proof.forms.digits is not None:
        lines += _digits(proof, proof.forms.digits)
    return [*lines, *_result(proof)][1:]


def _mask(proof: Proof) -> list[Line]:
    given: list[Line] = [("text", f"{_INDENT}given      {text}") for text in proof.assumptions]
    return [*_part("The mask", [proof.formula]), *given]


def _digits(proof: Proof, forms: DigitForms) -> list[Line]:
    digits = dict.fromkeys(text for part in forms.parts for text in digit_texts(part.tree))
    lines = _part("Digits of a position x", list(digits))
    lines += _part("Keys that some query of a box keeps or drops, digit by digit", [])
    for name, texts in (("touched", proof.touched), ("not full", proof.unfull)):
        lines += _texts(name, list(texts) or ["no key"])
    return lines


def _literals(found: Elimination) -> list[Line]:
    lines = _part("Literals: a pair of a query q and a key k is", [])
    for name, steps in (("kept", found.kept.steps), ("dropped", found.dropped.steps)):
        if steps is None:
            lines += _texts(f"{name} when", ["(more cases than the proof looks at)"], 14)
            continue
        ordered = [step.clause for step in steps]
        cases = [" and ".join(map(literal_text, literals)) or "always" for literals in ordered]
        lines += _texts(f"{name} when", cases or ["never"], 14)
    return lines


def _eliminated(found: Elimination) -> list[Line]:
    lines = _part("Eliminated: q, over the tile q0 <= q <= q1", [])
    for name, steps in (("touched", found.kept.steps), ("not full", found.dropped.steps)):
        if steps is None:
            lines += _texts(name, ["every key (at most)"])
            continue
        rows = [row for step in steps for row in _keys(step)]
        lines += _texts(name, rows or ["no key"])
    return lines


def _keys(step: ClauseStep) -> list[str]:
    interval, section = step.interval, step.section
    if interval is None:
        return []
    if section is None or interval.exact:
        return [interval_text(interval, False)]
    by, of = ("key", "queries") if section.other == "kv_idx" else ("query", "keys")
    parts = (
        ("an equal entry", section.equal),
        ("an ordered entry", section.order),
        ("such a distance", section.distances),
        ("an allowed pair", section.relation),
    )
    needed = " and ".join(name for name, part in parts if part)
    rest = f"one of its {of} " + (f"has {needed}" if needed else "lies between its bounds")
    text = interval_text(interval, False).removesuffix(" (at most)")
    return [f"{text}, and {by} by {by}: {rest}"]


def _result(proof: Proof) -> list[Line]:
    iff = "iff" if proof.exact else "if"
    rows = [
        f"EMPTY  {iff} k0..k1 meets no touched key",
        f"FULL   {iff} k0..k1 meets no key that is not full",
        f"exactness  {proof.claim}",
        f"rung       {proof.rung}",
        f"time       {proof.milliseconds:.0f} ms, once for all values of the parameters",
    ]
    reasons = [f"because    {reason}" for reason in proof.reasons]
    return [
        *_part("A block of the queries q0..q1 and the keys k0..k1 is", rows[:2]),
        *_part("Result", rows[2:] + reasons),
    ]


def _part(heading: str, rows: list[str]) -> list[Line]:
    return [("text", ""), ("heading", heading), *(("text", _INDENT + row) for row in rows)]


def _texts(name: str, rows: list[str], width: int = 11) -> list[Line]:
    """Rows after a name, joined by `or`; the axes of a row are lines below each other."""
    lines: list[Line] = []
    for i, row in enumerate(rows):
        first, *others = row.split("; ")
        lines.append(("text", f"{_INDENT}{name if i == 0 else 'or':<{width}}{first}"))
        lines += [("text", f"{_INDENT}{'  and':<{width}}{other}") for other in others]
    return lines


def literal_text(literal: ProofLiteral) -> str:
    """A literal as a person writes it."""
    if isinstance(literal, AtLeastZero):
        left, right = sides(literal.expression)
        return f"{left} >= {right}"
    sign = "==" if literal.holds else "!="
    if isinstance(literal, Congruence):
        distance = "q - k" if literal.offset == 0 else f"q - k + {literal.offset}"
        return f"({distance}) % {literal.modulus} {sign} {literal.residue}"
    if isinstance(literal, Equal):
        return f"{_short(literal.left)} {sign} {_short(literal.right)}"
    node = literal_formula(literal)
    return _short(node) if literal.holds else f"not ({_short(node)})"


def sides(expression: Any) -> tuple[Any, Any]:
    """`expression >= 0` as `left >= right` without minus signs: `q - k` gives (q, k)."""
    terms = sp.Add.make_args(expression)
    minus = [term for term in terms if term.could_extract_minus_sign()]
    plus = [term for term in terms if not term.could_extract_minus_sign()]
    return sp.Add(*plus), sp.Add(*[-term for term in minus])


def _short(node: Node) -> str:
    return formula_text(node).replace("q_idx", "q").replace("kv_idx", "k")


def proof_latex(proof: Proof) -> str:
    """A proof's mask and closed forms; see `Proof.to_latex`."""
    rows = [rf"\text{{mask}} && {latex(proof.mask)}"]
    if proof.assumptions:
        rows.append(r"\text{given} && " + r", \ ".join(map(_assumption, proof.assumptions)))
    for name, spans, texts in (
        ("touched", proof.forms.touched, proof.touched),
        ("not full", proof.forms.unfull, proof.unfull),
    ):
        # Closed forms by digits are written as words, one line for each clause.
        by_digits = proof.forms.digits is not None
        found = (
            [text_latex(text) for text in texts] if by_digits else [_keys_latex(s) for s in spans]
        )
        for number, text in enumerate(found or [text_latex("no key")]):
            rows.append(rf"\text{{{name if number == 0 else 'or'}}} && {text}")
    return "\\begin{aligned}\n" + " \\\\\n".join(rows) + "\n\\end{aligned}"


def _keys_latex(span: Span) -> str:
    low, high = _extreme("max", span.lows), _extreme("min", span.highs)
    text = (rf"{low} \le " if low else "") + "k" + (rf" \le {high}" if high else "")
    if not low and not high:
        text = text_latex("every key")
    if span.residue is not None:
        text += rf", \ \exists q: {_congruence(span.residue)}"
    if span.keys is not None:
        text += rf", \ {latex(span.keys)}"
    for guard in span.guards:
        text += rf" \ \text{{if}}\ {latex(nodes.ge(guard, nodes.const(0)))}"
    return text if span.exact else text + r" \ \text{(at most)}"


def _congruence(residue: Residue) -> str:
    distance = latex(nodes.add(nodes.subtract(nodes.Q, nodes.K), residue.offset))
    sign = r"\equiv" if residue.holds else r"\not\equiv"
    return rf"{distance} {sign} {latex(residue.residue)} \pmod{{{latex(residue.modulus)}}}"


def _extreme(name: str, bounds: tuple[Node, ...]) -> str:
    texts = [latex(bound) for bound in bounds]
    return "".join(texts) if len(texts) < 2 else rf"\{name}\left({', '.join(texts)}\right)"


def _assumption(text: str) -> str:
    name, sign, least = text.partition(" >= ")
    return rf"{name_latex(name)} \ge {least}" if sign else text_latex(text)
