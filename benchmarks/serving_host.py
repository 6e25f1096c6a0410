"""Host time of a decode step, in microseconds a layer: what Python and Triton's launcher take.

Kernels are compiled for sm_90 and launched on a stub of CUDA's driver, so no GPU is needed and none
is waited for. Each step has new lengths, and a new mask and `Pages` that its layers share.

    python -m benchmarks.serving_host            # a line for each kind of cache
    python -m benchmarks.serving_host --layers 32 --steps 200

`first` is the first layer of a step, `others` the later ones, `layer` a step divided by its layers;
medians.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable

import pytest
import torch

import maskalg as ma
from maskalg import causal
from maskalg.integrations.transformers import make_mask
from tests.cases import stub_gpu as stub

BATCH, HEADS, KV_HEADS, DIM, PAGE, ROOM = 4, 16, 4, 128, 16, 1024
Step = tuple[ma.Mask, ma.Pages | None]


def contiguous(
    masked: Callable[[int], ma.Mask],
) -> Callable[[int], Callable[[torch.Tensor], object]]:
    """Steps of a growing cache in place."""
    cache = torch.zeros(BATCH, KV_HEADS, ROOM, DIM, dtype=torch.bfloat16)

    def step(n: int) -> Callable[[torch.Tensor], object]:
        mask = masked(n)
        return lambda q: ma.attention(q, cache[:, :, :n], cache[:, :, :n], mask, backend="triton")

    return step


def growing(n: int) -> ma.Mask:
    return causal.shift(q=n - 1)


def padded(n: int) -> ma.Mask:
    """As transformers makes it of a padded batch."""
    kept = torch.ones(BATCH, n, dtype=torch.bool)
    return make_mask(BATCH, 1, n, n - 1, attention_mask=kept).score


def paged(*, packed: bool) -> Callable[[int], Callable[[torch.Tensor], object]]:
    """Steps over a pool of pages; packed queries as engines pass them."""
    count = BATCH * ROOM // PAGE
    pool = torch.zeros(count, PAGE, KV_HEADS, DIM, dtype=torch.bfloat16)
    table = torch.arange(count, dtype=torch.int32).view(BATCH, -1)
    starts = torch.arange(BATCH + 1, dtype=torch.int32) if packed else None

    def step(n: int) -> Callable[[torch.Tensor], object]:
        lengths = torch.full((BATCH,), n, dtype=torch.int32)
        pages = ma.Pages(table, lengths, starts, 1 if packed else None)
        mask = causal.shift(q=lengths - 1)
        return lambda q: ma.attention(q, pool, pool, mask, pages=pages, backend="triton")

    return step


def measure(layers: int, steps: int) -> None:
    apart = torch.zeros(BATCH, HEADS, 1, DIM, dtype=torch.bfloat16)
    together = apart.transpose(0, 2)
    kinds = {
        "growing cache": (contiguous(growing), apart),
        "padding table": (contiguous(padded), apart),
        "pages": (paged(packed=False), apart),
        "pages, packed": (paged(packed=True), together),
    }
    times: dict[str, list[list[float]]] = {name: [] for name in kinds}
    with pytest.MonkeyPatch.context() as patched, tempfile.TemporaryDirectory() as folder:
        patched.setattr(ma.Pages, "_check_values", lambda *_: None)  # on a GPU nobody looks
        with stub.stub_gpu(patched, folder), torch.no_grad():
            for number in range(-4, steps):  # kinds in turn: all meet the same disturbances
                if number == 0:  # all is compiled: the driver need not listen any more
                    deaf = stub._HEAR(lambda *_: 0)
                    stub._library()[0].stub_begin(deaf, 9, 0, 227 << 10)
                for name, (step, query) in kinds.items():
                    call, taken = step(300 + number), []
                    for _ in range(layers):
                        begun = time.perf_counter()
                        call(query)
                        taken.append(1e6 * (time.perf_counter() - begun))
                    if number >= 0:
                        times[name].append(taken)
    print(f"{'':15}{'first':>7}{'others':>8}{'layer':>7}")
    for name, found in times.items():
        first = statistics.median(step[0] for step in found)
        others = statistics.median(one for step in found for one in step[1:])
        layer = statistics.median(sum(step) / layers for step in found)
        print(f"{name:15}{first:7.0f}{others:8.0f}{layer:7.0f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--steps", type=int, default=100)
    given = parser.parse_args()
    torch.set_num_threads(1)
    measure(given.layers, given.steps)
