"""A bias as JavaScript: its value at an element, and the formula to show."""

from __future__ import annotations

from dataclasses import dataclass

from ...formula import nodes
from ...formula.nodes import Node, is_additive
from .closed_forms import template
from .javascript import JavaScript


@dataclass(frozen=True)
class Added:
    """The bias of a page.

    Attributes:
        script: a JavaScript expression: `at` is the value at an element, `values` what stands in
            the places of the formula there; `null` of a mask.
        shown: what the page says of it, as JSON. `adds` says that the value is what is added to
            a score; else it is what a score of 1 becomes. `alone` says that nothing is dropped.
    """

    script: str
    shown: dict[str, object] | None


def added_by(mask: Node, bias: Node, js: JavaScript) -> Added:
    """The bias of an expression; a mask has none."""
    if bias.op == "score":
        return Added("null", None)
    adds = is_additive(bias)
    score = nodes.const(0.0 if adds else 1.0)
    value = nodes.substitute(bias, lambda node: score if node.op == "score" else None)
    written = template(bias, js)
    script = (
        f"{{at: (q, k) => {js.number(value)}, values: (q, k) => [{', '.join(written.values)}]}}"
    )
    return Added(script, {"adds": adds, "alone": mask == nodes.TRUE, **written.shown()})
