"""Canvases on a GPU: what each tile is told by digits, and divisions by factors of the host."""

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from tests.cases.gradients import check_gradients

pytestmark = pytest.mark.gpu

MASKS = {
    "image": ma.neighborhood((37, 53), (7, 9)),
    "dilated image": ma.neighborhood((37, 53), 7, dilation=(1, 3)),
    "causal video": ma.neighborhood((7, 17, 19), (3, 5, 5), causal=(True, False, False)),
    "tiles": ma.sliding_tile((4, 24, 32), (2, 4, 8), (1, 3, 3)),
    "dilated": causal & sliding(300) & ma.dilated(3),
    "per head": ma.where(ma.head < 1, ma.spatial(7, 280), ma.temporal(7, 280)),
    "image and documents": ma.neighborhood((37, 53), 9) & ma.document(torch.arange(1961) // 700),
    "stripes": causal & (ma.kv_idx % 7 != 0),
    "striped window": ma.window(200, 40) & (ma.q_idx % 5 != 1) & (ma.kv_idx % 48 > 20),
    "chunks": causal & ma.chunked(100) | ma.block_causal(300) & ma.dilated(2),
}


def inputs(dim, length, dtype=torch.bfloat16):
    torch.manual_seed(0)
    return [torch.randn(2, heads, length, dim, device="cuda", dtype=dtype) for heads in (2, 1, 1)]


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("name", MASKS)
def test_gradients(name, dim):
    length = {"causal video": 7 * 17 * 19, "tiles": 3072, "per head": 1960}.get(name, 1961)
    check_gradients(inputs(dim, length), MASKS[name].to("cuda"), return_lse=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_other_dtypes(dtype):
    most = 1e-4 if dtype == torch.float32 else 4e-3
    check_gradients(inputs(64, 1961, dtype), MASKS["image"], most=most)


@pytest.mark.parametrize("windows", [(3, 5), (5, 3)])
def test_windows_of_other_sizes(windows):
    tensors = inputs(64, 40 * 50)
    wide = [tensor.double() for tensor in tensors]
    for window in windows:
        mask = ma.neighborhood((40, 50), window)
        want = ma.attention(*wide, mask, backend="reference")
        found = ma.attention(*tensors, mask)
        assert (found - want).abs().max().item() <= 1.2e-2 * want.abs().max().item()


def test_a_graph_of_a_canvas_no_call_has_seen():
    tensors = inputs(64, 61 * 67)
    ma.attention(*tensors, ma.neighborhood((67, 61), 9))  # compiles the kernel
    wide = [tensor.double() for tensor in tensors]
    mask = ma.neighborhood((61, 67), 9)
    want = ma.attention(*wide, mask, backend="reference")
    for _ in range(2):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = ma.attention(*tensors, mask)
        graph.replay()
        for found in (out, ma.attention(*tensors, mask)):
            assert (found - want).abs().max().item() <= 1.2e-2 * want.abs().max().item()
