"""One long sequence on several processes: each has some of the queries and gathers all keys.

Each process shifts the mask to where its queries are. The mask also counts the pairs that each part
of the sequence keeps, and the parts are divided so that every process has about the same work.
`python examples/context_parallel.py` starts two processes on a CPU, `torchrun --nproc-per-node 4
examples/context_parallel.py` starts four. With two it prints:

    causal & document(ids[1024]) + alibi(slopes[4])
    process 0: tokens from 0, 512, 640 and 896, 51437 pairs
    process 1: tokens from 128, 256, 384 and 768, 51887 pairs
    output and gradients as of one process
"""

import os
import socket

import torch
import torch.distributed as dist
from torch import multiprocessing

import maskalg as ma
from maskalg import alibi, causal, document

TOKENS, PART, HEADS, DIM = 1024, 128, 4, 32


class Gather(torch.autograd.Function):
    """All processes' parts, `[processes, ...]`; backward their gradients' sum, of the own part."""

    @staticmethod
    def forward(ctx, part: torch.Tensor) -> torch.Tensor:
        whole = part.new_empty((dist.get_world_size(), *part.shape))
        dist.all_gather(list(whole), part.contiguous())
        return whole

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> torch.Tensor:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient[dist.get_rank()]


def shared_out(score: ma.Score, processes: int) -> list[list[int]]:
    """Where the parts of each process start, each given to the one that has least to do."""
    mask = score.mask
    starts = range(0, TOKENS, PART)
    pairs = {s: mask.shift(q=s).cost(PART, TOKENS).kept for s in starts}
    found: list[list[int]] = [[] for _ in range(processes)]
    for start in sorted(starts, key=pairs.__getitem__, reverse=True):
        open_ = [own for own in found if len(own) < len(starts) // processes]
        min(open_, key=lambda own: sum(pairs[s] for s in own)).append(start)
    return [sorted(own) for own in found]


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, score: ma.Score, parts: list[list[int]]
) -> torch.Tensor:
    """Attention of the own queries `[1, HEADS, own tokens, DIM]` to the keys of all processes."""
    order = torch.tensor(parts).flatten().argsort()

    def gathered(part: torch.Tensor) -> torch.Tensor:
        every = Gather.apply(part).movedim(0, 2).unflatten(3, (-1, PART)).flatten(2, 3)
        return every[:, :, order].flatten(2, 3)

    k, v = gathered(k), gathered(v)
    own = parts[dist.get_rank()]
    rows = zip(q.split(PART, 2), own, strict=True)
    return torch.cat([ma.attention(row, k, v, score.shift(q=start)) for row, start in rows], 2)


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)  # the same on every process
    q, k, v, change = torch.randn(4, 1, HEADS, TOKENS, DIM)
    slopes = (2.0 ** -torch.arange(1, HEADS + 1)).requires_grad_()
    ids = (torch.rand(TOKENS) < 0.01).cumsum(0)
    score = causal & document(ids) + alibi(slopes)
    parts = shared_out(score, dist.get_world_size())

    def of_own(tensor: torch.Tensor) -> torch.Tensor:
        return torch.cat([tensor[:, :, s : s + PART] for s in parts[dist.get_rank()]], 2)

    own = [of_own(t).requires_grad_() for t in (q, k, v)]
    out = attend(*own, score, parts)
    found = list(torch.autograd.grad(out, [*own, slopes], of_own(change)))
    dist.all_reduce(found[3])

    whole = [t.requires_grad_() for t in (q, k, v)]
    wanted = ma.attention(*whole, score)
    torch.testing.assert_close(out, of_own(wanted), atol=1e-5, rtol=1e-4)
    gradients = torch.autograd.grad(wanted, [*whole, slopes], change)
    for got, want in zip(found, [*map(of_own, gradients[:3]), gradients[3]], strict=True):
        torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)
    dist.barrier()
    if dist.get_rank() == 0:
        print(score)
        for process, own in enumerate(parts):
            pairs = sum(score.mask.shift(q=start).cost(PART, TOKENS).kept for start in own)
            tokens = " and ".join(", ".join(map(str, own)).rsplit(", ", 1))
            print(f"process {process}: tokens from {tokens}, {pairs} pairs")
        print("output and gradients as of one process", flush=True)
    dist.destroy_process_group()


def started(rank: int, processes: int) -> None:
    """One process, told what `torchrun` tells."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(processes)}
    torch.set_num_threads(1)
    main()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main()
    else:
        with socket.create_server(("localhost", 0)) as free:
            port = str(free.getsockname()[1])
        os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port}
        multiprocessing.start_processes(started, (2,), nprocs=2, start_method="fork")
