"""Formulas as terms, with the meaning that `formula/meaning.py` defines."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final, cast

import torch

from ..engine import long_integers as longs
from ..engine import widths
from ..formula.meaning import REALS, as_float32, ends_of_entries, whole
from ..formula.nodes import Node, in_order
from ..formula.parameters import Slot
from . import terms
from .terms import Table, Term

Q, K = terms.variable("q_idx"), terms.variable("kv_idx")
Q_LEN, KV_LEN = terms.variable("q_len"), terms.variable("kv_len")
BATCH, HEAD = terms.variable("batch"), terms.variable("head")
SCORE = terms.variable("score", "real")
Q0, Q1 = terms.variable("q0"), terms.variable("q1")

_INDICES: Final = {"q_idx": Q, "kv_idx": K, "batch": BATCH, "head": HEAD, "q0": Q0, "q1": Q1}


class NotDefined(Exception):
    """A formula or text that cannot be written as terms; the message says which part."""


class Meaning:
    """Translates the formulas of one structure to terms.

    Args:
        dtypes: dtypes of the tables, by slot.
    """

    def __init__(self, dtypes: dict[int, torch.dtype]) -> None:
        self.dtypes = dtypes
        self._known: dict[Node, Term] = {}

    def __call__(self, node: Node) -> Term:
        found = self._known.get(node)
        if found is None:
            rule = _RULES.get(node.op)
            if rule is None:
                raise NotDefined(f"the operation {node.op!r}")
            found = self._known[node] = rule(self, node)
        return found

    def real(self, node: Node) -> Term:
        """The value as a real number."""
        found = self(node)
        return terms.real_of(found) if found.sort == "int" else found

    def table(self, slot: Slot) -> Table:
        dtype = self.dtypes[slot.index]
        if dtype.is_floating_point:
            return Table(f"t{slot.index}", "real")
        if dtype == torch.bool:
            return Table(f"t{slot.index}", "bool")
        return Table(f"t{slot.index}", "int", *ends_of_entries(dtype))

    def size(self, slot: Slot, axis: int) -> Term:
        """The size of the table of a slot along an axis."""
        return terms.variable(f"size{slot.index}_{axis}")

    def number(self, slot: Slot) -> Term:
        """A number that is bound to a slot."""
        return terms.variable(f"n{slot.index}", "real" if slot.kind == "real" else "int")


def inside(index: Term, size: Term) -> Term:
    """An index clamped to 0..size - 1."""
    last = size - 1
    if index.op == "least" and last in index.args and terms.never_negative(index):
        return index
    return terms.least(terms.most(index, terms.number(0)), last)


def step_table(name: str, q_slot: Slot, kv_slot: Slot) -> Table:
    """A monotone table made from document ids. Entries are positions, -1 or a length
    (`schedule/intervals/steps.py`)."""
    return Table(f"{name} of t{q_slot.index}, t{kv_slot.index}", "int", -1, 2**30)


def step_sizes(q_slot: Slot, kv_slot: Slot, rank: int) -> list[Term]:
    """The shape of a `step_table`: an entry for each document id of the queries; with rank 2, in as
    many rows as the ids of queries or keys have."""
    sizes = [terms.variable(f"size{q_slot.index}_{q_slot.ndim - 1}")]
    if rank == 2:
        rows = [terms.variable(f"size{s.index}_0") for s in (q_slot, kv_slot) if s.ndim == 2]
        sizes.insert(0, terms.most(*rows))
    return sizes


def place(indices: Sequence[Term], sizes: Sequence[Term]) -> Term:
    """The offset of an entry in a table stored row by row; indices are clamped."""
    at = terms.number(0)
    for index, size in zip(indices, sizes, strict=True):
        at = at * size + inside(index, size)
    return at


def _const(meaning: Meaning, node: Node) -> Term:
    if node.kind == "bool":
        return terms.truth(bool(node.data))
    if node.kind == "int":
        return terms.number(cast(int, node.data))
    return terms.real(rounded(cast(float, node.data)))


def of_float32(name: str, *args: Any) -> Any:
    """The result of an operation on real numbers in float32, for `terms.computed`."""
    if name == "whole":
        return int(whole(torch.as_tensor(args[0], dtype=torch.float32)))
    if name == "real_of":
        return _nearest(int(args[0]))
    function = REALS.get(name)
    if function is None:
        raise NotDefined(f"the operation {name!r} of real numbers")
    found = function(*[torch.as_tensor(arg, dtype=torch.float32) for arg in args])
    return bool(found) if found.dtype == torch.bool else found


def _nearest(integer: int) -> torch.Tensor:
    """An integer as float32; one past 64 bits is rounded to a double first."""
    if widths.inside((integer, integer)):
        return torch.tensor(integer).to(torch.float32)
    limbs = longs.limbs_for(integer.bit_length())
    return longs.real(longs.of_number(integer, limbs, torch.device("cpu"))).to(torch.float32)


def rounded(value: float) -> float:
    """A Python float rounded to float32."""
    return float(torch.tensor(as_float32(float(value)), dtype=torch.float32))


def _read(meaning: Meaning, node: Node) -> Term:
    slot = cast(Slot, node.own[0])
    sizes = [meaning.size(slot, axis) for axis in range(len(node.args))]
    return terms.entry(meaning.table(slot), place([meaning(arg) for arg in node.args], sizes))


def _step(meaning: Meaning, node: Node) -> Term:
    q_slot, kv_slot = (cast(Slot, own) for own in node.own)
    table = step_table(str(node.data), q_slot, kv_slot)
    if not node.args:
        return terms.entry(table, terms.number(0))
    sizes = step_sizes(q_slot, kv_slot, len(node.args))
    return terms.entry(table, place([meaning(arg) for arg in node.args], sizes))


def _folded(op: str) -> Callable[[Meaning, Node], Term]:
    def rule(meaning: Meaning, node: Node) -> Term:
        if node.kind != "real":
            return reduce(terms.OF_INTEGERS[op], map(meaning, node.args))
        parts = [meaning.real(arg) for arg in in_order(node)]
        return reduce(lambda left, right: terms.apply(_REALS[op], left, right), parts)

    return rule


_REALS: Final = {"add": "add", "mul": "multiply", "min": "minimum", "max": "maximum"}


def _divisor(meaning: Meaning, node: Node) -> Term:
    found = meaning(node)
    positive = node.op == "scalar" and (cast(Slot, node.own[0]).low or 0) >= 1
    return found if positive else terms.most(found, terms.number(1))


def _compared(integers: Callable[[Term, Term], Term], name: str) -> Callable[[Meaning, Node], Term]:
    def rule(meaning: Meaning, node: Node) -> Term:
        kinds = {arg.kind for arg in node.args}
        if "real" in kinds:
            return terms.apply(name, *[meaning.real(arg) for arg in node.args], sort="bool")
        left, right = map(meaning, node.args)
        if left.sort == "bool" or right.sort == "bool":
            return integers(as_integer(left), as_integer(right))
        return integers(left, right)

    return rule


def as_integer(term: Term) -> Term:
    """A condition as 1 or 0; an integer as it is."""
    if term.sort == "bool":
        return terms.choice(term, terms.number(1), terms.number(0))
    return term


def _where(meaning: Meaning, node: Node) -> Term:
    value = meaning.real if node.kind == "real" else meaning
    chosen, then, otherwise = node.args
    return terms.choice(meaning(chosen), value(then), value(otherwise))


def _call(meaning: Meaning, node: Node) -> Term:
    argument = meaning.real(node.args[0])
    return argument if node.data == "float" else terms.apply(str(node.data), argument)


_RULES: Final[dict[str, Callable[[Meaning, Node], Term]]] = {
    "index": lambda meaning, node: _INDICES[str(node.data)],
    "const": _const,
    "scalar": lambda meaning, node: meaning.number(cast(Slot, node.own[0])),
    "read": _read,
    "extent": lambda meaning, node: meaning.size(cast(Slot, node.own[0]), cast(int, node.data)),
    "step": _step,
    "score": lambda meaning, node: SCORE,
    **{op: _folded(op) for op in (*_REALS, "bitand", "bitor", "bitxor")},
    "floordiv": lambda meaning, node: meaning(node.args[0]) // _divisor(meaning, node.args[1]),
    "mod": lambda meaning, node: meaning(node.args[0]) % _divisor(meaning, node.args[1]),
    "div": lambda meaning, node: terms.apply("divide", *map(meaning.real, node.args)),
    "pow": lambda meaning, node: terms.apply("power", *map(meaning.real, node.args)),
    "ge": _compared(operator.ge, "greater or equal"),
    "gt": _compared(operator.gt, "greater"),
    "eq": _compared(terms.equal, "equal"),
    "and": lambda meaning, node: terms.both(*map(meaning, node.args)),
    "or": lambda meaning, node: terms.either(*map(meaning, node.args)),
    "not": lambda meaning, node: ~meaning(node.args[0]),
    "where": _where,
    "call": _call,
    "trunc": lambda meaning, node: terms.whole_part(meaning.real(node.args[0])),
}
