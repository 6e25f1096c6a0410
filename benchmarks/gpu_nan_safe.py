"""What `nan_safe=True` costs, on one GPU.

    python benchmarks/gpu_nan_safe.py [--rounds 20] [--dims 64,128]

Milliseconds forward and backward with it, over those without, with 16 heads on 4.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import maskalg as ma
from maskalg import causal, sliding
from maskalg.bench.cases import backward_of
from maskalg.bench.measure import interleaved

# Name: the mask, batch, queries and keys.
CASES = {
    "causal 4k": (causal, 2, 4096, 4096),
    "causal 32k": (causal, 1, 32768, 32768),
    "window 1k of 32k": (causal & sliding(1024), 1, 32768, 32768),
    "a step, 32k keys": (causal.shift(q=32767), 8, 1, 32768),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--dims", default="64,128")
    options = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bfloat16; median ms")
    for dim in map(int, options.dims.split(",")):
        for name in CASES:
            print(f"D={dim:<4} {name:18} {row(name, dim, options.rounds)}", flush=True)


def row(case: str, dim: int, rounds: int) -> str:
    """Times with the option and without, of each pass."""
    mask, batch, queries, keys = CASES[case]
    shapes = ((16, queries), (4, keys), (4, keys))
    leaves = tuple(
        torch.randn(batch, heads, length, dim, device="cuda", dtype=torch.bfloat16)
        for heads, length in shapes
    )
    passes = ["forward"] if queries == 1 else ["forward", "backward"]
    for leaf in leaves:
        leaf.requires_grad_(queries > 1)
    calls: dict[str, Callable[[], Any]] = {}
    for safe in (True, False):
        forward = partial(ma.attention, *leaves, mask, nan_safe=safe)
        calls[f"forward {safe}"] = forward
        if queries > 1:
            calls[f"backward {safe}"] = backward_of(forward, leaves)
    times = {name: statistics.median(each) for name, each in interleaved(calls, rounds).items()}
    told = []
    for of in passes:
        ours, default = times[f"{of} True"], times[f"{of} False"]
        told.append(f"{of} {ours:.3f} / {default:.3f} = {ours / default:.2f}")
    return "   ".join(told)


if __name__ == "__main__":
    main()
