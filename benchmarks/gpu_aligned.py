"""Tiles that begin with documents against the default kernels, on one GPU.

    python benchmarks/gpu_aligned.py [--rounds 20] [--dims 64,128] [--length 65536]

Milliseconds forward and backward of `causal & document` with 16 heads on 4, and the time of
`backend="aligned"` over that of the default. Before that, bits of the longest document alone are
compared with those it gave packed.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import maskalg as ma
from maskalg import causal, document
from maskalg.bench.cases import backward_of, log_normal_documents
from maskalg.bench.measure import interleaved

DEVICE = "cuda"


def layouts(length: int) -> dict[str, list[int]]:
    """Lengths of documents that fill so many tokens."""
    drawn = log_normal_documents(length, "cpu").unique_consecutive(return_counts=True)[1]
    found = {"log-normal": drawn.tolist()}
    for each in (256, 1000, 5000):
        found[str(each)] = [each] * (length // each) + [length % each] * (length % each > 0)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--dims", default="64,128")
    parser.add_argument("--length", type=int, default=65536)
    options = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bfloat16; median ms")
    for dim in map(int, options.dims.split(",")):
        for name, lengths in layouts(options.length).items():
            print(f"D={dim:<4} {name:10} {row(lengths, dim, options.rounds)}", flush=True)


def row(lengths: list[int], dim: int, rounds: int) -> str:
    """Times of both backends, of either pass."""
    inputs = tuple(
        torch.randn(1, heads, sum(lengths), dim, device=DEVICE, dtype=torch.bfloat16)
        for heads in (16, 4, 4)
    )
    mask = causal & document.from_lengths(lengths, device=DEVICE)
    check_alone(inputs, lengths, mask)
    leaves = tuple(x.requires_grad_() for x in inputs)
    calls: dict[str, Callable[[], Any]] = {}
    for backend in ("aligned", "triton"):
        forward = partial(ma.attention, *leaves, mask, backend=backend)
        calls[f"{backend} forward"] = forward
        calls[f"{backend} backward"] = backward_of(forward, leaves)
    times = {name: statistics.median(each) for name, each in interleaved(calls, rounds).items()}
    told = []
    for of in ("forward", "backward"):
        ours, default = (times[f"{backend} {of}"] for backend in ("aligned", "triton"))
        told.append(f"{of} {ours:.3f} / {default:.3f} = {ours / default:.2f}")
    return "   ".join(told)


def check_alone(inputs: tuple[torch.Tensor, ...], lengths: list[int], mask: ma.Mask) -> None:
    longest = max(range(len(lengths)), key=lengths.__getitem__)
    begin = sum(lengths[:longest])
    own = slice(begin, begin + lengths[longest])
    packed = ma.attention(*inputs, mask, backend="aligned")
    alone = causal & document.from_lengths([lengths[longest]], device=DEVICE)
    found = ma.attention(*[x[:, :, own] for x in inputs], alone, backend="aligned")
    assert torch.equal(packed[:, :, own], found)


if __name__ == "__main__":
    main()
