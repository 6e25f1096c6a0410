"""Masks whose positions start again at 0 in every packed document."""

from __future__ import annotations

import torch

from .. import errors, nodes
from ..algebra import Mask
from ..derived import Derived
from ..distances import by_distance
from ..nodes import SCORE, K, Node, Q
from ..printing import Label
from .arguments import at, positions


def per_document(mask: Mask, ids: torch.Tensor) -> Mask:
    """ids[q] = ids[k], and `mask` at positions counted from the first token of the document.

    `per_document(causal | prefix(3), ids)` is a prefix language model in every document of a
    packed sequence. Where `mask` depends on q - k alone this is `mask & document(ids)`.

    Args:
        mask: what is kept within a document; it may not read tensors at positions.
        ids: integer tensor `[length]` or `[batch, length]` as `document` takes it. Positions are
            counted from the first occurrence of an id, which is found here and where others are
            bound, not where entries are changed in place.

    Raises:
        TypeError, ValueError: `ids` of another type or shape; a mask that reads a tensor at
            positions, whose length cannot be checked here.

    Source: document masks of attention-gym, which restart positions at cumulative lengths.
    """
    call = "per_document(…)"
    if not isinstance(mask, Mask):
        raise errors.tensor_dtype(call, "mask", type(mask).__name__, "a mask")
    for node in mask.mask_node.walk():
        if node.op == "read" and any(arg.indices() & {"q_idx", "kv_idx"} for arg in node.args):
            raise errors.table_in_document(call, node.own[0].name)
    table = positions(call, "ids", ids)
    # Query and key share a document, hence its start: distances stay what they were.
    start = at(Derived("start", table, _first_occurrence), Q)

    def replace(node: Node) -> Node | None:
        if node.op in ("ge", "gt", "eq") and by_distance(node):
            return node
        if node.op == "index" and node.data in ("q_idx", "kv_idx"):
            return nodes.subtract(node, start)
        return None

    inner = nodes.substitute(mask.mask_node, replace)
    same = nodes.eq(at(table, Q), at(table, K))
    label = Label("call", ("per_document", mask.label, table))
    return Mask(nodes.conjunction(inner, same), SCORE, label)


def _first_occurrence(ids: torch.Tensor) -> torch.Tensor:
    """For each position the first one with the same id, int32, of the shape of `ids`.

    Nothing is read back: where the tensor lives on a GPU, nobody waits for it.
    """
    order = ids.argsort(dim=-1, stable=True)
    arranged = ids.gather(-1, order)
    opens = torch.ones_like(arranged, dtype=torch.bool)
    opens[..., 1:] = arranged[..., 1:] != arranged[..., :-1]
    places = torch.arange(ids.shape[-1], device=ids.device)
    opened = torch.where(opens, places, 0).cummax(-1).values
    first = order.gather(-1, opened)
    return torch.empty_like(order).scatter_(-1, order, first).to(torch.int32)
