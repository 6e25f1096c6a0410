"""What it takes to answer for the masks of the catalogue at a million tokens, one core.

    python benchmarks/million_tokens.py                    # all of them
    python benchmarks/million_tokens.py tree "FlashMask"   # those whose name holds a word

For each mask, at 1,048,576 queries and keys: `mask.segments` at block 128, `mask.blocks` at block
8192 (and how many of its blocks were evaluated), and `mask.cost` at block 128. Each is asked once,
after the proof; what the first remembers of the tensors serves the next. The cost of what summaries
decide is left out: its elements would be evaluated.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch

import maskalg as ma
from maskalg import Mask, causal, kv_idx, q_idx, sliding, table

N = 1 << 20


def _random(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _flags(share: float, seed: int, *shape: int) -> torch.Tensor:
    return torch.rand(*(shape or (N,)), generator=_random(seed)) < share


def _integers(low: int, high: int, seed: int, *shape: int) -> torch.Tensor:
    return torch.randint(low, high, shape or (N,), generator=_random(seed))


def _documents(longest: int, seed: int) -> torch.Tensor:
    lengths = _integers(1, longest, seed, 4 * N // longest)
    ids = torch.arange(len(lengths)).repeat_interleave(lengths)
    return torch.nn.functional.pad(ids, (0, max(N - len(ids), 0)), value=len(lengths))[:N]


def _recurring(kinds: int, longest: int, seed: int) -> torch.Tensor:
    return _integers(0, kinds, seed)[_documents(longest, seed)]


def _starts() -> torch.Tensor:
    ids = _documents(9000, 1)
    return torch.searchsorted(ids, ids)


def _by_level() -> torch.Tensor:
    return (torch.arange(N - 4096) - 1).div(3, rounding_mode="floor")


def _slices() -> tuple[list[tuple[int, int]], list[tuple[int, int]], list[int]]:
    ends = [(i * N // 12, (i + 1) * N // 12) for i in range(12)]
    keys = [(max(0, a - N // 8 * (i % 3)), b) for i, (a, b) in enumerate(ends)]
    return ends, keys, [i % 4 for i in range(12)]


def masks() -> dict[str, Callable[[], Mask]]:
    """Every family at a million tokens, built when asked for."""
    place = torch.arange(N)
    lower = (place + _integers(0, 3000, 10)).clamp(max=N)
    ids = _documents(9000, 1)
    parents = torch.arange(-1, int(ids.max()))
    spans = torch.where(_recurring(2, 600, 7) == 1, _documents(600, 7), -1)
    return {
        "everything": lambda: ma.everything,
        "causal": lambda: causal,
        "causal & sliding(4096)": lambda: causal & sliding(4096),
        "window": lambda: ma.window(3000, 77),
        "sinks and window": lambda: causal & (sliding(4096) | ma.prefix(4)),
        "prefix LM": lambda: causal | ma.prefix(70000),
        "padding": lambda: causal & ma.padding(torch.tensor([700001, N]), queries=True),
        "document": lambda: causal & ma.document(ids),
        "document, sliding": lambda: causal & ma.document(ids) & sliding(4096),
        "document in any order": lambda: ma.document(_integers(0, 10**6, 3)[ids]),
        "document that recurs": lambda: causal & ma.document(_recurring(50, 9000, 2)),
        "other documents": lambda: causal & ~ma.document(_recurring(50, 9000, 2)),
        "per document": lambda: ma.per_document(causal & ma.chunked(1000), ids),
        "shared prefix": lambda: ma.shared_prefix(ids, parents),
        "chunked": lambda: causal & ma.chunked(8000),
        "block causal": lambda: ma.block_causal(8000),
        "dilated": lambda: ma.dilated(7),
        "causal dilated": lambda: causal & ma.dilated(7),
        "dilated sliding": lambda: sliding(4096) & ma.dilated(7),
        "dilated documents": lambda: ma.document(ids) & ma.dilated(7) & causal,
        "two remainders": lambda: (
            causal & ((q_idx - kv_idx) % 4 == 1) & ((q_idx - kv_idx) % 6 == 3)
        ),
        "fixed": lambda: causal & (ma.chunked(128) | (kv_idx % 128 >= 120)),
        "strided": lambda: ma.strided(128),
        "global tokens": lambda: ma.global_tokens(_flags(0.001, 4)),
        "Longformer": lambda: causal & (sliding(512) | ma.global_tokens(_flags(0.001, 4))),
        "block table": lambda: causal & ma.block_table(_flags(0.2, 5, 8192, 8192), 128),
        "block table, large blocks": lambda: (
            causal & ma.block_table(_flags(0.2, 5, 256, 256), 4096)
        ),
        "BigBird": lambda: (
            sliding(512)
            | ma.global_tokens(_flags(0.001, 4))
            | ma.block_table(_flags(0.02, 5, 1024, 1024), 1024)
        ),
        "block diffusion": lambda: ma.block_diffusion(N // 2, 4096),
        "neighborhood, line": lambda: ma.neighborhood(N, 4095),
        "neighborhood, plane": lambda: ma.neighborhood((1024, 1024), 13),
        "neighborhood, wide": lambda: ma.neighborhood((1024, 1024), 63),
        "neighborhood, dilated": lambda: ma.neighborhood((1024, 1024), 13, 4),
        "neighborhood, causal": lambda: ma.neighborhood((1024, 1024), 13, 1, True),
        "neighborhood, space": lambda: ma.neighborhood((64, 128, 128), 9),
        "neighborhood, tiled": lambda: ma.tiled_neighborhood((1024, 1024), (8, 16), 13),
        "neighborhood, Morton": lambda: ma.morton_neighborhood((1024, 1024), 13),
        "sliding tile": lambda: ma.sliding_tile((64, 128, 128), (8, 8, 8), 3),
        "sliding tile and text": lambda: ma.sliding_tile((63, 128, 128), (7, 8, 8), 3, 16384),
        "spatial": lambda: ma.spatial(32768, 1),
        "temporal": lambda: ma.temporal(32768, 64),
        "vertical and slash": lambda: ma.vertical_slash(_flags(0.001, 6), _flags(0.001, 8)),
        "tree, depth first": lambda: ma.tree(
            (place[: N - 4096] - 1 - _integers(0, 1, 9)[: N - 4096]), 4096
        ),
        "tree, by level": lambda: ma.tree(_by_level(), 4096),
        "spans": lambda: causal | ma.spans(spans),
        "modality": lambda: ma.modality(_recurring(4, 9000, 2), _flags(0.5, 11, 4, 4)),
        "modality, causal": lambda: (
            causal | ma.modality(_recurring(4, 900, 2), _flags(0.5, 11, 4, 4))
        ),
        "media": lambda: ma.media(torch.arange(0, N, 8192), 8192),
        "permutation": lambda: ma.permutation(torch.randperm(N, generator=_random(12))),
        "permutation, sliding": lambda: (
            sliding(512) & ma.permutation(torch.randperm(N, generator=_random(12)))
        ),
        "FlashMask, causal": lambda: ma.flashmask(lower.int().view(1, 1, -1, 1), causal=True),
        "FlashMask, between": lambda: ma.flashmask(
            torch.stack([lower, lower + 500], dim=-1).clamp(max=N).int().view(1, 1, -1, 2),
            causal=True,
        ),
        "FlashMask, two ranges": lambda: ma.flashmask(
            torch.stack([lower, lower + 500, place - 2000, place - 800], dim=-1)
            .clamp(0, N)
            .int()
            .view(1, 1, -1, 4),
            causal=False,
        ),
        "attention slices": lambda: ma.attention_slices(*_slices()),
        "windows by head": lambda: causal & sliding(torch.tensor([256, 4096])),
        "rows' own sections": lambda: (
            (table(_starts(), "start")[q_idx] <= kv_idx) & (kv_idx < table(lower, "end")[q_idx])
        ),
    }


def _timed(question: Callable[[], object]) -> tuple[float, object]:
    started = time.perf_counter()
    answer = question()
    return time.perf_counter() - started, answer


def main() -> None:
    """Print a line for each mask."""
    torch.set_num_threads(1)
    words = sys.argv[1:]
    print(f"torch {torch.__version__}, 1 thread, {N:,} tokens; seconds")
    print(f"{'mask':26} {'rung':16} {'segments':>9} {'blocks':>9} {'evaluated':>9} {'cost':>9}")
    for name, build in masks().items():
        if words and not any(word in name for word in words):
            continue
        mask = build()
        proof = mask.prove()
        of_segments, _ = _timed(lambda mask=mask: mask.segments(N))
        of_blocks, found = _timed(lambda mask=mask: mask.blocks(N, block=8192))
        print(f"{name:26} {proof.rung:16} {of_segments:9.3f} {of_blocks:9.3f}", end=" ", flush=True)
        print(f"{found.evaluated:9}", end=" ", flush=True)
        if proof.rung == "summaries":
            print(f"{'-':>9}", flush=True)
            continue
        of_cost, found = _timed(lambda mask=mask: mask.cost(N))
        print(f"{of_cost:9.3f}  {found.kept:,}", flush=True)


if __name__ == "__main__":
    main()
