"""Expressions as functions for FlexAttention: Python source that torch traces and compiles.

Numbers of the expression are Python numbers in the function, and tensors are captured tensors.
"""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable
from itertools import takewhile
from typing import Any, Final, cast

import torch

from ..engine import long_integers as longs
from ..engine.evaluate import Environment, evaluate
from ..engine.normal_form import Bound, bound
from ..engine.widths import LEAST_64, MOST_64, compares_in_64, limbs, limits, outgrows
from ..formula import nodes
from ..formula.comparisons import arranged, strict
from ..formula.expression import Expression
from ..formula.meaning import MOST_WHOLE, OPERATIONS
from ..formula.nodes import Node, in_order
from ..formula.parameters import Slot

_NAMES: Final = {"batch": "b", "head": "h", "q_idx": "q_idx", "kv_idx": "kv_idx"}

_INFIX: Final = {
    **{name: row.sign for name, row in OPERATIONS.items() if row.sign},
    **{"div": "/", "pow": "**", "and": "&", "or": "|", "ge": ">=", "gt": ">", "eq": "=="},
}

MOST_OF_INT32: Final = 2**24
"""Indices up to this number stay int32 if the formula stays within 32 bits for all of them;
otherwise they are made int64."""

_TEMPLATE: Final = """
def make(torch, math, longs, values):
{values}
    def {name}({arguments}):
        return {result}

    return {name}
"""


def flex_function(
    expression: Expression, rendered: Callable[[str], str] = str
) -> Callable[..., torch.Tensor]:
    """`mask_mod` of a mask, `score_mod` of a bias or a score; see `Mask.to_mask_mod`.

    `rendered` changes the source, for tests of the verifier.
    """
    form = bound(expression)
    text = _Text(form)
    mask, bias = form.structure.mask, form.structure.bias
    if expression.kind == "mask":
        name, arguments, result = "mask_mod", "b, h, q_idx, kv_idx", text.tensor(mask)
    else:
        name, arguments, result = "score_mod", "score, b, h, q_idx, kv_idx", text.tensor(bias)
        if mask.op != "const" or not mask.data:
            result = f'torch.where({text.tensor(mask)}, {result}, -float("inf"))'
    values = "\n".join(f"    {n} = values[{i}]" for i, n in enumerate(text.names))
    source = _TEMPLATE.format(values=values, name=name, arguments=arguments, result=result)
    return _compiled(rendered(source), [*form.values, *text.functions])


def _compiled(source: str, values: list[Any]) -> Callable[..., torch.Tensor]:
    """The function of a source that tracebacks and compilers find."""
    filename = f"<maskalg {hash(source):x}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    scope: dict[str, Any] = {}
    exec(compile(source, filename, "exec"), scope)
    return cast(Callable[..., torch.Tensor], scope["make"](torch, math, longs, values))


