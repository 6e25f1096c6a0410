"""Context parallelism on several GPUs: plans of maskalg beside torch's own, and beside one GPU.

    python benchmarks/gpu_parallel.py                            # all GPUs, 32k and 256k tokens
    python benchmarks/gpu_parallel.py --len 32768 causal window  # masks whose name holds a word
    python benchmarks/gpu_parallel.py --of alone,ring            # contenders, likewise
    python benchmarks/gpu_parallel.py --calls 4                  # calls in a row, as of layers
    python benchmarks/gpu_parallel.py --ranks 2 --len 2048       # gloo, where there is no GPU

All ranks share one sequence. For each mask, forward and backward:

- `alone`: the whole sequence on one GPU, by maskalg;
- `gather` and `ring`: `maskalg.parallel.attention` with its plan;
- `equal ring`: the same with contiguous chunks of one length, as ring attention has them;
- `torch SDPA`: torch's ring of SDPA, causal alone, with head and tail; it has no grouped heads, so
  keys and values are repeated for it;
- `torch head-tail`, `torch PTRR`: FlexAttention, compiled, with all keys gathered by torch.

Columns: milliseconds of a call on the slowest rank, forward and both passes, medians of rounds in
which all take turns, and wait for the GPU before and after `--calls` of them; `scaling`, alone /
(ranks * both) in per cent, and what the plan allows of it by its tiles; MiB of keys and values that
a rank gets forward, the mean; GiB of memory on the fullest rank; and the largest error of the
output against `alone`, in units of the largest output. bfloat16 (CPU: float32), 16 heads on 4, 128
dimensions. What a contender cannot run is said.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import plans
import torch
from torch import distributed, multiprocessing
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

import maskalg as ma
from maskalg import Mask, causal, parallel

HEADS, KV_HEADS, DIM = 16, 4, 128
Run = Callable[[], torch.Tensor]


class Inputs:
    """Tensors of the whole sequence, equal on all ranks; `own` are those of a rank's tokens."""

    def __init__(self, tokens: int, device: torch.device) -> None:
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        draw = torch.Generator(device).manual_seed(0)
        self.whole = [
            torch.randn(1, heads, tokens, DIM, device=device, dtype=dtype, generator=draw)
            for heads in (HEADS, KV_HEADS, KV_HEADS, HEADS)
        ]

    def own(self, tokens: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Query, key and value that take gradients, and the gradient of the output."""
        *inputs, change = [x[:, :, tokens.to(x.device)].contiguous() for x in self.whole]
        return [x.requires_grad_() for x in inputs], change


class Contender:
    """One way to compute: a rank's tokens, and its output for them."""

    def __init__(
        self,
        inputs: Inputs,
        tokens: torch.Tensor,
        attend: Callable[..., torch.Tensor],
        received: float,
        allowed: float | None = None,
    ) -> None:
        self.tokens, self.attend = tokens, attend
        self.inputs, self.change = inputs.own(tokens)
        self.received, self.allowed = received, allowed

    def forward(self) -> torch.Tensor:
        return self.attend(*self.inputs)

    def both(self) -> None:
        torch.autograd.grad(self.forward(), self.inputs, self.change)


def of_plan(inputs: Inputs, mask: Mask, plan: parallel.Plan, method: Any) -> Contender:
    """Attention by a plan of ours."""
    rank = distributed.get_rank()
    attend = partial(parallel.attention, score=mask, plan=plan, method=method)
    allowed = 1 / (1 + plan.imbalance)
    return Contender(inputs, plan.tokens(rank), attend, float(plan.received().mean()), allowed)


def equal_chunks(plan: parallel.Plan) -> parallel.Plan:
    """The plan with contiguous chunks of one length."""
    needs = plan.needs[0]
    owner = plans.equal(needs, plan.ranks)
    tiles = np.bincount(owner, weights=needs.tiles, minlength=plan.ranks).astype(np.float64)
    return replace(plan, owner=owner, needed=(needs.of_owners(owner, plan.ranks),), tiles=tiles)


def torch_sdpa(inputs: Inputs, mesh: DeviceMesh) -> Contender:
    """torch's ring attention of a causal mask, over head and tail of the sequence."""
    from torch.distributed.tensor.experimental import _attention as cp

    tokens = inputs.whole[0].shape[2]
    device = inputs.whole[0].device
    balancer = cp._HeadTailLoadBalancer(tokens, mesh.size(), device)

    class Causal(torch.nn.Module):
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    kind = cp._ContextParallel.AttentionType.SDPA
    module = cp._ContextParallel(seq_dim=2, attention_type=kind)._apply(Causal(), mesh)
    cp._enable_context_parallel_dispatcher()
    own = of_balancer(inputs, mesh, balancer)
    group = HEADS // KV_HEADS

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = module(q, *(x.repeat_interleave(group, dim=1) for x in (k, v)))
        return found

    received = group * tokens * (mesh.size() - 1) / mesh.size()
    return Contender(inputs, own, attend, received)


def torch_flex(inputs: Inputs, mesh: DeviceMesh, mask: Mask, ptrr: bool) -> Contender:
    """FlexAttention under torch's context parallelism, balanced by head and tail or by PTRR."""
    from torch.distributed.tensor.experimental import _attention as cp
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q = inputs.whole[0]
    tokens, device = q.shape[2], q.device
    mod = mask.to_mask_mod()
    block_mask = torch.compile(create_block_mask)(mod, 1, 1, tokens, tokens, device)
    balancer = (
        cp._PTRRLoadBalancer(block_mask, mesh.size())
        if ptrr
        else cp._HeadTailLoadBalancer(tokens, mesh.size(), device)
    )
    own = of_balancer(inputs, mesh, balancer)
    (sharded,) = cp._context_parallel_shard(mesh, [block_mask], [2], balancer)
    compiled = torch.compile(flex_attention, dynamic=False)

    class Flex(torch.nn.Module):
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return compiled(q, k, v, block_mask=sharded, enable_gqa=True)

    kind = cp._ContextParallel.AttentionType.FLEX
    module = cp._ContextParallel(seq_dim=2, attention_type=kind)._apply(Flex(), mesh)
    return Contender(inputs, own, module, tokens * (mesh.size() - 1) / mesh.size())


def of_balancer(inputs: Inputs, mesh: DeviceMesh, balancer: Any) -> torch.Tensor:
    """The tokens that a load balancer of torch gives this rank."""
    order = balancer._generate_indices()[0]
    return order.chunk(mesh.size())[mesh.get_local_rank()]


def slowest(run: Callable[[], object], calls: int, device: torch.device) -> float:
    """Milliseconds of a call on the slowest rank; all begin together."""
    distributed.barrier()
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    started = time.perf_counter()
    for _ in range(calls):
        run()
    wait()
    return of_all(1000 * (time.perf_counter() - started) / calls, device)


def of_all(number: float, device: torch.device) -> float:
    """The largest number of all ranks."""
    found = torch.tensor(number, device=device, dtype=torch.float64)
    distributed.all_reduce(found, distributed.ReduceOp.MAX)
    return float(found)


def measured(
    name: str, mask: Mask, mesh: DeviceMesh, tokens: int, options: argparse.Namespace
) -> None:
    """Print the lines of one mask."""
    rank, ranks = mesh.get_local_rank(), mesh.size()
    device = torch.device(mesh.device_type, rank if mesh.device_type == "cuda" else None)
    torch._dynamo.reset()  # torch makes all block masks by one function, compiled anew for each
    inputs, mask = Inputs(tokens, device), mask.to(device)
    plan = parallel.plan(mask, tokens, ranks)
    everything = torch.arange(tokens)
    makers: dict[str, Callable[[], Contender]] = {
        "alone": lambda: Contender(inputs, everything, partial(ma.attention, score=mask), 0.0),
        "gather": lambda: of_plan(inputs, mask, plan, "gather"),
        "ring": lambda: of_plan(inputs, mask, plan, "ring"),
        "equal ring": lambda: of_plan(inputs, mask, equal_chunks(plan), "ring"),
        "torch head-tail": lambda: torch_flex(inputs, mesh, mask, False),
        "torch PTRR": lambda: torch_flex(inputs, mesh, mask, True),
    }
    if mask == causal:
        makers["torch SDPA"] = lambda: torch_sdpa(inputs, mesh)
    wanted = ["alone", *options.of.split(",")]
    makers = {of: make for of, make in makers.items() if any(word in of for word in wanted)}
    contenders, memory, failed = {}, {}, {}
    for of, make in makers.items():
        began = time.perf_counter()
        try:
            contenders[of] = made = make()
            made.both()
            if device.type == "cuda":
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
            made.both()
        except Exception as error:  # a contender that cannot run is a row that says so
            failed[of] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:90]}"
        if of_all(of in failed, device):
            contenders.pop(of, None)
            failed.setdefault(of, "failed on another rank")
            continue
        if rank == 0:
            took = time.perf_counter() - began
            print(f"{name} {of}: {took:.0f} s to compile", file=sys.stderr, flush=True)
        held = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
        memory[of] = of_all(held, device)
    times: dict[tuple[str, str], list[float]] = {}
    for turn in range(options.rounds + 1):
        for of, each in contenders.items():
            with torch.no_grad():
                forward = slowest(each.forward, options.calls, device)
            both = slowest(each.both, options.calls, device)
            if turn:
                times.setdefault((of, "forward"), []).append(forward)
                times.setdefault((of, "both"), []).append(both)
    with torch.no_grad():
        exact = contenders["alone"].forward()
        largest = float(exact.abs().max())
        errors = {
            of: of_all(float((each.forward() - exact[:, :, each.tokens]).abs().max()), device)
            for of, each in contenders.items()
        }
    if rank:
        return
    row = 2 * KV_HEADS * DIM * inputs.whole[0].element_size() / 2**20
    alone = statistics.median(times["alone", "both"])
    for of in makers:
        if of in failed:
            print(f"{name:13} {of:15} – {failed[of]}", flush=True)
            continue
        forward, both = (statistics.median(times[of, part]) for part in ("forward", "both"))
        each = contenders[of]
        allowed = "" if each.allowed is None else f"{100 * each.allowed:.1f}"
        print(
            f"{name:13} {of:15} {forward:9.2f} {both:9.2f} {100 * alone / ranks / both:8.1f} "
            f"{allowed:>7} {each.received * row:9.1f} {memory[of] / 2**30:7.2f} "
            f"{errors[of] / largest:8.5f}",
            flush=True,
        )


