"""Whether two tiles computed the same, up to the order of their sums."""

from __future__ import annotations

from typing import Final

import torch

TOLERANCE: Final = {torch.bfloat16: 2.0**-5, torch.float16: 2.0**-8, torch.float32: 2.0**-12}
"""The largest `distance` of results that agree. The same sums in another order differ by at most
four roundings; a tile of keys that is missed or counted twice moves a row of thousands of keys by
more."""


def distance(found: tuple[torch.Tensor, ...], wanted: tuple[torch.Tensor, ...]) -> float:
    """The largest distance of a row of `found` from that of `wanted`, in units of its norm.

    The norm of a small row counts as a twentieth of the root mean square of all norms in its
    tensor. The distance is inf where one of the two is not finite and the other differs.
    """
    return max(_rows_apart(f, w) for f, w in zip(found, wanted, strict=True))


def _rows_apart(found: torch.Tensor, wanted: torch.Tensor) -> float:
    if found.dtype == torch.float32 and found.dim() == 3:  # lse, a number of each row
        found, wanted = found[..., None], wanted[..., None]
    largest = 0.0
    for f, w in zip(found.flatten(0, 1), wanted.flatten(0, 1), strict=True):  # a head at a time
        same = f == w
        difference = torch.where(same, 0.0, f.float() - w.float())
        if not bool(difference.isfinite().all()):
            return float("inf")
        finite = torch.where(w.isfinite(), w.float(), 0.0)
        norms = finite.norm(dim=-1)
        least = norms.square().mean().sqrt() / 20
        apart = difference.norm(dim=-1) / norms.clamp(min=float(least) or 1.0)
        largest = max(largest, float(apart.max()))
    return largest
