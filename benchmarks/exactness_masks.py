"""The masks of the field at a thousand positions, as formulas: what exactness is measured on.

Positions, kinds and intervals come from fixed seeds, with runs and gaps of every size.
"""

from __future__ import annotations

import torch

from maskalg import (
    Mask,
    block_causal,
    causal,
    chunked,
    dilated,
    document,
    head,
    maximum,
    padding,
    prefix,
    sliding,
    table,
    where,
    window,
)
from maskalg import kv_idx as k
from maskalg import q_idx as q

LENGTH = 1100


def _runs(kinds: int, longest: int, seed: int) -> torch.Tensor:
    """Runs of equal entries below `kinds`, which come back."""
    random = torch.Generator().manual_seed(seed)
    entries = torch.randint(0, kinds, (LENGTH,), generator=random)
    lengths = torch.randint(1, longest, (LENGTH,), generator=random)
    return entries.repeat_interleave(lengths)[:LENGTH]


def _some(share: float, seed: int, *shape: int) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.rand(*(shape or (LENGTH,)), generator=random) < share


def _within(high: int, seed: int) -> torch.Tensor:
    return torch.randint(0, high, (LENGTH,), generator=torch.Generator().manual_seed(seed))


def masks() -> dict[str, Mask]:
    """Every family by name; masks that tell heads apart take two."""
    place = torch.arange(LENGTH)
    ids = _runs(10**6, 90, 1).sort().values
    recurring = _runs(5, 90, 2)
    parents = torch.maximum(place - 1 - _within(4, 3), torch.tensor(-1))
    starts = (place - _within(200, 4)).clamp(min=0)
    noisy = 550
    flags, kinds = table(_some(0.03, 5), "flags"), table(_within(3, 6), "kinds")
    span = table(torch.where(_runs(2, 60, 7) == 1, ids, -1), "span")
    rank = table(torch.randperm(LENGTH, generator=torch.Generator().manual_seed(8)), "rank")
    start = table(starts, "start")
    end = table(starts + _within(150, 9), "end")
    lower = table(place + _within(300, 10), "lower")
    lower_end = table(place + 200 + _within(300, 11), "lower_end")
    last = table(_last_descendant(parents), "last")
    pairs = table(_some(0.5, 12, 3, 3), "pairs")
    chosen = table(_some(0.3, 13, 40, 40), "chosen")
    column, slash = table(_some(0.02, 14), "column"), table(_some(0.03, 15), "slash")
    media_start, media_end = table(starts[::16].clone(), "ms"), table(starts[::16] + 90, "me")
    clean = k - noisy
    return {
        "causal": causal,
        "sliding causal": causal & sliding(100),
        "window": window(70, 9),
        "sinks and window": causal & (sliding(128) | prefix(4)),
        "prefix LM": causal | prefix(77),
        "padded": causal & padding(torch.tensor([700])),
        "documents": causal & document(ids),
        "documents that recur": causal & document(recurring),
        "recurring, sliding": causal & document(recurring) & sliding(150),
        "other documents": ~document(recurring) & sliding(300),
        "two kinds of ids": document(ids) & document(recurring),
        "shared prefix": causal & (document(ids) | document(recurring)),
        "restarting positions": document(ids) & (q - start[q] >= k - start[q] + 5),
        "chunked": causal & chunked(96),
        "block causal": block_causal(48),
        "dilated window": sliding(120) & dilated(3),
        "strided": causal & (sliding(24) | dilated(24)),
        "fixed": causal & (chunked(32) | (k % 32 >= 28)),
        "two remainders": causal & ((q - k) % 4 == 1) & ((q - k) % 6 == 3),
        "remainder and documents": dilated(5) & document(recurring) & sliding(90),
        "remainder and flags": dilated(7) & flags[q] & causal,
        "global tokens": flags[q] | flags[k] | sliding(50),
        "flags of queries": causal & sliding(60) & flags[q],
        "kinds of keys": causal & (kinds[k] == 2),
        "all but a kind": causal & ~(kinds[k] == 1),
        "block table": causal & chosen[q // 32, k // 32],
        "BigBird": causal & (chosen[q // 32, k // 32] | sliding(64) | flags[k]),
        "block diffusion": (
            (q < noisy) & (k < noisy) & chunked(50)
            | (q < noisy) & (k >= noisy) & (q // 50 >= clean // 50 + 1)
            | (q >= noisy) & (k >= noisy) & block_causal(50)
        ),
        "vertical and slash": causal & (column[k] | slash[maximum(q - k, 0)]),
        "tree": (k <= q) & (q <= last[k]),
        "image spans": causal | ((span[q] == span[k]) & (span[q] >= 0)),
        "modality table": pairs[kinds[q], kinds[k]],
        "modality table, causal": causal | pairs[kinds[q], kinds[k]],
        "media": (media_start[k // 32] <= q) & (q < media_end[k // 32]),
        "permutation": rank[q] >= rank[k],
        "permutation, local": (rank[q] >= rank[k]) & sliding(64),
        "rows' own sections": (start[q] <= k) & (k < end[q]),
        "column intervals": causal & ~((q >= lower[k]) & (q < lower_end[k])),
        "heads of two kinds": where(head % 2 == 0, sliding(64), causal),
        "windows by head": (abs(q - k) <= 40 * head + 8) & causal,
        "keys far in a document": document(ids) & (q >= k + 20),
        "products": q * k >= 80000,
    }


def _last_descendant(parents: torch.Tensor) -> torch.Tensor:
    """The last node below each node of a forest whose parents stand before their children."""
    last = list(range(len(parents)))
    for node in range(len(parents) - 1, -1, -1):
        parent = int(parents[node])
        if parent >= 0:
            last[parent] = max(last[parent], last[node])
    return torch.tensor(last)
