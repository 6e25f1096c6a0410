"""`parallel.attention` over NCCL, a process for each GPU, against the reference on one.

Each process runs this file as a script and checks its own tokens.
"""

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import maskalg as ma
from maskalg import alibi, causal, document, nothing, parallel, prefix, sliding, softcap, spans

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]

LENGTH, HEADS, KV_HEADS = 3001, 4, 2
LENGTHS = torch.tensor([3, 400, 1, 857, 20, 80, 1640])
IDS = torch.arange(len(LENGTHS)).repeat_interleave(LENGTHS)

# A mask, and what is added to it, of slopes that are learned.
CASES = {
    "causal": (causal, None),
    "window": (causal & sliding(190), None),
    "sinks, window and slopes": (causal & (sliding(90) | prefix(2)), alibi),
    "documents": (causal & document(IDS), lambda slopes: softcap(5.0)),
    "documents by their ends": (causal & document.from_lengths(LENGTHS), None),
    "Transfusion": (causal | spans(torch.where(IDS % 2 == 0, IDS, -1)), None),
    "nothing": (nothing, None),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_process_has_the_tokens_of_one(dtype, tmp_path):
    ranks = torch.cuda.device_count()
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root + ":" + os.environ.get("PYTHONPATH", "")}
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, str(rank), str(ranks), str(tmp_path / "store"), dtype],
            stderr=subprocess.PIPE, text=True, env=environment,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    texts = [each.communicate(timeout=280)[1] for each in processes]
    assert not any(each.returncode for each in processes), "\n".join(texts)[-3000:]


def process(rank, ranks, store, dtype):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", f"file://{store}", rank=rank, world_size=ranks)
    for number, case in enumerate(CASES):
        dims = ((64, 64), (40, 72))[number % 2]
        # Kernels write to slices of longer tensors where there is one batch entry.
        for batch, method in product((1, 2), ("gather", "ring")):
            check(case, (batch, *dims), method, dtype, (rank, ranks))
    dist.destroy_process_group()


def computed(tensors, change, attend):
    leaves = [x.detach().requires_grad_() for x in tensors]
    out = attend(*leaves)
    gradients = torch.autograd.grad(out, leaves, change.to(out.dtype), allow_unused=True)
    return [out.detach(), *gradients]


def check(case, sizes, method, dtype, place):
    """Output and every gradient of this rank, and once more the same bits."""
    draw = torch.Generator("cuda").manual_seed(0)
    batch, dim, value_dim = sizes
    shapes = [(HEADS, dim), (KV_HEADS, dim), (KV_HEADS, value_dim), (HEADS, value_dim)]
    q, k, v, change = (
        torch.randn(batch, heads, LENGTH, dim, device="cuda", generator=draw).to(dtype)
        for heads, dim in shapes
    )
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.01], device="cuda")
    sink = torch.linspace(-1, 1, HEADS, device="cuda")
    rank, ranks = place
    mask, bias = CASES[case]
    mask = mask.to("cuda")
    plan = parallel.plan(mask, LENGTH, ranks, chunk=64)
    own = plan.tokens(rank).cuda()

    def shared(q, k, v, slopes, sink):
        score = mask if bias is None else mask + bias(slopes)
        weight = ma.softmax_with_sink(sink)
        return parallel.attention(q, k, v, score, plan, method=method, weight=weight)

    def alone(q, k, v, slopes, sink):
        score = mask if bias is None else mask + bias(slopes)
        weight = ma.softmax_with_sink(sink)
        return ma.attention(q, k, v, score, weight=weight, backend="reference")

    tensors = [x[:, :, own] for x in (q, k, v)]
    found = computed([*tensors, slopes, sink], change[:, :, own], shared)
    again = computed([*tensors, slopes, sink], change[:, :, own], shared)
    exact = computed([x.double() for x in (q, k, v, slopes, sink)], change, alone)
    exact = [x if x is None or x.ndim < 4 else x[:, :, own] for x in exact]
    tolerance = 2e-5 if dtype == torch.float32 else 2e-2
    for number, (got, same, want) in enumerate(zip(found, again, exact, strict=True)):
        if want is None:
            assert got is None or not got.any(), (case, sizes, method, number)
            continue
        assert torch.equal(got, same), (case, sizes, method, number)
        far = (got - want).abs().max() / want.abs().max().clamp(min=1e-3)
        assert far < tolerance, (case, sizes, method, number, far)


if __name__ == "__main__":
    rank, ranks = map(int, sys.argv[1:3])
    process(rank, ranks, sys.argv[3], getattr(torch, sys.argv[4]))
