"""Integer inequalities as a person writes them."""

from __future__ import annotations

from .sums import Terms


def bounded(terms: Terms) -> tuple[Terms, str, Terms]:
    """Left side, sign and right side of `terms >= 0`, for integers.

    Positions stand to the left and numbers to the right: `q - k < 256`, `q >= k`, `k < lengths_b`.
    """
    moving, fixed = terms.split()
    up = Terms(tuple(part for part in moving.parts if part[0] > 0))
    down = Terms(tuple((-factor, part) for factor, part in moving.parts if factor < 0))
    if not moving.parts:
        return fixed, r"\ge", Terms(adjusted=-terms.number)
    if up.parts and down.parts and not fixed.parts and terms.number == 0:
        return up, r"\ge", down
    # A constant of -1 is what a strict comparison was stored with.
    strict = terms.adjusted == -1
    rest = Terms(fixed.parts, terms.bound, 0 if strict else terms.adjusted)
    if strict and up.parts and not rest.parts and rest.number == 0:
        return up, r"\gt", down
    if up.parts and (not down.parts or (not fixed.parts and terms.number < 0)):
        return up.minus(down), r"\gt" if strict else r"\ge", rest.times(-1)
    return down.minus(up), r"\lt" if strict else r"\le", rest


def opposite(difference: str) -> str:
    """`b - a` of `a - b`, and nothing of longer sums."""
    left, minus, right = difference.partition(" - ")
    return f"{right} - {left}" if minus and " - " not in right and " + " not in difference else ""
