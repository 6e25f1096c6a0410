"""Formulas and labels as a person writes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, cast

from .meaning import BITWISE
from .nodes import Node, with_parameters
from .parameters import Parameter, Scalar, Slot, Table

_LOOSE, _COMPARE, _OR, _XOR, _AND, _SUM, _PRODUCT, _UNARY, _POWER = range(9)


LabelKind = Literal[
    "name", "call", "&", "|", "^", "~", "+", "-", "*", "@", "where", "at", "shift", "formula"
]


@dataclass(frozen=True)
class Label:
    """How an expression was written: an atom with its arguments, or an operation on labels."""

    kind: LabelKind
    parts: tuple[Label | Parameter | str | Node | int | float, ...]

    def replace(self, replacement: dict[Parameter, Parameter]) -> Label:
        """The label with the parameters replaced that are keys of `replacement`."""
        parts = tuple(
            part.replace(replacement)
            if isinstance(part, Label)
            else replacement.get(part, part)
            if isinstance(part, (Scalar, Table))
            else with_parameters(part, lambda p: replacement.get(p, p))
            if isinstance(part, Node)
            else part
            for part in self.parts
        )
        return Label(self.kind, parts)

    def parameters(self) -> list[Parameter]:
        """The parameters it was written with, from left to right; one may come more than once."""
        found: list[Parameter] = []
        for part in self.parts:
            if isinstance(part, Label):
                found += part.parameters()
            elif isinstance(part, Node):
                found += part.params
            elif isinstance(part, (Scalar, Table)):
                found.append(part)
        return found

    def __str__(self) -> str:
        return _label(self, _LOOSE)


def named(name: str) -> Label:
    return Label("name", (name,))


def called(name: str, *parts: Parameter | str) -> Label:
    return Label("call", (name, *parts))


def parameter_text(parameter: Parameter) -> str:
    if isinstance(parameter, Scalar):
        return str(parameter.value)
    if isinstance(parameter, Slot):
        return parameter.name
    return f"{parameter.name}{list(parameter.tensor.shape)}"


def _label(label: Label, around: int) -> str:
    kind, parts = label.kind, label.parts
    if kind == "name":
        return str(parts[0])
    if kind in ("call", "where"):
        inner = ", ".join(_part(part, _LOOSE) for part in parts[1:])
        return f"{parts[0]}({inner})"
    if kind == "formula":
        return formula_text(cast(Node, parts[0]), around)
    if kind in ("at", "shift"):
        texts = [_part(part, _LOOSE) for part in parts[1:]]
        moves = ", ".join("=".join(pair) for pair in zip(texts[::2], texts[1::2], strict=True))
        return f"{_part(parts[0], _POWER)}.{kind}({moves})"
    if kind == "~":
        return _wrap(f"~{_part(parts[0], _UNARY)}", _UNARY, around)
    level = {"|": _OR, "^": _XOR, "&": _AND, "+": _SUM, "-": _SUM, "*": _PRODUCT, "@": _PRODUCT}[
        kind
    ]
    left, right = _part(parts[0], level), _part(parts[1], level + (kind not in "&|^+"))
    return _wrap(f"{left} {kind} {right}", level, around)


def _part(part: object, around: int) -> str:
    if isinstance(part, Label):
        return _label(part, around)
    if isinstance(part, Node):
        return formula_text(part, around)
    return parameter_text(part) if isinstance(part, (Scalar, Slot, Table)) else str(part)


def _wrap(text: str, level: int, around: int) -> str:
    return f"({text})" if level < around else text


_DIVISIONS = ("floordiv", "mod", "div", "pow")

_LEVELS = {"&": _AND, "|": _OR, "^": _XOR}
_INFIX = {
    "and": (" & ", _AND),
    "or": (" | ", _OR),
    "ge": (" >= ", _COMPARE),
    "gt": (" > ", _COMPARE),
    "eq": (" == ", _COMPARE),
    "mul": ("*", _PRODUCT),
    "floordiv": (" // ", _PRODUCT),
    "mod": (" % ", _PRODUCT),
    "div": (" / ", _PRODUCT),
    "pow": ("**", _POWER),
    **{name: (f" {row.sign} ", _LEVELS[row.sign]) for name, row in BITWISE.items() if row.sign},
}


def formula_text(node: Node, around: int = _LOOSE) -> str:
    """The formula in Python's notation: `q_idx - kv_idx >= 0`."""
    op, args = node.op, node.args
    if op == "const" and node.kind == "bool":
        return "everything" if node.data else "nothing"
    if op == "index":
        return str(node.data)
    if op == "score":
        return "score"
    if op in ("const", "scalar"):
        text = str(node.data) if op == "const" else parameter_text(node.own[0])
        # `-2 ** q_idx` is -(2 ** q_idx) in Python.
        return _wrap(text, _UNARY, around if text.startswith("-") else _LOOSE)
    if op == "read":
        return f"{node.own[0].name}[{', '.join(formula_text(arg) for arg in args)}]"
    if op == "extent":
        return f"{node.own[0].name}.shape[{node.data}]"
    if op == "member":
        return f"{node.data}({formula_text(args[-1])}, {formula_text(args[0])})"
    if op == "step":
        return f"{node.data}_{node.own[0].name}({formula_text(args[-1])})"
    if op == "not":
        return _wrap(f"~{formula_text(args[0], _UNARY)}", _UNARY, around)
    if op in ("min", "max", "where", "trunc"):
        return f"{op}({', '.join(formula_text(arg) for arg in args)})"
    if op == "opaque":
        return f"{node.data}({', '.join(formula_text(arg) for arg in args)})"
    if op == "call":
        return f"{node.data}({formula_text(args[0])})"
    if op == "mul" and _is_minus_one(args):
        return _wrap("-" + formula_text(_other(args), _UNARY), _UNARY, around)
    if op == "add":
        return _wrap(_sum_text(args), _SUM, around)
    if op in ("ge", "gt"):
        return _wrap(_comparison_text(op, args), _COMPARE, around)
    if op == "eq":  # a number comes last
        args = tuple(sorted(args, key=lambda arg: not arg.indices()))
    if op in _INFIX:
        sign, level = _INFIX[op]
        strict = op in _DIVISIONS
        apart = op == "mul"
        # Powers group to the right, divisions to the left.
        loose = 0 if op != "pow" else 1
        tighter = [
            (strict and i != loose) or (apart and a.op in _DIVISIONS) for i, a in enumerate(args)
        ]
        texts = [formula_text(a, level + more) for a, more in zip(args, tighter, strict=True)]
        # Beside a comparison Python needs no parentheses, readers do.
        level = _LOOSE if op in BITWISE else level
        return _wrap(sign.join(texts), level, around)
    raise NotImplementedError(f"no text for {op!r}: add it to maskalg/formula/printing.py")


