"""A batch of decoding steps, speculative trees and chunks of prefill in one call, on one GPU.

    python benchmarks/gpu_ragged.py [--rounds 5]

Beside it two calls, one of the requests with few queries and one of the chunks, as a server can
make them that tells these requests apart on the host; and, where all have one query, the call that
is not packed, whose parts follow from the room of the table and not from lengths. A call is
captured in a CUDA graph and replayed; the caches are larger than those of the GPU.
"""

from __future__ import annotations

import argparse
import random

import torch

import maskalg as ma
from benchmarks.gpu_decode import captured, measured
from maskalg import causal

HEADS, DIM = (32, 8), 128
BATCHES = {
    "mixed": ("30 steps of 2k to 64k, 2 chunks of 512", [1] * 30, [512, 512]),
    "steps": ("30 steps of 2k to 64k", [1] * 30, []),
    "one": ("1 step of 2k to 64k", [1], []),
    "many": ("256 steps of 2k to 64k", [1] * 256, []),
    "chunks": ("2 chunks of 512", [], [512, 512]),
    "long": ("62 steps of 2k to 64k, 1 chunk of 2048", [1] * 62, [2048]),
    "trees": ("24 steps, 6 trees of 8, 2 chunks of 512", [1] * 24 + [8] * 6, [512, 512]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pages", default="16,64")
    parser.add_argument("--batches", default=",".join(BATCHES))
    options = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bfloat16; median us a call")
    for batch in options.batches.split(","):
        name, few, chunks = BATCHES[batch]
        for page in map(int, options.pages.split(",")):
            print(f"{name}, pages of {page}: {row(few, chunks, page, options.rounds)}", flush=True)


def row(few: list[int], chunks: list[int], page: int, rounds: int) -> str:
    """Microseconds of one call and of two."""
    draw = random.Random(0)
    counts = few + chunks
    lengths = [int(2048 * 32 ** draw.random()) for _ in few] + [32768 for _ in chunks]
    owned = [-(-n // page) for n in lengths]
    order = torch.randperm(sum(owned), device="cuda", dtype=torch.int32)
    table = torch.zeros(len(counts), 65536 // page, dtype=torch.int32, device="cuda")
    at = 0
    for request, n in enumerate(owned):
        table[request, :n] = order[at : at + n]
        at += n
    pools = [
        torch.randn(at, page, HEADS[1], DIM, device="cuda", dtype=torch.bfloat16) for _ in range(2)
    ]
    starts = torch.tensor([0, *counts], device="cuda").cumsum(0).int()
    query = torch.randn(1, HEADS[0], sum(counts), DIM, device="cuda", dtype=torch.bfloat16)
    of_lengths = torch.tensor(lengths, device="cuda", dtype=torch.int32)
    past = of_lengths - torch.tensor(counts, device="cuda", dtype=torch.int32)
    ends = sum(few)

    def call(own: slice, queries: slice, most: int):
        cu = starts[own.start : own.stop + 1] - starts[own.start]
        pages = ma.Pages(table[own], of_lengths[own], cu, most)
        return query[:, :, queries], causal.shift(q=past[own]), pages

    whole = call(slice(0, len(counts)), slice(0, sum(counts)), max(counts))
    parts = [(0, len(few), 0, ends), (len(few), len(counts), ends, sum(counts))]
    apart = [call(slice(a, b), slice(c, d), max(counts[a:b])) for a, b, c, d in parts if b > a]

    def one(q, score, pages):
        return ma.attention(q, *pools, score, pages=pages)

    def in_two(*_):
        return torch.cat([one(*part) for part in apart], 2)

    found, wanted = one(*whole), in_two()
    far = (found - wanted).abs().max().item()
    graphs = {"one call": captured(one, [whole])}
    if len(apart) > 1:
        graphs["two calls"] = captured(in_two, [()])
    if counts == [1] * len(counts):
        lying_apart = (
            query.transpose(0, 2).contiguous(), causal.shift(q=past), ma.Pages(table, of_lengths),
        )  # fmt: skip
        graphs["not packed"] = captured(one, [lying_apart])
    times = measured(graphs, 1, rounds)
    read = sum(4 * n * HEADS[1] * DIM for n in lengths)
    pairs = sum(c * (n - (c - 1) / 2) for n, c in zip(lengths, counts, strict=True))
    told = " ".join(f"{of} {t:.0f}" for of, t in times.items())
    ours = times["one call"]
    rate = f"{read / ours / 1e6:.2f} TB/s, {4 * pairs * HEADS[0] * DIM / ours / 1e6:.0f} TFLOP/s"
    return f"{told} ({rate}), apart by {far:.1e}"


if __name__ == "__main__":
    main()
