"""The CPU kernels against what they must reach, on quiet cores and beside two busy processes.

Contenders are interleaved in one process; figures are medians over rounds, ratios those of
medians. `--busy` starts processes that keep two cores at work while the rounds run. Run as

    python benchmarks/cpu_native.py [--rounds 11] [--threads 2] [--busy]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import maskalg as ma
from maskalg import causal, sliding

FIRST = """
import time, torch, maskalg as ma
q = torch.randn(1, 2, 128, 64)
begin = time.perf_counter()
ma.attention(q, q, q, ma.causal & ma.sliding(9))
print(time.perf_counter() - begin)
"""


def medians(functions: dict[str, Callable[[], object]], rounds: int, calls: int = 1) -> dict:
    """Milliseconds of a call of each function, the median over interleaved rounds."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    for _ in range(rounds):
        for name, function in functions.items():
            begin = time.perf_counter()
            for _ in range(calls):
                function()
            times[name].append(1000 * (time.perf_counter() - begin) / calls)
    return {name: statistics.median(found) for name, found in times.items()}


def line(title: str, found: dict[str, float], wanted: dict[str, float]) -> None:
    """One row: milliseconds, and how many times as long the others take, with what is wanted."""
    ours = found["maskalg"]
    cells = [f"maskalg {ours:.3f} ms"]
    for name, time_of in found.items():
        if name != "maskalg":
            least = f" (wanted {wanted[name]})" if name in wanted else ""
            cells.append(f"{name} {time_of:.3f} ms x{time_of / ours:.2f}{least}")
    print(f"{title:24} {'   '.join(cells)}", flush=True)


def window_of_512(rounds: int) -> None:
    q, k, v = (torch.randn(1, 8, 4096, 64) for _ in range(3))
    mask = causal & sliding(512)
    dense = mask.to_dense(4096)

    def window(b, h, q, k):
        return (q >= k) & (q - k < 512)

    blocks = create_block_mask(window, None, None, 4096, 4096, device="cpu")
    flex = torch.compile(flex_attention, dynamic=False)
    found = medians(
        {
            "maskalg": lambda: ma.attention(q, k, v, mask),
            "sdpa dense": lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=dense),
            "flex": lambda: flex(q, k, v, block_mask=blocks),
            "torch's operations": without_kernels(lambda: ma.attention(q, k, v, mask)),
        },
        rounds,
    )
    line("causal & sliding(512)", found, {"sdpa dense": 8, "flex": 2})


def without_kernels(function: Callable[[], object]) -> Callable[[], object]:
    def call() -> object:
        os.environ["MASKALG_NATIVE"] = "0"
        try:
            return function()
        finally:
            del os.environ["MASKALG_NATIVE"]

    return call


def decode(rounds: int) -> None:
    q = torch.randn(1, 8, 1, 64)
    k, v = (torch.randn(1, 8, 2048, 64) for _ in range(2))
    mask = (causal & sliding(256)).shift(q=2047)
    dense = mask.to_dense(1, 2048)
    found = medians(
        {
            "maskalg": lambda: ma.attention(q, k, v, mask),
            "sdpa dense": lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=dense),
        },
        5 * rounds,
        calls=20,
    )
    line("decode, 8 x 2048 keys", found, {"sdpa dense": 1})


def short(rounds: int) -> None:
    q, k, v = (torch.randn(1, 8, 256, 64) for _ in range(3))
    mask = causal & sliding(128)
    dense = mask.to_dense(256)
    windows = iter(range(20, 10**9))
    found = medians(
        {
            "maskalg": lambda: ma.attention(q, k, v, mask),
            "sdpa dense": lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=dense),
        },
        5 * rounds,
        calls=5,
    )
    line("256 tokens", found, {"sdpa dense": 1})
    q, k, v = (torch.randn(1, 1, 64, 64) for _ in range(3))
    found = medians(
        {
            "maskalg": lambda: ma.attention(q, k, v, mask),
            "fresh": lambda: ma.attention(q, k, v, causal & sliding(next(windows))),
        },
        5 * rounds,
        calls=20,
    )
    more = found["fresh"] - found["maskalg"]
    print(f"{'a mask built anew':24} {more:.3f} ms beyond the product (wanted 0.2)", flush=True)


def first_calls() -> None:
    """The first call of a structure in a new process: compiled, then from the cache folder."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "XDG_CACHE_HOME": folder}
        off = {**environment, "MASKALG_NATIVE": "0"}
        took = []
        for given in (environment, environment, off):
            done = subprocess.run(
                [sys.executable, "-c", FIRST], env=given, capture_output=True, text=True, check=True
            )
            took.append(float(done.stdout))
    print(
        f"{'first call, seconds':24} compiled {took[0]:.2f} (wanted 3)   cached {took[1]:.2f}   "
        f"by torch's operations {took[2]:.2f}   cached beyond these {took[1] - took[2]:+.3f}",
        flush=True,
    )


class Block(nn.Module):
    """One layer of a GPT of 256 dimensions and 4 heads."""

    def __init__(self, attend: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.attend = attend
        self.before, self.after = nn.LayerNorm(256), nn.LayerNorm(256)
        self.qkv, self.out = nn.Linear(256, 768), nn.Linear(256, 256)
        self.mlp = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.before(x)).unflatten(-1, (3, 4, 64)).permute(2, 0, 3, 1, 4)
        x = x + self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.after(x))


def training(rounds: int) -> None:
    tokens = torch.randint(0, 256, (2, 1025))
    mask = causal & sliding(128)
    dense = mask.to_dense(1024)
    attends = {
        "maskalg": lambda q, k, v: ma.attention(q, k, v, mask),
        "sdpa dense": partial(F.scaled_dot_product_attention, attn_mask=dense),
    }
    steps = {}
    for name, attend in attends.items():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Embedding(256, 256), Block(attend), Block(attend), nn.Linear(256, 256)
        )
        optimiser = torch.optim.AdamW(model.parameters())

        def step(model: nn.Module = model, optimiser: torch.optim.Optimizer = optimiser) -> None:
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

        steps[name] = step
    line("step of a GPT", medians(steps, rounds), {"sdpa dense": 1.5})


def spin() -> None:
    while True:
        pass


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Processes that keep cores at work."""
    started = [multiprocessing.Process(target=spin, daemon=True) for _ in range(processes)]
    for process in started:
        process.start()
    try:
        yield
    finally:
        for process in started:
            process.terminate()
            process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--busy", action="store_true", help="beside two busy processes")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    load = os.getloadavg()[0]
    print(f"torch {torch.__version__}, {options.threads} threads, load before {load:.1f}")
    first_calls()
    with busy(2 if options.busy else 0):
        for case in (decode, short, window_of_512, training):
            case(options.rounds)


if __name__ == "__main__":
    main()
