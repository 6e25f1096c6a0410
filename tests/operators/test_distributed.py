"""`attention` in models that are trained by two processes, over gloo on the CPU.

Each process runs this file as a script: forked ones could not, once a GPU was used.
"""

import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.experimental import local_map
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import maskalg as ma
from maskalg import alibi, causal, document, sliding

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="needs gloo")

PROCESSES, STEPS = 2, 2
LENGTH, HEADS, DIM = 40, 4, 8


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(HEADS * DIM, 3 * HEADS * DIM)
        slopes = torch.nn.Parameter(torch.rand(HEADS))
        self.attention = ma.nn.Attention(causal & sliding(9) + alibi(slopes))

    def forward(self, x, ids):
        parts = self.project(x).unflatten(-1, (3, HEADS, DIM)).transpose(1, 3).unbind(2)
        out = self.attention(*parts, document(ids))
        return x + out.transpose(1, 2).flatten(2)


class Model(torch.nn.Module):
    checkpointed = False

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer(), Layer()])

    def forward(self, x, ids):
        for layer in self.layers:
            if self.checkpointed:
                x = checkpoint(layer, x, ids, use_reentrant=False)
            else:
                x = layer(x, ids)
        return x


def model_and_batch():
    torch.manual_seed(0)
    return Model(), torch.randn(PROCESSES, LENGTH, HEADS * DIM)


def documents(step):
    """Other documents in each step and each row, `[PROCESSES, LENGTH]`."""
    return torch.stack([torch.arange(LENGTH) // (11 + 3 * step + row) for row in range(PROCESSES)])


def train(model, x, rows):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(x[rows], documents(step)[rows]).square().mean().backward()
        optimizer.step()


def alone():
    """The parameters after steps on the whole batch in one process."""
    model, x = model_and_batch()
    train(model, x, slice(None))
    return {name: p.detach() for name, p in model.named_parameters()}


def replicated(model):
    return DistributedDataParallel(model), lambda found: {
        name: p.detach() for name, p in found.module.named_parameters()
    }


def compiled(model):
    whole, parameters = replicated(model)
    run = torch.compile(whole, backend="aot_eager")
    return run, lambda found: parameters(whole)


def sharded(model):
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    return model, lambda found: {n: p.detach().full_tensor() for n, p in found.named_parameters()}


def checkpointed(model):
    model.checkpointed = True
    return sharded(model)


def flattened(model):
    whole = FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))

    def parameters(found):
        with FullyShardedDataParallel.summon_full_params(found):
            return {n: p.detach().clone() for n, p in found.module.named_parameters()}

    return whole, parameters


WAYS = {
    "DDP": replicated,
    "DDP compiled": compiled,
    "FSDP2": sharded,
    "FSDP2 checkpointed": checkpointed,
    "FSDP1": flattened,
}


def heads():
    torch.manual_seed(0)
    return torch.randn(3, 2, HEADS, LENGTH, DIM), torch.rand(HEADS)


def of_local_heads():
    """Output and gradient of slopes where each process has some of the heads."""
    mesh = init_device_mesh("cpu", (PROCESSES,))
    inputs, slopes = heads()
    inputs = [distribute_tensor(tensor, mesh, [Shard(1)]) for tensor in inputs]
    slopes = distribute_tensor(slopes, mesh, [Shard(0)]).requires_grad_()
    with pytest.raises(TypeError, match=r"query is a DTensor.*local_map"):
        ma.attention(*inputs, causal)
    with pytest.raises(TypeError, match=r"slopes is a DTensor.*slopes\.to_local\(\)"):
        ma.attention(*[tensor.to_local() for tensor in inputs], causal + alibi(slopes))
    attend = local_map(
        lambda q, k, v, slopes: ma.attention(q, k, v, causal + alibi(slopes)),
        out_placements=[Shard(1)],
        in_placements=([Shard(1)],) * 3 + ([Shard(0)],),
        device_mesh=mesh,
    )
    out = attend(*inputs, slopes)
    out.square().sum().backward()
    return {"out": out.detach().full_tensor(), "slopes": slopes.grad.full_tensor()}


def process(rank, folder):
    """Train each model on one row of the batch; save the parameters, or what went wrong."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder / 'store'}", rank=rank, world_size=PROCESSES)
    results = {}
    for name, way in WAYS.items():
        try:
            model, x = model_and_batch()
            model, parameters = way(model)
            train(model, x, slice(rank, rank + 1))
            results[name] = parameters(model)
        except Exception:
            results[name] = traceback.format_exc()
    results["heads"] = of_local_heads()
    torch.save(results, folder / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("distributed")
    commands = [[sys.executable, __file__, str(rank), str(folder)] for rank in range(PROCESSES)]
    # Where there are GPUs, sharding would take them without being asked.
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    processes = [
        subprocess.Popen(c, stderr=subprocess.PIPE, text=True, env=environment) for c in commands
    ]
    for each in processes:
        _, text = each.communicate(timeout=180)
        assert each.returncode == 0, text
    return [torch.load(folder / f"{rank}.pt") for rank in range(PROCESSES)]


@pytest.mark.parametrize("rank", range(PROCESSES))
@pytest.mark.parametrize("way", WAYS)
def test_steps_of_two_processes_are_those_of_one(trained, way, rank):
    found, wanted = trained[rank][way], alone()
    assert not isinstance(found, str), found
    assert found.keys() == wanted.keys()
    for name, parameter in wanted.items():
        torch.testing.assert_close(found[name], parameter, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("rank", range(PROCESSES))
def test_heads_of_two_processes_are_those_of_one(trained, rank):
    inputs, slopes = heads()
    slopes.requires_grad_()
    out = ma.attention(*inputs, causal + alibi(slopes))
    out.square().sum().backward()
    torch.testing.assert_close(trained[rank]["heads"]["out"], out.detach())
    torch.testing.assert_close(trained[rank]["heads"]["slopes"], slopes.grad)


if __name__ == "__main__":
    process(int(sys.argv[1]), Path(sys.argv[2]))
