"""Reads of tables that need a gradient: the sums of each gradient, and their hooks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, cast

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


_MOST_TOGETHER: Final = 8  # sums of rows of one kernel, which it keeps in registers


@dataclass(frozen=True)
class Reads:
    """Reads of tables in a bias whose gradients one kernel adds up.

    Attributes:
        readings: formulas `table[indices]`; of mode `rows` several, of another mode one.
        mode: the sums of their gradients: `rows` if they read no key index, `columns` if no query
            index, `distances` if only their difference, else `pairs`.
        hooks: hooks of the kernel, with `entry` unless `constant`, and `place` for pairs.
        constant: whether the derivative of the bias by the one entry is 1 everywhere.
    """

    readings: tuple[Node, ...]
    mode: Mode
    hooks: Hooks
    constant: bool


def slot_of(reading: Node) -> int:
    """The slot of the table of a read."""
    return cast(Slot, reading.own[0]).index


@lru_cache(maxsize=4096)
def entries_of(structure: Structure, slots: tuple[int, ...], style: Style) -> tuple[Reads, ...]:
    """The readings, in the bias, of the tables in `slots`, by kernels."""
    readings = dict.fromkeys(node for node in structure.bias.walk() if node.op == "read")
    changes = {r: derivative(structure.bias, r) for r in readings if slot_of(r) in slots}
    # Short derivatives first, so that a long one slows few others.
    of_rows = sorted((r for r in changes if _mode(r) == "rows"), key=lambda r: _size(changes[r]))
    starts = range(0, len(of_rows), _MOST_TOGETHER)
    groups = [tuple(of_rows[start : start + _MOST_TOGETHER]) for start in starts]
    groups += [(reading,) for reading in changes if _mode(reading) != "rows"]
    return tuple([_reads(structure, {r: changes[r] for r in group}, style) for group in groups])


def _reads(structure: Structure, changes: dict[Node, Node], style: Style) -> Reads:
    """The reads of one kernel, given the derivatives of the bias by them."""
    readings, results = tuple(changes), tuple(changes.values())
    mode = _mode(readings[0])
    constant = len(results) == 1 and results[0].op == "const" and results[0].data == 1
    formulas: list[Formula] = []
    if not constant:
        formulas.append(("entry", results))
    if mode == "pairs":
        formulas.append(("place", lambda text: _placed(readings[0], text)))
    hooks = rendered(structure, style, Arguments(), formulas)
    return Reads(readings, mode, hooks, constant)


def _size(formula: Node) -> int:
    return sum(1 for _ in formula.walk())


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
