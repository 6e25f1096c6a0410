"""Labels of blocks as lists of blocks, which FlexAttention and FlashAttention-4 take."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .. import errors
from ..engine.extents import is_untold
from ..engine.normal_form import bound
from ..schedule.block_map import FULL, PARTIAL, BlockMap

Ordered = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, eq=False)
class BlockLists:
    """Blocks a kernel masks and blocks it takes whole, Boolean `[batch, heads, rows, columns]`.

    A block cut by a length is masked there, also where all of its elements in range are kept: the
    kernels compute whole blocks.
    """

    partial: torch.Tensor
    full: torch.Tensor


def block_lists(
    call: str,
    found: BlockMap,
    batch: int | None,
    heads: int | None,
    device: torch.device | str | None,
) -> BlockLists:
    """The lists of a block map, written out for `batch` entries and `heads` heads."""
    sizes = list(found.labels.shape[:2])
    form = bound(found.mask)
    asked = (("batch", "batch", batch), ("heads", "head", heads))
    for axis, (name, index, wanted) in enumerate(asked):
        if wanted is None:
            continue
        # Blocks of the only entry that was asked for are no other entry's.
        alike = sizes[axis] == 1 and not is_untold(form, index)
        if type(wanted) is not int or wanted < 1 or not (alike or sizes[axis] == wanted):
            raise errors.written_out(call, name, wanted, sizes[axis])
        sizes[axis] = wanted
    labels = found.labels.to(device).expand(*sizes, -1, -1)
    full = labels == FULL
    if found.q_len % found.block[0]:
        full[:, :, -1] = False
    if found.kv_len % found.block[1]:
        full[..., -1] = False
    return BlockLists(((labels == PARTIAL) | (labels == FULL)) & ~full, full)


def ordered(chosen: torch.Tensor) -> Ordered:
    """How many blocks of each row are chosen, and their columns: int32 `[…, rows]`, `[…, columns]`.

    Columns ascend. Those that were not chosen follow, ascending too, as torch pads its lists.
    """
    columns = torch.argsort(chosen.to(torch.int8), dim=-1, descending=True, stable=True)
    return chosen.sum(dim=-1, dtype=torch.int32), columns.to(torch.int32)
