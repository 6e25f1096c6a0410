"""Token trees: what a drafted token may see of the prompt and of the draft."""

from __future__ import annotations

import torch

from .... import errors
from ....formula import nodes
from ....formula.entries import Entries, integers
from ....formula.nodes import SCORE, K, Node, Q
from ....formula.parameters import Table
from ....formula.printing import called
from ...algebra import Mask
from ..arguments import at, integer_or_per_batch, shown
from .ancestry import ancestry

ZERO = nodes.const(0)


def tree(parents: Entries, prompt: int | Entries = 0) -> Mask:
    """A causal prompt, and after it a tree whose tokens see their ancestors and themselves.

    Token i of the tree stands at position `prompt + i`. A query in the tree keeps the whole prompt,
    and the keys of the tree that are its ancestors or itself; a query in the prompt is causal.

    Args:
        parents: the parent of each token of the tree, negative for a root; an integer
            tensor `[tokens]` or `[batch, tokens]`, read from the device once, here.
            Keys past the tree raise an error where `prompt` is a number.
        prompt: length of the prompt, >= 0; an integer, or an integer tensor `[batch]`.

    Trees numbered depth first are intervals of keys and proved exactly; others are decided by two
    tables, the places of the tokens in depth-first order and where their descendants end.

    Raises:
        ValueError: a parent that is no token of the tree, or a circle of parents.

    Source: tree attention of SpecInfer (Miao et al., 2023), Medusa (Cai et al., 2024) and EAGLE.
    """
    given = integers("tree", "parents", parents)
    if given.ndim not in (1, 2):
        raise errors.tensor_shape("tree", "parents", list(given.shape), "[tokens], [batch, tokens]")
    p, printed = integer_or_per_batch(f"tree(…, prompt={shown(prompt)})", "prompt", prompt, low=0)
    forests = [ancestry("tree", row) for row in torch.atleast_2d(given).cpu()]
    end = Table("end", _like(given, [forest.end for forest in forests]))
    q, k = nodes.subtract(Q, p), nodes.subtract(K, p)
    if all(forest.in_order for forest in forests):
        node = nodes.conjunction(
            nodes.ge(Q, K), nodes.disjunction(nodes.gt(p, K), nodes.gt(_place(end, k), q))
        )
        return Mask(node, SCORE, called("tree", end, printed))
    order = Table("order", _like(given, [forest.order for forest in forests]))
    within = nodes.conjunction(
        nodes.ge(K, p),
        nodes.ge(Q, p),
        nodes.ge(_place(order, q), _place(order, k)),
        nodes.gt(_place(end, k), _place(order, q)),
    )
    before = nodes.conjunction(nodes.gt(p, K), nodes.ge(Q, K))
    return Mask(nodes.disjunction(before, within), SCORE, called("tree", order, end, printed))


def _place(table: Table, index: Node) -> Node:
    """An entry of the tree; the first one for positions in the prompt, where it is not used."""
    return at(table, nodes.maximum(index, ZERO))


def _like(given: torch.Tensor, rows: list[torch.Tensor]) -> torch.Tensor:
    none = torch.zeros(0, dtype=torch.int64, device="cpu")
    entries = torch.cat([none, *rows])  # there may be no rows
    return entries.to(dtype=torch.int32, device=given.device).view(given.shape)
