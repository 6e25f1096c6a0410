"""Documents that share what stands before them: rollouts of one prompt, turns of one dialogue."""

from __future__ import annotations

import torch

from .. import errors, nodes
from ..algebra import Mask
from ..nodes import SCORE, K, Q
from ..parameters import Table
from ..printing import called
from .ancestry import ancestry
from .arguments import INTEGER_DTYPES, at, entries_within, positions


def shared_prefix(ids: torch.Tensor, parents: torch.Tensor) -> Mask:
    """Causal within one's own document, and everything in the documents it continues.

    A query keeps the keys of its own document up to itself, and all keys of that document's parent,
    of the parent's parent, and so on: one prompt serves all its rollouts, one turn all its answers.

    Args:
        ids: integer tensor `[length]` or `[batch, length]`: the document of each position, an index
            into `parents`.
        parents: integer tensor `[documents]`: the document that each continues, negative for none.
            Both are read from the device once, here.

    Raises:
        ValueError: ids that are no index of `parents`; a parent that is no document; a circle.

    Source: prefix sharing of rollouts in reinforcement learning; Hydragen (Juravsky et al., 2024).
    """
    call = "shared_prefix"
    table = positions(call, "ids", ids)
    if not isinstance(parents, torch.Tensor) or parents.dtype not in INTEGER_DTYPES:
        found = parents.dtype if isinstance(parents, torch.Tensor) else type(parents).__name__
        raise errors.tensor_dtype(call, "parents", found, "an int32 or int64 tensor")
    if parents.ndim != 1:
        raise errors.tensor_shape(call, "parents", list(parents.shape), "[documents]")
    entries_within(call, "ids", ids, 0, len(parents))
    forest = ancestry(call, parents.tolist())
    order, end = (
        Table(name, torch.tensor(entries, dtype=torch.int32, device=ids.device)[ids.long()])
        for name, entries in (("order", forest.order), ("end", forest.end))
    )
    of_query, of_key = at(order, Q), at(order, K)
    above = nodes.conjunction(
        nodes.ge(of_query, nodes.add(of_key, nodes.const(1))), nodes.gt(at(end, K), of_query)
    )
    own = nodes.conjunction(nodes.eq(at(table, Q), at(table, K)), nodes.ge(Q, K))
    return Mask(nodes.disjunction(own, above), SCORE, called(call, table))
