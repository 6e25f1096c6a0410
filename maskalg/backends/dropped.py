"""Sets keys, values and queries to 0 if they are not finite and the mask drops all their pairs.

The weight of a dropped pair is 0, and 0 times NaN is NaN. A cache has such keys in places that were
not written yet. The C++ kernel skips them pair by pair; computations with whole matrices get inputs
without them.
"""

from __future__ import annotations

from typing import Final

import torch

from ..engine.evaluate import Environment, evaluate, grid
from ..formula.entries import readable
from .call import Call

_AT_ONCE: Final = 2**24  # elements of the mask


def without_dropped(call: Call) -> Call:
    """The call, with 0 for keys, values and queries that are not finite and not in any kept pair.

    Others stay the same, and so do inputs on a GPU, since reading them would wait for it.
    """
    inputs = (call.query, call.key, call.value)
    if not all(map(_can_be_asked, inputs)) or all(map(_is_finite, inputs)):
        return call
    query, key, value = inputs
    group = call.group
    of_keys = _wild(key) | _wild(value)
    of_queries = _wild(query)
    kept_keys = _kept(call, of_keys.any(dim=(0, 1)), "kv_idx").unflatten(1, (-1, group)).any(2)
    no_key, no_query = (
        of_keys & ~kept_keys,
        of_queries & ~_kept(call, of_queries.any(dim=(0, 1)), "q_idx"),
    )
    return call._replace(
        query=torch.where(no_query[..., None], 0, query),
        key=torch.where(no_key[..., None], 0, key),
        value=torch.where(no_key[..., None], 0, value),
    )


def _can_be_asked(tensor: torch.Tensor) -> bool:
    """Whether the numbers can be read: not on a device, in a trace, or of freed storage."""
    return readable(tensor) and (tensor.data_ptr() != 0 or tensor.numel() == 0)


def _is_finite(tensor: torch.Tensor) -> bool:
    """Whether all numbers are finite: by their sum, and one by one only if the sum is not."""
    with torch.no_grad():
        return bool(tensor.sum().isfinite()) or bool(tensor.isfinite().all())


def _wild(tensor: torch.Tensor) -> torch.Tensor:
    """The rows that are not finite, `[batch, heads, length]`."""
    return ~tensor.detach().isfinite().all(dim=-1)


def _kept(call: Call, asked: torch.Tensor, index: str) -> torch.Tensor:
    """Which positions along `index` are in some kept pair, `[batch, heads, length]`.

    True for positions that are not `asked`.
    """
    extents = call.extents
    whole = grid(
        extents.batch, extents.heads, (0, extents.q_len), (0, extents.kv_len), call.query.device
    )
    axis, across = (2, 3) if index == "q_idx" else (3, 2)
    shape = (extents.batch, extents.heads, len(asked))
    found = torch.ones(shape, dtype=torch.bool)
    step = max(_AT_ONCE // max(found[:, :, 0].numel() * whole[_OTHER[index]].numel(), 1), 1)
    for places in asked.nonzero()[:, 0].split(step):
        at = places.view([-1 if dim == axis else 1 for dim in range(4)])
        environment = Environment({**whole, index: at}, call.form.values)
        kept = evaluate(call.form.structure.mask, environment)
        sizes = {axis: len(places), across: whole[_OTHER[index]].numel()}
        kept = kept.expand(extents.batch, extents.heads, sizes[2], sizes[3])
        found[:, :, places] = kept.any(dim=across)
    return found


_OTHER: Final = {"q_idx": "kv_idx", "kv_idx": "q_idx"}