class _Text:
    """Prints formulas in Python, and tells Python numbers from tensors."""

    def __init__(self, form: Bound) -> None:
        self.names = [f"{slot.name}_" for slot in form.structure.slots]
        self.functions: list[object] = []
        self._values = form.values
        formulas = (form.structure.mask, form.structure.bias)
        every = [part for formula in formulas for part in formula.walk()]
        self._outgrows_32 = any(map(self._leaves_32, every))

    def _leaves_32(self, node: Node) -> bool:
        """Whether a formula of 32-bit indices may leave 32 bits; entries of tensors have 64 bits.

        A tensor without axes promotes no other to 64 bits, so it counts as an index.
        """
        if node.kind != "int":
            return False
        if node.op in ("add", "mul"):
            own = [arg for arg in node.args if not _reads_axes(arg)]
            node = Node(node.op, "int", tuple(own)) if len(own) > 1 else nodes.const(0)
        elif _reads_axes(node):
            return False
        low, high = limits(node, self._values, MOST_OF_INT32)
        return low < -(2**31) or high >= 2**31

    def tensor(self, node: Node) -> str:
        """The text of a result, which must be a tensor."""
        text = self(node)
        return f"torch.full_like(q_idx, {text}, dtype=torch.bool)" if _is_number(node) else text

    def __call__(self, node: Node) -> str:
        node = strict(node)
        if node.kind == "int" and outgrows(node, self._values):
            if _is_number(node):
                return f"min(max({self._plain(node)}, {LEAST_64}), {MOST_64})"
            exact = f"longs.clamped({self._long(node, limbs(node, self._values))})"
            return self._unless_traced(exact, node)
        if node.op in longs.COMPARISONS and all(arg.kind == "int" for arg in node.args):
            return self._compared(node)
        return self._plain(node)

    def _compared(self, node: Node) -> str:
        """A comparison of integers, exact where they may leave 64 bits."""
        if _is_number(node) or not any(outgrows(side, self._values) for side in node.args):
            return self._plain(node)
        node = arranged(node)
        if compares_in_64(node, self._values):
            return self._plain(node)
        size = max(limbs(side, self._values) for side in node.args)
        sides = ", ".join(self._long(side, size) for side in node.args)
        return self._unless_traced(f"longs.COMPARISONS[{node.op!r}]({sides})", node)

    def _unless_traced(self, exact: str, node: Node) -> str:
        """An exact text for tensors; `maskalg.mask` traces integers of any size anyway."""
        return f"({exact} if longs.is_tensor(q_idx) else {self._plain(node)})"

    def _long(self, node: Node, size: int) -> str:
        """An integer as `long_integers` hold it."""
        if _is_number(node):
            return f"longs.of_number({self._plain(node)}, {size}, q_idx.device)"
        if not outgrows(node, self._values):
            return f"longs.of({self(node)}, {size})"
        if node.op == "where":
            then, otherwise = (self._long(arg, size) for arg in node.args[1:])
            if _is_number(node.args[0]):
                return f"({then} if {self(node.args[0])} else {otherwise})"
            return f"longs.where({self(node.args[0])}, {then}, {otherwise})"
        parts = ", ".join(self._long(arg, size) for arg in node.args)
        return f"longs.computed({node.op!r}, [{parts}])"

    def _operand(self, node: Node) -> str:
        """A number as an operand of real ones."""
        if node.kind != "int" or not outgrows(node, self._values):
            return self(node)
        if _is_number(node):
            return f"float({self._plain(node)})"
        exact = f"longs.real({self._long(node, limbs(node, self._values))}).float()"
        return self._unless_traced(exact, node)

    def _plain(self, node: Node) -> str:
        """The text of an operation on operands of 64 bits, or on Python numbers."""
        op, args = node.op, node.args
        # Python integers do not saturate.
        inner = self._plain if _is_number(node) else self
        if args and node.kind == "real" and _is_number(node):
            # Rounded to float32 as everywhere else; Python would not round.
            here = Environment({"q_idx": torch.zeros((), dtype=torch.int64)}, self._values)
            return self(nodes.const(float(evaluate(node, here))))
        if op == "eq" and all(arg.op == "read" and arg.kind != "real" for arg in args):
            return f"({' == '.join(map(self._entry, args))})"
        if op in ("add", "mul"):
            args = _combined(node)
        if op in _INFIX:
            real = any(arg.kind == "real" for arg in (node, *args))
            parts = [(self._operand if real else inner)(arg) for arg in args]
            return "(" + f" {_INFIX[op]} ".join(parts) + ")"
        if op == "index":
            # Kernels of FlexAttention count positions in 32 bits.
            name = _NAMES[str(node.data)]
            return f"longs.index({name})" if self._outgrows_32 else name
        if op == "const":
            finite = not isinstance(node.data, float) or math.isfinite(node.data)
            return repr(node.data) if finite else f'float("{node.data}")'
        if op == "score":
            return "score"
        if op == "scalar":
            return self.names[cast(Slot, node.own[0]).index]
        if op == "extent":
            return str(self._shape(node)[cast(int, node.data)])
        if op == "not":
            return f"(not {self(args[0])})" if _is_number(node) else f"(~{self(args[0])})"
        if op == "where" and _is_number(args[0]):
            return f"({inner(args[1])} if {inner(args[0])} else {inner(args[2])})"
        if op == "where":
            value = self._operand if node.kind == "real" else self
            return f"torch.where({self(args[0])}, {value(args[1])}, {value(args[2])})"
        rule = {"read": self._read, "call": self._call, "trunc": self._trunc}.get(op)
        if rule is not None:
            return rule(node)
        if op in ("min", "max"):
            return self._extremum(node)
        if op == "opaque":
            return self._opaque(node)
        raise NotImplementedError(f"no torch text for {op!r}: add it to export/flex_functions.py")

    def _shape(self, node: Node) -> tuple[int, ...]:
        return tuple(cast(torch.Tensor, self._values[cast(Slot, node.own[0]).index]).shape)

    def _read(self, node: Node) -> str:
        text = self._entry(node)
        # int64 and float32, as everywhere else: smaller integers would wrap.
        value = cast(torch.Tensor, self._values[cast(Slot, node.own[0]).index])
        if node.kind == "int" and value.dtype != torch.int64:
            return f"{text}.long()"
        return f"{text}.float()" if node.kind == "real" and value.dtype != torch.float32 else text

    def _entry(self, node: Node) -> str:
        """An entry of a table in the dtype of the table."""
        name = self.names[cast(Slot, node.own[0]).index]
        if not node.args:
            return name
        shape = self._shape(node)
        return f"{name}[{', '.join(map(self._place, node.args, shape))}]"

    def _place(self, index: Node, size: int) -> str:
        """An index of a table: positions as they are, any other index clamped into the table."""
        if size == 1:
            return "0"
        if index.op == "index":
            return self(index)
        if _is_number(index):
            return f"min(max({self(index)}, 0), {size - 1})"
        return f"torch.clamp({self(index)}, 0, {size - 1})"

    def _call(self, node: Node) -> str:
        text, name = self._operand(node.args[0]), str(node.data)
        if name == "float":
            return f"float({text})" if _is_number(node) else f"({text}).float()"
        if _is_number(node):
            return f"torch.{name}(torch.tensor(float({text})))"
        if node.args[0].kind != "real":  # of integers, torch.floor and others are integers
            text = f"{text}.float()"
        return f"torch.{name}({text})"

    def _trunc(self, node: Node) -> str:
        text = self(node.args[0])
        if _is_number(node):
            return f"int({text})"
        return f"({text}).nan_to_num(0.0).clamp(-{MOST_WHOLE}, {MOST_WHOLE}).long()"

    def _extremum(self, node: Node) -> str:
        """`min` and `max` of Python, `torch.clamp` to a number, or of two tensors."""
        side = {"min": "max", "max": "min"}[node.op]
        inner = self._plain if _is_number(node) else self
        numbers = [inner(arg) for arg in node.args if _is_number(arg)]
        tensors = [self(arg) for arg in node.args if not _is_number(arg)]
        number = f"{node.op}({', '.join(numbers)})" if len(numbers) > 1 else "".join(numbers)
        if not tensors:
            return number
        text = tensors[0]
        for other in tensors[1:]:
            text = f"torch.{node.op}imum({text}, {other})"
        return f"torch.clamp({text}, {side}={number})" if numbers else text

    def _opaque(self, node: Node) -> str:
        function = getattr(node.data, "function", node.data)
        if function not in self.functions:
            self.functions.append(function)
            self.names.append(f"function_{len(self.functions)}")
        place = len(self.names) - len(self.functions) + self.functions.index(function)
        return f"{self.names[place]}({', '.join(self(arg) for arg in node.args)})"


