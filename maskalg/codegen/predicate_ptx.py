"""The mask of an element as one block of PTX.

Written naturally, LLVM packs the comparisons of a tile into vectors of bits and unpacks them
again, which costs up to a third of a masked kernel's speed on NVIDIA. One block of inline
assembly for each element leaves it nothing to pack. Operands are vectors over queries or over
keys wherever the formula allows, so that little else is computed for each element.
"""

from __future__ import annotations

from ..node import Node
from .triton_text import TritonText

_MINUS_INFINITY = "0fFF800000"


class Unrenderable(Exception):
    """A predicate the block cannot hold; the natural form serves it."""


def masked_ptx(mask: Node, text: TritonText) -> tuple[str, ...]:
    """The body of the hook `masked` as inline assembly.

    Raises:
        Unrenderable: the mask compares real numbers.
    """
    block = _Block(text)
    inside = block.compare("lt", "kv_idx", "kv_len")
    result = inside if mask.op == "const" else block.both(inside, block.predicate(mask))
    lines = [*block.lines, f"selp.f32 $0, $1, {_MINUS_INFINITY}, {result};"]
    registers = ", ".join(f"p{i}" for i in range(block.predicates))
    assembly = " ".join(["{ .reg .pred", f"{registers};", *lines, "}"])
    constraints = ",".join(["=f", "f", *["r"] * len(block.operands)])
    operands = ", ".join(["score", *block.operands])
    return (
        *text.lines,
        "return tl.inline_asm_elementwise(",
        f'    "{assembly}",',
        f'    "{constraints}",',
        f"    [{operands}],",
        "    dtype=tl.float32,",
        "    is_pure=True,",
        "    pack=1,",
        ")",
    )


class _Block:
    """Numbers predicates and operands while a formula is printed."""

    def __init__(self, text: TritonText) -> None:
        self.lines: list[str] = []
        self.operands: list[str] = []
        self.predicates = 0
        self._text = text

    def predicate(self, node: Node) -> str:
        """The predicate register that holds a Boolean formula."""
        op = node.op
        if op in ("and", "or"):
            result = self.predicate(node.args[0])
            for arg in node.args[1:]:
                result = self._join(op, result, self.predicate(arg))
            return result
        if op == "not":
            inner = self.predicate(node.args[0])
            result = self._new()
            self.lines.append(f"not.pred {result}, {inner};")
            return result
        if op in ("ge", "eq") and {arg.kind for arg in node.args} == {"int"}:
            split = self._text.split(node)
            if split is not None:
                return self.predicate(split)
            return self.compare(op, *self._text.sides(node))
        if op == "read" and node.kind == "bool":
            return self.compare("ne", f"{self._text(node)}.to(tl.int32)", "0")
        raise Unrenderable(op)

    def compare(self, how: str, left: str, right: str) -> str:
        """A comparison of two 32-bit integers, each a Triton expression or a literal zero."""
        result = self._new()
        a = self._operand(left)
        b = right if right == "0" else self._operand(right)
        self.lines.append(f"setp.{how}.s32 {result}, {a}, {b};")
        return result

    def both(self, left: str, right: str) -> str:
        return self._join("and", left, right)

    def _join(self, op: str, left: str, right: str) -> str:
        result = self._new()
        self.lines.append(f"{op}.pred {result}, {left}, {right};")
        return result

    def _new(self) -> str:
        self.predicates += 1
        return f"p{self.predicates - 1}"

    def _operand(self, expression: str) -> str:
        if expression not in self.operands:
            self.operands.append(expression)
        # $0 is the result, $1 the score.
        return f"${self.operands.index(expression) + 2}"
