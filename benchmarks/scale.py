"""From one node to thousands of ranks: what a plan costs, and what it asks of the network.

    python benchmarks/scale.py                                # 8 to 2048 ranks, 8192 tokens each
    python benchmarks/scale.py --ranks 8 64 --each 131072     # others

Nothing is run but the planner. For each mask and number of ranks: how much the most loaded rank has
above the mean; keys and values that a rank gets in a layer forward, the mean and the most; seconds
of a core to plan; and two times of the slowest rank, forward and backward of one layer: arithmetic
at `--tflops`, and the network at `--gbytes` a second, over which the keys come and their gradients
go. 16 heads on 4 of 128 dimensions, 16 bits. Where the network takes less than the arithmetic it
can hide behind it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from plans import ids_of, log_normal

import maskalg as ma
from maskalg import Mask, causal, document, sliding
from maskalg.parallel import plan

HEADS, KV_HEADS, DIM, BYTES = 16, 4, 128, 2
TOKEN = 2 * KV_HEADS * DIM * BYTES  # bytes of the keys and values of a token
MOST_CHUNKS = 1 << 15


def masks(tokens: int) -> dict[str, Callable[[], Mask]]:
    """Masks whose work grows with the sequence, and masks whose work does not."""
    return {
        "causal": lambda: causal,
        "window of 4096": lambda: causal & sliding(4096),
        "documents, median 490": lambda: causal & document(ids_of(log_normal(tokens, 490, 1.5, 0))),
        "documents, median 8000": lambda: (
            causal & document(ids_of(log_normal(tokens, 8000, 1.5, 1)))
        ),
        "neighborhood": lambda: ma.neighborhood((tokens // 4096, 4096), 13),
    }


def main() -> None:
    """Print a line for each mask and number of ranks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="*", default=[8, 64, 512, 2048])
    parser.add_argument("--each", type=int, default=8192, help="tokens of a rank")
    parser.add_argument("--tflops", type=float, default=500.0, help="of a rank's attention")
    parser.add_argument("--gbytes", type=float, default=50.0, help="a second, of a rank's network")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"torch {torch.__version__}, 1 thread, {options.each:,} tokens a rank; {options.tflops:g}"
    )
    print(f"TFLOP/s and {options.gbytes:g} GB/s a rank")
    print(
        f"{'mask':23} {'ranks':>5} {'tokens':>11} {'above %':>7} {'MiB mean':>8} {'most':>8} "
        f"{'plan s':>6} {'math ms':>8} {'net ms':>8}"
    )
    for ranks in options.ranks:
        tokens = ranks * options.each
        chunk = max(128, 1 << (tokens // MOST_CHUNKS).bit_length() - 1)
        for name, build in masks(tokens).items():
            mask = build()
            started = time.process_time()
            found = plan(mask, tokens, ranks, chunk=chunk)
            taken = time.process_time() - started
            received = found.received() * TOKEN
            # Two products forward, five backward, two operations for each element of a tile.
            operations = float(found.tiles.max()) * chunk**2 * HEADS * DIM * 2 * (2 + 5)
            arithmetic = 1e3 * operations / (1e12 * options.tflops)
            network = 1e3 * 2 * float(received.max()) / (1e9 * options.gbytes)
            print(
                f"{name:23} {ranks:5} {tokens:11,} {100 * found.imbalance:7.2f} "
                f"{received.mean() / 2**20:8.1f} {received.max() / 2**20:8.1f} {taken:6.2f} "
                f"{arithmetic:8.2f} {network:8.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
