"""Bits of the pairs that a mask keeps, on the device (`codegen/bits.py`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final, NamedTuple

import torch
from torch.nn.functional import pad

from ...codegen import store
from ...codegen.arguments import BitsTable
from ...codegen.bits import may_cost
from ...engine.extents import Extents, dependence
from ...engine.normal_form import Bound
from ...schedule.memory import Memory
from ...schedule.tile_runs import FULL, PARTIAL
from ...schedule.tiling import Of
from .constants import count_constants

_FEWEST_ROWS: Final = 512  # fewer pairs are computed as fast
_MOST_BITS: Final = 1 << 29  # of a table of 64 MiB
_LONGEST_TILE: Final = 256  # of positions, in which tables end with a whole tile
_MADE_TOGETHER: Final = 64  # rows and columns of a program that makes them
_MEMORY: Final = Memory(8)


class BitsLayout(NamedTuple):
    """How the bits of pairs lie in memory.

    Attributes:
        members: batch entries and heads that the mask tells apart.
        rows, columns: positions of a member, of one side and of the other.
        words: integers of 32 bits in a row.
        of_batch, of_head: words from one batch entry, and from one head, to the next; 0 where the
            mask is one for all.
    """

    members: tuple[int, int]
    rows: int
    columns: int
    words: int
    of_batch: int
    of_head: int


def bits_layout(form: Bound, extents: Extents, rows: Of) -> BitsLayout:
    """The layout of the bits of a call, with rows of queries or of keys."""
    told = dependence(form.structure.mask, form, extents)
    lengths = (extents.q_len, extents.kv_len)
    along, across = lengths if rows == "queries" else lengths[::-1]
    words = -(-across // _LONGEST_TILE) * _LONGEST_TILE // 32
    of_head = along * words
    of_batch = of_head * told.heads if told.batch > 1 else 0
    members = (told.batch, told.heads)
    return BitsLayout(members, along, across, words, of_batch, of_head if told.heads > 1 else 0)


def bits_are_worth(form: Bound, extents: Extents) -> bool:
    """Whether a mask costs so much, for so many pairs, that looking them up takes less."""
    if min(extents.q_len, extents.kv_len) < _FEWEST_ROWS or not may_cost(form.structure):
        return False
    told = dependence(form.structure.mask, form, extents)
    return told.batch * told.heads * extents.q_len * extents.kv_len <= _MOST_BITS


def kept_bits(
    table: BitsTable,
    form: Bound,
    extents: Extents,
    device: torch.device,
    reads: Callable[[], tuple[Sequence[int], tuple[torch.Tensor, ...]]],
) -> torch.Tensor:
    """The bits of a mask, int32; remembered while its tensors live unchanged.

    Args:
        table: which bits.
        form, extents: the mask and the sizes of a call.
        device: where to make them.
        reads: gives the numbers and tables of the hooks that compute the mask.
    """
    layout = bits_layout(form, extents, table.rows)

    def made() -> torch.Tensor:
        scalars, tables = reads()
        # Behind the last row lie those that a tile cut by the length reads.
        size = math.prod(layout.members) * layout.rows + _LONGEST_TILE
        bits = torch.empty(size * layout.words, dtype=torch.int32, device=device)
        hooks = store.load(table.hooks.source, table.hooks.digest)
        hold, masked, next_run = (
            getattr(hooks, name + table.suffix) for name in ("hold", "masked", "next_run")
        )
        tiles = -(-layout.rows // _MADE_TOGETHER) * (layout.words * 32 // _MADE_TOGETHER)
        # Gluon need not be there, nor Triton.
        kernel = import_module("maskalg_kernels.kept_bits").kept_bits
        kernel[tiles, math.prod(layout.members)](
            bits, tables, layout.rows, layout.columns, layout.words, extents.kv_len,
            layout.members[1], *scalars, HOLD=hold, MASKED=masked, NEXT_RUN=next_run,
            OF_KEYS=table.rows == "keys", SIDE=_MADE_TOGETHER, **count_constants(table.hooks),
        )  # fmt: skip
        return bits

    key = ("bits", table.rows, layout, device)
    return _MEMORY.recall(key, (form.structure.mask,), form.values, made)


def labels_of_bits(bits: torch.Tensor, layout: BitsLayout, side: int) -> torch.Tensor:
    """The label of each tile of `side` rows and columns, a power of two from 32 to 256."""
    size = math.prod(layout.members) * layout.rows
    words = bits.view(-1, layout.words)[:size].view(*layout.members, layout.rows, -1, side // 32)
    some, every = (words != 0).any(-1), (words == -1).all(-1)
    cut = (0, 0, 0, -layout.rows % side)
    some = pad(some, cut).unflatten(2, (-1, side)).any(3)
    every = pad(every, cut, value=True).unflatten(2, (-1, side)).all(3)
    labels: torch.Tensor = torch.where(every, FULL, PARTIAL).to(torch.uint8) * some
    return labels[..., : -(-layout.columns // side)].contiguous()
