"""Documents whose ids are declared to lie in an order, on a GPU."""

import subprocess
import sys
import textwrap

import pytest
import torch

import maskalg as ma
from maskalg import causal, document, per_document, sliding
from maskalg.testing import assert_attention_close

pytestmark = pytest.mark.gpu

LENGTH = 515
CU = [0, 1, 40, 40, 190, 450]
KV_CU = [0, 7, 7, 90, 300, 480]
INNER = causal | ma.prefix(3)


def masks(device):
    cu, kv_cu = (torch.tensor(ends, device=device, dtype=torch.int32) for ends in (CU, KV_CU))
    ids = torch.tensor([3, 1, 2, 0, 5], device=device).repeat_interleave(LENGTH // 5)
    packed, restarted = document.from_cu_seqlens, per_document.from_cu_seqlens
    return {
        "causal": causal & packed(cu, total=LENGTH),
        "window": causal & sliding(70) & packed(cu, total=LENGTH),
        "others": causal & ~packed(cu, total=LENGTH),
        "or a window": packed(cu, total=LENGTH) | sliding(20),
        "contiguous": causal & document(ids, order="contiguous"),
        "per batch": causal & document(torch.stack([ids, ids.sort().values]), order="contiguous"),
        "other keys": packed(cu, kv_cu, total=LENGTH),
        "other keys, last": restarted(causal, cu, kv_cu, total=LENGTH),
        "prefix per document": restarted(INNER, cu, total=LENGTH),
        "alibi": causal & packed(cu, total=LENGTH) + ma.alibi(torch.rand(4, device=device)),
        "learned alibi": causal
        & packed(cu, total=LENGTH) + ma.alibi(torch.rand(4, device=device).requires_grad_()),
    }


@pytest.mark.parametrize("dim", [64, 128, 40])
@pytest.mark.parametrize("name", list(masks("cpu")))
def test_attention_and_gradients(name, dim):
    length = LENGTH // 5 * 5
    assert_attention_close(
        masks("cuda")[name], length, kv_heads=2, head_dim=dim, dtype=torch.bfloat16, device="cuda"
    )


def test_nothing_waits_and_a_graph_follows():
    q = torch.randn(1, 2, LENGTH, 64, device="cuda", dtype=torch.bfloat16)

    def attend(cu):
        return ma.attention(q, q, q, causal & document.from_cu_seqlens(cu, total=LENGTH))

    cu = torch.tensor(CU, device="cuda")
    others = [cu.clone(), torch.tensor([0, 7, 100, 200, 201, 515], device="cuda")]
    wanted = [attend(other) for other in others]
    torch.cuda.set_sync_debug_mode("error")
    try:
        attend(cu.clone())
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = attend(cu)
    for other, want in zip(others, wanted, strict=True):
        cu.copy_(other)
        graph.replay()
        torch.testing.assert_close(found, want, rtol=0, atol=0)


@pytest.mark.parametrize("order", ["ascending", "contiguous"])
def test_ids_of_another_order_stop_the_device(order):
    """In a process of its own, which can use the device no more."""
    program = f"""
        import torch, maskalg as ma
        x = torch.randn(1, 1, 64, 64, device="cuda", dtype=torch.float16)
        ids = torch.arange(64, device="cuda") // 8
        mask = ma.causal & ma.document(ids, order="{order}")
        ma.attention(x, x, x, mask)
        torch.cuda.synchronize()
        print("first served", flush=True)
        mask = mask.bind(ids=ids % 3)
        ma.attention(x, x, x, mask)
        torch.cuda.synchronize()
        print("second served", flush=True)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True
    )
    assert "first served" in done.stdout, done.stderr
    assert done.returncode != 0
    assert "second served" not in done.stdout
    assert "entries of ids must" in done.stdout + done.stderr
