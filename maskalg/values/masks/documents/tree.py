"""Token trees: drafted tokens see the prompt, their ancestors and themselves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from ....formula import nodes
from ....formula.entries import Entries, integers, of_rank
from ....formula.nodes import SCORE, K, Node, Q
from ....formula.parameters import Table
from ....formula.printing import called
from ...algebra import Mask
from ...arguments import at, integer_or_each, shown
from ...by_hand import ENTRIES, Bools, MaskRows, entry, padded, pairs, row
from .ancestry import ancestry

__all__ = ["tree"]

ZERO = nodes.const(0)


def tree(parents: Entries, prompt: int | Entries = 0) -> Mask:
    """A causal prompt, and after it a tree whose tokens see their ancestors and themselves.

    Token i of the tree stands at position `prompt + i`. A query in the tree keeps the whole prompt,
    and the keys of the tree that are its ancestors or itself; a query in the prompt is causal.
    Positions past the tree: see `prompt`.

    Args:
        parents: the parent of each token of the tree, negative for a root; an integer
            tensor `[tokens]` or `[batch, tokens]`, read from the device once, here.
        prompt: length of the prompt, >= 0; an integer, or an integer tensor `[batch]`. With
            a number, a call longer than prompt and tree raises an error. With a tensor, no query
            keeps a key past the tree, and queries past the tree keep the prompt; tables of a tree
            that is not numbered depth first then end with -1, which `bind` must keep.

    Trees numbered depth first are intervals of keys and proved exactly; others are decided by two
    tables, the places of the tokens in depth-first order and where their descendants end.

    Raises:
        ValueError: a parent that is no token of the tree, or a circle of parents.

    Source: tree attention of SpecInfer (Miao et al., 2023), Medusa (Cai et al., 2024) and EAGLE.
    """
    given = integers("tree", "parents", parents)
    of_rank("tree", "parents", given, (1, 2), "[tokens], [batch, tokens]")
    p, printed = integer_or_each(f"tree(…, prompt={shown(prompt)})", "prompt", prompt, 0, "batch")
    forests = [ancestry("tree", row) for row in torch.atleast_2d(given).cpu()]
    end = Table("end", _like(given, [forest.end for forest in forests]))
    q, k = nodes.subtract(Q, p), nodes.subtract(K, p)
    if all(forest.in_order for forest in forests):
        node = nodes.conjunction(
            nodes.ge(Q, K), nodes.disjunction(nodes.gt(p, K), nodes.gt(_place(end, k), q))
        )
        return Mask(node, SCORE, called("tree", end, printed))
    order = Table("order", _like(given, [forest.order for forest in forests]))
    if isinstance(printed, Table):
        # Reads past the tree find this entry: it is behind no token, and before none.
        end, order = (
            Table(table.name, torch.nn.functional.pad(table.tensor, (0, 1), value=-1))
            for table in (end, order)
        )
    within = nodes.conjunction(
        nodes.ge(K, p),
        nodes.ge(Q, p),
        nodes.ge(_place(order, q), _place(order, k)),
        nodes.gt(_place(end, k), _place(order, q)),
    )
    before = nodes.conjunction(nodes.gt(p, K), nodes.ge(Q, K))
    return Mask(nodes.disjunction(before, within), SCORE, called("tree", order, end, printed))


def _place(table: Table, index: Node) -> Node:
    """The tree entry of a position; the first entry for prompt positions, which do not use it."""
    return at(table, nodes.maximum(index, ZERO))


def _like(given: torch.Tensor, rows: list[torch.Tensor]) -> torch.Tensor:
    none = torch.zeros(0, dtype=torch.int64, device="cpu")
    entries = torch.cat([none, *rows])  # there may be no rows
    entries = entries.to(dtype=torch.int32, device=given.device).view(given.shape)
    # Positions in the prompt look at the first entry, which a tree without tokens lacks.
    return entries if given.shape[-1] else entries.new_zeros(*given.shape[:-1], 1)


# The second definition, and the rows of the catalogue.


def tree_by_hand(parents: ArrayLike, prompt: int | Sequence[int] = 0, **at: int) -> Bools:
    """A causal prompt of `prompt` tokens, then a tree of tokens that see their ancestors."""
    rows, lengths = padded(parents, 2), np.atleast_1d(np.asarray(prompt))

    def keep(b: int, h: int, q: int, k: int) -> bool:
        start = int(lengths[b if len(lengths) > 1 else 0])
        if k < start:
            return k <= q
        if q < start:
            return False
        node, wanted = q - start, k - start
        while node >= 0:
            if node == wanted:
                return True
            node = int(entry(rows, b, node))
        return False

    return pairs(keep, max(len(rows), len(lengths)), **at)


def rows() -> MaskRows:
    prompt = 6
    ordered = _depth_first(ENTRIES - prompt)
    by_level = np.array([-1, *((node - 1) // 3 for node in range(1, ENTRIES - prompt))])
    alone, of_both = np.append(by_level, [-1] * prompt), np.stack([ordered, by_level])
    return {
        "tree numbered depth first": row(tree, tree_by_hand, ordered, prompt),
        "tree numbered by level": row(tree, tree_by_hand, by_level, prompt),
        "tree without a prompt": row(tree, tree_by_hand, alone),
        "trees per batch": row(tree, tree_by_hand, of_both, prompt),
        "tree after prompts per batch": (
            tree(ordered, [prompt, 50]),
            partial(tree_by_hand, np.append(ordered, [-1] * 50), (prompt, 50)),
        ),
        "tree by level after prompts per batch": (
            tree(by_level, [prompt, 50]),
            partial(tree_by_hand, np.append(by_level, [-1] * 50), (prompt, 50)),
        ),
    }


def _depth_first(count: int) -> NDArray[np.int64]:
    """Random parents numbered depth first: each is the node before, or an ancestor of it."""
    random = np.random.default_rng(21)
    parents = [-1]
    for node in range(1, count):
        line = [node - 1]
        while parents[line[-1]] >= 0:
            line.append(parents[line[-1]])
        parents.append(int(random.choice([*line, -1])))
    return np.array(parents)
