"""Short calls on one GPU: what the host takes, what the GPU takes, and what a caller waits.

    python benchmarks/gpu_short.py [--cases "ViT;causal"] [--rounds 7]

Microseconds of a forward pass, of one with gradients wanted, of a backward pass, and of both, for
`maskalg` and torch's attention:

    host   until the call returns, while the GPU is kept busy with something else
    GPU    in a CUDA graph, of the two passes that can be captured
    wall   from call to call, eager

The medians of interleaved rounds; `--kernels` lists the GPU's kernels of both passes.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import maskalg as ma
from maskalg import causal

CALLS = 20  # timed together
BUSY = 30_000_000  # cycles of the GPU, for longer than the host takes for so many calls
PASSES = ("forward", "forward, grad", "backward", "both")
CAPTURED = ("forward", "both")


@dataclass(frozen=True)
class Case:
    """`length` queries and as many keys, or `kv_length`; `causal`, or no mask."""

    name: str
    batch: int
    heads: int
    length: int
    dim: int
    causal: bool = True
    kv_heads: int = 0
    kv_length: int = 0

    def inputs(self) -> list[torch.Tensor]:
        torch.manual_seed(0)
        queries = (self.heads, self.length)
        keys = (self.kv_heads or self.heads, self.kv_length or self.length)
        return [
            torch.randn(self.batch, *shape, self.dim, device="cuda").bfloat16()
            for shape in (queries, keys, keys, queries)
        ]


CASES = [
    Case("ViT", 64, 12, 197, 64, causal=False),
    Case("ViT-L/14", 16, 16, 257, 64, causal=False),
    Case("text encoder", 64, 12, 77, 64),
    Case("causal D64", 32, 16, 512, 64),
    Case("causal D128", 32, 16, 512, 128),
    Case("causal D128, one sequence", 1, 16, 512, 128),
    Case("causal D128, 1024", 8, 16, 1024, 128),
    Case("causal D128, 16 on 4", 16, 16, 512, 128, kv_heads=4),
    Case("causal D128, 32 on 8", 1, 32, 2048, 128, kv_heads=8),
    Case("GPT-2", 64, 12, 128, 64),
    Case("image on text", 2, 10, 4096, 64, causal=False, kv_length=77),
]


def contenders(case: Case) -> dict[str, Callable[..., torch.Tensor]]:
    def torchs(backend: SDPBackend, q, k, v):
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(
                q, k, v, is_causal=case.causal, enable_gqa=case.kv_heads > 0
            )

    def chosen(q, k, v):
        return scaled_dot_product_attention(
            q, k, v, is_causal=case.causal, enable_gqa=case.kv_heads > 0
        )

    return {
        "maskalg": partial(ma.attention, score=causal if case.causal else None),
        "SDPA": chosen,
        "cuDNN": partial(torchs, SDPBackend.CUDNN_ATTENTION),
    }


class Contender:
    """The passes of one contender."""

    def __init__(self, run: Callable[..., torch.Tensor], inputs: list[torch.Tensor]) -> None:
        self.run, self.gradient = run, inputs[3]
        self.plain = inputs[:3]
        self.inputs = [t.clone().requires_grad_() for t in self.plain]

    def forward(self) -> torch.Tensor:
        return self.run(*self.plain)

    def learning(self) -> torch.Tensor:
        return self.run(*self.inputs)

    def both(self) -> tuple[torch.Tensor, ...]:
        out = self.learning()
        return (out, *torch.autograd.grad(out, self.inputs, self.gradient))

    def of(self, name: str) -> Callable[[], object]:
        """A pass as a function; backward passes of one output, whose graph is kept."""
        if name == "backward":
            out = self.learning()
            return lambda: torch.autograd.grad(out, self.inputs, self.gradient, retain_graph=True)
        return {"forward": self.forward, "forward, grad": self.learning, "both": self.both}[name]


def of_host(function: Callable[[], object]) -> float:
    """Microseconds of a call while the GPU is busy: none waits for it."""
    torch.cuda.synchronize()
    torch.cuda._sleep(BUSY)
    begun = time.perf_counter()
    for _ in range(CALLS):
        function()
    taken = time.perf_counter() - begun
    torch.cuda.synchronize()
    return taken / CALLS * 1e6


def of_wall(function: Callable[[], object], calls: int = 3 * CALLS) -> float:
    """Microseconds from call to call."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    function()
    torch.cuda.synchronize()
    start.record()
    for _ in range(calls):
        function()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / calls * 1e3


