"""Few queries against a long cache of keys, on one GPU: `maskalg` next to its peers.

    python benchmarks/gpu_decode.py [--cases "1 x 64k;window"] [--rounds 5]

A call is captured in a CUDA graph with as many copies of its keys and values as exceed the GPU's
caches, and replayed: what the host takes does not count. TB/s are those of the keys and values
that the mask keeps.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

import maskalg as ma
from maskalg import causal, sliding

ROTATED = 512 * 2**20  # bytes of keys and values that are read before any is read again


@dataclass(frozen=True)
class Case:
    """The last `queries` of a cache of `keys`; `window` keys are kept of each, or all before it.

    The cache lies in pages of so many keys, in any order, where `page` is not 0. `padded`, an
    attention mask drops the first quarter of the first entry.
    """

    batch: int
    keys: int
    queries: int = 1
    window: int | None = None
    heads: tuple[int, int] = (32, 8)
    dim: int = 128
    cap: float | None = None
    page: int = 0
    padded: bool = False

    @property
    def name(self) -> str:
        parts = [f"{self.batch} x {self.keys // 1024}k", f"{self.queries} q", f"D{self.dim}"]
        parts.append(f"{self.heads[0]} on {self.heads[1]}")
        if self.window:
            parts.append(f"window {self.window}")
        if self.cap:
            parts.append("cap")
        if self.page:
            parts.append(f"pages of {self.page}")
        if self.padded:
            parts.append("padded")
        return ", ".join(parts)

    @property
    def read(self) -> int:
        """Bytes of the keys and values that are kept."""
        rows = self.keys if self.window is None else self.window + self.queries - 1
        dropped = self.keys // 4 if self.padded else 0
        return 4 * self.heads[1] * (self.batch * rows - dropped) * self.dim


CASES = [
    Case(8, 16384), Case(1, 65536), Case(1, 16384), Case(2, 32768), Case(8, 131072),
    Case(1, 4096), Case(16, 4096), Case(1, 65536, window=1024), Case(1, 65536, cap=30.0),
    Case(1, 65536, 4), Case(1, 65536, 16), Case(1, 65536, 64), Case(1, 65536, 256),
    Case(4, 16384, heads=(32, 32)), Case(4, 16384, heads=(32, 8), dim=64),
    Case(4, 16384, heads=(16, 1)), Case(64, 2048),
    Case(4, 32768, heads=(16, 4), padded=True),
    Case(8, 16384, page=16), Case(8, 16384, page=64), Case(4, 32768, heads=(16, 4)),
    Case(4, 32768, heads=(16, 4), page=16), Case(4, 32768, heads=(16, 4), page=64),
    *(Case(batch, 32768, 512, page=page) for batch in (1, 4) for page in (0, 16, 32, 64, 128)),
]  # fmt: skip


def contenders(case: Case) -> dict[str, Callable[..., torch.Tensor]]:
    """Calls of query, key and value."""
    offset = case.keys - case.queries
    mask = causal if case.window is None else causal & sliding(case.window)
    if case.page:
        table = torch.randperm(case.batch * case.keys // case.page, device="cuda").int()
        lengths = torch.full((case.batch,), case.keys, dtype=torch.int32, device="cuda")
        pages = ma.Pages(table.view(case.batch, -1), lengths)
        moved = mask.shift(q=lengths - case.queries)
        return {"maskalg": partial(ma.attention, score=moved, pages=pages)}
    if case.padded:
        from transformers.masking_utils import bidirectional_mask_function

        from maskalg.integrations.transformers import make_mask

        kept = torch.ones(case.batch, case.keys, dtype=torch.bool, device="cuda")
        kept[0, : case.keys // 4] = False
        real = make_mask(
            case.batch, case.queries, case.keys, attention_mask=kept,
            mask_function=bidirectional_mask_function,
        )  # fmt: skip
        padded = mask.shift(q=offset) & real.score
        dense = partial(
            scaled_dot_product_attention, attn_mask=kept[:, None, None], enable_gqa=True
        )
        return {"maskalg": partial(ma.attention, score=padded), "SDPA": dense}
    score = mask.shift(q=offset)
    if case.cap:
        score = score + ma.softcap(case.cap)
    found = {"maskalg": partial(ma.attention, score=score)}

    def keeps(b, h, q, k):
        kept = q + offset >= k
        return kept if case.window is None else kept & (q + offset - k < case.window)

    def capped(score, b, h, q, k):
        return case.cap * torch.tanh(score / case.cap)

    if case.queries < 128:
        blocks = create_block_mask(keeps, None, None, case.queries, case.keys, device="cuda")
        flex = torch.compile(flex_attention, dynamic=False)
        found["FlexAttention"] = partial(
            flex, block_mask=blocks, score_mod=capped if case.cap else None, enable_gqa=True
        )
    if case.queries == 1 and case.window is None and not case.cap:
        found["SDPA"] = partial(scaled_dot_product_attention, enable_gqa=True)
    try:
        from flash_attn.cute.interface import flash_attn_func
    except ImportError:
        return found
    how = {"causal": True, "softcap": case.cap or 0.0}
    if case.window:
        how["window_size"] = (case.window - 1, 0)

    def flash(q, k, v):
        return flash_attn_func(*[t.transpose(1, 2) for t in (q, k, v)], **how)[0].transpose(1, 2)

    return found | {"FlashAttention-4": flash}


def captured(run: Callable[..., torch.Tensor], inputs: list) -> torch.cuda.CUDAGraph:
    """A graph of one call for each of the inputs."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(2):
            run(*inputs[0])
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.no_grad():
        for one in inputs:
            run(*one)
    return graph


