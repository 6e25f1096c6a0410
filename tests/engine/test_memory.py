"""What lengths and numbers alone decide is made once, for whoever asks."""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import maskalg as ma
from maskalg import causal, sliding
from maskalg.engine import memory
from maskalg.engine.extents import Extents
from maskalg.engine.normal_form import bound
from maskalg.engine.recent import Recent
from maskalg.schedule.digits import rung
from maskalg.schedule.rung import marked_runs

CPU = torch.device("cpu")
LENGTH = 4096


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(memory, "CONSTANTS", Recent(256))


def routed(mask=causal):
    """A mask with a new tensor, of which nothing is known."""
    return mask & ma.block_table(torch.rand(LENGTH // 64, LENGTH // 64) < 0.1, 64)


def runs_of(mask):
    return marked_runs(bound(mask), Extents(LENGTH, LENGTH, 1, 1), "queries", CPU)


def test_a_new_tensor_makes_no_new_constants():
    runs_of(routed())
    known = dict(memory.CONSTANTS)
    assert known
    runs_of(routed())
    assert known.keys() == memory.CONSTANTS.keys()
    assert all(memory.CONSTANTS[key] is found for key, found in known.items())


def test_numbers_tell_constants_apart():
    table = torch.rand(LENGTH // 64, LENGTH // 64) < 0.1
    for window in (700, 1500, 700):
        mask = causal & sliding(window) & ma.block_table(table, 64)
        kept = mask.blocks(LENGTH, block=64).labels[0, 0] > 0
        codes = runs_of(mask)[0, 0, :, :, 0]
        visited = (codes >> 1) == torch.arange(LENGTH // 64)
        assert torch.equal(visited, kept)


def test_autograd_may_save_what_inference_made():
    with torch.inference_mode():
        runs_of(routed())
    made = [tensor for found in memory.CONSTANTS.values() for tensor in found]
    assert made and not any(tensor.is_inference() for tensor in made)


def test_whoever_watches_gets_tensors_of_their_own():
    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with Watch():
        runs_of(routed())
    assert not memory.CONSTANTS
    runs_of(routed())
    known = len(memory.CONSTANTS)
    with FakeTensorMode():
        (found,) = memory.constant(("rows",), CPU, lambda: (torch.arange(3),))
    assert type(found) is not torch.Tensor and len(memory.CONSTANTS) == known


def test_nothing_is_remembered_of_a_graph(monkeypatch):
    """What a graph computes is there from its replay on, and only for itself."""
    known, node = memory.Memory(8), bound(causal).structure.mask
    made = [known.recall(("a",), (node,), (), object) for _ in range(2)]
    assert made[0] is made[1]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert known.recall(("b",), (node,), (), object) is not known.recall(
        ("b",), (node,), (), object
    )


def test_a_mask_and_lengths_recall_what_was_made_of_them():
    made = memory.of_mask(lambda form, extents: object())
    short, longer = Extents(8, 8, 1, 1), Extents(9, 8, 1, 1)
    distance = (ma.q_idx - ma.kv_idx) / ma.scalar(0.0, "width")
    first = bound(causal & sliding(4) & (distance > 1))
    assert made(first, short) is made(bound(causal & sliding(4) & (distance > 1)), short)
    assert made(first, short) is not made(first, longer)
    others = [causal & sliding(5) & (distance > 1), causal & sliding(4) & (distance > 2)]
    others.append((causal & sliding(4) & (distance > 1)).bind(width=-0.0))
    assert made(first, short) not in [made(bound(mask), short) for mask in others]
    ids = torch.arange(8)
    before = made(bound(ma.document(ids)), short)
    assert made(bound(ma.document(ids)), short) is before
    assert made(bound(ma.document(ids) + ma.alibi(torch.rand(2))), short) is before
    assert made(bound(ma.document(ids.clone())), short) is not before
    ids[0] = 3
    assert made(bound(ma.document(ids)), short) is not before
    opaque = bound(ma.mask(lambda b, h, q, k: ids[q] * q >= k, opaque=True))
    assert made(opaque, short) is not made(opaque, short)


def test_what_graphs_keep_has_a_bound(monkeypatch):
    """Past it a graph labels its tiles by itself, and what others read stays as it is."""
    kept: dict = {}
    monkeypatch.setattr(rung, "_OF_GRAPHS", kept)
    masks = [ma.neighborhood((64, 64), window) for window in (3, 5, 7, 9)]
    made = [runs_of(mask) for mask in masks]
    monkeypatch.setattr(rung, "MOST_OF_GRAPHS", 2 * made[0].nbytes)
    monkeypatch.setattr(rung, "captured", lambda device: True)
    for _ in range(2):
        captured = [runs_of(mask) for mask in masks]
        assert [a is b for a, b in zip(captured, made, strict=True)] == [True, True, False, False]
    assert len(kept) == 2
    for mask, marks in zip(masks, captured, strict=True):
        visited = (marks[0, 0, :, :, 0] >> 1) == torch.arange(LENGTH // 64)
        labels = mask.blocks(LENGTH, block=64).labels[0, 0]
        assert visited[labels > 0].all()