@dataclass(frozen=True)
class Captured:
    """A graph of some calls, and what it reads, which must not end before it."""

    graph: torch.cuda.CUDAGraph
    part: Contender

    def __call__(self) -> None:
        self.graph.replay()


def captured(run: Callable[..., torch.Tensor], inputs: list[torch.Tensor], name: str) -> Captured:
    """The graph of a pass. Its leaves are new ones: autograd adds to a leaf on the stream on which
    it was first met."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        part = Contender(run, inputs)
        function = part.of(name)
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        for _ in range(CALLS):
            function()
    return Captured(graph, part)


def kernels(function: Callable[[], object]) -> dict[str, float]:
    """Microseconds of each kernel of a call, by name."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(CALLS):
            function()
        torch.cuda.synchronize()
    found = {event.key: event.self_device_time_total / CALLS for event in profile.key_averages()}
    return {name: taken for name, taken in found.items() if taken > 0.1}


def measured(case: Case, options: argparse.Namespace) -> None:
    inputs = case.inputs()
    parts, wanted = {}, None
    for name, run in contenders(case).items():
        if options.contenders and name not in options.contenders.split(","):
            continue
        try:
            part = Contender(run, inputs)
            found = part.both()
        except RuntimeError as problem:
            print(f"  {name}: {problem}".splitlines()[0][:100])
            continue
        wanted = found if wanted is None else wanted
        apart = [(a - b).norm() / b.norm() for a, b in zip(found, wanted, strict=True)]
        assert max(apart) < 0.02, (name, apart)
        parts[name] = part
    functions = {(n, p): part.of(p) for n, part in parts.items() for p in PASSES}
    graphs = {(n, p): captured(part.run, inputs, p) for n, part in parts.items() for p in CAPTURED}
    times: dict[tuple[str, str, str], list[float]] = {}
    gc.collect()
    gc.disable()
    for _ in range(options.rounds + 1):
        for (name, part), function in functions.items():
            times.setdefault((name, part, "host"), []).append(of_host(function))
            times.setdefault((name, part, "wall"), []).append(of_wall(function))
        for (name, part), replay in graphs.items():
            times.setdefault((name, part, "GPU"), []).append(of_wall(replay, 3) / CALLS)
    gc.enable()
    middle = {key: statistics.median(found[1:]) for key, found in times.items()}
    lengths = f"{case.length}{f' on {case.kv_length}' if case.kv_length else ''}"
    shape = f"{case.batch} x {case.heads} x {lengths} x {case.dim}"
    print(f"{case.name} ({shape})")
    for name in parts:
        cells = []
        for part in PASSES:
            cell = [f"{middle[name, part, what]:6.0f}" for what in ("host", "wall")]
            gpu = middle.get((name, part, "GPU"))
            cells.append(" ".join([*cell, " " * 6 if gpu is None else f"{gpu:6.1f}"]))
        print(f"  {name:9}" + " |".join(cells), flush=True)
    for name, part in parts.items() if options.kernels else ():
        for kernel, taken in kernels(part.both).items():
            print(f"    {name:9}{taken:8.1f}  {kernel[:90]}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cases", default="", help="names of cases, between semicolons")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--contenders", default="", help="names, between commas")
    parser.add_argument("--kernels", action="store_true")
    options = parser.parse_args()
    names = [name for name in options.cases.split(";") if name]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bfloat16; median us a call")
    print(f"{'':11}" + " |".join(f"{part:20}" for part in PASSES))
    print(f"{'':11}" + " |".join(f"{'host   wall    GPU':>20}" for _ in PASSES))
    for case in CASES:
        if not names or case.name in names:
            measured(case, options)


if __name__ == "__main__":
    main()
