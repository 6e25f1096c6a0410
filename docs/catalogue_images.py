"""The masks that `docs/catalogue.md` shows, by the name of their picture."""

from __future__ import annotations

from typing import Final

import torch
from matplotlib import pyplot
from matplotlib.figure import Figure
from plot_images import saved

import maskalg as ma
from maskalg import causal, document, prefix, sliding

LENGTH: Final = 256
BLOCK: Final = 4

# No background and grey letters, which are read on light and on dark pages; letters as text.
STYLE: Final = {
    "svg.fonttype": "none",
    "figure.facecolor": "none",
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), "#7d8794"),
    **dict.fromkeys(("xtick.color", "ytick.color"), "#7d8794"),
}


def _spans(*starts_and_lengths: tuple[int, int]) -> torch.Tensor:
    ids = torch.full((LENGTH,), -1)
    for number, (start, length) in enumerate(starts_and_lengths):
        ids[start : start + length] = number
    return ids


def _flags(*positions: int) -> torch.Tensor:
    flags = torch.zeros(LENGTH, dtype=torch.bool)
    flags[list(positions)] = True
    return flags


def pictures() -> dict[str, tuple[str, ma.Mask]]:
    """The title and the mask of each picture, `LENGTH` queries by `LENGTH` keys."""
    random = torch.Generator().manual_seed(5)
    ids = torch.arange(5).repeat_interleave(torch.tensor([70, 30, 64, 20, 72]))
    spans = _spans((20, 48), (120, 64), (216, 32))
    table = torch.rand(8, 8, generator=random) < 0.25
    flags = _flags(0, 1, 2, 3, 128, 129, 130, 131)
    tree = torch.tensor([(node - 1) // 3 for node in range(LENGTH - 64)])
    tree[0] = -1
    line = [-1]
    for node in range(1, LENGTH - 64):
        line.append(node - 1 if node % 24 else 0)
    columns, diagonals = _flags(0, 1, 2, 3, 90, 91, 92, 93), _flags(*range(12), *range(100, 108))
    kinds = spans.ge(0).long()
    allowed = torch.tensor([[True, True], [False, True]])
    starts = torch.tensor([16, 60, 64, 150, 152, 156, 200, 240])
    ordered = torch.randperm(LENGTH // 16, generator=random).repeat_interleave(16) * 16
    rank = ordered + torch.arange(LENGTH) % 16
    wide = torch.tensor([64, 8])
    slices = ([(0, 96), (96, 160), (160, 256)], [(0, 96), (32, 160), (96, 224)], [1, 3, 0])
    shown = {
        "causal": ("causal", causal),
        "sliding": ("causal & sliding(48)", causal & sliding(48)),
        "window": ("window(16, 64)", ma.window(16, 64)),
        "sinks": ("causal & (sliding(48) | prefix(4))", causal & (sliding(48) | prefix(4))),
        "prefix": ("causal | prefix(80)", causal | prefix(80)),
        "padding": ("padding(lengths, queries=True)", _padding(180)),
        "document": ("causal & document(ids)", causal & document(ids)),
        "per_document": (
            "per_document(causal | prefix(24), ids)",
            ma.per_document(causal | prefix(24), ids),
        ),
        "shared_prefix": (
            "shared_prefix(ids, parents)",
            ma.shared_prefix(ids, torch.tensor([-1, 0, 0, 2, 2])),
        ),
        "drafts": (
            "drafts(anchors, 160, 24)",
            ma.drafts(torch.tensor([40, 60, 100, 144]), 160, 24),
        ),
        "chunked": ("causal & chunked(64)", causal & ma.chunked(64)),
        "block_causal": ("block_causal(32)", ma.block_causal(32)),
        "dilated": ("sliding(64) & dilated(8)", sliding(64) & ma.dilated(8)),
        "strided": ("strided(32)", ma.strided(32)),
        "global_tokens": (
            "sliding(24) | global_tokens(flags)",
            sliding(24) | ma.global_tokens(flags),
        ),
        "block_table": ("block_table(table, 32)", ma.block_table(table, 32)),
        "bigbird": (
            "sliding(32) | global_tokens(flags) | block_table(table, 32)",
            sliding(32) | ma.global_tokens(flags) | ma.block_table(table, 32),
        ),
        "block_diffusion": ("block_diffusion(128, 16)", ma.block_diffusion(128, 16)),
        "vertical_slash": (
            "vertical_slash(vertical, slash)",
            ma.vertical_slash(columns, diagonals),
        ),
        "tree": ("tree(parents, prompt=64), by level", ma.tree(tree, 64)),
        "tree_depth_first": ("tree(parents, prompt=64), depth first", ma.tree(line, 64)),
        "spans": ("causal | spans(ids)", causal | ma.spans(spans)),
        "modality": ("modality(types, allowed)", ma.modality(kinds, allowed)),
        "media": ("media(starts, 32)", ma.media(starts, 32)),
        "neighborhood": ("neighborhood((16, 16), 5)", ma.neighborhood((16, 16), 5)),
        "neighborhood_causal": (
            "neighborhood((16, 16), 5, causal=(True, False))",
            ma.neighborhood((16, 16), 5, causal=(True, False)),
        ),
        "tiled_neighborhood": (
            "tiled_neighborhood((16, 16), (4, 4), 5)",
            ma.tiled_neighborhood((16, 16), (4, 4), 5),
        ),
        "morton_neighborhood": (
            "morton_neighborhood((16, 16), 5)",
            ma.morton_neighborhood((16, 16), 5),
        ),
        "sliding_tile": (
            "sliding_tile((4, 8, 7), (2, 4, 7), (1, 1, 1), text=32)",
            ma.sliding_tile((4, 8, 7), (2, 4, 7), (1, 1, 1), text=32),
        ),
        "spatial": ("spatial(32, 1)", ma.spatial(32, 1)),
        "temporal": ("temporal(32, 2)", ma.temporal(32, 2)),
        "permutation": ("permutation(rank)", ma.permutation(rank)),
        "per_head": ("causal & sliding(windows)", causal & sliding(wide)),
        "flashmask": ("flashmask(indices, causal=True)", _flashmask(ids)),
        "attention_slices": ("attention_slices(…)", ma.attention_slices(*slices)),
        "dense": ("dense(tensor)", ma.dense(torch.rand(64, 64, generator=random) < 0.3)),
    }
    return {name: (title, _mask(mask)) for name, (title, mask) in shown.items()}


def draw(name: str, title: str, mask: ma.Mask) -> bytes:
    """The bytes of one picture's file."""
    length, block = (64, 1) if name == "dense" else (LENGTH, BLOCK)

    def small() -> Figure:
        canvas, axes = pyplot.subplots(figsize=(3, 3.2), layout="constrained")
        mask.plot(length, block=block, ax=axes, title=title, legend=False)
        return canvas

    return saved(small, STYLE)


def _padding(length: int) -> ma.Mask:
    return ma.padding(torch.tensor([length]), queries=True)


def _flashmask(ids: torch.Tensor) -> ma.Mask:
    indices, is_causal = ma.to_flashmask(_mask(causal & document(ids)), LENGTH)
    return ma.flashmask(indices, causal=is_causal)


def _mask(mask: ma.Mask | ma.Score) -> ma.Mask:
    assert isinstance(mask, ma.Mask)
    return mask
