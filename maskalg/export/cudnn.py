"""A mask as the row endpoints of cuDNN's `flex_attention`."""

from __future__ import annotations

from typing import NamedTuple

import torch


class CudnnEndpoints(NamedTuple):
    """The keys of each query as intervals `[0, F0)`, `[F1, F2)`, `[F3, F4)`, ….

    Attributes:
        mask_func: int32 `[heads, endpoints, batch * q_len]`, F0, F1, …, an odd number of endpoints;
            heads is 1 if the mask is the same for all heads. Endpoints of a query do not decrease,
            and count keys within its batch entry. On the device of the mask's tensors.
        batch: batch size; queries of one entry follow those of the entry before.
        kv_len: number of keys.
    """

    mask_func: torch.Tensor
    batch: int
    kv_len: int

    def to_dense(self) -> torch.Tensor:
        """The mask read back, Boolean `[batch, heads, q_len, kv_len]`."""
        heads, count, queries = self.mask_func.shape
        by_entry = self.mask_func.view(heads, count, self.batch, queries // self.batch)
        ends = by_entry.permute(2, 0, 3, 1)[..., None, :]
        key = torch.arange(self.kv_len, device=ends.device)[:, None]
        first = key < ends[..., :1]
        others = (key >= ends[..., 1::2]) & (key < ends[..., 2::2])
        return torch.cat([first, others], dim=-1).any(dim=-1)


def to_cudnn(intervals: torch.Tensor, batch: int, kv_len: int) -> CudnnEndpoints:
    """The endpoints of `key_intervals`, int32 `[2, batch, heads, intervals, q_len]`.

    A batch of size 1 is written out `batch` times.
    """
    _, _, heads, count, q_len = intervals.shape
    ends = [intervals[side, :, :, number] for number in range(count) for side in (0, 1)]
    none = torch.zeros_like(ends[0])
    # The first interval starts at the first key; it is empty if the query keeps no such interval.
    from_first = ends[0] == 0
    found = ends[1:]
    if not bool(from_first.all()):
        pairs = zip([*found, none, none], [none, *ends], strict=True)
        found = [torch.where(from_first, here, moved) for here, moved in pairs]
    points = intervals.new_empty((heads, len(found), batch, q_len))
    reached = none
    for place, end in enumerate(found):
        # After the last interval of a query both ends are 0: write empty intervals.
        reached = torch.maximum(reached, end)
        points[:, place] = reached.transpose(0, 1)
    return CudnnEndpoints(points.flatten(2), batch, kv_len)
