"""Tiles decided from summaries of blocks: three-valued logic over ranges of values.

For what no section expresses. Every part of a formula that reads one index is evaluated once over
all positions and summarised for each block of them: smallest and largest value, whether it holds
somewhere and everywhere, and the set of its values in 64 bits. Parts that read both indices
combine these by interval arithmetic; a tensor of pairs is summarised block by block
(`pair_blocks`). What remains unknown is never taken as true.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import torch

from .. import nodes
from ..comparisons import arranged
from ..evaluate import Environment
from ..nodes import Node
from ..proof.separation import equal_sides, positions, related
from .intervals import Rows
from .pair_blocks import pair_blocks
from .pair_counts import entries_within, pair_counts
from .ranges import union
from .sets import At, over_positions, rows_at

Pair = tuple[torch.Tensor, torch.Tensor]  # smallest and largest; or surely and perhaps

_UNBOUNDED: Final = 2**58  # 32 of them add up without overflow
_KNOWN: Final = 2**52
"""Bounds beyond it are counted as infinite: a sum of them and of known ones is not below it."""
_PRODUCT_OF: Final = 2**30  # factors below it multiply without overflow


class Summaries:
    """Formulas over the tiles at `places` `[n, 4]`, each result a pair of tensors `[n]`.

    Tensors over pairs are gone through once unless `pairs` is False; then they tell nothing.
    """

    def __init__(
        self, rows: Rows, places: torch.Tensor, block: tuple[int, int], pairs: bool = True
    ) -> None:
        self._rows = rows
        self._pairs = pairs
        self._known: dict[tuple[str, Node], tuple[torch.Tensor, ...]] = {}
        self._env: Environment = rows.environment
        self._block = block
        self._at: At = (places[:, 0], places[:, 1])
        self._axes = {
            "q_idx": (rows.extents.q_len, block[0], places[:, 2]),
            "kv_idx": (rows.extents.kv_len, block[1], places[:, 3]),
        }

    def at(self, places: torch.Tensor) -> Summaries:
        """The same for other tiles: what was summarised over all positions is not done again."""
        other = Summaries(self._rows, places, self._block, self._pairs)
        other._known = self._known
        return other

    def met(self, clause: Node) -> Pair:
        """Whether some pair of a tile surely satisfies a clause, and whether one may.

        One of its parts may hold for some pairs only, if the others hold for every pair.
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
        """Whether `truth` tells exactly if a part holds for some pair."""
        if node.op == "not":
            return self._exact(node.args[0])
        if node.op == "ge" and all(arg.kind == "int" for arg in node.args):
            # The extremes of a part of the query and of one of the key are both attained.
            return all(len(positions(side)) < 2 for side in arranged(node).args)
        # Entries within ranges of categories, or of an index, may be those of no pair.
        enclosed = _mixed(node) is not None or related(node) is not None
        return len(positions(node)) < 2 or (node.op == "read" and not enclosed)

    def truth(self, node: Node) -> Pair:
        """Whether a Boolean formula surely holds for some pair of a tile, and whether it may.

        Sure means for every pair, so that conjunctions of sure parts are sure.
        """
        if len(positions(node)) < 2:
            every, some = self._of("holds", node)
            return every, some
        if node.op == "not":
            surely, perhaps = self.truth(node.args[0])
            return ~perhaps, ~surely
        if node.op in ("and", "or"):
            join = torch.logical_and if node.op == "and" else torch.logical_or
            return _folded([self.truth(arg) for arg in node.args], join, join)
        if (relation := related(node)) is not None:
            counts = pair_counts(relation, self._env)
            if counts is not None:
                return counts.within(self._at, *[self.bounds(part) for part in relation[1:]])
        if node.op in ("ge", "eq") and all(arg.kind == "int" for arg in node.args):
            if node.op == "ge" and self._exact(node):
                return self._compared(arranged(node))
            low, high = self.bounds(nodes.subtract(*node.args))
            if node.op == "ge":
                return low >= 0, high >= 0
            return (low == 0) & (high == 0), (low <= 0) & (high >= 0) & self._may_equal(node)
        if node.op == "read" and (index := _mixed(node)) is not None:
            entries = entries_within(node, self.bounds(index), self._at, self._env)
            if entries is not None:
                return entries
        if node.op == "read" and self._pairs:
            q_len, kv_len = (self._axes[index][0] for index in ("q_idx", "kv_idx"))
            row, column = (self._axes[index][2] for index in ("q_idx", "kv_idx"))
            found = pair_blocks(node, (q_len, kv_len), self._block, self._env)
            return found.every.at(self._at, row, column), found.some.at(self._at, row, column)
        unknown = torch.zeros_like(self._at[0], dtype=torch.bool)
        return unknown, ~unknown

    def _compared(self, node: Node) -> Pair:
        """A comparison of a part of the query with one of the key, by their own extremes."""
        operation = torch.gt if node.op == "gt" else torch.ge
        least, most = zip(*[self._of("extremes", side) for side in node.args], strict=True)
        return operation(least[0], most[1]), operation(most[0], least[1])

    def bounds(self, node: Node) -> Pair:
        """The smallest and the largest value of an integer formula in each tile, or beyond."""
        if len(positions(node)) < 2:
            least, most = self._of("range", node)
            return least, most
        rule = _RULES.get(node.op)
        if rule is None:
            largest = torch.full_like(self._at[0], _UNBOUNDED)
            return -largest, largest
        if node.op == "where":
            return rule([self.bounds(arg) for arg in node.args[1:]])
        if node.op == "add":
            node = _grouped(node)
        low, high = rule([self.bounds(arg) for arg in node.args])
        return _saturated(low, high)

    def _may_equal(self, node: Node) -> torch.Tensor:
        """False where the values of both sides, by their last six bits, have none in common."""
        sides = equal_sides(node)
        if sides is None:
            return torch.ones_like(self._at[0], dtype=torch.bool)
        (left,), (right,) = (self._of("values", side) for side in sides)
        return (left & right) != 0

    def _blocks(self, kind: str, node: Node) -> torch.Tensor:
        """A formula of one index at all positions, `[batch, heads, blocks, block]`."""
        length, side, _ = self._axes[_index(node)]
        env = replace(self._env, saturates=kind == "extremes")  # which are ordered
        entries = over_positions(node, _index(node), length, env)
        missing = -length % side
        last = entries[..., -1:].expand(*entries.shape[:2], missing)
        whole = torch.cat([entries, last], dim=-1)
        return whole.view(*whole.shape[:2], -1, side)

    def _of(self, kind: str, node: Node) -> list[torch.Tensor]:
        """A summary of a formula of one index, read at the tiles."""
        summary = self._known.get((kind, node))
        if summary is None:
            summary = self._known[kind, node] = _KINDS[kind](self._blocks(kind, node))
        place = self._axes[_index(node)][2]
        return [self._of_tiles(part, place) for part in summary]

    def _of_tiles(self, part: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        """Entries of `[batch, heads, blocks]`, of which size 1 serves every batch entry or head."""
        if part.shape[0] == part.shape[1] == 1:
            return part[0, 0, place]
        return rows_at(part, self._at, place)


def _range(entries: torch.Tensor) -> tuple[torch.Tensor, ...]:
    least, most = entries.aminmax(dim=-1)
    return _saturated(least, most)


def _saturated(low: torch.Tensor, high: torch.Tensor) -> Pair:
    """Bounds with those that are too far to be exact made infinite, each to its side."""
    return (
        torch.where(low < -_KNOWN, -_UNBOUNDED, low.clamp(max=_KNOWN)),
        torch.where(high > _KNOWN, _UNBOUNDED, high.clamp(min=-_KNOWN)),
    )


_KINDS: Final[dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, ...]]]] = {
    "holds": lambda entries: (entries.all(-1), entries.any(-1)),
    "range": _range,
    "extremes": lambda entries: tuple(entries.aminmax(dim=-1)),
    "values": lambda entries: (union(1 << (entries.to(torch.int64) & 63)),),
}


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


