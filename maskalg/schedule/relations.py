"""Tables of pairs of categories: has a position of a range a category that another one allows?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

import torch

from .. import nodes
from ..evaluate import Environment, evaluate
from ..nodes import Node
from ..parameters import Slot
from ..proof.closed_forms import Relation, Section
from .ranges import Maxima
from .sets import At, over_positions, rows_at

Found = Callable[[At, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

_CATEGORIES_OF_A_WORD: Final = 62
_MOST_ENTRIES: Final = 1 << 24


def related(
    section: Section,
    lengths: tuple[int, int],
    members: torch.Tensor,
    own_block: int,
    env: Environment,
) -> Found | None:
    """The test of a section with a relation; None where its table is too large to be counted."""
    relation = section.relation
    assert relation is not None
    other_index = "kv_idx" if relation.own_index == "q_idx" else "q_idx"
    sizes = (
        _categories(relation.node, relation.own_index, env),
        _categories(relation.node, other_index, env),
    )
    if sizes[0] * sizes[1] > _MOST_ENTRIES or 0 in sizes:
        return None
    own = over_positions(relation.f, section.own, lengths[0], env).clamp(0, sizes[0] - 1)
    other = over_positions(relation.g, section.other, lengths[1], env).clamp(0, sizes[1] - 1)
    allowed = _table(relation, other_index, sizes, env)
    few = sizes[0] <= _CATEGORIES_OF_A_WORD
    if not few and _takes_every_value(relation.f) and not section.members:
        return _by_counts(own, other, allowed)
    return _by_bits(own, other, allowed, members, own_block)


def _by_bits(
    own: torch.Tensor,
    other: torch.Tensor,
    allowed: torch.Tensor,
    members: torch.Tensor,
    own_block: int,
) -> Found:
    groups = []
    for start in range(0, allowed.shape[2], _CATEGORIES_OF_A_WORD):
        part = allowed[:, :, start : start + _CATEGORIES_OF_A_WORD]
        bits = 1 << torch.arange(part.shape[2], device=own.device)
        here = members & (own >= start) & (own < start + part.shape[2])
        entries = torch.where(here, 1 << (own - start).clamp(0, part.shape[2] - 1), 0)
        present = Maxima.of(entries, own_block, torch.bitwise_or)
        groups.append(((part * bits[:, None]).sum(dim=2), present))

    def found(
        at: At, position: torch.Tensor, low: torch.Tensor, high: torch.Tensor
    ) -> torch.Tensor:
        column = rows_at(other, at, position)
        some = torch.zeros_like(low, dtype=torch.bool)
        for words, present in groups:
            some = some | ((present.over(at, low, high) & rows_at(words, at, column)) != 0)
        return some

    return found


def _by_counts(own: torch.Tensor, other: torch.Tensor, allowed: torch.Tensor) -> Found:
    """Categories of a range are themselves a range: entries above a column are counted."""
    counts = torch.nn.functional.pad(allowed.cumsum(dim=2), (0, 0, 1, 0))
    columns = counts.shape[3]
    flat = counts.flatten(2)

    def found(
        at: At, position: torch.Tensor, low: torch.Tensor, high: torch.Tensor
    ) -> torch.Tensor:
        column = rows_at(other, at, position)
        first, last = rows_at(own, at, low), rows_at(own, at, high)
        upto = rows_at(flat, at, (last + 1) * columns + column)
        return upto > rows_at(flat, at, first * columns + column)

    return found


def _table(
    relation: Relation, other_index: str, sizes: tuple[int, int], env: Environment
) -> torch.Tensor:
    """Which pairs of categories are related, bool `[batch, heads, own, other]`."""
    at = {
        "batch": env.indices["batch"].view(-1, 1, 1, 1),
        "head": env.indices["head"].view(1, -1, 1, 1),
        relation.own_index: torch.arange(sizes[0], device=env.device).view(-1, 1),
        other_index: torch.arange(sizes[1], device=env.device),
    }
    found = evaluate(relation.node, Environment(at, env.values, step=env.step))
    return found[(None,) * (4 - found.ndim)].expand(-1, -1, *sizes)


def _categories(node: Node, index: str, env: Environment) -> int:
    """How many entries the tables have along the axes that are read at an index."""
    sizes = [0]
    for read in node.walk():
        for axis, arg in enumerate(read.args):
            if read.op == "read" and arg.op == "index" and arg.data == index:
                table = cast(torch.Tensor, env.values[cast(Slot, read.own[0]).index])
                sizes.append(table.shape[axis])
    return max(sizes)


def _takes_every_value(f: Node) -> bool:
    """Whether f is an index over a number, so that it misses no value between two of its own."""
    if f.op == "floordiv":
        f = f.args[0]
    terms = f.args if f.op == "add" else (f,)
    places = [term for term in terms if term in (nodes.Q, nodes.K)]
    rest = [term for term in terms if term not in places]
    return len(places) == 1 and not any(
        index in ("q_idx", "kv_idx") for term in rest for index in term.indices()
    )
