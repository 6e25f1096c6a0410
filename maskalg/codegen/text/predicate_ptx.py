"""The mask of an element as one block of PTX.

From ordinary Triton, LLVM packs the comparisons of a tile into vectors of bits and unpacks them
again, which costs up to a third of a masked kernel's speed on NVIDIA. One block of inline
assembly for each element leaves nothing to pack. Comparisons that bound the moving index are
one interval, whose ends are computed before the loop (`spans.py`); other operands are vectors over
queries or over keys wherever the formula allows, so that little else is computed for each element.
"""

from __future__ import annotations

from ...formula import nodes
from ...formula.comparisons import outgrows_entries
from ...formula.nodes import Node
from ..arguments import is_loaded
from ..held import Held
from ..spans import Interval, interval_of
from .integers import sides, split
from .long_integers import is_long, roots
from .tables import by_key
from .triton import TritonText

_ALL = "2147483647"
_MINUS_INFINITY = "0fFF800000"


class Unrenderable(Exception):
    """A predicate that a block cannot compute; ordinary Triton computes it."""


def masked_ptx(mask: Node, text: TritonText, held: Held, *, long: bool) -> tuple[str, ...]:
    """Lines that set `result`, the score or -inf, by inline assembly.

    Args:
        mask: the formula.
        text: prints formulas that change from step to step of the loop.
        held: the formulas that do not.
        long: whether a table may hold integers of 64 bits, which are not compared here.

    Raises:
        Unrenderable: the mask compares real numbers, or long integers.
    """
    if text.limbs > 1 and any(is_long(root, wide=text.wide) for root in roots(mask)):
        raise Unrenderable("integers of 128 bits")
    block = _Block(text, held, long)
    result = block.predicate(mask, inside=True)
    if result is None:
        return ("result = score",)
    lines = [*block.lines, f"selp.f32 $0, $1, {_MINUS_INFINITY}, {result};"]
    registers = ", ".join(f"p{i}" for i in range(block.predicates))
    declared = f".reg .pred {registers}; .reg .s32 distance;"
    assembly = " ".join(["{", declared, *lines, "}"])
    constraints = ",".join(["=f", "f", *["r"] * len(block.operands)])
    return (*text.lines, *for_each(assembly, constraints, ["score", *block.operands]))


def equal_ptx(equal: tuple[Node, ...], text: TritonText, *, long: bool) -> tuple[str, ...]:
    """Lines that set `result` to -inf unless all of these equalities of ids hold."""
    bits, register = (64, "l") if long else (32, "r")
    operands = [
        f"{side}.to(tl.int{bits})" for node in equal for side in map(text, sides(node).args)
    ]
    compared = [f"setp.eq.s{bits} p0, $2, $3;"] + [
        f"setp.eq.and.s{bits} p0, ${i}, ${i + 1}, p0;" for i in range(4, len(operands) + 2, 2)
    ]
    chosen = f"selp.f32 $0, $1, {_MINUS_INFINITY}, p0;"
    assembly = " ".join(["{ .reg .pred p0;", *compared, chosen, "}"])
    constraints = ",".join(["=f", "f", *[register] * len(operands)])
    return (*text.lines, *for_each(assembly, constraints, ["result", *operands]))


def passed_on(name: str) -> tuple[str, ...]:
    """Lines that set a tile to itself, before a branch that reads it.

    If a matrix product is read in branches only, Triton does not pipeline the loop on Hopper. The
    move reads it once before the branches; NVIDIA's assembler removes the move.
    """
    return for_each("mov.b32 $0, $1;", "=f,f", [name], result=name)


def for_each(
    assembly: str, constraints: str, operands: list[str], *, result: str = "result"
) -> tuple[str, ...]:
    """Lines that set `result` by a block of assembly for each element."""
    return (
        f"{result} = tl.inline_asm_elementwise(",
        f'    "{assembly}",',
        f'    "{constraints}",',
        f"    [{', '.join(operands)}],",
        "    dtype=tl.float32,",
        "    is_pure=True,",
        "    pack=1,",
        ")",
    )