def _combined(node: Node) -> tuple[Node, ...]:
    """The operands of a sum or a product, its leading numbers combined into one."""
    args = in_order(node)
    numbers = tuple(takewhile(_is_number, args))
    if node.kind != "real" or len(numbers) < 2:
        return args
    return Node(node.op, nodes.numeric(numbers), numbers), *args[len(numbers) :]


def _reads_axes(node: Node) -> bool:
    """Whether a formula reads a tensor that has axes."""
    return any(part.op == "read" and part.args for part in node.walk())


def _is_number(node: Node) -> bool:
    """Whether the text of a formula is a Python number: it reads no index, score or tensor."""
    return not any(part.op in ("index", "score", "read", "opaque") for part in node.walk())


def interval_function(intervals: torch.Tensor) -> Callable[..., torch.Tensor]:
    """`mask_mod` that keeps keys in one of the intervals of their query.

    Intervals are int32 `[2, batch, heads, intervals, q_len]`, first keys and ends. Each becomes a
    tensor that is read at the query alone, which torch's kernels lower without reading pairs.
    """
    _, batches, heads, count, _ = intervals.shape
    starts = [intervals[0, :, :, number].contiguous() for number in range(count)]
    ends = [intervals[1, :, :, number].contiguous() for number in range(count)]

    def mask_mod(
        b: torch.Tensor, h: torch.Tensor, q_idx: torch.Tensor, kv_idx: torch.Tensor
    ) -> torch.Tensor:
        batch, head = (b if batches > 1 else b * 0), (h if heads > 1 else h * 0)
        at = (batch, head, q_idx)
        kept = (kv_idx >= starts[0][at]) & (kv_idx < ends[0][at])
        for start, end in zip(starts[1:], ends[1:], strict=True):
            kept = kept | ((kv_idx >= start[at]) & (kv_idx < end[at]))
        return kept

    return mask_mod
