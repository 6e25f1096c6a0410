"""The operators on a GPU: compiled, checkpointed, under autocast and transforms."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import maskalg as ma
from maskalg import alibi, causal, document, sliding

pytestmark = pytest.mark.gpu

DTYPE = torch.bfloat16


def inputs(length, dtype=DTYPE):
    torch.manual_seed(0)
    shapes = [(2, heads, length, 64) for heads in (4, 2, 2)]
    return [torch.randn(s, device="cuda", dtype=dtype, requires_grad=True) for s in shapes]


def ids_of(length):
    return torch.arange(length, device="cuda", dtype=torch.int32) // 100


def attend(q, k, v, slopes, ids, window):
    return ma.attention(q, k, v, causal & sliding(window) & document(ids) + alibi(slopes))


def with_gradients(function, tensors, *rest):
    out = function(*tensors, *rest)
    return [out, *torch.autograd.grad(out.float().sin().sum(), tensors)]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled(backend):
    """The same kernels, so the same bits; a new window or length makes no graph after the first."""
    torch._dynamo.reset()
    compiled = torch.compile(attend, fullgraph=True, backend=backend)
    for length, window in ((515, 70), (515, 90), (640, 200), (700, 33)):
        tensors = [*inputs(length), torch.rand(4, device="cuda", requires_grad=True)]
        found = with_gradients(compiled, tensors, ids_of(length), window)
        wanted = with_gradients(attend, tensors, ids_of(length), window)
        for got, want in zip(found, wanted, strict=True):
            torch.testing.assert_close(got, want, atol=0, rtol=0)


def test_checkpoint_and_autocast():
    slopes = torch.rand(4, device="cuda")

    def block(q, k, v):
        with torch.autocast("cuda", dtype=DTYPE):
            return attend(q, k, v, slopes, ids_of(515), 70)

    tensors = inputs(515, torch.float32)
    wanted = with_gradients(block, tensors)
    assert wanted[0].dtype == DTYPE and wanted[1].dtype == torch.float32
    found = with_gradients(lambda *t: checkpoint(block, *t, use_reentrant=False), tensors)
    for got, want in zip(found, wanted, strict=True):
        assert torch.equal(got, want)


def test_vmap_and_grad():
    slopes = torch.rand(4, device="cuda")

    def loss(q, k, v):
        out = attend(q[None], k[None], v[None], slopes, ids_of(515), 70)
        return out.float().sin().sum()

    tensors = inputs(515)
    found = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1, 2)))(
        *[t.detach() for t in tensors]
    )
    wanted = with_gradients(lambda *t: attend(*t, slopes, ids_of(515), 70), tensors)[1:]
    for got, want in zip(found, wanted, strict=True):
        assert torch.equal(got, want)


def test_a_captured_graph_reads_new_documents():
    """Warmed up on the tensors it captures: what is remembered of their ids must not be kept."""
    q, k, v = (t.detach() for t in inputs(515))
    ids = ids_of(515)
    mask = causal & document(ids)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            ma.attention(q, k, v, mask)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = ma.attention(q, k, v, mask)
    other = ids_of(515) // 2
    ids.copy_(other)
    graph.replay()
    assert torch.equal(out, ma.attention(q, k, v, causal & document(other)))


def test_sinks():
    def sinking(q, k, v, logits):
        return ma.attention(q, k, v, causal, weight=ma.softmax_with_sink(logits))

    torch._dynamo.reset()
    compiled = torch.compile(sinking, fullgraph=True, backend="aot_eager")
    tensors = [*inputs(515), torch.randn(4, device="cuda", requires_grad=True)]
    found, wanted = with_gradients(compiled, tensors), with_gradients(sinking, tensors)
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want, atol=2e-2, rtol=2e-2)
