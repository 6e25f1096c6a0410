"""Forward attention of float8 inputs on one Hopper GPU, beside that of bfloat16.

    python benchmarks/gpu_float8.py

Two tables: times of bfloat16 over those of float8, by case, in one process, with FlexAttention's of
both (it takes float8 without factors, rounds its output to float8 too, and fails to compile some
cases); and the error of equal values' mean by length, which would grow with it if sums were those
of Hopper's float8 products.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import maskalg as ma
from maskalg.bench.cases import Shape, rows
from maskalg.bench.contenders import contenders, inputs_of
from maskalg.bench.measure import interleaved

SHAPES = (Shape(2, 16, 16, 8192, 128), Shape(2, 16, 16, 8192, 64), Shape(1, 32, 8, 32768, 128))
NAMES = ("full", "causal", "window", "document", "prefix", "alibi", "softcap")
ROUNDS = 5


def times() -> None:
    print(
        "times over that of float8: bfloat16, FlexAttention in bfloat16 and in float8; and errors"
    )
    for shape in SHAPES:
        for name, case in rows(shape, "cuda").items():
            if name not in NAMES:
                continue
            inputs = inputs_of(case, torch.bfloat16, gradients=False)
            numbers, descale = zip(*(ma.to_float8(tensor) for tensor in inputs), strict=True)
            ours: Callable[[], Any] = partial(
                ma.attention, *numbers, case.expression, descale=descale
            )
            runs = {
                "float8": ours,
                "bfloat16": partial(ma.attention, *inputs, case.expression),
                "Flex": contenders(case, inputs)["FlexAttention"]().run,
                "Flex float8": contenders(case, numbers)["FlexAttention"]().run,
            }
            try:
                runs["Flex float8"]()
            except Exception as problem:  # of many kinds, from its compiler
                print(f"Flex float8: {type(problem).__name__}", end="  ")
                del runs["Flex float8"]
            want = runs["bfloat16"]().float()
            error = (ours().float() - want).norm() / want.norm()
            found = {n: statistics.median(t) for n, t in interleaved(runs, ROUNDS).items()}
            ratios = [f"{n} {found[n] / found['float8']:.2f}" for n in runs if n != "float8"]
            print(f"{shape!s:24} {name:10} {found['float8']:8.3f} ms  {'  '.join(ratios)}", end="")
            print(f"  error {error:.3f}", flush=True)


def sums() -> None:
    print("\nmean of equal values, which is 1, by length")
    for length in (1024, 8192, 65536, 262144):
        torch.manual_seed(0)
        made = [ma.to_float8(torch.randn(1, 2, n, 128, device="cuda")) for n in (128, length)]
        (query, of_query), (key, of_key) = made
        ones = torch.ones(key.shape, device="cuda").to(key.dtype)
        descale = (of_query, of_key, torch.ones_like(of_key))
        out = ma.attention(query, key, ones, descale=descale).float()
        print(f"{length:8} {out.min():.4f} to {out.max():.4f}")


if __name__ == "__main__":
    times()
    sums()
