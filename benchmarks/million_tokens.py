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

from maskalg.bench.families import families

N = 1 << 20


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
    for name, build in families(N).items():
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
