"""The values a kernel's text computes with: integers with a width, real numbers, pointers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch

from .. import terms
from ..meaning import NotDefined, as_integer
from ..terms import Table, Term


@dataclass(frozen=True)
class Type:
    """The type of a number: "int", signed or not, "bool" or "float", of `bits` bits."""

    kind: str
    bits: int
    signed: bool = True

    @property
    def ends(self) -> tuple[int, int]:
        """The smallest and the largest integer."""
        return terms.ends_of_bits(self.bits, self.signed)


BOOL: Final = Type("bool", 1, signed=False)
INT32, INT64 = Type("int", 32), Type("int", 64)
FLOAT32: Final = Type("float", 32)
TYPES: Final = {
    "int1": BOOL,
    **{f"int{bits}": Type("int", bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": Type("int", bits, signed=False) for bits in (8, 16, 32, 64)},
    **{f"float{bits}": Type("float", bits) for bits in (16, 32, 64)},
    "bfloat16": Type("float", 16),
}


def type_of(dtype: torch.dtype) -> Type:
    """The type of a table's entries in a kernel."""
    name = str(dtype).removeprefix("torch.")
    found = TYPES.get("int1" if name == "bool" else name)
    if found is None:
        raise NotDefined(f"a table of {dtype}")
    return found


@dataclass(frozen=True)
class Number:
    """A number or a condition: a term, and the type it is computed in."""

    term: Term
    type: Type

    @property
    def as_condition(self) -> Term:
        """A condition as it is; an integer as the condition that it is not 0."""
        if self.type.kind == "bool":
            return self.term
        if self.type.kind != "int":
            raise NotDefined("a real number as a condition")
        return ~terms.equal(self.term, terms.number(0))


@dataclass(frozen=True)
class Block(Number):
    """One element of a block of numbers, with the block's shape."""

    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class Pointer:
    """An address: `at` entries after the first one of a table."""

    table: Table
    entries: Type
    at: Term

    @property
    def address(self) -> Number:
        """The address in bytes. The table begins at an unknown address, which is not negative."""
        first = terms.wrapped(terms.variable(f"address of {self.table.name}"), 63, signed=False)
        size = terms.number(-(-self.entries.bits // 8))
        return integer(first + size * self.at, INT64)


class Indexed:
    """A sequence of unknown length."""

    @property
    def type(self) -> Type:
        """The type of its entries in C++."""
        return INT64

    def at(self, index: Term) -> Any:
        """The entry at a place."""
        raise NotImplementedError

    def put(self, index: Term, value: Number) -> Indexed:
        """The sequence with `value` at a place."""
        raise NotDefined("a sequence that is changed")

    def chosen(self, condition: Term, otherwise: Indexed) -> Indexed:
        """This sequence if a condition holds, else the other one."""
        raise NotDefined("one of two sequences")


def integer(term: Term, of: Type) -> Number:
    """A sum or product as an integer of a type: it wraps."""
    return Number(terms.wrapped(term, of.bits, of.signed), of)


def converted(value: Number, to: Type) -> Number:
    """A number converted to another type, as processors convert it."""
    if value.type == to:
        return value
    if to.kind == "float":
        if value.type.kind == "float":
            if to.bits < value.type.bits and not (to == FLOAT32 and _is_read(value.term)):
                raise NotDefined(f"float{value.type.bits} as float{to.bits}")
            return Number(value.term, to)
        return Number(terms.real_of(as_integer(value.term)), to)
    if to.kind == "bool":
        return Number(value.as_condition, BOOL)
    if value.type.kind == "float":
        raise NotDefined("a real number made an integer")
    low, high = value.type.ends
    inside = to.ends[0] <= low and high <= to.ends[1]
    term = as_integer(value.term)
    return Number(term, to) if inside or value.type.kind == "bool" else integer(term, to)


def _is_read(term: Term) -> bool:
    """Whether a real number is a table's entry, which is float32, or the 0 in place of one."""
    if term.op == "choice":
        return all(map(_is_read, term.args[1:]))
    return term.op == "entry" or (term.op == "real" and term.data == 0)


def promoted(left: Type, right: Type) -> Type:
    """The type that an operation on two numbers is computed in."""
    kinds = {left.kind, right.kind}
    if "float" in kinds:
        return Type("float", max(t.bits for t in (left, right) if t.kind == "float"))
    if kinds == {"bool"}:
        return BOOL
    if "bool" in kinds:
        return right if left.kind == "bool" else left
    if left.signed == right.signed:
        return left if left.bits >= right.bits else right
    unsigned, signed = (right, left) if left.signed else (left, right)
    return unsigned if unsigned.bits >= signed.bits else signed
