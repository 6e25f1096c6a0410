"""Kernels that look bits of pairs up, and the kernel that makes the bits, compiled for GPUs."""

from dataclasses import replace

import pytest
import torch

import maskalg as ma
from maskalg.codegen import store
from maskalg.codegen.hooks import hooks_of
from maskalg.engine.normal_form import bound

pytest.importorskip("triton", reason="needs Triton")
from maskalg.backends.triton import kept, offline
from maskalg.backends.triton.constants import count_constants
from maskalg.backends.triton.launching.spec import KernelSpec

TARGETS = ("sm_80", "sm_90", "sm_100", "sm_120", "gfx942")
MASKS = {
    "permutation": ma.permutation(torch.randperm(64)),
    "neighborhood": ma.neighborhood((64, 128), 13, 4),
    "clusters": ma.causal & ma.document(torch.arange(64) % 7),
    "heads": ma.causal & ((ma.q_idx // 8 + ma.head) % 3 == (ma.kv_idx // 8) % 3),
}
MOST_SPILLED = 256  # bytes


def request_of(name, target):
    return offline._Request(bound(MASKS[name]), target, 128, torch.bfloat16)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", list(MASKS))
def test_bits_are_made(name, target):
    request = request_of(name, target)
    for suffix in ("", "_of_keys"):
        hooks = hooks_of(request.form.structure, request.style, backward=bool(suffix))
        module = store.load(hooks.source, hooks.digest)
        constants = {
            "HOLD": getattr(module, f"hold{suffix}"),
            "MASKED": getattr(module, f"masked{suffix}"),
            "NEXT_RUN": getattr(module, f"next_run{suffix}"),
            "OF_KEYS": bool(suffix),
            "SIDE": kept._MADE_TOGETHER,
            **count_constants(hooks),
        }
        spec = KernelSpec("maskalg_kernels.kept_bits.kept_bits")
        found = request._compiled(spec, constants, hooks, False)
        assert not found.spills


@pytest.mark.parametrize("name, kind", [("neighborhood", "rows"), ("clusters", "tiles")])
@pytest.mark.parametrize("target", TARGETS)
def test_bits_are_looked_up(target, name, kind, monkeypatch):
    style = replace(request_of(name, target).style, bits=kind, scattered=name == "clusters")
    monkeypatch.setattr(offline._Request, "style", style)
    compilers = offline.kernels_offline(MASKS[name], target, 128, torch.bfloat16)
    for kernel in ("forward", "queries", "keys"):
        assert (compilers[kernel]().spills or 0) <= MOST_SPILLED
