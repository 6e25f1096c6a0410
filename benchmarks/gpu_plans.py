"""The scaling that a plan allows: each rank's share of attention, measured on one GPU in turn.

    python benchmarks/gpu_plans.py [--len 65536] [--ranks 8] [names of masks]
    python benchmarks/gpu_plans.py --calls 4                     # calls in a row, as of layers

For each mask, the time of forward and backward over the whole sequence, and of each rank's share by
`maskalg.parallel.attention`, with keys of other ranks at hand: packing, merging and all else that
the rank does is in it, the time that keys travel is not. The host waits for the GPU before and
after `--calls` of them. `of ideal` is whole / (ranks * slowest rank). `error` is the largest
difference of outputs, in units of the largest output. bfloat16, 16 heads on 4, 128 dimensions;
medians of rounds, ranks and whole in turn.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial

import plans
import torch

import maskalg as ma
from maskalg import Mask
from maskalg.parallel import Plan, attend, plan
from maskalg.parallel.steps import steps_of

HEADS, KV_HEADS, DIM = 16, 4, 128


def milliseconds(run: Callable[[], object], calls: int) -> float:
    """Time on the GPU of one of so many runs in a row."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        run()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / calls


class Rank:
    """One rank's attention; what it would get from others is at hand."""

    def __init__(self, mask: Mask, made: Plan, rank: int, inputs: list[torch.Tensor]) -> None:
        device = inputs[0].device
        self.tokens = made.tokens(rank).to(device)
        own = [x.detach()[:, :, self.tokens].contiguous() for x in inputs[:3]]
        self.inputs = [x.requires_grad_() for x in own]
        self.change = inputs[3][:, :, self.tokens].contiguous()
        steps = steps_of(made, 0, rank, "gather", device)
        self.run = attend._Run(steps, None, mask, (), attend._Options(None, "triton"), keeps=True)
        needed = torch.from_numpy(made.needed[0][rank])
        came = [
            tokens[needed[tokens // made.chunk]]
            for other, tokens in ((r, made.tokens(r)) for r in range(made.ranks))
            if other != rank
        ]
        self.came = attend._packed(inputs[1], inputs[2]).detach()[torch.cat(came).to(device)]
        self.forth = True

    def exchange(
        self, rows: torch.Tensor, to: list[int], back: list[int], group: None
    ) -> Callable[[], torch.Tensor]:
        """What others send: keys and values forward, zeros as gradients backward."""
        found = self.came if self.forth else rows.new_zeros((sum(back), rows.shape[1]))
        self.forth = not self.forth
        return lambda: found

    def forward(self) -> torch.Tensor:
        attend._exchange, self.forth = self.exchange, True
        return attend._Attention.apply(self.run, *self.inputs)[0]

    def both(self) -> None:
        out = self.forward()
        torch.autograd.grad(out, self.inputs, self.change)


def whole(mask: Mask, inputs: list[torch.Tensor]) -> None:
    out = ma.attention(*inputs[:3], mask)
    torch.autograd.grad(out, inputs[:3], inputs[3])


def measured(name: str, mask: Mask, options: argparse.Namespace) -> None:
    """Print a line for one mask."""
    tokens, ranks = options.tokens, options.ranks
    made = plan(mask, tokens, ranks)
    torch.manual_seed(0)
    shapes = (HEADS, KV_HEADS, KV_HEADS, HEADS)
    q, k, v, change = (
        torch.randn(1, heads, tokens, DIM, device="cuda", dtype=torch.bfloat16) for heads in shapes
    )
    inputs = [q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), change]
    shares = [Rank(mask, made, rank, inputs) for rank in range(ranks)]
    with torch.no_grad():
        wanted = ma.attention(q, k, v, mask)
        error = max(
            float((share.forward() - wanted[:, :, share.tokens]).abs().max()) for share in shares
        )
    runs = {-1: partial(whole, mask, inputs), **{r: share.both for r, share in enumerate(shares)}}
    times: dict[int, list[float]] = {key: [] for key in runs}
    for turn in range(options.rounds + 2):
        for key, run in runs.items():
            taken = milliseconds(run, options.calls)
            if turn >= 2:
                times[key].append(taken)
    found = {key: statistics.median(each) for key, each in times.items()}
    alone, own = found[-1], [found[rank] for rank in range(ranks)]
    calls = [
        len(share.run.steps.own) + sum(len(hop.calls) for hop in share.run.steps.hops)
        for share in shares
    ]
    print(
        f"{name:13} {alone:8.2f} {max(own):8.3f} {sum(own) / ranks:8.3f} {min(own):8.3f} "
        f"{100 * alone / ranks / max(own):8.1f} {100 * made.imbalance:9.2f} {max(calls):5} "
        f"{error / float(wanted.abs().max()):8.4f}",
        flush=True,
    )


def main() -> None:
    """Print a line for each mask."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--len", dest="tokens", type=int, default=1 << 16)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=1, help="calls in a row")
    options = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {options.tokens:,} tokens,")
    print(f"{options.ranks} ranks; forward and backward, ms")
    print(
        f"{'mask':13} {'whole':>8} {'slowest':>8} {'mean':>8} {'fastest':>8} {'of ideal':>8} "
        f"{'imbalance':>9} {'calls':>5} {'error':>8}"
    )
    for name, build in plans.masks(options.tokens).items():
        if not options.names or any(word in name for word in options.names):
            measured(name, build().to("cuda"), options)


if __name__ == "__main__":
    main()
