"""Nothing is kept that torch's CUDA graph trees allocate before they capture a function."""

import inspect
import re
import sys
import threading
from types import SimpleNamespace

import pytest
import torch
from torch._inductor import cudagraph_trees

import maskalg as ma
from maskalg.engine import graphs, memory
from maskalg.engine.extents import Extents
from maskalg.engine.normal_form import bound
from maskalg.engine.recent import Recent
from maskalg.operators import define
from maskalg.schedule.digits import rung
from maskalg.schedule.rung import marked_runs


@pytest.fixture
def stream(monkeypatch):
    """A GPU as torch shows it; a stream that is its current one."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 7, raising=False)
    return SimpleNamespace(cuda_stream=7)


def test_without_trees(stream):
    assert not graphs.trees_allocate()


def test_on_the_stream_of_trees(stream, monkeypatch):
    container = cudagraph_trees.get_container(0)
    monkeypatch.setattr(container, "tree_manager", SimpleNamespace(stream=stream))
    assert graphs.trees_allocate()
    stream.cuda_stream = 8
    assert not graphs.trees_allocate()


def test_in_another_thread(stream):
    found = []
    thread = threading.Thread(target=lambda: found.append(graphs.trees_allocate()))
    thread.start()
    thread.join()
    assert found == [False]


def test_trees_are_not_loaded(stream, monkeypatch):
    monkeypatch.delitem(sys.modules, graphs._TREES)
    assert not graphs.trees_allocate()


def test_trees_of_a_later_torch(stream, monkeypatch):
    """Functions that are not known to be run by trees might be."""
    monkeypatch.delattr(cudagraph_trees, "get_manager")
    graphs._warn.cache_clear()
    with pytest.warns(UserWarning, match=f"graph trees of torch {re.escape(torch.__version__)}"):
        assert graphs.trees_allocate()
    assert graphs.trees_allocate()  # and says so once


def test_torch_has_the_stream():
    assert "self.stream = " in inspect.getsource(cudagraph_trees.CUDAGraphTreeManager.__init__)


@pytest.mark.parametrize("allocate", [False, True])
def test_nothing_is_kept(allocate, monkeypatch):
    ids = torch.arange(300) // 100
    form = bound(ma.causal & ma.document(ids))
    before = define._form_of(form.structure.key, [ids], [], [])  # of a call without graph trees
    for module in (memory, define, rung):
        monkeypatch.setattr(module, "trees_allocate", lambda: allocate)
    after = define._form_of(form.structure.key, [ids], [], [])
    assert (before.remembered is after.remembered) is not allocate
    found = memory.Memory(4)
    made = [found.of_tensors(("key",), (ids,), object) for _ in range(2)]
    assert (made[0] is made[1]) is not allocate

    key = ("a key of this test", allocate)
    constants = [memory.constant(key, ids.device, lambda: (ids.clone(),)) for _ in range(2)]
    assert (constants[0] is constants[1]) is not allocate

    monkeypatch.setattr(rung, "_KNOWN", Recent(64))
    by_digits, extents = bound(ma.neighborhood((64, 64), 5)), Extents(4096, 4096, 1, 1)
    marks = [marked_runs(by_digits, extents, "queries", ids.device) for _ in range(2)]
    assert (marks[0] is marks[1]) is not allocate
