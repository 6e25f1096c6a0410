"""Real arithmetic as Triton source, with as little as possible for each element.

Factors that are the same at every step of a loop are multiplied once, before the loop, and divided
by the scale of the scores, since hooks get products q . k. Distances become real numbers without a
conversion: conversions use the GPU's slow units, which compute the exponentials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from ...formula import nodes
from ...formula.nodes import Node, in_order
from ...formula.separation import scaled

if TYPE_CHECKING:
    from ..held import Held
    from .triton import TritonText

# The integer 0x4B400000 + d holds the bits of the real number 1.5 * 2**23 + d, for |d| < 2**22.
_BITS: Final = "0x4B400000"
_BASE: Final = 3 * 2**22
_FARTHEST: Final = 2**22

Factor = tuple[Node, bool]  # and whether the product is divided by it


def additive(bias: Node) -> bool:
    """Whether a bias is the score and a sum of terms without it."""
    scored = [term for term in bias.args if "score" in term.ops()]
    return bias.op == "add" and scored == [nodes.SCORE]


def added(text: TritonText, bias: Node) -> str:
    """q . k plus the terms of an additive bias over the scale: the score in units of the scale.

    Written with `fma`: Triton would turn a sum into the start of q . k's accumulation, which would
    then wait for entries to load, and large terms would round every step.
    """
    assert text.held is not None
    result = "product"
    for term in terms(bias):
        if term == nodes.SCORE:
            continue
        fixed, moved = _split(text.held, _factors(text, term))
        known = f"{_written(text.held.text, fixed) if fixed else '1.0'} / scale"
        kept = text.held.keep(known)
        result = (
            f"fma({_written(text, moved)}, {kept}, {result})" if moved else f"({result} + {kept})"
        )
    return result


def _split(held: Held, factors: list[Factor]) -> tuple[list[Factor], list[Factor]]:
    """The factors that are the same at every step, and the others."""
    fixed = [factor for factor in factors if held.fixed(factor[0])]
    return fixed, [factor for factor in factors if factor not in fixed]


def terms(node: Node) -> list[Node]:
    """The terms of a real sum; integers are one term, whose sum is exact, unlike rounded terms."""
    integers = [term for term in node.args if term.kind == "int"]
    reals = _with_distances([term for term in node.args if term.kind != "int"])
    return [*reals, nodes.add(*integers)] if integers else reals


def _with_distances(reals: list[Node]) -> list[Node]:
    """The terms with c k - c q written as c (k - q) again, so that nothing cancels."""
    found = list(reals)
    for term in reals:
        if term.op == "mul" and len(term.args) == 2 and nodes.K in term.args:
            of_query = nodes.substitute(nodes.negate(term), _query_for_key)
            factors = [arg for arg in term.args if arg.op == "const"]
            if factors and of_query in found:
                found.remove(term)
                found.remove(of_query)
                distance = nodes.subtract(nodes.K, nodes.Q)
                found.append(Node("mul", "real", (*factors, distance)))
    return found


def _query_for_key(node: Node) -> Node | None:
    return nodes.Q if node == nodes.K else None


def stepwise(text: TritonText, node: Node) -> str:
    """A sum, a product or a quotient as `evaluate` computes it: each step rounds."""
    if node.op == "div":
        left, right = node.args
    else:
        *before, right = in_order(node)
        left = before[0] if len(before) == 1 else Node(node.op, "real", tuple(before))
    if text.held is None or not text.held.fixed(node):
        return _step(node.op, text.real(left), text.real(right))
    held = text.held.text
    return text.held.keep(_step(node.op, held.real(left), held.real(right)))


def _step(op: str, left: str, right: str) -> str:
    """One operation on real numbers that the compiler does not merge into another one."""
    if op == "add":
        return f"({left} + {right})"
    return f"tl.div_rn({left}, {right})" if op == "div" else f"times({left}, {right})"


def product(text: TritonText, node: Node) -> str:
    """A real product; fixed factors become one. The score is `scale` times q . k."""
    if text.exact and node != nodes.SCORE:
        return stepwise(text, node)
    held, factors = text.held, _factors(text, node)
    if held is None:
        return _written(text, factors)
    fixed, moved = _split(held, factors)
    known = _written(held.text, fixed) if fixed else ""
    for _ in range(sum(factor == (nodes.SCORE, False) for factor in moved)):
        known = f"({known} * scale)" if known else "scale"
    if not known:
        return _written(text, moved)
    # `hold` cannot return constants: Triton's functions return tensors alone in a tuple.
    constant = all(node.op == "const" for node, _ in fixed)
    plain = constant or (len(fixed) == 1 and _is_number(fixed[0]))
    kept = known if plain and known == _written(text, fixed) else held.keep(known)
    return f"({_written(text, moved)} * {kept})" if moved else kept


def quotient(text: TritonText, node: Node) -> str:
    if text.exact:
        return stepwise(text, node)
    top, bottom = node.args
    if _varies(bottom, text):
        return f"({text.real(top)} / {text.real(bottom)})"
    return product(text, node)


def _factors(text: TritonText, node: Node) -> list[Factor]:
    if node.op == "mul":
        return [factor for arg in node.args for factor in _factors(text, arg)]
    if node.op == "div" and not _varies(node.args[1], text):
        return [*_factors(text, node.args[0]), (node.args[1], True)]
    return [(node, False)]


def _varies(bottom: Node, text: TritonText) -> bool:
    """Whether a divisor changes from element to element: elsewhere it is divided by once."""
    if text.held is not None:
        return not text.held.fixed(bottom)
    return bool(bottom.indices()) or "score" in bottom.ops()


def _is_number(factor: Factor) -> bool:
    node, inverted = factor
    return node.op in ("const", "scalar") and not inverted


def _written(text: TritonText, factors: list[Factor]) -> str:
    """A product of some factors."""
    parts = [
        "product" if f == nodes.SCORE else text.real(f) for f, inverted in factors if not inverted
    ]
    parts += [f"(1.0 / {text.real(f)})" for f, inverted in factors if inverted]
    return parts[0] if len(parts) == 1 else f"({' * '.join(parts)})"


def distance(text: TritonText, node: Node) -> str | None:
    """A short sum of positions as a real number, exactly and by one subtraction; else None.

    So the compiler sees that the number, and all computed from it, is the same along a diagonal.
    """
    if text.held is None or not text.held.near or text.held.fixed(node):
        return None
    if node.op in ("min", "max"):
        return _extremum(text, node)
    parts = node.args if node.op == "add" else (node,)
    numbers = [cast(int, part.data) for part in parts if part.op == "const"]
    positions = [part for part in parts if part.op != "const"]
    # float32 must hold the subtracted number and the result exactly.
    if not _short(positions) or abs(sum(numbers)) > _FARTHEST:
        return None
    bits = f"({text(nodes.add(*positions))} + {_BITS}).to(tl.float32, bitcast=True)"
    return f"({bits} - {float(_BASE - sum(numbers))})"


def _extremum(text: TritonText, node: Node) -> str | None:
    first, *others = node.args
    if others == [nodes.negate(first)]:
        found = distance(text, first)
        size = None if found is None else f"tl.abs({found})"
        return size if size is None or node.op == "max" else f"(-{size})"
    held = text.held
    assert held is not None
    if all(held.fixed(arg) or distance(text, arg) is not None for arg in node.args):
        return text.folded(node, map(text.real, node.args))
    return None


def _short(parts: list[Node]) -> bool:
    """Whether a sum consists of small numbers, as checked by the call, and at most one distance."""
    different = set(parts)
    both = ({nodes.Q, nodes.K}, {nodes.negate(nodes.Q), nodes.negate(nodes.K)})
    return (
        len(different) == len(parts)
        and not any(pair <= different for pair in both)
        and all(map(_is_plain, parts))
    )


def _is_plain(term: Node) -> bool:
    factor, rest = scaled(term)
    term = rest if factor == -1 else term
    return term.op == "scalar" or term in (nodes.Q, nodes.K)


def is_number(node: Node) -> bool:
    """Whether the form of a value shows that it is not NaN; calls refuse NaN as a number."""
    if node.op in ("min", "max") and node.kind == "real":
        return all(map(is_number, node.args))
    return node.kind == "int" or node.op in ("const", "scalar")
