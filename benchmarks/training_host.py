"""Host time of short calls of a training, in microseconds: what Python and Triton's launcher take.

    python -m benchmarks.training_host [--rounds 1000]

As in `serving_host.py` kernels are launched on a stub of CUDA's driver, so no GPU is needed and
none is waited for. Medians of a forward pass, of one with gradients wanted, and of a backward pass.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from itertools import pairwise

import pytest
import torch

import maskalg as ma
from tests.cases import stub_gpu as stub

CASES = {
    "no mask, 197 x D64": ((4, 2, 197, 64), None),
    "causal, 512 x D128": ((2, 2, 512, 128), ma.causal),
}


def measure(rounds: int) -> None:
    inputs = {}
    for name, (shape, _) in CASES.items():
        plain = [torch.zeros(shape, dtype=torch.bfloat16) for _ in range(4)]
        inputs[name] = (plain, [tensor.clone().requires_grad_() for tensor in plain[:3]])
    times: dict[str, list[list[float]]] = {name: [] for name in CASES}
    with (
        pytest.MonkeyPatch.context() as patched,
        tempfile.TemporaryDirectory() as folder,
        stub.stub_gpu(patched, folder),
    ):
        gc.disable()
        for number in range(-6, rounds):  # cases in turn: all meet the same disturbances
            if number == 0:  # all is compiled: the driver need not listen any more
                deaf = stub._HEAR(lambda *_: 0)
                stub._library()[0].stub_begin(deaf, 9, 0, 227 << 10)
            for name, (_, mask) in CASES.items():
                (*qkv, change), learned = inputs[name]
                at = [time.perf_counter()]
                ma.attention(*qkv, mask, backend="triton")
                at.append(time.perf_counter())
                out = ma.attention(*learned, mask, backend="triton")
                at.append(time.perf_counter())
                torch.autograd.grad(out, learned, change)
                at.append(time.perf_counter())
                if number >= 0:
                    times[name].append([1e6 * (b - a) for a, b in pairwise(at)])
        gc.enable()
    print(f"{'':20}{'forward':>9}{'forward, grad':>15}{'backward':>10}")
    for name, found in times.items():
        plain, learning, backward = (statistics.median(part) for part in zip(*found, strict=True))
        print(f"{name:20}{plain:9.0f}{learning:15.0f}{backward:10.0f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1000)
    given = parser.parse_args()
    torch.set_num_threads(1)
    measure(given.rounds)
