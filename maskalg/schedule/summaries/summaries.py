"""Tiles decided from summaries of blocks: three-valued logic over ranges of values.

Summaries decide masks that have no section. Every part of a formula that reads one index is
evaluated once over all positions and summarised for each block of them: smallest and largest value,
whether it holds somewhere and everywhere, and the set of its values modulo 64, as 64 bits. Parts
that read both indices combine these by interval arithmetic; the ends of intervals are tensors,
infinite if unknown. A tensor of pairs is summarised block by block (`pairs.py`). An unknown part
never counts as true.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

import torch

from ...engine.evaluate import Environment
from ...engine.memory import Memory, constant, numbers_of
from ...engine.widths import compares_in_64
from ...formula import nodes
from ...formula.comparisons import arranged, is_negative
from ...formula.nodes import K, Node
from ...formula.parameters import Slot
from ...formula.positions import moved
from ...formula.separation import equal_sides, positions, related
from ..intervals.intervals import Rows
from ..intervals.steps import is_sorted
from ..positions.relations import entry_at
from ..positions.rests import union
from ..positions.sets import At, holds, rows_at, strips
from .pairs import Pair, allowed_within, entries_within, pair_blocks

Join = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

UNBOUNDED: Final = 2**58  # 32 of them add up without overflow
_KNOWN: Final = 2**52
"""Bounds beyond it are counted as infinite: a sum of them and of known ones is not below it."""
_PRODUCT_OF: Final = 2**30  # factors below it multiply without overflow


def saturated(low: torch.Tensor, high: torch.Tensor) -> Pair:
    """Bounds; those too large to be exact become infinite, each to its side."""
    return (
        low.clamp(max=_KNOWN).masked_fill_(low < -_KNOWN, -UNBOUNDED),
        high.clamp(min=-_KNOWN).masked_fill_(high > _KNOWN, UNBOUNDED),
    )


def folded(parts: list[Pair], join_low: Join, join_high: Join) -> Pair:
    low, high = parts[0]
    for other_low, other_high in parts[1:]:
        low, high = join_low(low, other_low), join_high(high, other_high)
    return low, high


def _corners(parts: list[Pair], operation: Join) -> Pair:
    (a, b), (c, d) = parts
    corners = torch.stack([operation(x, y) for x in (a, b) for y in (c, d)])
    return corners.amin(0), corners.amax(0)


def _product(parts: list[Pair]) -> Pair:
    result = parts[0]
    for part in parts[1:]:
        ends = torch.broadcast_tensors(*result, *part)
        small = torch.stack(ends).abs().amax(0) < _PRODUCT_OF
        low, high = _corners([result, part], torch.mul)
        result = torch.where(small, low, -UNBOUNDED), torch.where(small, high, UNBOUNDED)
    return result


def _quotient(parts: list[Pair]) -> Pair:
    divisor = parts[1][0].clamp(min=1), parts[1][1].clamp(min=1)
    low, high = _corners([parts[0], divisor], torch.floor_divide)
    # Infinite bounds stay infinite, even if a part of them is not.
    return (
        torch.where(parts[0][0] < -_KNOWN, -UNBOUNDED, low),
        torch.where(parts[0][1] > _KNOWN, UNBOUNDED, high),
    )


def _remainder(parts: list[Pair]) -> Pair:
    return torch.zeros_like(parts[1][0]), parts[1][1] - 1


RULES: Final[dict[str, Callable[[list[Pair]], Pair]]] = {
    "add": lambda parts: folded(parts, torch.add, torch.add),
    "mul": _product,
    "floordiv": _quotient,
    "mod": _remainder,
    "min": lambda parts: folded(parts, torch.minimum, torch.minimum),
    "max": lambda parts: folded(parts, torch.maximum, torch.maximum),
    "where": lambda parts: folded(parts, torch.minimum, torch.maximum),
}


_SUMMARIES: Final = Memory(64)
_OF_CALLS: Final = frozenset(("member", "step"))  # their results depend on the lengths of a call

Places = tuple[torch.Tensor, ...]  # batch entries, heads, rows and columns


class Summaries:
    """Formulas over tiles; each result is a pair of tensors that broadcast as the places do.

    Places are the batch entry, the head, the row and the column of each tile; None means all tiles,
    `[batch, heads, rows, columns]`. Tensors over pairs are read once; if `pairs` is False, they are
    not read and count as unknown. `of` are the sides of smaller tiles inside these tiles, which are
    labelled, too: positions are summarised for these first.
    """

    def __init__(
        self,
        rows: Rows,
        places: Places | None,
        block: tuple[int, int],
        pairs: bool = True,
        of: tuple[int, int] | None = None,
    ) -> None:
        self._rows = rows
        self._pairs = pairs
        self._of_sides = of or block
        self._known: dict[tuple[str, Node], tuple[torch.Tensor, ...]] = {}
        self._env: Environment = rows.environment
        self._block = block
        self._places = places
        lengths = rows.lengths
        self._sides = {
            name: (lengths[axis], block[axis], self._of_sides[axis])
            for axis, name in enumerate(("q_idx", "kv_idx"))
        }
        if places is None:
            indices = self._env.indices
            self._at: At = (indices["batch"][..., None], indices["head"][..., None])
        else:
            self._at = (places[0], places[1])

    def at(self, places: Places) -> Summaries:
        """The same for other tiles; summaries over all positions are not computed again."""
        other = Summaries(self._rows, places, self._block, self._pairs, self._of_sides)
        other._known = self._known
        return other

    def met(self, clause: Node) -> Pair:
        """Whether some pair of a tile surely satisfies a clause, and whether one may.

        A clause surely holds for some pair if one part does and the others hold for every pair.
        """
        parts = clause.args if clause.op == "and" else (clause,)
        every, perhaps = zip(*[self.truth(part) for part in parts], strict=True)
        surely = torch.stack(every).all(0)
        for number, part in enumerate(parts):
            if self._exact(part):
                others = torch.stack([*every[:number], perhaps[number], *every[number + 1 :]])
                surely = surely | others.all(0)
        return surely, torch.stack(perhaps).all(0)

    def _exact(self, node: Node) -> bool:
        """Whether `truth` is exact about a part: it surely holds for some pair if it may."""
        if node.op == "not":
            return self._exact(node.args[0])
        if node.op == "ge" and all(arg.kind == "int" for arg in node.args):
            # A part of the query and a part of the key both attain their extremes.
            compared = arranged(node)
            apart = all(len(positions(side)) < 2 for side in compared.args)
            return apart and compares_in_64(compared, self._env.values)
        # Entries within ranges of categories, or of an index, may belong to no pair.
        enclosed = _mixed(node) is not None or related(node) is not None
        return len(positions(node)) < 2 or (node.op == "read" and not enclosed)

    def truth(self, node: Node) -> Pair:
        """Whether a Boolean formula surely holds for some pair of a tile, and whether it may.

        "Surely" is stricter: for every pair, so conjunctions of sure parts are sure.
        """
        if len(positions(node)) < 2:
            every, some = self._of("holds", node)
            return every, some
        if self._places is not None:
            return self._truth(node)
        return self._remembered(node, lambda: self._truth(node))

    def _truth(self, node: Node) -> Pair:
        """The same for a formula of both positions."""
        if node.op == "not":
            surely, perhaps = self.truth(node.args[0])
            return ~perhaps, ~surely
        if node.op in ("and", "or"):
            join = torch.logical_and if node.op == "and" else torch.logical_or
            return folded([self.truth(arg) for arg in node.args], join, join)
        if (relation := related(node)) is not None:
            rows, columns = (self.limits(part) for part in relation[1:])
            found = allowed_within(relation, rows, columns, self._at, self._env)
            if found is not None:
                return found
        if node.op in ("ge", "eq") and all(arg.kind == "int" for arg in node.args):
            if node.op == "ge" and self._exact(node):
                return self._compared(arranged(node))
            if node.op == "eq" and (sides := equal_sides(node)) is not None:
                return self._equal(*sides)
            low, high = self.limits(nodes.subtract(*node.args))
            if node.op == "ge":
                return low >= 0, high >= 0
            return (low == 0) & (high == 0), (low <= 0) & (high >= 0)
        if node.op == "read" and (index := _mixed(node)) is not None:
            entries = entries_within(node, self.limits(index), self._at, self._env)
            if entries is not None:
                return entries
        if node.op == "read" and self._pairs:
            every, some = pair_blocks(node, self._rows.lengths, self._block, self._env)
            if self._places is None:
                return every, some
            row, column = self._places[2:]
            return entry_at(every, self._at, row, column), entry_at(some, self._at, row, column)
        unknown = torch.zeros_like(self._at[0], dtype=torch.bool)
        return unknown, ~unknown

    def _compared(self, node: Node) -> Pair:
        """A comparison of a part of the query with a part of the key, by their extremes."""
        operation = torch.gt if node.op == "gt" else torch.ge
        least, most = zip(*[self._of("extremes", side) for side in node.args], strict=True)
        return operation(least[0], most[1]), operation(most[0], least[1])

    def limits(self, node: Node) -> Pair:
        """Bounds of the smallest and the largest value of an integer formula in each tile."""
        if len(positions(node)) < 2:
            least, most = self._of("range", node)
            return least, most
        rule = RULES.get(node.op)
        if rule is None:
            largest = torch.full_like(self._at[0], UNBOUNDED)
            return -largest, largest
        if node.op == "where":
            return rule([self.limits(arg) for arg in node.args[1:]])
        if node.op == "add":
            node = _grouped(node)
        low, high = rule([self.limits(arg) for arg in node.args])
        return saturated(low, high)

    def _equal(self, left: Node, right: Node) -> Pair:
        """Whether parts of the query and of the key are equal, by ranges and last six bits."""
        if is_negative(left) and is_negative(right):
            left, right = nodes.negate(left), nodes.negate(right)
        (low, high), (least, most) = self.limits(left), self.limits(right)
        surely, perhaps = (low == most) & (high == least), (low <= most) & (high >= least)
        if self._in_order(left, right):
            return surely, perhaps  # where ranges of such entries overlap, both hold an end of one
        (bits,), (others,) = (self._of("values", side) for side in (left, right))
        return surely, perhaps & ((bits & others) != 0)

    def _in_order(self, left: Node, right: Node) -> bool:
        """Whether both are entries of one table, known to be sorted, at their own position."""
        if left.op != "read" or left.own != right.own or len(left.args) != 1:
            return False
        places = [arg.op == "index" for side in (left, right) for arg in side.args]
        table = self._env.values[cast(Slot, left.own[0]).index]
        of_integers = left.kind == "int" and isinstance(table, torch.Tensor)
        return all(places) and of_integers and is_sorted(cast(torch.Tensor, table))

    def _of(self, kind: str, node: Node) -> list[torch.Tensor]:
        """A summary of a formula of one index, read at the tiles."""
        index = _index(node)
        summary = self._known.get((kind, node))
        if summary is None:
            summary = self._known[kind, node] = self._summary(kind, node, *self._sides[index])
        return [self._of_tiles(part, index) for part in summary]

    def _summary(
        self, kind: str, node: Node, length: int, side: int, smaller: int
    ) -> tuple[torch.Tensor, ...]:
        """A summary of each block of `side` positions, from its `smaller` parts."""
        index, lengths = _index(node), self._rows.lengths
        if index == "q_idx" and lengths[0] == lengths[1]:
            node, index = _of_keys(node)
        members = tuple(self._env.indices[name].numel() for name in ("batch", "head"))
        key = ("summary", kind, index, lengths, side, smaller, members)

        def make() -> tuple[torch.Tensor, ...]:
            if kind == "range":
                return saturated(*self._summary("extremes", node, length, side, smaller))
            if side != smaller:
                found = self._summary(kind, node, length, smaller, smaller)
                parts = zip(_JOINS[kind], found, strict=True)
                return tuple(join(_blocks(part, side // smaller)) for join, part in parts)
            if kind == "holds":  # sets of positions share it
                return _extremes(_blocks(holds(node, index, lengths, self._env), smaller))
            every = strips(node, index, length, self._env, smaller)
            summaries = [_KINDS[kind](_blocks(entries, smaller)) for _, entries in every]
            return tuple(torch.cat(each, dim=-1) for each in zip(*summaries, strict=True))

        numbers = numbers_of(node, self._env.values)
        if numbers is not None:
            return constant((*key, numbers), self._env.device, make)
        return _SUMMARIES.recall((*key, self._env.device), (node,), self._env.values, make)

    def _of_tiles(self, part: torch.Tensor, index: str) -> torch.Tensor:
        """Entries of `[batch, heads, blocks]`; size 1 serves every batch entry or head."""
        of_queries = index == "q_idx"
        if self._places is None:
            return part.unsqueeze(3 if of_queries else 2)
        place = self._places[2 if of_queries else 3]
        if part.shape[0] == part.shape[1] == 1:
            return part[0, 0].take(place)
        return rows_at(part, self._at, place)

    def _remembered(self, node: Node, make: Callable[[], Pair]) -> Pair:
        """The result of `make`, remembered for all calls if no tensor decides the formula."""
        numbers = numbers_of(node, self._env.values)
        if numbers is None:
            return make()
        members = tuple(self._env.indices[name].numel() for name in ("batch", "head"))
        key = ("truth", numbers, self._rows.lengths, self._block, members)
        surely, perhaps = constant(key, self._env.device, make)
        return surely, perhaps


def _blocks(entries: torch.Tensor, size: int) -> torch.Tensor:
    """Entries `[batch, heads, n]` in blocks, `[batch, heads, blocks, size]`.

    The last one repeats its last entry, which changes no summary.
    """
    if missing := -entries.shape[-1] % size:
        last = entries[..., -1:].expand(*entries.shape[:2], missing)
        entries = torch.cat([entries, last], dim=-1)
    return entries.reshape(*entries.shape[:2], -1, size)


def _extremes(entries: torch.Tensor) -> Pair:
    """The smallest and the largest entry of each block: of Booleans, all and any."""
    if not entries.is_cpu:
        return entries.amin(-1), entries.amax(-1)
    # PyTorch vectorizes neither `aminmax` nor `all`, nor `amin` of 64 bits.
    return ~(~entries).amax(-1), entries.amax(-1)


_Summary = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]
_KINDS: Final[dict[str, _Summary]] = {
    "extremes": _extremes,
    # The set of the last six bits, as 64 bits.
    "values": lambda entries: (union(1 << (entries.to(torch.int64) & 63)),),
}

_Join = Callable[[torch.Tensor], torch.Tensor]
_ENDS: Final[tuple[_Join, _Join]] = (lambda parts: parts.amin(-1), lambda parts: parts.amax(-1))
_JOINS: Final[dict[str, tuple[_Join, ...]]] = {
    "holds": _ENDS,
    "extremes": _ENDS,
    "values": (union,),
}


def _of_keys(node: Node) -> tuple[Node, str]:
    """A formula of the query rewritten for the key, and its index; unchanged if it reads a set."""
    if not _OF_CALLS.isdisjoint(node.ops()):
        return node, "q_idx"
    return moved(node, {"q_idx": K}), "kv_idx"


def _mixed(node: Node) -> Node | None:
    """An index of a reading that depends on both positions."""
    return next((arg for arg in node.args if len(positions(arg)) == 2), None)


def _index(node: Node) -> str:
    return next(iter(positions(node)), "kv_idx")


def _grouped(node: Node) -> Node:
    """A sum with the terms of one index joined, so that each index counts once."""
    alone = {
        index: [t for t in node.args if positions(t) == {index}] for index in ("q_idx", "kv_idx")
    }
    joined = [nodes.add(*terms) for terms in alone.values() if terms]
    rest = [term for term in node.args if len(positions(term)) != 1]
    return Node("add", "int", (*joined, *rest))
