"""A mask in FlashMask's format."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import pad

from ..engine.extents import Lengths
from ..errors import MaskValueError
from .elements import Elements

if TYPE_CHECKING:
    from ..schedule.tile_runs import TileRuns
    from ..values.algebra import Mask


def to_flashmask(
    mask: Mask,
    q_len: int,
    kv_len: int | None = None,
    *,
    batch: int | None = None,
    heads: int | None = None,
) -> tuple[torch.Tensor, bool]:
    """`(startend_row_indices, causal)` for PaddlePaddle's `flashmask_attention`.

    The shortest of the four forms of `maskalg.flashmask` that holds the mask exactly; `causal`
    forms only if `q_len = kv_len`. If the proof gives the intervals of each key, no element is
    evaluated.

    Args:
        mask: the mask.
        q_len: number of queries.
        kv_len: number of keys; `None` means `q_len`.
        batch: batch size, if the mask depends on it and no tensor tells.
        heads: number of heads, likewise.

    Returns:
        int32 `[batch, heads, kv_len, 1, 2 or 4]` on the device of the mask's tensors, with batch
        and heads of size 1 where the mask does not depend on them; and `causal`.

    Raises:
        ValueError: a key that is hidden from more than two separate ranges of queries, or, if the
            proof gives no intervals, too many elements to evaluate.

    Source: FlashMask (Wang et al., 2024).
    """
    lengths = Lengths(q_len, kv_len, batch, heads)
    device = Elements("to_flashmask", mask, lengths).device
    runs, length, _ = mask._kept_runs(lengths, by_key=True)
    found = _ranges(runs, length).to(device)
    below = _below_diagonal(found) if length == runs.shape[2] else None
    if below is not None:
        return _shortened(below, length), True
    _check(found[..., 0])
    return _arranged(found, length), False


def _ranges(runs: TileRuns, length: int) -> torch.Tensor:
    """Count, start and end of the first range, start and end of the last one, per key.

    Ranges of dropped queries lie between those of kept ones. The result is int64 `[batch, heads,
    keys, 5]`, on the host.
    """
    begin, past = runs.row_start[:-1].long(), runs.row_start[1:].long()
    first, end = (pad(ends, (0, 2)).long() for ends in (runs.first, runs.end))
    # A key without a kept query has an empty range of kept queries before the first query.
    some, several = past > begin, past > begin + 1
    top, bottom = (torch.where(some, end[at], 0) for at in (begin, past - 1))
    above, below = some & (first[begin] > 0), bottom < length
    count = (past - begin - 1).clamp(min=0) + above.long() + below.long()
    first_range = (
        torch.where(above, 0, top),
        torch.where(above, first[begin], torch.where(several, first[begin + 1], length)),
    )
    last_range = (
        torch.where(below, bottom, torch.where(several, end[past - 2], 0)),
        torch.where(below, length, first[past - 1]),
    )
    found = torch.stack([count, *first_range, *last_range], dim=1) * (count > 0)[:, None]
    return found.view(*runs.shape, 5)


def _below_diagonal(found: torch.Tensor) -> torch.Tensor | None:
    """The ranges below the diagonal; None if queries before a key are kept, or two remain."""
    count, start, end, last_start, last_end = found.unbind(-1)
    key = torch.arange(found.shape[2], device=found.device)
    covered = (key == 0) | ((count > 0) & (start == 0) & (end >= key))
    # A first range that ends at the diagonal is no range below it.
    gone = (count > 0) & (start == 0) & (end == key) & (key > 0)
    if bool((~covered | (count - gone.long() > 1)).any()):
        return None
    start, end = torch.where(gone, last_start, start), torch.where(gone, last_end, end)
    return torch.stack([count - gone.long(), torch.maximum(start, key), end], dim=-1)


def _shortened(found: torch.Tensor, length: int) -> torch.Tensor:
    """The causal forms: one range, whose end is left out where it is the last query's."""
    none = found[..., 0] == 0
    start = torch.where(none, length, found[..., 1])
    end = torch.where(none, length, found[..., 2])
    columns = [start] if bool((end == length).all()) else [start, end]
    return torch.stack(columns, dim=-1).to(torch.int32)


def _arranged(found: torch.Tensor, length: int) -> torch.Tensor:
    """The other forms: a range from the first query on is the upper one, any other the lower."""
    count, first_start, first_end, last_start, last_end = found.unbind(-1)
    upper_only = (count == 1) & (first_start == 0) & (first_end < length)
    has_upper = (count == 2) | upper_only
    has_lower = (count == 2) | ((count == 1) & ~upper_only)
    upper_start = torch.where(has_upper, first_start, 0)
    upper_end = torch.where(has_upper, first_end, 0)
    lower_start = torch.where(has_lower, last_start, length)
    lower_end = torch.where(has_lower, last_end, length)
    whole = bool((upper_start == 0).all()) and bool((lower_end == length).all())
    columns = (
        [lower_start, upper_end] if whole else [lower_start, lower_end, upper_start, upper_end]
    )
    return torch.stack(columns, dim=-1).to(torch.int32)


def _check(counts: torch.Tensor) -> None:
    places = (counts > 2).nonzero()
    if len(places):
        batch, head, key = places[0].tolist()
        raise MaskValueError(
            f"to_flashmask: key {key} (batch {batch}, head {head}) is hidden from "
            f"{int(counts[batch, head, key])} separate ranges of queries, and FlashMask's format "
            "holds two. Export a coarser mask, or use to_attention_slices or BlockMask instead."
        )
