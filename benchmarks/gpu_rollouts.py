"""Rollouts that share prefixes: `shared_prefix` over unique tokens beside its peers, on one GPU.

    python benchmarks/gpu_rollouts.py [--rounds 10] [--dim 128] [--only turns]

    rollouts   a prompt of 8192 tokens, 16 answers of 1024
    answers    a prompt of 512 tokens, 32 answers of 2048
    groups     32 groups of a prompt and 8 answers, 257 to 771 tokens each
    turns      2048 tokens, 4 that fork from them, 4 from each of those, of 1024
    drafts     a sequence of 32768 tokens and 512 sampled anchors, each with a block of 16 tokens

16 query heads on 4 (or `--heads 8,1`), bfloat16. FlexAttention is compiled and computes the same
mask. TRL's path (`tree_attention` of TRL 1.16) gathers keys and values along the path of every
segment and computes packed attention of as many sequences: here by torch's `varlen_attn`,
FlashAttention 2 as torch builds it, where TRL takes FlashAttention 3 from a hub.
"""

from __future__ import annotations

import argparse
import inspect
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, Final

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.attention.varlen import varlen_attn

import maskalg as ma
from maskalg.bench.cases import backward_of
from maskalg.bench.measure import interleaved
from maskalg.engine.extents import Extents
from maskalg.engine.normal_form import bound
from maskalg.schedule.rung import marked_runs
from maskalg.schedule.tiling import Of

Heads = tuple[int, int]  # of queries, and of keys
Layout = tuple[list[int], list[int]]  # lengths of segments, and which one each continues


def rollouts() -> Layout:
    return [8192] + [1024] * 16, [-1] + [0] * 16


def answers() -> Layout:
    return [512] + [2048] * 32, [-1] + [0] * 32


