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
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

import maskalg as ma
from maskalg import alibi, causal, document, sliding

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="needs gloo")

PROCESSES = 2
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
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer(), Layer()])

    def forward(self, x, ids):
        for layer in self.layers:
            x = layer(x, ids)
        return x


def model_and_batch():
    torch.manual_seed(0)
    return Model(), torch.randn(PROCESSES, LENGTH, HEADS * DIM), torch.arange(LENGTH) // 11


def alone():
    """The parameters after a step on the whole batch in one process."""
    model, x, ids = model_and_batch()
    model(x, ids).square().mean().backward()
    torch.optim.SGD(model.parameters(), lr=0.5).step()
    return {name: p.detach() for name, p in model.named_parameters()}


def replicated(model):
    return DistributedDataParallel(model), lambda found: {
        name: p.detach() for name, p in found.module.named_parameters()
    }


def sharded(model):
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    return model, lambda found: {n: p.detach().full_tensor() for n, p in found.named_parameters()}


def flattened(model):
    whole = FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))

    def parameters(found):
        with FullyShardedDataParallel.summon_full_params(found):
            return {n: p.detach().clone() for n, p in found.module.named_parameters()}

    return whole, parameters


WAYS = {"DDP": replicated, "FSDP2": sharded, "FSDP1": flattened}


def process(rank, folder):
    """Train each model on one row of the batch; save the parameters, or what went wrong."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder / 'store'}", rank=rank, world_size=PROCESSES)
    results = {}
    for name, way in WAYS.items():
        try:
            model, x, ids = model_and_batch()
            model, parameters = way(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
            model(x[rank : rank + 1], ids).square().mean().backward()
            optimizer.step()
            results[name] = parameters(model)
        except Exception:
            results[name] = traceback.format_exc()
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
def test_a_step_of_two_processes_is_that_of_one(trained, way, rank):
    found, wanted = trained[rank][way], alone()
    assert not isinstance(found, str), found
    assert found.keys() == wanted.keys()
    for name, parameter in wanted.items():
        torch.testing.assert_close(found[name], parameter, atol=1e-6, rtol=1e-5)


if __name__ == "__main__":
    process(int(sys.argv[1]), Path(sys.argv[2]))
