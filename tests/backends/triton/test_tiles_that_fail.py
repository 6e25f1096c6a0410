"""Tiles that Triton cannot compile give way to the next, and are not tried again."""

import os
import shutil
import warnings

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from maskalg.engine.memory import Memory
from tests.cases.stub_gpu import stub_gpu

pytest.importorskip("triton", reason="launches of Triton's kernels")
from maskalg.backends.triton import kept

pytestmark = [
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="nothing is compiled"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="the stub is compiled by gcc"),
]


@pytest.fixture
def broken(monkeypatch):
    """How many more tiles of a kernel, by its name, fail within Triton's compiler."""
    from triton.compiler import compiler
    from triton.experimental.gluon import _runtime

    failures = {}
    failed = set()

    def breaking(made):
        def make_ir(source, target, options, *arguments, **keywords):
            tile = str((source.name, source.constants, options.num_warps, options.num_stages))
            # A tile fails each time: gradients are compiled side by side, then by themselves.
            if tile not in failed and failures.get(source.name, 0) > 0:
                failures[source.name] -= 1
                failed.add(tile)
            if tile in failed:
                raise RuntimeError("PassManager::run failed")
            return made(source, target, options, *arguments, **keywords)

        # As where Triton itself fails: the frame is one of its compiler's.
        make_ir.__code__ = make_ir.__code__.replace(co_filename=compiler.__file__)
        return make_ir

    for source in (compiler.ASTSource, _runtime.GluonASTSource):
        monkeypatch.setattr(source, "make_ir", breaking(source.make_ir))
    return failures


CAPPED = causal & sliding(100) + ma.softcap(7.0)


def call(length=512, heads=4, score=CAPPED):
    shape = (1, heads, length, 64)
    q, k, v = (torch.randn(shape, dtype=torch.bfloat16).requires_grad_() for _ in range(3))
    out = ma.attention(q, k, v, score, backend="triton")
    torch.autograd.grad(out, (q, k, v), torch.ones_like(out))
    return ma.explain(q, k, v, score, backend="triton")


def test_the_next_tile_serves(broken, monkeypatch, tmp_path):
    with stub_gpu(monkeypatch, tmp_path, "sm_80") as launches:
        broken.update(forward=1, backward_queries=1, backward_keys=1)
        with pytest.warns(UserWarning, match="Triton could not compile a kernel with Tile"):
            told = call()
        names = [launched.name for launched in launches]
        assert names == ["forward", "backward_queries", "backward_keys"]
        assert told.tile.endswith("another tile gave way: forward: PassManager::run failed")
        assert told.gradients.count("another tile gave way") == 2
        with warnings.catch_warnings(action="error"):
            call()
        assert [launched.name for launched in launches[3:]] == names


def test_the_plain_kernels_serve_where_gluon_fails(broken, monkeypatch, tmp_path):
    with stub_gpu(monkeypatch, tmp_path, "sm_90") as launches:
        broken.update(hopper_forward=99, hopper_backward_queries=99, hopper_backward_keys=99)
        with pytest.warns(UserWarning, match="Triton could not compile a kernel with Hopper"):
            told = call(score=causal & sliding(100))
        names = [launched.name for launched in launches]
        assert names == ["forward", "backward_queries", "backward_keys"]
        assert told.tier.startswith("plain Triton") and "hopper_forward" in told.tile


def test_two_kernels_serve_where_the_one_for_all_gradients_fails(broken, monkeypatch, tmp_path):
    with stub_gpu(monkeypatch, tmp_path, "sm_90") as launches:
        broken.update(hopper_gradients=99)
        with pytest.warns(UserWarning, match="Triton could not compile a kernel"):
            told = call(length=4096, heads=16, score=causal)
        names = {launched.name for launched in launches}
        assert {"backward_queries", "hopper_backward_keys"} <= names
        assert told.gradients.startswith("dQ: ") and "hopper_gradients" not in names


def test_what_no_tile_compiles_is_told(broken, monkeypatch, tmp_path):
    with stub_gpu(monkeypatch, tmp_path, "sm_80"):
        broken.update(forward=99)
        with (
            pytest.warns(UserWarning, match="could not compile"),
            pytest.raises(ma.BackendError, match=r'no kernel for this call .*backend="reference"'),
        ):
            call()


HEAVY = causal & ((ma.q_idx - ma.kv_idx) % 7 < 3)


def test_masks_are_computed_where_their_bits_cannot_be_made(broken, monkeypatch, tmp_path):
    monkeypatch.setattr(kept, "_SERVES", {})
    monkeypatch.setattr(kept, "_FEWEST_PAIRS", 0)
    with stub_gpu(monkeypatch, tmp_path, "sm_80") as launches:
        broken.update(kept_bits=99)
        with pytest.warns(UserWarning, match="could not compile the kernel that makes bits"):
            told = call(score=HEAVY)
        names = [launched.name for launched in launches]
        assert names == ["forward", "backward_queries", "backward_keys"]
        assert told.elements == "" and broken["kept_bits"] == 98  # tried once
        with warnings.catch_warnings(action="error"):
            call(score=HEAVY)


def test_gradients_compute_the_mask_where_their_bits_alone_cannot_be_made(
    broken, monkeypatch, tmp_path
):
    monkeypatch.setattr(kept, "_SERVES", {})
    monkeypatch.setattr(kept, "_FEWEST_PAIRS", 0)
    monkeypatch.setattr(kept, "_MEMORY", Memory(kept.MOST_REMEMBERED, lambda bits: bits.nbytes))
    with stub_gpu(monkeypatch, tmp_path, "sm_80") as launches:
        q, k, v = (torch.randn(1, 4, 512, 64, dtype=torch.bfloat16) for _ in range(3))
        ma.attention(q, k, v, HEAVY, backend="triton")
        broken.update(kept_bits=99)
        with pytest.warns(UserWarning, match="could not compile the kernel that makes bits"):
            told = call(score=HEAVY)
        assert told.elements.startswith("looked up: a bit for each pair, 0.05 MiB, made once")
        assert told.schedule.startswith("runs of tiles that keep a pair by the bits")
        made = [launched.name for launched in launches]
        assert made == ["kept_bits", "forward", "forward", "backward_queries", "backward_keys"]
