"""A formula as Triton source.

The printer numbers what a formula reads (`arguments.py`): scalars and table sizes become entries of
the tuple `S`, tables entries of the tuple `T`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, cast

from .. import errors, nodes
from ..comparisons import POSITIONS, holds_entry
from ..nodes import Node
from ..parameters import Slot
from . import divisors, integer_text, real_text
from .ahead import Ahead, is_ahead
from .arguments import (
    Arguments,
    DistanceNumber,
    DistanceTable,
    DivisorArgument,
    ScalarArgument,
    TableArgument,
)

if TYPE_CHECKING:
    from .held import Held


class TritonText:
    """Prints formulas over the names `batch, head, q_idx, kv_idx, q0, q1, score`.

    A table read becomes a line of its own in `lines`, once however often it is used.
    """

    def __init__(
        self,
        arguments: Arguments,
        *,
        wide: bool,
        names: str = "t",
        held: Held | None = None,
        grain: int = 1,
        ahead: Ahead | None = None,
        exact: bool = False,
    ) -> None:
        """A printer.

        Args:
            arguments: what formulas read, which is numbered here.
            wide, grain: as of `Style`.
            names: what the names of readings begin with.
            held: what was computed before a loop.
            ahead: what is loaded ahead of time.
            exact: round real numbers as `evaluate` does, step by step: a mask is one matrix,
                whatever computes it.
        """
        self.lines: list[str] = []
        self._arguments = arguments
        self.wide = wide
        self._names = names
        self.held = held
        self._grain = grain
        self._ahead = ahead
        self.exact = exact
        self._reads: dict[Node, str] = {}

    def __call__(self, node: Node) -> str:
        rule = _RULES.get(node.op)
        if rule is None:
            raise NotImplementedError(
                f"no Triton for {node.op!r}: add it to codegen/triton_text.py"
            )
        return rule(self, node)

    def exactly(self) -> TritonText:
        """The same printer, to print a mask: the lines are those of both."""
        other = copy.copy(self)
        other.exact = True
        return other

    @property
    def integer(self) -> str:
        """The integers indices are computed in."""
        return "tl.int64" if self.wide else "tl.int32"

    def scalar(self, node: Node) -> str:
        slot = cast(Slot, node.own[0])
        real = slot.kind == "real"
        text = self._arguments.scalar(ScalarArgument(slot.index, real=real))
        if real:
            return f"{text}.to(tl.float32, bitcast=True)"
        return f"{text}.to(tl.int64)" if self.wide else text

    def read(self, node: Node) -> str:
        slot = cast(Slot, node.own[0])
        sizes = [ScalarArgument(slot.index, axis) for axis in range(len(node.args))]
        return self._load(node, TableArgument(slot.index), sizes)

    def extent(self, node: Node) -> str:
        slot = cast(Slot, node.own[0])
        return self._arguments.scalar(ScalarArgument(slot.index, cast(int, node.data)))

    def step(self, node: Node) -> str:
        q_slot, kv_slot = (cast(Slot, own) for own in node.own)
        name = cast(str, node.data)
        argument = TableArgument(q_slot.index, name, kv_slot.index)
        if not node.args:
            return self._load(node, argument, [])
        sizes = [ScalarArgument(q_slot.index, q_slot.ndim - 1)]
        if len(node.args) == 2:
            sizes.insert(0, ScalarArgument(q_slot.index, 0, kv_slot.index))
        return self._load(node, argument, sizes)

    def _load(self, node: Node, argument: TableArgument, sizes: list[ScalarArgument]) -> str:
        if node in self._reads:
            return self._reads[node]
        found = self.held.reading(node) if self.held is not None else None
        if found is not None:
            self._reads[node] = found
            return found
        pointer = self._arguments.table(argument)
        *rows, last = self._offsets(node, sizes) or [""]
        # A row of pointers, to which the last index is added: elements add 32 bits to it.
        row = f"({pointer} + {rows[-1]})" if rows else pointer
        name = f"{self._names}{len(self._reads)}"
        address = row + (f" + {last}" if last else "")
        condition = f"kv_idx < {self._in_grains('kv_len')}" if self.by_key(node) else ""
        inside = f", mask={condition}, other=0" if condition else ""
        load = f"tl.load({address}{inside})"
        if self._ahead is not None and is_ahead(node):
            load = self._ahead.keep(load)
        wrapped = {"real": f"{load}.to(tl.float32)", "int": f"widened({load})", "bool": load}
        self.lines.append(f"{name} = {wrapped[node.kind]}")
        self._reads[node] = name
        return name

    def along(self, node: Node) -> str:
        """What a table of distances holds."""
        if node not in self._reads:
            formula = node.args[0]
            pointer = self._arguments.table(DistanceTable(formula))
            zero = self._arguments.scalar(DistanceNumber("zero"))
            if "head" in formula.indices():
                zero = f"{zero} + head * {self._arguments.scalar(DistanceNumber('row'))}"
            # A row of pointers, to which the index that moves is added.
            stands, moves = f"{zero} - q_idx", "kv_idx"
            if self.held is not None and self.held.moving == "q_idx":
                stands, moves = f"{zero} + kv_idx", "(-q_idx)"
            self._reads[node] = name = f"{self._names}{len(self._reads)}"
            self.lines.append(f"{name} = tl.load(({pointer} + ({stands})) + {moves})")
        return self._reads[node]

    def place(self, node: Node) -> str:
        """Where in its table a reading stands, as one number."""
        slot = cast(Slot, node.own[0])
        sizes = [ScalarArgument(slot.index, i) for i in range(len(node.args))]
        return " + ".join(self._offsets(node, sizes))

    def _offsets(self, node: Node, sizes: list[ScalarArgument]) -> list[str]:
        """What is added to the first entry's place: that of a row, and the place in the row."""
        row, at = "", ""
        for i, (index, size_of) in enumerate(zip(node.args, sizes, strict=True), 1):
            size = self._arguments.scalar(size_of)
            if at:
                length = self._in_grains(size) if i == len(sizes) and self.by_key(node) else size
                row = f"({f'{row} + {at}' if row else at}).to(tl.int64) * {length}"
            at = f"inside({self(index)}, {size})"
        if self.by_key(node):
            at = "kv_idx"
        return [part for part in (row, at) if part]

    def by_key(self, node: Node) -> bool:
        """Whether a reading is key by key along a loop: neighbours are neighbours in the table,
        and past the last key it gives 0."""
        along = self.held is not None and self.held.moving == "kv_idx"
        return along and node.op in ("read", "step") and node.args[-1:] == (nodes.K,)

    def _in_grains(self, length: str) -> str:
        """A number of entries, which the compiler sees to be a multiple."""
        grain = self._grain
        return length if grain == 1 else f"({length} // {grain} * {grain})"

    def real(self, node: Node) -> str:
        """A number as a real one."""
        if node.kind == "real":
            return self(node)
        if node.op == "const":
            return self(nodes.const(float(cast(float, node.data))))
        found = real_text.distance(self, node)
        return f"({self(node)}).to(tl.float32)" if found is None else found

    def numbers(self, node: Node) -> list[str]:
        """The arguments of an operation as numbers of its kind."""
        return [self.real(arg) if node.kind == "real" else self(arg) for arg in node.args]

    def infix(self, sign: str, node: Node) -> str:
        """An operation between all arguments, in parentheses."""
        return "(" + f" {sign} ".join(self(arg) for arg in node.args) + ")"

    def folded(self, node: Node, values: Iterable[str]) -> str:
        """The minimum or the maximum of values."""
        text, *others = values
        for other in others:
            text = f"tl.{node.op}imum({text}, {other})"
        return text

    def floored(self, node: Node) -> str:
        """A quotient or a remainder."""
        x, c = node.args
        quotient, natural = node.op == "floordiv", _never_negative(x)
        if _often(x) and divisors.numeric(c) and not self.wide:
            factor, shift = (
                self._arguments.scalar(DivisorArgument(c, part)) for part in ("factor", "shift")
            )
            name = ("quotient" if quotient else "remainder") + ("" if natural else "_of_any")
            given = [self(x), *([] if quotient else [self(c)]), factor, shift]
            return f"{name}({', '.join(given)})"
        if natural:
            return f"({self(x)} {'//' if quotient else '%'} {self(c)})"
        return f"{'floor_div' if quotient else 'floor_mod'}({self(x)}, {self(c)})"


