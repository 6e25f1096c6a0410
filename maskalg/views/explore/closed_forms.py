"""The closed forms of a proof as JavaScript, and as text for readers of the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...engine.normal_form import Structure
from ...formula import nodes
from ...formula.nodes import Node
from ...formula.printing import formula_text
from ...proof.closed_forms import Residue, Span
from ...proof.proof import prove_structure
from .javascript import INDICES, JavaScript, text

_LEAVES: Final = ("index", "scalar", "read", "extent", "step", "member")


@dataclass(frozen=True)
class Template:
    """A formula as text with places `⟦0⟧, ⟦1⟧, …` for its leaves.

    Attributes:
        text: the text with its places.
        names: the leaf at each place of the formula: `q_idx`, `window`, `ids[kv_idx]`.
        values: the same leaves as JavaScript; the page shows the formula with their values, too.
    """

    text: str
    names: tuple[str, ...]
    values: tuple[str, ...]

    def shown(self) -> dict[str, object]:
        return {"text": self.text, "names": self.names}


def template(node: Node, js: JavaScript) -> Template:
    """The text of a formula, with a place for each index, number and table entry that it reads."""
    names: list[str] = []
    values: list[str] = []

    def replace(part: Node) -> Node | None:
        if part.op not in _LEAVES:
            return None
        value = js(part)
        if value not in values:
            values.append(value)
            names.append(formula_text(part))
        return Node("index", part.kind, data=f"⟦{values.index(value)}⟧")

    return Template(formula_text(nodes.substitute(node, replace)), tuple(names), tuple(values))


@dataclass(frozen=True)
class Forms:
    """One direction of the schedule: the tiles that a tile of queries (or of keys) visits.

    Attributes:
        script: a JavaScript expression, which `runsOf` takes.
        shown: the text about the proof on the page, as JSON.
    """

    script: str
    shown: dict[str, object]


def forms_of(structure: Structure, js: JavaScript) -> Forms:
    """The closed forms of a structure, over the rows and columns that `js.lengths` names."""
    proof = prove_structure(structure)
    sides = {"touched": proof.forms.touched, "unfull": proof.forms.unfull}
    parts = [f"rows: {js.lengths['q_idx']}", f"columns: {js.lengths['kv_idx']}"]
    for name, spans in sides.items():
        parts.append(f"{name}: [{', '.join(_span(span, js) for span in spans)}]")
    shown = {name: [_shown(span, js) for span in spans] for name, spans in sides.items()}
    return Forms("{" + ", ".join(parts) + "}", {**shown, "text": str(proof)})


def _span(span: Span, js: JavaScript) -> str:
    bounds = span.lows + span.highs
    numbers = [_function(f"[{', '.join(template(node, js).values)}]") for node in bounds]
    fields = {
        "lows": _functions(span.lows, js),
        "highs": _functions(span.highs, js),
        "guards": _functions(span.guards, js),
        "exact": text(span.exact),
        "pairs": str([js.pair(q, kv) for q, kv in span.documents]),
        "keys": "null" if span.keys is None else str(js.set_of(span.keys, "kv_idx")),
        "residue": "null" if span.residue is None else _residue(span.residue, js),
        "numbers": f"[{', '.join(numbers)}]",
    }
    return "{" + ", ".join(f"{name}: {value}" for name, value in fields.items()) + "}"


def _residue(residue: Residue, js: JavaScript) -> str:
    fields = {
        "offset": _function(js(residue.offset)),
        "modulus": _function(js(residue.modulus)),
        "wanted": _function(js(residue.residue)),
        "holds": text(residue.holds),
        "qLows": _functions(residue.q_lows, js),
        "qHighs": _functions(residue.q_highs, js),
        "kLows": _functions(residue.k_lows, js),
        "kHighs": _functions(residue.k_highs, js),
        "dLows": _functions(residue.d_lows, js),
        "dHighs": _functions(residue.d_highs, js),
    }
    return "{" + ", ".join(f"{name}: {value}" for name, value in fields.items()) + "}"


def _functions(bounds: tuple[Node, ...], js: JavaScript) -> str:
    return f"[{', '.join(_function(js(bound)) for bound in bounds)}]"


def _function(body: str) -> str:
    return f"(q0, q1) => {body}"


def _shown(span: Span, js: JavaScript) -> dict[str, object]:
    """The bounds of a span as text, and the conditions that leave out some of its keys."""
    conditions = [f"{formula_text(guard)} >= 0" for guard in span.guards]
    if span.keys is not None:
        conditions.append(formula_text(span.keys))
    if span.residue is not None:
        distance = nodes.add(nodes.subtract(nodes.Q, nodes.K), span.residue.offset)
        sign = "==" if span.residue.holds else "!="
        modulus, wanted = formula_text(span.residue.modulus), formula_text(span.residue.residue)
        conditions.append(f"some ({formula_text(distance)}) % {modulus} {sign} {wanted}")
    return {
        "lows": [template(node, js).shown() for node in span.lows],
        "highs": [template(node, js).shown() for node in span.highs],
        "conditions": conditions,
    }


def sets_script(js: JavaScript) -> str:
    """The conditions whose members the closed forms look up."""
    found = [
        f"{{length: {length}, varies: {text(_varies(node))}, "
        f"holds: ({INDICES[index]}) => {js(node)}}}"
        for node, index, length in js.sets
    ]
    return f"[{', '.join(found)}]"


def _varies(node: Node) -> bool:
    """Whether a condition depends on a number, the batch or the head."""
    return any(part.op == "scalar" or part.data in ("batch", "head") for part in node.walk())
