"""A proof in LaTeX: the mask and its closed forms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...formula import nodes
from ...formula.latex import latex, name_latex, text_latex
from ...formula.nodes import Node
from ..closed_forms import Residue, Span

if TYPE_CHECKING:
    from ..proof import Proof


def proof_latex(proof: Proof) -> str:
    """A proof's mask and closed forms; see `Proof.to_latex`."""
    rows = [rf"\text{{mask}} && {latex(proof.mask)}"]
    if proof.assumptions:
        rows.append(r"\text{given} && " + r", \ ".join(map(_assumption, proof.assumptions)))
    for name, spans, texts in (
        ("touched", proof.forms.touched, proof.touched),
        ("not full", proof.forms.unfull, proof.unfull),
    ):
        # Closed forms by digits are said in words, one line for each clause.
        by_digits = proof.forms.digits is not None
        found = [text_latex(text) for text in texts] if by_digits else [_keys(s) for s in spans]
        for number, text in enumerate(found or [text_latex("no key")]):
            rows.append(rf"\text{{{name if number == 0 else 'or'}}} && {text}")
    return "\\begin{aligned}\n" + " \\\\\n".join(rows) + "\n\\end{aligned}"


def _keys(span: Span) -> str:
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
