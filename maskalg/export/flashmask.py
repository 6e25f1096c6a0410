"""A mask in FlashMask's format."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .. import errors
from ..algebra import Mask
from .elements import Elements


def to_flashmask(
    mask: Mask,
    q_len: int,
    kv_len: int | None = None,
    *,
    batch: int | None = None,
    heads: int | None = None,
) -> tuple[torch.Tensor, bool]:
    """`(startend_row_indices, causal)` for PaddlePaddle's `flashmask_attention`.

    The shortest of the four forms that `maskalg.flashmask` describes and that holds the mask
    exactly; forms with `causal` only where `q_len = kv_len`. Every element is looked at once.

    Args:
        mask: the mask.
        q_len: number of queries.
        kv_len: number of keys; `None` means `q_len`.
        batch: batch size, where the mask depends on it and no tensor tells.
        heads: number of heads, likewise.

    Returns:
        int32 `[batch, heads, kv_len, 1, 2 or 4]` on the device of the mask's tensors, with batch
        and heads of size 1 where the mask does not depend on them; and `causal`.

    Raises:
        ValueError: a key that is hidden from more than two separate ranges of queries.

    Source: FlashMask (Wang et al., 2024).
    """
    elements = Elements(mask, q_len, kv_len, batch, heads)
    extents = elements.extents
    sizes = (elements.sizes.batch, elements.sizes.heads)
    empty = torch.zeros(*sizes, 0, 5, dtype=torch.int64, device=elements.device)
    general, causal, is_causal = [empty], [empty], extents.q_len == extents.kv_len
    rows = torch.arange(extents.q_len, device=elements.device).view(-1, 1)
    for first, kept in elements.by_columns():
        ranges = _ranges(~kept)
        general.append(ranges)
        if is_causal:
            past = torch.arange(first, first + kept.shape[-1], device=elements.device) > rows
            is_causal = not bool((kept & past).any())
            causal.append(_ranges(~kept & ~past))
    if is_causal:
        found = torch.cat(causal, dim=2)
        if bool((found[..., 0] <= 1).all()):
            return _shortened(found, extents.q_len), True
    found = torch.cat(general, dim=2)
    _check(found[..., 0])
    return _arranged(found, extents.q_len), False


def _ranges(dropped: torch.Tensor) -> torch.Tensor:
    """Count, start and end of the first range, start and end of the last one, per column.

    `dropped` is `[batch, heads, q_len, columns]`, the result `[batch, heads, columns, 5]`.
    """
    length = dropped.shape[2]
    if length == 0:
        return dropped.new_zeros((*dropped.shape[:2], dropped.shape[3], 5), dtype=torch.int64)
    edges = F.pad(dropped.to(torch.int8), (0, 0, 1, 1)).diff(dim=2)  # of length + 1 places
    opens, closes = edges > 0, edges < 0
    count = opens.sum(dim=2)
    first_start, first_end = opens.int().argmax(dim=2), closes.int().argmax(dim=2)
    last_start = length - opens.flip(2).int().argmax(dim=2)
    last_end = length - closes.flip(2).int().argmax(dim=2)
    return torch.stack([count, first_start, first_end, last_start, last_end], dim=-1)


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
        raise errors.not_column_intervals(key, batch, head, int(counts[batch, head, key]))
