"""Rows of tiles that begin where documents do: an upper limit of their number, and their list.

The list is made on the device from the tables of first and last keys, without waiting: it has room
for the rows of all documents that the ids were made from.
"""

from __future__ import annotations

from typing import Final, cast

import torch

from ...codegen.hooks import Hooks
from ...codegen.spans import packed_ids
from ...engine.memory import MEMORY, captured
from ...engine.normal_form import Bound
from ...errors import BackendError
from ...formula.derived import documents_in
from ...schedule.intervals.steps import StepTables, tables_of_slots
from ..call import Call
from ..results import empty_result
from .arguments import Hooked, hooked

_UNIT: Final = 16  # strides that are multiples of it need no other variant of a kernel


def rows_of_tiles(call: Call, length: int, side: int) -> int:
    """The number of rows of tiles of `side` positions; for aligned tiles, an upper limit."""
    if not call.aligned:
        return -(-length // side)
    return length // side + _most_documents(call.form, length)


def with_rows(hooks: Hooks, call: Call, reads: Hooked, length: int, side: int) -> Hooked:
    """The numbers and tables of the hooks, and for aligned tiles the list of rows."""
    if not call.aligned:
        return reads
    return hooked(hooks, call, behind=(_list_of_rows(call, length, side),))


def _list_of_rows(call: Call, length: int, side: int) -> torch.Tensor:
    """For each row: its first position, the first position of its document, and one past the last;
    int32 `[rows, 3]`, zeros in unused rows."""
    tables, rows = _tables(call.form), rows_of_tiles(call, length, side)
    starts, ends = tables.named("start"), tables.named("end")

    def made() -> torch.Tensor:
        places = torch.arange(length, dtype=torch.int32, device=starts.device)
        counts = ((places - starts[:length]) % side == 0).cumsum(0)
        # Ids written to since they were made may have more documents than there is room for.
        torch._assert_async((counts[-1:] <= rows).all(), "aligned: more documents than were made")
        wanted = torch.arange(1, rows + 1, device=starts.device)
        first = torch.searchsorted(counts, wanted)
        known = first.clamp(max=length - 1)
        found = torch.stack([known.to(torch.int32), starts[known], ends[known] + 1], dim=1)
        return torch.where((first < length)[:, None], found, 0).contiguous()

    return MEMORY.of_tensors(("rows of documents", length, side, rows), (starts, ends), made)


def _tables(form: Bound) -> StepTables:
    slot = packed_ids(form.structure.mask)
    assert slot is not None  # the backend refuses others
    return tables_of_slots(slot, slot, form.values)


def _most_documents(form: Bound, length: int) -> int:
    """An upper limit of the documents in the first `length` positions, where positions past the
    last document count as one. Ids that were not made here, or were written to, are counted once,
    which waits."""
    slot = packed_ids(form.structure.mask)
    assert slot is not None
    ids = cast(torch.Tensor, form.values[slot.index])
    made = documents_in(ids)
    if made is not None and (ids.is_inference() or ids._version == 0):
        return min(made.number + 1, length)
    starts = _tables(form).named("start")
    if captured(starts.device):
        raise BackendError(
            "backend='aligned' counts the documents of ids that it did not make, or that were "
            "written to, and a CUDA graph is being captured, which cannot wait for that. Write "
            "`document.from_lengths(lengths)` or `document.from_cu_seqlens(cu_seqlens, total=…)`."
        )

    def counted() -> int:
        places = torch.arange(length, dtype=torch.int32, device=starts.device)
        return int((places == starts[:length]).sum())

    return MEMORY.of_tensors(("documents", length), (starts,), counted)


def in_units(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy in the room of `room_in_units`."""
    room = room_in_units(tensor)
    return tensor if room is tensor else room.copy_(tensor)


def room_in_units(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a new one in its order if its address or strides would make Triton compile
    another variant of a kernel: variants may add up in another order."""
    *strides, last = tensor.stride()
    if last == 1 and not any(n % _UNIT for n in strides) and tensor.data_ptr() % _UNIT == 0:
        return tensor
    dim = tensor.shape[-1]
    return empty_result(tensor, -(-dim // _UNIT) * _UNIT)[..., :dim]