def groups() -> Layout:
    rng = random.Random(0)
    parents = [-1 if i % 9 == 0 else i // 9 * 9 for i in range(32 * 9)]
    return [rng.randint(257, 771) for _ in parents], parents


def turns() -> Layout:
    lengths, parents = [2048], [-1]
    for _ in range(4):
        parents += [0, *[len(parents)] * 4]
        lengths += [1024] * 5
    return lengths, parents


LAYOUTS: Final = {f.__name__: f for f in (rollouts, answers, groups, turns)}


def paths(lengths: list[int], parents: list[int]) -> list[list[int]]:
    """The segments from each root to each segment."""
    found: list[list[int]] = []
    for segment, parent in enumerate(parents):
        found.append([*(found[parent] if parent >= 0 else []), segment])
    return found


class Gathered:
    """TRL's path: keys and values of every path, end to end, and packed attention."""

    def __init__(self, lengths: list[int], parents: list[int]) -> None:
        starts = [0, *accumulate(lengths)]
        index: list[torch.Tensor] = []
        of_keys = [0]
        for path in paths(lengths, parents):
            index += [torch.arange(starts[s], starts[s + 1]) for s in path]
            of_keys.append(of_keys[-1] + sum(lengths[s] for s in path))
        self.index = torch.cat(index).cuda()
        self.cu_seqlens = [torch.tensor(cu).int().cuda() for cu in (starts, of_keys)]
        most_keys = max(b - a for a, b in pairwise(of_keys))
        self.longest = (max(lengths), most_keys)
        known = inspect.signature(varlen_attn).parameters
        causal = {"window_size": (-1, 0)} if "window_size" in known else {"is_causal": True}
        self.options: dict[str, Any] = causal | (
            {"enable_gqa": True} if "enable_gqa" in known else {}
        )

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        query, key, value = (x.transpose(1, 2)[0] for x in (q, k, v))
        out = varlen_attn(
            query,
            key.index_select(0, self.index),
            value.index_select(0, self.index),
            *self.cu_seqlens,
            *self.longest,
            **self.options,
        )
        return out.unsqueeze(0).transpose(1, 2)


def flex_of(end: torch.Tensor) -> Callable[..., torch.Tensor]:
    """Compiled FlexAttention with the block mask of the same mask."""

    def mask_mod(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return (q_idx >= kv_idx) & (q_idx < end[kv_idx])

    torch._dynamo.reset()
    torch._dynamo.config.recompile_limit = 64  # past it, it turns dense
    make = torch.compile(create_block_mask)
    block_mask = make(mask_mod, None, None, len(end), len(end), "cuda")
    flex = torch.compile(flex_attention, dynamic=False)
    return lambda q, k, v: flex(q, k, v, block_mask=block_mask, enable_gqa=True)


def peak(step: Callable[[], Any]) -> float:
    """MiB above what lives before a step."""
    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def made(lengths: list[int], dim: int, heads: Heads) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    shapes = [(1, count, sum(lengths), dim) for count in (*heads, heads[1])]
    return tuple(
        torch.randn(s, device="cuda", dtype=torch.bfloat16).requires_grad_() for s in shapes
    )


def report(
    name: str, layout: Layout, dim: int, heads: Heads, rounds: int, peers: list[str]
) -> None:
    lengths, parents = layout
    cu_seqlens = [0, *accumulate(lengths)]
    mask = ma.shared_prefix.from_cu_seqlens(cu_seqlens, parents, device="cuda")
    (end,) = mask.parameters.values()
    inputs = made(lengths, dim, heads)
    attends: dict[str, Callable[..., torch.Tensor]] = {
        "maskalg": partial(lambda m, *x: ma.attention(*x, m), mask)
    }
    if "TRL's path" in peers:
        attends["TRL's path"] = Gathered(lengths, parents)
    if "FlexAttention" in peers:
        attends["FlexAttention"] = flex_of(end)
    forward = {peer: partial(attend, *inputs) for peer, attend in attends.items()}
    backward = {peer: backward_of(run, inputs) for peer, run in forward.items()}
    steps = {
        peer: partial(lambda run: run().float().sum().backward(), run)
        for peer, run in forward.items()
    }
    pairs = sum(
        n * (n + 1) / 2 + n * sum(lengths[s] for s in path[:-1])
        for n, path in zip(lengths, paths(lengths, parents), strict=True)
    )
    first = forward["maskalg"]()
    print(f"\n{name}: {sum(lengths)} tokens, {len(lengths)} segments, D={dim}")
    for kind, runs, times in (("forward", forward, 1), ("backward", backward, 2.5)):
        found = {peer: statistics.median(t) for peer, t in interleaved(runs, rounds).items()}
        for peer, middle in found.items():
            rate = 4 * heads[0] * dim * pairs * times / middle / 1e9
            ratio = middle / found["maskalg"]
            print(f"  {kind:8} {peer:14} {middle:8.3f} ms {rate:5.0f} TFLOP/s  {ratio:.2f}")
    for peer, step in steps.items():
        far = (attends[peer](*inputs) - first).float().norm() / first.float().norm()
        print(f"  peak     {peer:14} {peak(step):8.1f} MiB, result {float(far):.4f} from ours")


def built(layout: Layout) -> None:
    """Host time of the mask from lengths and parents, on the CPU and on the device."""
    lengths, parents = layout
    given: dict[str, tuple[Any, Any]] = {"lists": ([0, *accumulate(lengths)], parents)}
    given["device"] = tuple(torch.tensor(entries).cuda() for entries in given["lists"])
    options = {"total": sum(lengths), "device": "cuda"}
    for name, arguments in given.items():
        for function in (ma.shared_prefix.from_cu_seqlens, ma.shared_prefix.depths):
            times = []
            for _ in range(50):
                torch.cuda.synchronize()
                begun = time.perf_counter()
                function(*arguments, **options)
                times.append(time.perf_counter() - begun)
            middle = statistics.median(times[10:]) * 1e6
            print(f"  {function.__name__} from {name}: {middle:.0f} us of host time")


def once(make: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """Milliseconds until something made anew is there, and MiB at the peak of making it."""
    times, most = [], 0.0
    for _ in range(rounds + 1):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before, begun = torch.cuda.memory_allocated(), time.perf_counter()
        made = make()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begun) * 1e3)
        most = (torch.cuda.max_memory_allocated() - before) / 2**20
        del made
    return statistics.median(times[1:]), most


def drafts(dim: int, heads: Heads, rounds: int) -> None:
    """Masks of new anchors, and attention with them."""
    length, count, block = 32768, 512, 16
    total = length + count * block
    torch.manual_seed(0)

    def sampled() -> torch.Tensor:
        return torch.randint(length, (count,), device="cuda")

    def mod_of(anchors: torch.Tensor) -> Callable[..., Any]:
        def mask_mod(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
            own = (q_idx - length) // block
            in_sequence = (q_idx < length) & (q_idx >= kv_idx)
            before = (q_idx >= length) & (kv_idx < anchors[own.clamp(min=0)]) & (kv_idx < length)
            return in_sequence | before | ((kv_idx >= length) & ((kv_idx - length) // block == own))

        return mask_mod

    def marked() -> Any:
        mask = ma.drafts(sampled(), length, block)
        form, extents = bound(mask), Extents(total, total, 1, 1)
        sides: tuple[Of, ...] = ("queries", "keys")
        device = torch.device("cuda", torch.cuda.current_device())
        return mask, [marked_runs(form, extents, of, device) for of in sides]

    torch._dynamo.reset()
    make = torch.compile(create_block_mask)
    makers = {
        "maskalg, the mask": lambda: ma.drafts(sampled(), length, block),
        "maskalg, with runs of tiles": marked,
        "FlexAttention": lambda: create_block_mask(mod_of(sampled()), None, None, total, total),
        "FlexAttention, compiled": lambda: make(mod_of(sampled()), None, None, total, total),
    }
    print(f"\ndrafts: {total} tokens, D={dim}")
    for name, maker in makers.items():
        taken, most = once(maker, rounds)
        print(f"  {name:28} {taken:8.3f} ms {most:8.1f} MiB")
    inputs = made([total], dim, heads)
    anchors = sampled()
    mask, flex = ma.drafts(anchors, length, block), torch.compile(flex_attention, dynamic=False)
    block_mask = make(mod_of(anchors), None, None, total, total)
    forward: dict[str, Callable[[], torch.Tensor]] = {
        "maskalg": partial(ma.attention, *inputs, mask),
        "FlexAttention": partial(flex, *inputs, block_mask=block_mask, enable_gqa=True),
    }
    backward = {peer: backward_of(run, inputs) for peer, run in forward.items()}
    for kind, runs in (("forward", forward), ("backward", backward)):
        found = {peer: statistics.median(t) for peer, t in interleaved(runs, rounds).items()}
        ratio = found["FlexAttention"] / found["maskalg"]
        print(f"  {kind:8} {found['maskalg']:.3f} ms, FlexAttention x{ratio:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--heads", default="16,4", help="of queries, and of keys")
    parser.add_argument("--only", choices=[*LAYOUTS, "drafts"], action="append")
    parser.add_argument("--peers", default="TRL's path,FlexAttention")
    args = parser.parse_args()
    of_queries, of_keys = map(int, args.heads.split(","))
    heads = (of_queries, of_keys)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bfloat16")
    for name in args.only or [*LAYOUTS, "drafts"]:
        if name == "drafts":
            drafts(args.dim, heads, args.rounds)
            continue
        layout = LAYOUTS[name]()
        report(name, layout, args.dim, heads, args.rounds, args.peers.split(","))
        built(layout)


if __name__ == "__main__":
    main()
