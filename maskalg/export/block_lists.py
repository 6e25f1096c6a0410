"""Labels of blocks as lists of blocks, which FlexAttention and FlashAttention-4 take."""

from __future__ import annotations

from dataclasses import dataclass

import torch

Ordered = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, eq=False)
class BlockLists:
    """Blocks a kernel masks and blocks it takes whole, Boolean `[batch, heads, rows, columns]`.

    A block cut by a length is masked there, also where all of its elements in range are kept: the
    kernels compute whole blocks. `block` is `(block_q, block_kv)`, `lengths` queries and keys.
    """

    partial: torch.Tensor
    full: torch.Tensor
    block: tuple[int, int]
    lengths: tuple[int, int]


def ordered(chosen: torch.Tensor) -> Ordered:
    """How many blocks of each row are chosen, and their columns: int32 `[…, rows]`, `[…, columns]`.

    Columns ascend. Those that were not chosen follow, ascending too, as torch pads its lists.
    """
    columns = torch.argsort(chosen.to(torch.int8), dim=-1, descending=True, stable=True)
    return chosen.sum(dim=-1, dtype=torch.int32), columns.to(torch.int32)