def _is_minus_one(args: tuple[Node, ...]) -> bool:
    return len(args) == 2 and any(arg.op == "const" and arg.data == -1 for arg in args)


def _other(args: tuple[Node, ...]) -> Node:
    return args[1] if args[0].op == "const" and args[0].data == -1 else args[0]


def _sum_text(terms: tuple[Node, ...]) -> str:
    plus: list[str] = []
    minus: list[str] = []
    for term in sorted(terms, key=lambda t: (t.op == "const", t.op != "index", t.data != "q_idx")):
        factor = next((a for a in term.args if a.op == "const"), None) if term.op == "mul" else None
        if term.op == "const" and cast(int, term.data) < 0:
            minus.append(str(-cast(int, term.data)))
        elif factor is not None and cast(int, factor.data) < 0:
            rest = [formula_text(a, _UNARY) for a in term.args if a is not factor]
            scale = [] if factor.data == -1 else [str(-cast(int, factor.data))]
            minus.append("*".join(scale + rest))
        else:
            plus.append(formula_text(term, _SUM))
    return (
        " + ".join(plus) + "".join(f" - {text}" for text in minus)
        if plus
        else ("-" + " - ".join(minus))
    )


def _comparison_text(op: str, args: tuple[Node, ...]) -> str:
    left, right = (formula_text(arg, _SUM) for arg in args)
    sign, turned = (">=", "<=") if op == "ge" else (">", "<")
    less = _less_by_one(args[1]) if op == "ge" else None
    if less is not None:  # it was written as `x < y`
        return f"{less} < {left}"
    return f"{right} {turned} {left}" if args[0].op == "const" else f"{left} {sign} {right}"


def _less_by_one(node: Node) -> str | None:
    """The text of an integer sum without its constant 1; None if it has another constant."""
    constants = [term.data for term in node.args if term.op == "const"]
    if node.op != "add" or node.kind != "int" or constants != [1]:
        return None
    others = tuple([term for term in node.args if term.op != "const"])
    return formula_text(others[0], _SUM) if len(others) == 1 else _sum_text(others)


# Holds the function that makes HTML of a `Shown`; it returns None if nothing can be drawn. Pictures
# are a later room than all they draw, so the package registers it here (`maskalg/__init__.py`).
HTML: Final[list[Callable[[Shown], str | None]]] = []


class Shown:
    """Base of masks, biases, scores, proofs, block maps and segments."""

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def _repr_html_(self) -> str | None:
        """HTML for Jupyter; None where nothing can be drawn."""
        return HTML[0](self) if HTML else None
