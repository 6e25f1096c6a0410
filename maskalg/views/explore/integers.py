"""Whether doubles hold the integers of a page: those of its formulas and of the closed forms.

They are checked before a page is made. When a reader changes a number, the page checks them again
by the same rules (`static/integers.js`), which get a row for each formula that reads a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch

from ...engine.extents import Extents
from ...engine.normal_form import Bound, Value, transposed
from ...engine.widths import LEAVES, bits_of, limits
from ...errors import MaskValueError
from ...formula import nodes
from ...formula.meaning import BITWISE, Interval
from ...formula.nodes import Node
from ...formula.printing import formula_text
from ...proof.proof import prove_structure
from .javascript import slot_index

EXACT: Final = 2**53  # integers up to it are exact as doubles

Row = list[int | str]


class Integers:
    """The integers of the page of an expression for one call.

    Args:
        form: the expression.
        extents: of the call.
    """

    def __init__(self, form: Bound, extents: Extents) -> None:
        self._structure = form.structure
        self._told = tuple(map(_told, form.values))
        self._longest = max(extents.q_len, extents.kv_len, extents.batch, extents.heads, 1)

    def check(self) -> None:
        """Check that integers of the page fit doubles (53 bits), and bitwise operands 32 bits.

        Raises:
            MaskValueError: the formulas, or the closed forms of their schedules, may need more.
        """
        for part in self._parts():
            sizes = [max(map(abs, self._limits(arg))) for arg in part.args]
            # Terms may be added in any order, and a remainder subtracts a multiple of the divisor.
            large = part.op in ("add", "mod") and sum(sizes) >= EXACT
            if large or self._bits(part) > _most_bits(part):
                raise MaskValueError(
                    "The page computes with integers of 53 bits, bitwise with 32, and "
                    f"{formula_text(part)} may need more. Write smaller numbers, or entries that "
                    "no sequence exceeds: tensor.clamp(max=length)."
                )

    def rows(self) -> list[Row]:
        """The integers of `check` that depend on a number of the page, as rows, arguments first.

        A row is `["number", slot]`; `["between", low, high, largest]` for an integer that no number
        decides; or an operation, the bits that it may have and the rows of its arguments.
        """
        found: list[Row] = []
        places: dict[Node, int] = {}

        def place(node: Node) -> int:
            if node not in places:
                row: Row
                if _is_number(node):
                    row = ["number", slot_index(node)]
                elif _is_decided(node):
                    row = [node.op, _most_bits(node), *map(place, node.args)]
                else:
                    row = ["between", *self._limits(node), 2 ** self._bits(node) - 1]
                places[node] = len(found)
                found.append(row)
            return places[node]

        for part in filter(_is_decided, self._parts()):
            place(part)
        return found

    def _parts(self) -> Iterator[Node]:
        """Each integer that the page computes."""
        structure = self._structure
        both = [prove_structure(one).forms.bounds for one in (structure, transposed(structure))]
        formulas = [structure.mask, structure.bias]
        differences = [
            nodes.subtract(*part.args)  # which the page computes over a rectangle
            for formula in formulas
            for part in formula.walk()
            if part.op in ("ge", "eq") and {arg.kind for arg in part.args} == {"int"}
        ]
        formulas += [*both[0], *both[1], *differences]
        for part in dict.fromkeys(part for formula in formulas for part in formula.walk()):
            if part.kind == "int" and part.args and part.op not in ("read", "step", "member"):
                yield part

    def _limits(self, node: Node) -> Interval:
        return limits(node, self._told, self._longest)

    def _bits(self, node: Node) -> int:
        return bits_of(node, self._told, self._longest)


def _most_bits(part: Node) -> int:
    return 31 if part.op in BITWISE else 53


def _is_number(node: Node) -> bool:
    return node.op == "scalar" and node.kind == "int"


def _is_decided(node: Node) -> bool:
    """Whether the size of an integer depends on numbers of the page."""
    return node.kind == "int" and node.op not in LEAVES and any(map(_is_number, node.walk()))


def _told(value: Value) -> Value | Interval:
    """A value, or the limits of the entries of a table of integers."""
    if not isinstance(value, torch.Tensor) or value.is_floating_point() or not value.numel():
        return value
    return int(value.min()), int(value.max())
