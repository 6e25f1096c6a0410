"""A formula as JavaScript, by which the page computes an element, or a bound.

Numbers of the page are doubles: integers are exact far beyond 32 bits, `//` and `%` round down by
`floorDiv` and `floorMod` of `static/arithmetic.js`, and real numbers are rounded to float32 after
each operation, as torch computes them. `S` holds the numbers bound to slots, `T` the tensors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar, cast

from ...errors import MaskValueError
from ...formula.functions import function_of
from ...formula.meaning import BITWISE
from ...formula.nodes import Node, in_order
from ...formula.parameters import Slot, common_order

INDICES: Final = {"q_idx": "q", "kv_idx": "k", "batch": "B", "head": "H", "q0": "q0", "q1": "q1"}


@dataclass
class JavaScript:
    """Prints formulas, and numbers the slots that they read.

    Attributes:
        pairs: slots of query ids and key ids whose step tables are read, by their place, and 1
            where both are declared to ascend.
        sets: conditions on one index whose members are looked up, each with the name of the
            index and that of the number of its positions.
        lengths: the number of positions of each index; with queries and keys exchanged, the two
            change places.
    """

    pairs: list[tuple[int, int, int]] = field(default_factory=list)
    sets: list[tuple[Node, str, str]] = field(default_factory=list)
    lengths: dict[str, str] = field(default_factory=lambda: {"q_idx": "Q_LEN", "kv_idx": "KV_LEN"})

    def __call__(self, node: Node) -> str:
        rule = _RULES.get(node.op)
        if rule is None:
            raise not_in_a_page(str(node.data or node.op))
        return rule(self, node)

    def number(self, node: Node) -> str:
        """An operand of real arithmetic: integers are rounded to float32, and none is -0."""
        if node.kind == "real":
            return self(node)
        return f"f({'0 + ' if _may_be_negative_zero(node) else ''}{self(node)})"

    def pair(self, q_slot: Slot, kv_slot: Slot) -> int:
        ascending = common_order(q_slot, kv_slot) == "ascending"
        return _place((q_slot.index, kv_slot.index, int(ascending)), self.pairs)

    def set_of(self, node: Node, index: str) -> int:
        return _place((node, index, self.lengths[index]), self.sets)


Item = TypeVar("Item")


def _place(item: Item, known: list[Item]) -> int:
    if item not in known:
        known.append(item)
    return known.index(item)


def text(value: object) -> str:
    """A value as JSON for use in a script: it has no `<` that could end the script early."""
    plain = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        plain = plain.replace(character, f"\\u{ord(character):04x}")
    return plain


def slot_index(node: Node) -> int:
    return cast(Slot, node.own[0]).index


def _may_be_negative_zero(node: Node) -> bool:
    """Whether an integer may be -0 in JavaScript, such as -1 * q where q is 0, or a number
    that is typed in."""
    if node.op in ("add", "min", "max", "where", "floordiv"):
        every = [_may_be_negative_zero(arg) for arg in node.args]
        of = {"add": all(every), "where": any(every[1:]), "floordiv": every[0]}
        return of.get(node.op, any(every))
    return node.op in ("mul", "scalar")


def _const(js: JavaScript, node: Node) -> str:
    value = node.data
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "(-Infinity)"
        return f"f({value!r})"
    return f"({value})" if cast(int, value) < 0 else str(value)


def _read(js: JavaScript, node: Node) -> str:
    places = [f"T[{slot_index(node)}]", *map(js, node.args)]
    found = f"read{min(len(node.args), 2) or ''}({', '.join(places)})"
    return f"({found} !== 0)" if node.kind == "bool" else found


def _step(js: JavaScript, node: Node) -> str:
    q_slot, kv_slot = (cast(Slot, own) for own in node.own)
    row = js(node.args[0]) if len(node.args) > 1 else "0"
    return f"step({js.pair(q_slot, kv_slot)}, {text(node.data)}, {row}, {js(node.args[-1])})"


def _member(js: JavaScript, node: Node) -> str:
    look = "firstFrom" if node.data == "next" else "lastUntil"
    return f"{look}({js.set_of(node.args[0], 'q_idx')}, {js(node.args[-1])})"


def _rounded(text: str, node: Node) -> str:
    return f"f({text})" if node.kind == "real" else text


def _fold(sign: str) -> Rule:
    def rule(js: JavaScript, node: Node) -> str:
        operand = js.number if node.kind == "real" else js
        first, *others = in_order(node)
        result = operand(first)
        for arg in others:
            result = _rounded(f"({result} {sign} {operand(arg)})", node)
        return result

    return rule


def _apply(function: str) -> Rule:
    def rule(js: JavaScript, node: Node) -> str:
        operand = js.number if node.kind == "real" else js
        return f"{function}({', '.join(map(operand, node.args))})"

    return rule


def _compare(sign: str) -> Rule:
    def rule(js: JavaScript, node: Node) -> str:
        kinds = {arg.kind for arg in node.args}
        if "real" in kinds:
            operand: Callable[[Node], str] = js.number
        elif len(kinds) == 2:
            operand = lambda arg: f"(+{js(arg)})"  # noqa: E731
        else:
            operand = js
        return f"({operand(node.args[0])} {sign} {operand(node.args[1])})"

    return rule


def _logic(sign: str) -> Rule:
    def rule(js: JavaScript, node: Node) -> str:
        return "(" + f" {sign} ".join(map(js, node.args)) + ")"

    return rule


def _where(js: JavaScript, node: Node) -> str:
    condition, then, otherwise = node.args
    operand = js.number if node.kind == "real" else js
    return f"({js(condition)} ? {operand(then)} : {operand(otherwise)})"


def _call(js: JavaScript, node: Node) -> str:
    text = function_of(node).javascript
    if text is None:
        raise not_in_a_page(str(node.data))
    return text.format(js.number(node.args[0]))


Rule = Callable[[JavaScript, Node], str]

_RULES: Final[dict[str, Rule]] = {
    "index": lambda js, node: INDICES[cast(str, node.data)],
    "const": _const,
    "scalar": lambda js, node: _rounded(f"S[{slot_index(node)}]", node),
    "read": _read,
    "extent": lambda js, node: f"T[{slot_index(node)}].shape[{node.data}]",
    "step": _step,
    "member": _member,
    "add": _fold("+"),
    "mul": _fold("*"),
    "div": lambda js, node: f"f({' / '.join(map(js.number, node.args))})",
    "min": _apply("Math.min"),
    "max": _apply("Math.max"),
    "floordiv": _apply("floorDiv"),
    "mod": _apply("floorMod"),
    "trunc": _apply("whole"),
    **{name: _logic(row.sign) for name, row in BITWISE.items() if row.sign},
    "and": _logic("&&"),
    "or": _logic("||"),
    "not": lambda js, node: f"!{js(node.args[0])}",
    "ge": _compare(">="),
    "gt": _compare(">"),
    "eq": _compare("==="),
    "where": _where,
    "call": _call,
    "pow": lambda js, node: f"f(Math.pow({', '.join(map(js.number, node.args))}))",
}


def not_in_a_page(what: str) -> MaskValueError:
    return MaskValueError(
        f"The page computes the mask itself, and there is no formula for {what!r} there. "
        "Show its elements instead: maskalg.dense(mask.to_dense(q_len)), for lengths of a few "
        "thousand."
    )
