"""The parts of a span as formulas of one query and one key.

A section looks at each position of a tile, and a remainder at a box of positions. Both mark a tile
if and only if some pair in it satisfies the formula here: a section by definition, a remainder by a
law about the distances in a box (tests/proof/check/test_laws.py). A certificate compares the
formulas with the mask, pair by pair.
"""

from __future__ import annotations

from ...formula import nodes
from ...formula.nodes import Node
from ..closed_forms import Residue, Section, Span

_INDEX = {"q_idx": nodes.Q, "kv_idx": nodes.K}


def hull_formula(span: Span) -> Node:
    """The condition that the key lies within the span's bounds and `keys`, and its guards hold."""
    parts = between(nodes.K, span.lows, span.highs)
    parts += [nodes.ge(guard, nodes.const(0)) for guard in span.guards]
    return nodes.conjunction(*parts, *(() if span.keys is None else (span.keys,)))


def residue_formula(residue: Residue) -> Node:
    """The condition that the pair lies in the box and has the remainder (or another one)."""
    distance = nodes.subtract(nodes.Q, nodes.K)
    remainder = nodes.mod(nodes.add(distance, residue.offset), residue.modulus)
    has_it = nodes.eq(remainder, residue.residue)
    return nodes.conjunction(
        *between(nodes.Q, residue.q_lows, residue.q_highs),
        *between(nodes.K, residue.k_lows, residue.k_highs),
        *between(distance, residue.d_lows, residue.d_highs),
        has_it if residue.holds else nodes.negation(has_it),
    )


def section_formula(section: Section) -> Node:
    """The condition that the section counts the pair."""
    parts = between(_INDEX[section.own], section.lows, section.highs)
    parts += [*section.others, *section.members, *section.distances]
    for f, g, holds in section.equal:
        same = nodes.eq(f, g)
        parts.append(same if holds else nodes.negation(same))
    parts += [nodes.ge(nodes.add(f, g), nodes.const(0)) for f, g in section.order]
    relation = section.relation
    if relation is not None:
        f, g = relation.f, relation.g
        places = (
            {nodes.Q: f, nodes.K: g} if relation.own_index == "q_idx" else {nodes.Q: g, nodes.K: f}
        )
        parts.append(nodes.substitute(relation.node, places.get))
    return nodes.conjunction(*parts)


def span_formula(span: Span) -> Node:
    """The condition on a pair in a tile that the span marks."""
    parts = [hull_formula(span)]
    if span.residue is not None:
        parts.append(residue_formula(span.residue))
    if span.section is not None:
        parts.append(section_formula(span.section))
    if span.clause is not None:
        parts.append(span.clause)
    return nodes.conjunction(*parts)


def between(value: Node, lows: tuple[Node, ...], highs: tuple[Node, ...]) -> list[Node]:
    """The conditions that a value is at least all `lows` and at most all `highs`."""
    return [nodes.ge(value, low) for low in lows] + [nodes.ge(high, value) for high in highs]