def _index(text: TritonText, node: Node) -> str:
    return str(node.data)


def _const(text: TritonText, node: Node) -> str:
    value = node.data
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
        return integer_text.compared(text, node)

    return rule


def _product(text: TritonText, node: Node) -> str:
    real = node.kind == "real"
    return real_text.product(text, node) if real else integer_text.multiplied(text, node)


def _where(text: TritonText, node: Node) -> str:
    condition, then, otherwise = node.args
    number = text.real if node.kind == "real" else text
    return f"tl.where({text(condition)}, {number(then)}, {number(otherwise)})"


def _call(text: TritonText, node: Node) -> str:
    function = cast(str, node.data)
    if function == "float":
        return text.real(node.args[0])
    if text.exact and function == "sqrt":
        function = "sqrt_rn"
    name = function if function in _OUR_REALS else f"tl.{function}"
    return f"{name}({text.real(node.args[0])})"


def _trunc(text: TritonText, node: Node) -> str:
    return f"({text(node.args[0])}).to({text.integer})"


def _often(node: Node) -> bool:
    """Whether an integer below 2**31 is computed for each query or key."""
    return node.kind == "int" and bool(node.indices() & POSITIONS) and not holds_entry(node)


def _never_negative(node: Node) -> bool:
    """Whether an integer is told to be at least 0, divisors being at least 1."""
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
    raise errors.opaque_on_gpu(str(node.data), node.kind == "bool")


Rule = Callable[[TritonText, Node], str]

# Functions of kernels/reals.py, where Triton has none, or has one for some targets alone.
_OUR_REALS = ("tanh", "tan", "sigmoid", "expm1", "log1p")

_RULES: dict[str, Rule] = {
    "index": _index,
    "const": _const,
    "score": lambda text, node: real_text.product(text, node),
    "opaque": _opaque,
    "scalar": lambda text, node: text.scalar(node),
    "read": lambda text, node: text.read(node),
    "along": lambda text, node: text.along(node),
    "extent": lambda text, node: text.extent(node),
    "step": lambda text, node: text.step(node),
    "add": integer_text.summed,
    "mul": _product,
    "div": lambda text, node: real_text.quotient(text, node),
    "and": lambda text, node: text.infix("&", node),
    "or": lambda text, node: text.infix("|", node),
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
    "bitand": lambda text, node: text.infix("&", node),
    "bitor": lambda text, node: text.infix("|", node),
    "bitxor": lambda text, node: text.infix("^", node),
}
