"""Reads of tables that need a gradient: the sums of each gradient, and their hooks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, cast

from ..engine.normal_form import Structure
from ..formula.nodes import Node
from ..formula.parameters import Slot
from ..formula.separation import by_distance
from .arguments import Arguments
from .derivative import derivative
from .hooks import Formula, Hooks, Style, rendered
from .text.tables import place_in_table
from .text.triton import TritonText

Mode = Literal["rows", "columns", "distances", "pairs"]


@dataclass(frozen=True)
class Entry:
    """One read of a table in a bias.

    Attributes:
        reading: the formula `table[indices]`.
        slot: of the table.
        mode: the sums of its gradient: `rows` if it reads no key index, `columns` if no query
            index, `distances` if only their difference, else `pairs`.
        hooks: hooks of the kernel, with `entry` unless `constant`, and `place` for pairs.
        constant: whether the derivative of the bias by the entry is 1 everywhere.
    """

    reading: Node
    slot: Slot
    mode: Mode
    hooks: Hooks
    constant: bool


@lru_cache(maxsize=4096)
def entries_of(structure: Structure, slots: tuple[int, ...], style: Style) -> tuple[Entry, ...]:
    """The readings, in the bias, of the tables in `slots`."""
    found = dict.fromkeys(
        node
        for node in structure.bias.walk()
        if node.op == "read" and cast(Slot, node.own[0]).index in slots
    )
    return tuple([_entry(structure, reading, style) for reading in found])


def _entry(structure: Structure, reading: Node, style: Style) -> Entry:
    mode = _mode(reading)
    change = derivative(structure.bias, reading)
    constant = change.op == "const" and change.data == 1
    formulas: list[Formula] = []
    if not constant:
        formulas.append(("entry", change))
    if mode == "pairs":
        formulas.append(("place", lambda text: _placed(reading, text)))
    hooks = rendered(structure, style, Arguments(), formulas)
    return Entry(reading, cast(Slot, reading.own[0]), mode, hooks, constant)


def _mode(reading: Node) -> Mode:
    indices = reading.indices()
    if "kv_idx" not in indices:
        return "rows"
    if "q_idx" not in indices:
        return "columns"
    return "distances" if all(by_distance(arg) for arg in reading.args) else "pairs"


def _placed(reading: Node, text: TritonText) -> tuple[str, ...]:
    place = place_in_table(text, reading)
    return (*text.lines, f"return {place}")
