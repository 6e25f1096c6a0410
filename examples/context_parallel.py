"""One long sequence on several processes, each with as many tokens and the same work.

A plan gives each process the chunks of tokens whose queries cost the same, and says which keys it
needs of others. `parallel.attention` exchanges those and computes.
`python examples/context_parallel.py` starts two processes on a CPU, `torchrun --nproc-per-node 4
examples/context_parallel.py` starts four. With two it prints:

    causal & document(ids[1024])
    1,024 tokens on 2 ranks, chunks of 64; the most work is 0.00 % above the mean
    rank     tokens          tiles       keys   received
       0        512             24        704        192
       1        512             24        832        320
    output and gradients as of one process
"""

import os
import socket

import torch
import torch.distributed as dist
from torch import multiprocessing

import maskalg as ma
from maskalg import alibi, causal, document, parallel

TOKENS, HEADS, DIM = 1024, 4, 32


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)  # the same on every process
    q, k, v, change = torch.randn(4, 1, HEADS, TOKENS, DIM)
    slopes = (2.0 ** -torch.arange(1, HEADS + 1)).requires_grad_()
    ids = (torch.rand(TOKENS) < 0.01).cumsum(0)
    mask = causal & document(ids)
    plan = parallel.plan(mask, TOKENS, dist.get_world_size())

    def of_own(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[:, :, plan.tokens(rank)]

    own = [of_own(t).requires_grad_() for t in (q, k, v)]
    out = parallel.attention(*own, mask + alibi(slopes), plan)
    found = torch.autograd.grad(out, [*own, slopes], of_own(change))

    whole = [t.requires_grad_() for t in (q, k, v)]
    wanted = ma.attention(*whole, mask + alibi(slopes))
    torch.testing.assert_close(out, of_own(wanted), atol=1e-5, rtol=1e-4)
    gradients = torch.autograd.grad(wanted, [*whole, slopes], change)
    for got, want in zip(found, [*map(of_own, gradients[:3]), gradients[3]], strict=True):
        torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)
    dist.barrier()
    if rank == 0:
        print(plan)
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