class _Block:
    """Numbers predicates and operands while a formula is printed."""

    def __init__(self, text: TritonText, held: Held, long: bool) -> None:
        self.lines: list[str] = []
        self.operands: list[str] = []
        self.predicates = 0
        self._text = text
        self._held = held
        self._long = long

    def predicate(self, node: Node, *, inside: bool = False) -> str | None:
        """The predicate register of a formula; None if it is always true.

        With `inside`, the key must also exist.
        """
        if not inside and node.op == "or":
            return self._joined("or", [self.predicate(arg) for arg in node.args])
        if not inside and node.op == "not":
            inner = self.predicate(node.args[0])
            return self._put(f"not.pred {{}}, {inner};")
        interval = interval_of(self._literals(node), self._held.moving)
        # Held keys past the last one need no mask: their gradients are not stored.
        inside = inside and self._held.moving == "kv_idx"
        inside = inside and not any(by_key(self._text, part) for part in interval.rest)
        bounded = bool(interval.lows or interval.highs or inside)
        fixed = [part for part in interval.rest if bounded and self._fixed(part)]
        parts = [self._single(literal) for literal in interval.rest if literal not in fixed]
        if bounded:
            parts.insert(0, self._between(interval, inside, fixed))
        return self._joined("and", parts)

    def _fixed(self, node: Node) -> bool:
        """Whether a condition is the same for a row, and reads no table."""
        computed = not any(part.op in ("read", "step") for part in node.walk())
        return computed and self._held.fixed(node)

    def _literals(self, node: Node) -> tuple[Node, ...]:
        """The terms of a formula as a conjunction, without outer minima and maxima."""
        if node == nodes.TRUE:
            return ()
        if node.op == "and":
            return tuple([part for arg in node.args for part in self._literals(arg)])
        if node.op in ("ge", "eq") and {arg.kind for arg in node.args} == {"int"}:
            without = split(node)
            if without is not None:
                return self._literals(without)
        return (node,)

    def _single(self, node: Node) -> str | None:
        if node.op in ("or", "not"):
            return self.predicate(node)
        if node.op in ("ge", "eq") and {arg.kind for arg in node.args} == {"int"}:
            compared = sides(node)
            self._refuse_long(compared)
            left, right = (self._operand(self._text(side)) for side in compared.args)
            return self._put(f"setp.{compared.op}.s32 {{}}, {left}, {right};")
        if node.op == "read" and node.kind == "bool":
            operand = self._operand(f"{self._text(node)}.to(tl.int32)")
            return self._put(f"setp.ne.s32 {{}}, {operand}, 0;")
        raise Unrenderable(node.op)

    def _between(self, interval: Interval, inside: bool, fixed: list[Node]) -> str:
        """The loop's index lies between bounds; no index does unless all of `fixed` hold.

        Bounds that read tables are computed before the loop.
        """
        bounds = (*interval.lows, *interval.highs)
        self._refuse_long(*bounds)
        read = any(part.op in ("read", "step") for bound in bounds for part in bound.walk())
        lows = [self._held.text(bound) for bound in interval.lows]
        highs = [self._held.text(bound) for bound in interval.highs]
        if inside:
            highs.append("kv_len - 1")
        if fixed:
            held = " & ".join([self._held.text(condition) for condition in fixed])
            highs = [f"tl.where({held}, {_extreme('tl.minimum', highs or [_ALL])}, -1)"]
        # Arithmetic alone is cheaper than the registers that would hold it.
        read = read or any(map(is_loaded, (*lows, *highs)))
        keep = self._held.keep if read else str
        index = self._operand(self._held.moving)
        if not lows:
            high = self._operand(keep(_extreme("tl.minimum", highs)))
            return self._put(f"setp.le.s32 {{}}, {index}, {high};")
        if not highs:
            low = self._operand(keep(_extreme("tl.maximum", lows)))
            return self._put(f"setp.ge.s32 {{}}, {index}, {low};")
        # 0 <= index - low < length, as one comparison of unsigned numbers that cannot overflow.
        low, high = _extreme("tl.maximum", [*lows, "0"]), _extreme("tl.minimum", highs)
        first = self._operand(keep(low))
        length = self._operand(keep(f"count({low}, {high})"))
        self.lines.append(f"sub.s32 distance, {index}, {first};")
        return self._put(f"setp.lt.u32 {{}}, distance, {length};")

    def _refuse_long(self, *formulas: Node) -> None:
        parts = [part for formula in formulas for part in formula.walk()]
        long = self._long and any(part.op == "read" and part.kind == "int" for part in parts)
        if long or any(map(outgrows_entries, parts)):
            raise Unrenderable("integers of 64 bits")

    def _joined(self, op: str, parts: list[str | None]) -> str | None:
        known = [part for part in parts if part is not None]
        if op == "or" and len(known) < len(parts):
            return None
        result = known[0] if known else None
        for part in known[1:]:
            result = self._put(f"{op}.pred {{}}, {result}, {part};")
        return result

    def _put(self, line: str) -> str:
        """Write a line that sets a new predicate register."""
        register = f"p{self.predicates}"
        self.predicates += 1
        self.lines.append(line.format(register))
        return register

    def _operand(self, expression: str) -> str:
        if expression == "0":
            return expression
        if expression not in self.operands:
            self.operands.append(expression)
        # $0 is the result, $1 the score.
        return f"${self.operands.index(expression) + 2}"


def _extreme(function: str, bounds: list[str]) -> str:
    result = bounds[0]
    for bound in bounds[1:]:
        result = f"{function}({result}, {bound})"
    return result
