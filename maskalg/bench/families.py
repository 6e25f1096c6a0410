"""Every family of masks of the catalogue, at a length people train with or a longer one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

from ..values import masks as ma
from ..values.algebra import Mask
from ..values.index import kv_idx, q_idx, table
from ..values.masks import causal, prefix, sliding

SHORTEST: Final = 4096
"""The shortest length that all families have."""


@dataclass(frozen=True)
class _Drawn:
    """Tensors from fixed seeds, over `length` positions, on `device`."""

    length: int
    device: str

    def flags(self, share: float, seed: int, *shape: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        return (torch.rand(*(shape or (self.length,)), generator=generator) < share).to(self.device)

    def integers(self, high: int, seed: int, low: int = 0) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(low, high, (self.length,), generator=generator).to(self.device)

    def order(self, seed: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.randperm(self.length, generator=generator).to(self.device)

    def documents(self, longest: int, seed: int) -> torch.Tensor:
        """Ids of documents of 1 to `longest` tokens, in their order."""
        ends = self.integers(longest, seed, low=1).cumsum(0)
        return torch.searchsorted(ends, torch.arange(self.length, device=self.device), right=True)

    def recurring(self, kinds: int, longest: int, seed: int) -> torch.Tensor:
        """Ids of documents of 1 to `longest` tokens, drawn from `kinds` ids, so that ids recur."""
        return self.integers(kinds, seed)[self.documents(longest, seed)]


def families(length: int, device: str = "cpu", heads: int = 2) -> dict[str, Callable[[], Mask]]:
    """Functions that build each mask over `length` queries and keys, by name.

    Args:
        length: positions, a power of two from SHORTEST.
        device: of the tensors that masks read.
        heads: attention heads, for the masks that differ between them; even.
    """
    power = length.bit_length() - 1
    assert length == 1 << power and length >= SHORTEST
    drawn = _Drawn(length, device)
    place = torch.arange(length, device=device)
    window, near, chunk = min(4096, length // 8), min(512, length // 16), length // 131
    longest = min(9000, length // 4)
    plane = (1 << power // 2, 1 << power - power // 2)
    across = power - power // 3
    space = (1 << power // 3, 1 << across // 2, 1 << across - across // 2)
    tile, frames = (8 if power >= 18 else 4), space[0] // 4
    video = (space[0] - frames, *space[1:])
    side = max(128, length // 1024)  # of the blocks of a table
    ids = drawn.documents(longest, 1)
    starts = torch.searchsorted(ids, ids)
    segment = torch.arange(int(ids.max()) + 1, device=device)
    parents = torch.where(segment % 5 > 0, segment // 5 * 5, -1)  # four that continue each fifth
    spans = torch.where(drawn.recurring(2, 600, 7) == 1, drawn.documents(600, 7), -1)
    lower = (place + drawn.integers(length // 8, 10)).clamp(max=length)
    bands = torch.stack([lower, lower + 500, place - 2000, place - 800], dim=-1)
    bands = bands.clamp(0, length).int().view(1, 1, -1, 4)
    kept_kinds = drawn.flags(0.5, 11, 4, 4)
    prompt = length // 256
    by_level = (place[: length - prompt] - 1).div(3, rounding_mode="floor")
    quarters = [(i * length // 12, (i + 1) * length // 12) for i in range(12)]
    slices = [(max(0, a - length // 8 * (i % 3)), b) for i, (a, b) in enumerate(quarters)]
    anchors = drawn.integers(length // 2, 13)[: length // 64]

    def table_of(columns: int, share: float) -> torch.Tensor:
        return drawn.flags(share, 5, columns, columns)

    return {
        "everything": lambda: ma.everything,
        "causal": lambda: causal,
        "causal & sliding": lambda: causal & sliding(window),
        "window": lambda: ma.window(window * 3 // 4, 77),
        "sinks and window": lambda: causal & (sliding(window) | prefix(4)),
        "windows by head": lambda: causal & sliding(torch.tensor([256, window] * (heads // 2))),
        "prefix LM": lambda: causal | prefix(length // 15),
        "padding": lambda: (
            causal & ma.padding(torch.tensor([length * 2 // 3, length]), queries=True)
        ),
        "document": lambda: causal & ma.document(ids),
        "document, sliding": lambda: causal & ma.document(ids) & sliding(window),
        "document in any order": lambda: ma.document(drawn.integers(10**6, 3)[ids]),
        "document that recurs": lambda: causal & ma.document(drawn.recurring(50, longest, 2)),
        "clusters": lambda: causal & ma.document(drawn.integers(50, 2)),
        "other documents": lambda: causal & ~ma.document(drawn.recurring(50, longest, 2)),
        "per document": lambda: ma.per_document(causal & ma.chunked(1000), ids),
        "shared prefix": lambda: ma.shared_prefix(ids, parents),
        "chunked": lambda: causal & ma.chunked(chunk),
        "block causal": lambda: ma.block_causal(chunk),
        "dilated": lambda: ma.dilated(7),
        "causal dilated": lambda: causal & ma.dilated(7),
        "dilated sliding": lambda: sliding(window) & ma.dilated(7),
        "dilated documents": lambda: ma.document(ids) & ma.dilated(7) & causal,
        "two remainders": lambda: (
            causal & ((q_idx - kv_idx) % 4 == 1) & ((q_idx - kv_idx) % 6 == 3)
        ),
        "fixed": lambda: causal & (ma.chunked(128) | (kv_idx % 128 >= 120)),
        "strided": lambda: ma.strided(128),
        "global tokens": lambda: ma.global_tokens(drawn.flags(0.001, 4)),
        "Longformer": lambda: causal & (sliding(near) | ma.global_tokens(drawn.flags(0.001, 4))),
        "block table": lambda: causal & ma.block_table(table_of(length // 128, 0.2), 128),
        "block table, large blocks": lambda: (
            causal & ma.block_table(table_of(length // (4 * side), 0.2), 4 * side)
        ),
        "BigBird": lambda: (
            sliding(near)
            | ma.global_tokens(drawn.flags(0.001, 4))
            | ma.block_table(table_of(length // side, 0.02), side)
        ),
        "block diffusion": lambda: ma.block_diffusion(length // 2, length // 256),
        "drafts": lambda: ma.drafts(anchors, length // 2, 32),
        "neighborhood, line": lambda: ma.neighborhood(length, window - 1),
        "neighborhood, plane": lambda: ma.neighborhood(plane, 13),
        "neighborhood, wide": lambda: ma.neighborhood(plane, min(63, plane[0] // 2 - 1)),
        "neighborhood, dilated": lambda: ma.neighborhood(plane, 13, 4),
        "neighborhood, causal": lambda: ma.neighborhood(plane, 13, 1, True),
        "neighborhood, space": lambda: ma.neighborhood(space, 9),
        "neighborhood, tiled": lambda: ma.tiled_neighborhood(plane, (8, 16), 13),
        "neighborhood, Morton": lambda: ma.morton_neighborhood(plane, 13, device=device),
        "sliding tile": lambda: ma.sliding_tile(space, (tile, tile, tile), 3),
        "sliding tile and text": lambda: ma.sliding_tile(
            video, (tile, tile, tile), 3, frames * space[1] * space[2]
        ),
        "spatial": lambda: ma.spatial(length // 32, 1),
        "temporal": lambda: ma.temporal(length // 32, max(1, length // 16384)),
        "vertical and slash": lambda: ma.vertical_slash(
            drawn.flags(0.001, 6), drawn.flags(0.001, 8)
        ),
        "tree, depth first": lambda: ma.tree(place[: length - prompt] - 1, prompt),
        "tree, by level": lambda: ma.tree(by_level, prompt),
        "Transfusion": lambda: causal | ma.spans(spans),
        "modality": lambda: ma.modality(drawn.recurring(4, longest, 2), kept_kinds),
        "modality, causal": lambda: causal | ma.modality(drawn.recurring(4, 900, 2), kept_kinds),
        "media": lambda: ma.media(torch.arange(0, length, length // 128), length // 128),
        "permutation": lambda: ma.permutation(drawn.order(12)),
        "permutation, sliding": lambda: sliding(near) & ma.permutation(drawn.order(12)),
        "FlashMask, causal": lambda: ma.flashmask(bands[..., :1], causal=True),
        "FlashMask, between": lambda: ma.flashmask(bands[..., :2], causal=True),
        "FlashMask, two ranges": lambda: ma.flashmask(bands, causal=False),
        "attention slices": lambda: ma.attention_slices(
            quarters, slices, [i % 4 for i in range(12)]
        ),
        "rows' own sections": lambda: (
            (table(starts, "start")[q_idx] <= kv_idx) & (kv_idx < table(lower, "end")[q_idx])
        ),
    }