Join = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _folded(parts: list[Pair], join_low: Join, join_high: Join) -> Pair:
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
        small = torch.stack([*result, *part]).abs().amax(0) < _PRODUCT_OF
        low, high = _corners([result, part], torch.mul)
        result = torch.where(small, low, -_UNBOUNDED), torch.where(small, high, _UNBOUNDED)
    return result


def _quotient(parts: list[Pair]) -> Pair:
    divisor = parts[1][0].clamp(min=1), parts[1][1].clamp(min=1)
    low, high = _corners([parts[0], divisor], torch.floor_divide)
    # What was infinite is so still, though a part of it is not.
    return (
        torch.where(parts[0][0] < -_KNOWN, -_UNBOUNDED, low),
        torch.where(parts[0][1] > _KNOWN, _UNBOUNDED, high),
    )


def _remainder(parts: list[Pair]) -> Pair:
    return torch.zeros_like(parts[1][0]), parts[1][1] - 1


_RULES: Final[dict[str, Callable[[list[Pair]], Pair]]] = {
    "add": lambda parts: _folded(parts, torch.add, torch.add),
    "mul": _product,
    "floordiv": _quotient,
    "mod": _remainder,
    "min": lambda parts: _folded(parts, torch.minimum, torch.minimum),
    "max": lambda parts: _folded(parts, torch.maximum, torch.maximum),
    "where": lambda parts: _folded(parts, torch.minimum, torch.maximum),
}