def measured(graphs: dict[str, torch.cuda.CUDAGraph], calls: int, rounds: int) -> dict[str, float]:
    """Median microseconds of a call."""
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(rounds):
        for name, graph in graphs.items():
            graph.replay()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(1_000_000)
            start.record()
            graph.replay()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times[name].append(start.elapsed_time(end) / (2 * calls) * 1000)
    return {name: statistics.median(found) for name, found in times.items()}


def inputs_of(case: Case) -> list:
    """Inputs in turn, as many as exceed the caches."""
    whole = 4 * case.batch * case.heads[1] * case.keys * case.dim
    copies = max(1, min(64, -(-ROTATED // min(whole, 8 * case.read))))

    def made(heads: int, rows: int) -> torch.Tensor:
        shape = (case.batch, heads, rows, case.dim)
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    query = made(case.heads[0], case.queries)
    caches = [[made(case.heads[1], case.keys) for _ in range(2)] for _ in range(copies)]
    if case.page:
        caches = [[in_pages(cache, case.page) for cache in pair] for pair in caches]
    return [(query, *pair) for pair in caches]


def in_pages(cache: torch.Tensor, size: int) -> torch.Tensor:
    """`[pages, size, heads, dim]` of `[batch, heads, keys, dim]`."""
    return cache.transpose(1, 2).flatten(0, 1).unflatten(0, (-1, size)).contiguous()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default="", help="parts of case names, between semicolons")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    wanted = [part for part in options.cases.split(";") if part]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bfloat16; median us a call")
    for case in CASES:
        if wanted and not any(part in case.name for part in wanted):
            continue
        torch.manual_seed(0)
        torch._dynamo.reset()
        inputs = inputs_of(case)
        graphs, first = {}, None
        for name, run in contenders(case).items():
            try:
                out = run(*inputs[0])
                graphs[name] = captured(run, inputs)
            except Exception as problem:  # peers fail in many ways, and are left out then
                print(f"  {name}: {type(problem).__name__}: {problem}".splitlines()[0][:100])
                torch.cuda.synchronize()
                continue
            first = out if first is None else first
            if (out - first).abs().max() > 0.02:
                print(f"  {name}: its result is {(out - first).abs().max():.1e} from ours")
        found = measured(graphs, len(inputs), options.rounds)
        ours = found["maskalg"]
        others = " ".join(f"{n} {t:.1f} x{t / ours:.2f}" for n, t in found.items() if t != ours)
        rate = case.read / ours / 1e6
        print(f"{case.name:38} maskalg {ours:.1f} ({rate:.2f} TB/s) {others}", flush=True)


if __name__ == "__main__":
    main()
