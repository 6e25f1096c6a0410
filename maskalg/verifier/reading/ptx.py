"""A block of inline PTX as terms, instruction by instruction.

A register has no sign; an instruction says whether it reads its operands as signed. Instructions
that the assembly of masks does not use are refused.
"""

from __future__ import annotations

import operator
import re
import struct
from collections.abc import Callable
from typing import Final

from .. import terms
from ..meaning import NotDefined
from ..terms import Term
from .values import FLOAT32, INT32, INT64, Number, converted

_STATEMENT: Final = re.compile(r"([a-z0-9_.A-Z]+)\s+(.*)")
_COMPARED: Final[dict[str, Callable[[Term, Term], Term]]] = {
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "eq": terms.equal, "ne": lambda x, y: ~terms.equal(x, y),
}  # fmt: skip
_BOTH: Final[dict[str, Callable[[Term, Term], Term]]] = {
    "and": operator.and_, "or": operator.or_, "xor": lambda x, y: ~terms.same(x, y),
}  # fmt: skip
_INSTRUCTIONS: Final[dict[str, tuple[tuple[terms.Sort | None, ...], Callable[..., Term]]]] = {
    "add.s32": (("int", "int"), lambda x, y: terms.wrapped(x + y, 32)),
    "sub.s32": (("int", "int"), lambda x, y: terms.wrapped(x - y, 32)),
    "and.b32": (("int", "int"), lambda x, y: terms.bitwise("bitand", x, y)),
    "mov.b32": ((None,), lambda x: x),
    "mov.u32": ((None,), lambda x: x),
    "not.pred": (("bool",), terms.no),
    **{f"{name}.pred": (("bool", "bool"), rule) for name, rule in _BOTH.items()},
    "selp.f32": (("real", "real", "bool"), lambda x, y, chosen: terms.choice(chosen, x, y)),
    "mul.rn.f32": (("real", "real"), lambda x, y: terms.apply("multiply", x, y)),
    "fma.rn.f32": (("real", "real", "real"), lambda x, y, z: terms.apply("fma", x, y, z)),
}
"""The sorts of the operands of an instruction (None for any sort), and its result."""


def read_block(assembly: str, constraints: str, operands: list[Number]) -> Number:
    """The value the assembly leaves in `$0`.

    Raises:
        NotDefined: an instruction, or an operand of another width than its register.
    """
    result, *given = [part.strip() for part in constraints.split(",")]
    if result != "=f" or len(given) != len(operands):
        raise NotDefined(f"the constraints {constraints!r}")
    block = Block({})
    for place, (constraint, operand) in enumerate(zip(given, operands, strict=True), 1):
        block.registers[f"${place}"] = _passed(constraint, operand)
    text = assembly.strip()
    if text.startswith("{"):
        if not text.endswith("}"):
            raise NotDefined("assembly that ends in a block")
        text = text[1:-1]
    for statement in filter(None, map(str.strip, text.split(";"))):
        block.run(statement)
    return Number(block.read("$0"), FLOAT32)


def _passed(constraint: str, operand: Number) -> Term:
    wanted = {"f": FLOAT32, "r": INT32, "l": INT64}.get(constraint)
    if wanted is None or operand.type.kind != wanted.kind or operand.type.bits != wanted.bits:
        raise NotDefined(f"an operand {operand.type} for the constraint {constraint!r}")
    return converted(operand, wanted).term


def _as(value: Term, sort: terms.Sort | None) -> Term:
    """A register as an operand; its bits are reinterpreted if the instruction's type differs."""
    if sort in (None, value.sort):
        return value
    if value.sort == "real" and value.op == "variable" and sort == "int":
        return terms.wrapped(terms.variable(f"bits of {value.data}"), 32)
    if value.sort == "int" and sort == "real":
        return terms.of_bits(value)
    raise NotDefined(f"an operand that is {value.sort} where one is {sort}")


class Block:
    """The registers of a thread, as a block of assembly changes them."""

    def __init__(self, registers: dict[str, Term]) -> None:
        self.registers = registers
        self.kinds: dict[str, str] = {}

    def read(self, name: str) -> Term:
        """A register or a literal number."""
        if name in self.registers:
            return self.registers[name]
        if re.fullmatch(r"-?\d+", name):
            return terms.number(int(name))
        if re.fullmatch(r"0f[0-9a-fA-F]{8}", name):
            value = struct.unpack(">f", bytes.fromhex(name[2:]))[0]
            return terms.real(value)
        raise NotDefined(f"the register {name}, which holds nothing")

    def run(self, statement: str) -> None:
        if statement.startswith(".reg"):
            kind, names = statement[len(".reg") :].strip().split(None, 1)
            self.kinds.update({name.strip(): kind for name in names.split(",")})
            return
        found = _STATEMENT.fullmatch(statement)
        if found is None:
            raise NotDefined(f"the statement {statement!r}")
        name, (target, *sources) = found[1], [part.strip() for part in found[2].split(",")]
        if target != "$0" and target not in self.kinds:
            raise NotDefined(f"the register {target}, which is not declared")
        self.registers[target] = self._value(name, sources)

    def _value(self, name: str, sources: list[str]) -> Term:
        sorts, rule = _INSTRUCTIONS.get(name) or _comparison(name)
        if len(sorts) != len(sources):
            raise NotDefined(f"the instruction {name} of {len(sources)} operands")
        return rule(*[_as(self.read(one), sort) for one, sort in zip(sources, sorts, strict=True)])


def _comparison(name: str) -> tuple[tuple[terms.Sort | None, ...], Callable[..., Term]]:
    """`setp.lt.u32 p, a, b`, or `setp.lt.and.s64 p, a, b, c`, which also needs condition c."""
    found = re.fullmatch(r"setp\.(\w+)(?:\.(and|or))?\.([su])(32|64)", name)
    if found is None or found[1] not in _COMPARED:
        raise NotDefined(f"the instruction {name}")
    compare, join, signed, bits = _COMPARED[found[1]], found[2], found[3] == "s", int(found[4])

    def rule(left: Term, right: Term, *more: Term) -> Term:
        if not signed and found[1] not in ("eq", "ne"):  # eq and ne compare bits
            left, right = (terms.wrapped(value, bits, signed=False) for value in (left, right))
        result = compare(left, right)
        return _BOTH[join](result, *more) if join else result

    return (("int", "int", "bool") if join else ("int", "int")), rule