def started(rank: int, ranks: int, options: argparse.Namespace) -> None:
    """One process: all masks and lengths."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank)}
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(1)
    # Compilations of one rank may keep the others waiting.
    distributed.init_process_group("nccl" if on_gpu else "gloo", timeout=timedelta(minutes=5))
    mesh = init_device_mesh("cuda" if on_gpu else "cpu", (ranks,))
    chosen = ("causal", "window", "documents", "Transfusion", "prefix trees")
    for tokens in options.tokens:
        if rank == 0:
            where = torch.cuda.get_device_name() if on_gpu else "CPU"
            print(f"{where}, torch {torch.__version__}, {tokens:,} tokens on {ranks} ranks")
            print(
                f"{'mask':13} {'':15} {'forward':>9} {'both':>9} {'scaling':>8} {'allowed':>7} "
                f"{'MiB':>9} {'GiB':>7} {'error':>8}"
            )
        masks = plans.masks(tokens)
        found = [name for word in options.names for name in chosen if word in name]
        for name in dict.fromkeys(found):
            measured(name, masks[name](), mesh, tokens, options)
    distributed.destroy_process_group()


def main() -> None:
    """Start a process for each GPU, or for each rank."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=[""])
    parser.add_argument("--len", dest="tokens", type=int, nargs="*", default=[1 << 15, 1 << 18])
    parser.add_argument("--ranks", type=int, default=torch.cuda.device_count() or 2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=1, help="calls in a row")
    parser.add_argument("--of", default="", help="contenders, beside `alone`")
    options = parser.parse_args()
    with socket.create_server(("localhost", 0)) as free:
        port = str(free.getsockname()[1])
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port}
    multiprocessing.spawn(started, (options.ranks, options), nprocs=options.ranks)


if __name__ == "__main__":
    main()
