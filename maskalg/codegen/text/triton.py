"""A formula as Triton source.

The printer numbers the arguments of a formula (`arguments.py`): scalars and table sizes become
entries of the tuple `S` or of a table of numbers, tables entries of the tuple `T`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, cast

from ...formula import nodes
from ...formula.comparisons import adds_to_entry, holds_entry
from ...formula.functions import function_of
from ...formula.meaning import BITWISE, as_float32
from ...formula.nodes import Node
from ...formula.parameters import Slot
from ...formula.separation import positions
from .. import divisors
from ..ahead import Ahead
from ..arguments import Arguments, DivisorArgument, Scalar, ScalarArgument, is_loaded
from ..derivative import opaque_on_gpu
from . import integers, long_integers, reals, tables

if TYPE_CHECKING:
    from ..held import Held


class TritonText:
    """Prints formulas over the names `batch, head, q_idx, kv_idx, q0, q1, score`.

    A read of a table becomes one line in `lines`, however often it is used.
    """

    def __init__(
        self,
        arguments: Arguments,
        *,
        wide: bool,
        limbs: int = 1,
        names: str = "t",
        held: Held | None = None,
        grain: int = 1,
        ahead: Ahead | None = None,
        exact: bool = False,
    ) -> None:
        """A printer.

        Args:
            arguments: the arguments of formulas, numbered here.
            wide, limbs, grain: as in `Style`.
            names: prefix of the names of reads.
            held: values computed before a loop.
            ahead: entries loaded ahead of time.
            exact: round real numbers as `evaluate` does, step by step: a mask is one matrix,
                whatever computes it.
        """
        self.lines: list[str] = []
        self.arguments = arguments
        self.wide = wide
        self.limbs = limbs
        self.names = names
        self.held = held
        self.grain = grain
        self.ahead = ahead
        self.exact = exact
        self.long = False
        self.reads: dict[Node, str] = {}

    def __call__(self, node: Node) -> str:
        if self._is_long(node):
            return long_integers.near(self, node)
        rule = _RULES.get(node.op)
        if rule is None:
            raise NotImplementedError(
                f"no Triton for {node.op!r}: add it to codegen/text/triton.py"
            )
        return rule(self, node)

    def exactly(self) -> TritonText:
        """The same printer with the rounding of masks; both share their lines."""
        other = copy.copy(self)
        other.exact = True
        return other

    def longer(self, node: Node) -> TritonText:
        """The same printer for a formula whose digits all matter: sums of entries have 64 bits."""
        if self.long or not adds_to_entry(node):
            return self
        other = copy.copy(self)
        other.long = True
        return other

    def for_index(self) -> TritonText:
        """The same printer for an index: entries far away are clamped to the ends of its table."""
        if not self.long:
            return self
        other = copy.copy(self)
        other.long = False
        return other

    def _is_long(self, node: Node) -> bool:
        long = self.limbs > 1 and node.kind == "int" and node.op != "const"
        return long and long_integers.is_long(node, wide=self.wide)

    @property
    def integer(self) -> str:
        """The type of indices."""
        return "tl.int64" if self.wide else "tl.int32"

    def number(self, argument: Scalar) -> str:
        """A number; if it lies in the table of numbers, it is loaded before a loop."""
        text = self.arguments.scalar(argument)
        return self.held.keep(text) if self.held is not None and is_loaded(text) else text

    def scalar(self, node: Node) -> str:
        slot = cast(Slot, node.own[0])
        real = slot.kind == "real"
        text = self.number(ScalarArgument(slot.index, real=real))
        if real:
            return f"{text}.to(tl.float32, bitcast=True)"
        return f"{text}.to(tl.int64)" if self.wide else text

    def extent(self, node: Node) -> str:
        slot = cast(Slot, node.own[0])
        text = self.number(ScalarArgument(slot.index, cast(int, node.data)))
        return f"{text}.to(tl.int64)" if self.wide else text

    def real(self, node: Node) -> str:
        """A number as a real one."""
        if node.kind == "real":
            return self(node)
        if node.op == "const":
            return self(nodes.const(float(cast(float, node.data))))
        if self._is_long(node):
            return long_integers.real(self, node)
        found = reals.distance(self, node) or integers.real_sum(self, node)
        return f"({self.longer(node)(node)}).to(tl.float32)" if found is None else found

    def numbers(self, node: Node) -> list[str]:
        """The arguments of an operation as numbers of its kind."""
        return [self.real(arg) if node.kind == "real" else self(arg) for arg in node.args]

    def infix(self, sign: str, node: Node) -> str:
        """An operation between all arguments, in parentheses."""
        text = self.longer(node) if node.kind == "int" else self
        return "(" + f" {sign} ".join(text(arg) for arg in node.args) + ")"

    def folded(self, node: Node, values: Iterable[str]) -> str:
        """The minimum or the maximum of values; NaN if one is."""
        text, *others = values
        kept = "" if reals.is_number(node) else ", propagate_nan=tl.PropagateNan.ALL"
        for other in others:
            text = f"tl.{node.op}imum({text}, {other}{kept})"
        return text

    def floored(self, node: Node) -> str:
        """A quotient or a remainder."""
        found = integers.floored(self, node)
        if found is not None:
            return found
        x, c = node.args
        quotient, natural = node.op == "floordiv", _never_negative(x)
        dividend = self.longer(x)(x)
        if _often(x) and divisors.numeric(c) and not self.wide:
            factor, shift = (self.number(DivisorArgument(c, part)) for part in ("factor", "shift"))
            name = ("quotient" if quotient else "remainder") + ("" if natural else "_of_any")
            given = [dividend, *([] if quotient else [self(c)]), factor, shift]
            return f"{name}({', '.join(given)})"
        if natural:
            return f"({dividend} {'//' if quotient else '%'} {self(c)})"
        return f"{'floor_div' if quotient else 'floor_mod'}({dividend}, {self(c)})"


def _index(text: TritonText, node: Node) -> str:
    # Positions have the width of sums; batch and head have 32 bits, which multiples may exceed.
    name = str(node.data)
    return f"{name}.to(tl.int64)" if text.wide and name in ("batch", "head") else name


def _const(text: TritonText, node: Node) -> str:
    value = as_float32(node.data) if isinstance(node.data, float) else node.data
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return f"({value})" if isinstance(value, (int, float)) and value < 0 else repr(value)


def _compare(sign: str) -> Rule:
    def rule(text: TritonText, node: Node) -> str:
        left, right = node.args
        if "real" in (left.kind, right.kind):
            return f"({text.real(left)} {sign} {text.real(right)})"
        if "bool" in (left.kind, right.kind):
            return f"({text(left)} {sign} {text(right)})"
        return integers.compared(text, node)

    return rule


def _infix(sign: str) -> Rule:
    return lambda text, node: text.infix(sign, node)


def _product(text: TritonText, node: Node) -> str:
    real = node.kind == "real"
    return reals.product(text, node) if real else integers.multiplied(text, node)


def _where(text: TritonText, node: Node) -> str:
    condition, then, otherwise = node.args
    number = text.real if node.kind == "real" else text
    return f"tl.where({text(condition)}, {number(then)}, {number(otherwise)})"


def _call(text: TritonText, node: Node) -> str:
    function = function_of(node)
    written = (text.exact and function.rounded) or function.triton
    return written.format(text.real(node.args[0]))


def _trunc(text: TritonText, node: Node) -> str:
    return f"whole({text.real(node.args[0])}).to({text.integer})"


def _often(node: Node) -> bool:
    """Whether an integer below 2**31 is computed for each query or key."""
    return node.kind == "int" and bool(positions(node)) and not holds_entry(node)


def _never_negative(node: Node) -> bool:
    """Whether the form of an integer shows that it is at least 0; divisors are at least 1."""
    if node.op == "const":
        return cast(int, node.data) >= 0
    if node.op == "scalar":
        low = cast(Slot, node.own[0]).low
        return low is not None and low >= 0
    if node.op in ("floordiv", "add", "mul", "min"):
        return all(map(_never_negative, node.args))
    return node.op in ("index", "mod") or (
        node.op == "max" and any(map(_never_negative, node.args))
    )


def _opaque(text: TritonText, node: Node) -> str:
    raise opaque_on_gpu(str(node.data), node.kind == "bool")


Rule = Callable[[TritonText, Node], str]

_RULES: dict[str, Rule] = {
    "index": _index,
    "const": _const,
    "score": lambda text, node: reals.product(text, node),
    "opaque": _opaque,
    "scalar": lambda text, node: text.scalar(node),
    "read": tables.read,
    "along": tables.along,
    "extent": lambda text, node: text.extent(node),
    "step": tables.step,
    "add": integers.summed,
    "mul": _product,
    "div": lambda text, node: reals.quotient(text, node),
    "and": _infix("&"),
    "or": _infix("|"),
    "floordiv": lambda text, node: text.floored(node),
    "mod": lambda text, node: text.floored(node),
    "min": lambda text, node: text.folded(node, text.numbers(node)),
    "max": lambda text, node: text.folded(node, text.numbers(node)),
    "not": lambda text, node: f"(~{text(node.args[0])})",
    "ge": _compare(">="),
    "gt": _compare(">"),
    "eq": _compare("=="),
    "where": _where,
    "call": _call,
    "pow": lambda text, node: f"power({', '.join(text.numbers(node))})",
    "trunc": _trunc,
    **{name: _infix(row.sign) for name, row in BITWISE.items() if row.sign},
}
