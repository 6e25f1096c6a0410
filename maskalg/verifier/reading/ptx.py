"""A block of inline PTX as terms, instruction by instruction.

A register has no sign; an instruction says whether it reads its operands as signed. Instructions
that the assembly of masks does not use are refused.
"""

from __future__ import annotations

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
    "lt": lambda x, y: y > x,
    "le": lambda x, y: y >= x,
    "gt": terms.greater,
    "ge": terms.greater_equal,
    "eq": terms.equal,
    "ne": lambda x, y: ~terms.equal(x, y),
}


def read_block(assembly: str, constraints: str, operands: list[Number]) -> Number:
    """The value the assembly leaves in `$0`.

    Raises:
        NotDefined: an instruction, or an operand of another width than its register.
    """
    result, *given = [part.strip() for part in constraints.split(",")]
    if result != "=f" or len(given) != len(operands):
        raise NotDefined(f"the constraints {constraints!r}")
    block = _Block()
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


def _sorts(name: str, count: int) -> tuple[terms.Sort | None, ...]:
    """The sorts of an instruction's operands; None for any sort."""
    head, *rest = name.split(".")
    known: dict[str, tuple[terms.Sort | None, ...]] = {
        "setp": ("int", "int", "bool") if count == 3 else ("int", "int"),
        "selp": ("real", "real", "bool"), "mov": (None,),
    }  # fmt: skip
    of: dict[str, terms.Sort] = {"pred": "bool", "f32": "real"}
    every = (of.get(rest[-1] if rest else "", "int"),) * {"not": 1, "fma": 3}.get(head, 2)
    return known.get(head, every)


def _as(value: Term, sort: terms.Sort | None) -> Term:
    """A register as an operand; its bits are reinterpreted if the instruction's type differs."""
    if sort in (None, value.sort):
        return value
    if value.sort == "real" and value.op == "variable" and sort == "int":
        return terms.wrapped(terms.variable(f"bits of {value.data}"), 32)
    if value.sort == "int" and sort == "real":
        return terms.of_bits(value)
    raise NotDefined(f"an operand that is {value.sort} where one is {sort}")


class _Block:
    def __init__(self) -> None:
        self.registers: dict[str, Term] = {}
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
        head, *rest = name.split(".")
        wanted = _sorts(name, len(sources))
        if len(wanted) != len(sources):
            raise NotDefined(f"the instruction {name} of {len(sources)} operands")
        values = [_as(self.read(one), sort) for one, sort in zip(sources, wanted, strict=True)]
        if head == "setp":
            return self._compared(rest, values)
        if name in ("add.s32", "sub.s32"):
            left, right = values
            found = (terms.add if head == "add" else terms.subtract)(left, right)
            return terms.wrapped(found, 32)
        if name in ("and.pred", "or.pred"):
            return (terms.both if head == "and" else terms.either)(*values)
        if name == "xor.pred":
            return ~terms.same(*values)
        if name == "not.pred":
            return terms.no(*values)
        if name == "mov.b32":
            return values[0]
        if name == "and.b32":
            return terms.bitwise("bitand", *values)
        if name == "selp.f32":
            then, otherwise, chosen = values
            return terms.choice(chosen, then, otherwise)
        if name == "mul.rn.f32":
            return terms.apply("multiply", *values)
        if name == "fma.rn.f32":
            return terms.apply("fma", *values)
        raise NotDefined(f"the instruction {name}")

    def _compared(self, rest: list[str], values: list[Term]) -> Term:
        """`setp.lt.u32 p, a, b`, or `setp.lt.and.s64 p, a, b, c`, which also needs condition c."""
        if len(rest) not in (2, 3) or rest[0] not in _COMPARED:
            raise NotDefined(f"the instruction setp.{'.'.join(rest)}")
        signed, bits = rest[-1][0], int(rest[-1][1:])
        if signed not in "su" or bits not in (32, 64):
            raise NotDefined(f"the comparison of {rest[-1]}")
        left, right = values[:2]
        if signed == "u" and rest[0] not in ("eq", "ne"):  # eq and ne compare bits
            left, right = (terms.wrapped(value, bits, signed=False) for value in (left, right))
        found = _COMPARED[rest[0]](left, right)
        if len(rest) == 2:
            return found
        return (terms.both if rest[1] == "and" else terms.either)(found, values[2])
