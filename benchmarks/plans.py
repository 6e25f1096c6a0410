"""Context-parallel plans beside what others do: balance, keys that travel, and time to plan.

    python benchmarks/plans.py                         # 1,048,576 tokens, 2 to 64 ranks
    python benchmarks/plans.py --ranks 8 --len 131072  # others
    python benchmarks/plans.py "prefix trees"          # those whose name holds a word

The others are equal contiguous chunks, head and tail (2 chunks for each rank, one from each end),
and PTRR as in torch.distributed.tensor.experimental: blocks of 128 sorted by work and dealt out in
turns, there and back. `above` is by how much the most loaded rank exceeds the mean, in tiles of 128
by 128 that are not empty. `keys` are those that a rank gets from others, in sequences and over all
ranks: those that its queries need. Head-tail and PTRR as torch runs them send all: ranks - 1.
Times are those of one core: `new` with tensors nobody has seen, `again` with the same; medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable

import numpy as np
import torch

import maskalg as ma
from maskalg import Mask, causal, document, sliding
from maskalg.parallel import Plan, plan
from maskalg.parallel.work import Needs, Numbers

BLOCK = 128
Owners = Callable[[Needs, int], Numbers]


def equal(needs: Needs, ranks: int) -> Numbers:
    """Contiguous chunks of one length."""
    chunks = len(needs.tiles)
    return np.arange(chunks) * ranks // chunks


def head_tail(needs: Needs, ranks: int) -> Numbers:
    """Two chunks for each rank, as far from the beginning as from the end."""
    chunks = len(needs.tiles)
    place = np.arange(chunks) * 2 * ranks // chunks
    return np.minimum(place, 2 * ranks - 1 - place)


def ptrr(needs: Needs, ranks: int) -> Numbers:
    """Sorted by work, dealt out to the ranks in turns, there and back."""
    turns = np.argsort(-needs.tiles, kind="stable").reshape(-1, ranks)
    turns[1::2] = turns[1::2, ::-1]
    owner = np.empty(len(needs.tiles), dtype=np.int64)
    owner[turns] = np.arange(ranks)
    return owner


OTHERS: dict[str, Owners] = {"equal": equal, "head-tail": head_tail, "PTRR": ptrr}


def log_normal(tokens: int, median: float, sigma: float, seed: int) -> torch.Tensor:
    """Lengths of documents, log-normal, that fill `tokens`."""
    drawn = torch.randn(tokens // 16, generator=torch.Generator().manual_seed(seed))
    lengths = (median * (sigma * drawn).exp()).long().clamp(min=16)
    lengths = lengths[: int((lengths.cumsum(0) < tokens).sum()) + 1]
    lengths[-1] -= int(lengths.sum()) - tokens
    return lengths


def ids_of(lengths: torch.Tensor) -> torch.Tensor:
    """The number of the document of each token."""
    return torch.arange(len(lengths)).repeat_interleave(lengths).int()


def masks(tokens: int) -> dict[str, Callable[[], Mask]]:
    """The six kinds, each made anew with tensors of its own."""
    documents = ids_of(log_normal(tokens, 490, 1.5, 0))
    segments = log_normal(tokens, 490, 1.0, 1)
    place = torch.arange(len(segments))
    prompt = torch.where(place % 9 > 0, place // 9 * 9, -1)  # a prompt and eight rollouts of it
    rollouts = ids_of(segments)
    parts = log_normal(tokens, 300, 0.8, 2)
    parts[1::3] = 256  # every third is an image
    spans = torch.where(torch.arange(len(parts)) % 3 == 1, torch.arange(len(parts)), -1)
    spans = spans.int().repeat_interleave(parts)[:tokens]
    spans = torch.nn.functional.pad(spans, (0, tokens - len(spans)), value=-1)
    width = 1 << (tokens.bit_length() // 2)
    return {
        "causal": lambda: causal,
        "window": lambda: causal & sliding(4096),
        "documents": lambda: causal & document(documents.clone()),
        "prefix trees": lambda: ma.shared_prefix(rollouts.clone(), prompt),
        "Transfusion": lambda: causal | ma.spans(spans.clone()),
        "neighborhood": lambda: ma.neighborhood((tokens // width, width), 13),
    }


def in_blocks(found: Plan) -> Numbers:
    """The rank of each block of 128 tokens."""
    return found.owner.repeat(found.chunk // BLOCK)


def told(needs: Needs, owner: Numbers, ranks: int) -> str:
    """What a plan comes to: work above the mean, and sequences of keys that travel."""
    loads = np.bincount(owner, weights=needs.tiles, minlength=ranks)
    received = needs.of_owners(owner, ranks) & (owner != np.arange(ranks)[:, None])
    above = 100 * (loads.max() / loads.mean() - 1)
    return f"{above:7.2f} {received.sum() / len(owner):7.3f}"


def planned_in(made: Iterable[Mask], tokens: int, ranks: int) -> float:
    """Milliseconds of a core that it takes to plan, the median."""
    found = []
    for mask in made:
        started = time.process_time()
        plan(mask, tokens, ranks)
        found.append(1000 * (time.process_time() - started))
    return statistics.median(found)


def main() -> None:
    """Print a line for each mask and number of ranks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--len", dest="tokens", type=int, default=1 << 20)
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4, 8, 16, 32, 64])
    options = parser.parse_args()
    torch.set_num_threads(1)
    tokens = options.tokens
    print(f"torch {torch.__version__}, 1 thread, {tokens:,} tokens; above in per cent, ms")
    others = "".join(f"{name:>10} above keys" for name in OTHERS)
    print(f"{'mask':13} ranks {'ours: above':>11} {'keys':>4} {others} {'new':>7} {'again':>6}")
    for name, build in masks(tokens).items():
        if options.names and not any(word in name for word in options.names):
            continue
        mask = build()
        needs = Needs.of(mask, tokens, BLOCK)
        for ranks in options.ranks:
            found = plan(mask, tokens, ranks)
            texts = [told(needs, in_blocks(found), ranks)]
            texts += [told(needs, other(needs, ranks), ranks) for other in OTHERS.values()]
            new = planned_in([build() for _ in range(7)], tokens, ranks)
            again = planned_in([mask] * 9, tokens, ranks)
            columns = "    ".join(texts)
            print(f"{name:13} {ranks:5} {columns} {new:7.1f} {again:6.1f}", flush=True)


if __name__ == "__main__":
    main()
