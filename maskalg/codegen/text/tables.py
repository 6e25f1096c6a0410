"""Reads of tables as Triton source: the places of entries, and when they are loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ...formula import nodes
from ...formula.nodes import Node
from ...formula.parameters import Slot
from ..ahead import is_ahead
from ..arguments import DistanceNumber, DistanceTable, ScalarArgument, TableArgument

if TYPE_CHECKING:
    from .triton import TritonText


def read(text: TritonText, node: Node) -> str:
    slot = cast(Slot, node.own[0])
    sizes = [ScalarArgument(slot.index, axis) for axis in range(len(node.args))]
    return _load(text, node, TableArgument(slot.index), sizes)


def step(text: TritonText, node: Node) -> str:
    q_slot, kv_slot = (cast(Slot, own) for own in node.own)
    name = cast(str, node.data)
    argument = TableArgument(q_slot.index, name, kv_slot.index)
    if not node.args:
        return _load(text, node, argument, [])
    sizes = [ScalarArgument(q_slot.index, q_slot.ndim - 1)]
    if len(node.args) == 2:
        sizes.insert(0, ScalarArgument(q_slot.index, 0, kv_slot.index))
    return _load(text, node, argument, sizes)


def _load(
    text: TritonText, node: Node, argument: TableArgument, sizes: list[ScalarArgument]
) -> str:
    if node in text.reads:
        return text.reads[node]
    found = text.held.reading(node) if text.held is not None else None
    if found is not None:
        text.reads[node] = found
        return found
    pointer = text.arguments.table(argument)
    *rows, last = _offsets(text, node, sizes) or [""]
    # A row of pointers plus the last index: elements add only 32 bits.
    row = f"({pointer} + {rows[-1]})" if rows else pointer
    name = f"{text.names}{len(text.reads)}"
    address = row + (f" + {last}" if last else "")
    condition = f"kv_idx < {_in_grains(text, 'kv_len')}" if by_key(text, node) else ""
    inside = f", mask={condition}, other=0" if condition else ""
    load = f"tl.load({address}{inside})"
    if text.ahead is not None and is_ahead(node):
        load = text.ahead.keep(load)
    wrapped = {"real": f"{load}.to(tl.float32)", "int": f"widened({load})", "bool": load}
    text.lines.append(f"{name} = {wrapped[node.kind]}")
    text.reads[node] = name
    return name


def along(text: TritonText, node: Node) -> str:
    """The entry of a table of distances."""
    if node not in text.reads:
        formula = node.args[0]
        pointer = text.arguments.table(DistanceTable(formula))
        zero = text.number(DistanceNumber("zero"))
        if "head" in formula.indices():
            zero = f"{zero} + head * {text.number(DistanceNumber('row'))}"
        # A row of pointers plus the loop's index.
        stands, moves = f"{zero} - q_idx", "kv_idx"
        if text.held is not None and text.held.moving == "q_idx":
            stands, moves = f"{zero} + kv_idx", "(-q_idx)"
        text.reads[node] = name = f"{text.names}{len(text.reads)}"
        text.lines.append(f"{name} = tl.load(({pointer} + ({stands})) + {moves})")
    return text.reads[node]


def place_in_table(text: TritonText, node: Node) -> str:
    """The place of a read in its table, as one number."""
    slot = cast(Slot, node.own[0])
    sizes = [ScalarArgument(slot.index, i) for i in range(len(node.args))]
    return " + ".join(_offsets(text, node, sizes))


def _offsets(text: TritonText, node: Node, sizes: list[ScalarArgument]) -> list[str]:
    """Offsets from the table's first entry: the offset of the row, and the place in the row."""
    row, at = "", ""
    for i, (index, size_of) in enumerate(zip(node.args, sizes, strict=True), 1):
        size = text.number(size_of)
        if at:
            length = _in_grains(text, size) if i == len(sizes) and by_key(text, node) else size
            row = f"({f'{row} + {at}' if row else at}).to(tl.int64) * {length}"
        at = f"inside({text.for_index()(index)}, {size})"
    if by_key(text, node):
        at = "kv_idx"
    return [part for part in (row, at) if part]


def by_key(text: TritonText, node: Node) -> bool:
    """Whether a table is read key by key along a loop: there are at least as many entries as keys,
    in consecutive places, and reads past the last key give 0."""
    looped = text.held is not None and text.held.moving == "kv_idx"
    return looped and node.op == "read" and node.args[-1:] == (nodes.K,)


def _in_grains(text: TritonText, length: str) -> str:
    """A number of entries, in a form that shows the compiler a multiple of the grain."""
    grain = text.grain
    return length if grain == 1 else f"({length} // {grain} * {grain})"
