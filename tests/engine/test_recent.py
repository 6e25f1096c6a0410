"""What is kept of calls before is bounded, and one memory serves several threads."""

import sys
import threading
from functools import reduce
from operator import or_

import pytest
import torch

import maskalg as ma
from maskalg import causal
from maskalg.engine.normal_form import bound
from maskalg.engine.recent import Recent


def test_the_last_used_are_kept():
    known = Recent(3)
    for key in "abc":
        known.keep(key, key.upper())
    assert known.recall("a") == "A"
    known.keep("d", "D")
    assert list(known) == ["c", "a", "d"] and known.recall("b") is None
    assert known.keep("c", "other") == "C"  # that of the thread which came first


def test_results_are_bounded_by_what_they_take():
    known = Recent(10, len)
    for key in ("aaaa", "bbb", "cc"):
        known.keep(key, key)
    assert known.recall("aaaa") and list(known) == ["bbb", "cc", "aaaa"]
    known.keep("dddd", "dddd")
    assert list(known) == ["cc", "aaaa", "dddd"]
    assert known.keep("e" * 11, "e" * 11) == "e" * 11 and not known


def test_a_result_that_is_lost_between_a_look_and_its_use(monkeypatch):
    known = Recent(2)
    known.keep("a", 1)
    look = Recent.get

    def lost(self, key):
        found = look(self, key)
        self.pop(key)
        return found

    monkeypatch.setattr(Recent, "get", lost)
    assert known.recall("a") == 1 and not known


def test_threads_share_one():
    known, problems = Recent(4), []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work(seed):
        try:
            for turn in range(4000):
                key = (seed + turn * 7) % 9
                found = known.recall(key)
                assert found is None or found == key
                known.keep(key, key)
                if turn % 3 == 0:
                    known.pop((key + 1) % 9, None)
        except Exception as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    assert not problems and len(known) <= 4


@pytest.mark.parametrize(
    "name, from_key", [("structures", 70), ("proofs", 71), ("hooks", 72), ("formulas", 73)]
)
def test_many_masks_do_not_grow_what_is_kept(name, from_key, monkeypatch):
    """Each is longer than the one before: a structure, a proof, hooks and a formula of its own."""
    from maskalg.codegen import store
    from maskalg.codegen.hooks import Style, hooks_of
    from maskalg.engine import normal_form
    from maskalg.proof import proof

    module, place = {
        "structures": (normal_form, "_STRUCTURES"),
        "proofs": (proof, "_CACHE"),
        "hooks": (store, "_LOADED"),
        "formulas": (store, "_SEEN"),
    }[name]
    assert 0 < getattr(module, place).most <= 4096
    known = Recent(8)
    monkeypatch.setattr(module, place, known)
    made, style = proof.proofs_made(), Style()
    sizes = []
    for n in range(12):
        mask = reduce(or_, [ma.kv_idx == from_key + 9 * i for i in range(n + 1)], causal)
        structure = bound(mask).structure
        store.count(structure)
        hooks = hooks_of(structure, style)
        store.load(hooks.source, hooks.digest)
        sizes.append(len(known))
    assert sizes == [min(n + 1, 8) for n in range(12)]
    assert name != "proofs" or proof.proofs_made() - made == 12


def test_a_sink_of_a_capture_is_its_own(monkeypatch):
    """Filled as part of a graph, it holds nothing until the graph is replayed."""
    pytest.importorskip("triton", reason="needs Triton")
    from types import SimpleNamespace

    from maskalg.backends.triton.arguments import sinks_of
    from maskalg.engine import memory

    capturing = True
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    monkeypatch.setattr(memory, "stream_of", lambda device: 0)
    monkeypatch.setattr(memory, "CONSTANTS", Recent(8))
    full = torch.full
    monkeypatch.setattr(torch, "full", lambda size, value, device: full(size, value))
    call = SimpleNamespace(
        weight=ma.softmax_plus_one,
        extents=SimpleNamespace(heads=2),
        query=SimpleNamespace(device=torch.device("cuda", 0)),
    )
    of_graph = sinks_of(call)
    capturing = False
    found = sinks_of(call)
    assert found is not of_graph and sinks_of(call) is found
    capturing = True
    assert sinks_of(call) is not found
