"""cuDNN's flex_attention as a contender, with a module in its place: what it is asked for."""

import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest
import torch

import maskalg as ma
from maskalg import alibi, causal, document, sliding
from maskalg.bench import contenders as peers
from maskalg.bench import cudnn as peer
from maskalg.bench.cases import SHAPES, Case, Shape, rows

SMALL = Shape(2, 4, 2, 48, 16)


def read(points, batch, kv_len):
    """The mask of endpoints, by the words of cuDNN: [0, F0), [F1, F2), … of each query."""
    heads, _, queries = points.shape
    kept = torch.zeros(batch, heads, queries // batch, kv_len, dtype=torch.bool)
    for h in range(heads):
        for q in range(queries):
            ends = [0, *points[h, :, q].tolist()]
            for start, end in zip(ends[::2], ends[1::2], strict=True):
                kept[q // (queries // batch), h, q % (queries // batch), start:end] = True
    return kept


@pytest.fixture
def library(monkeypatch):
    """A module in the place of cuDNN's that computes with the mask it is given."""
    made = []

    def create_mask_plan(mask_func, q, k, v, *, build_backward):
        made.append((mask_func, build_backward))
        assert q.shape[1] == k.shape[1] == v.shape[1], "sequences come before heads"
        assert all(t.is_contiguous() for t in (q, k, v, mask_func))
        assert mask_func.dtype == torch.int32 and mask_func.shape[2] == q.shape[0] * q.shape[1]
        return SimpleNamespace(kept=read(mask_func, q.shape[0], k.shape[1]))

    def flex_attn_func(q, k, v, *, mask_plan):
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        out = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask_plan.kept, enable_gqa=True
        )
        return out.transpose(1, 2)

    module = ModuleType("cudnn.flex_attention")
    module.create_mask_plan, module.flex_attn_func = create_mask_plan, flex_attn_func
    monkeypatch.setitem(sys.modules, "cudnn", ModuleType("cudnn"))
    monkeypatch.setitem(sys.modules, "cudnn.flex_attention", module)
    peer.missing.cache_clear()
    yield made
    peer.missing.cache_clear()


def inputs(gradients=False):
    torch.manual_seed(0)
    return tuple(torch.randn(2, heads, 48, 16).requires_grad_(gradients) for heads in (4, 2, 2))


@pytest.mark.parametrize(
    "mask",
    [
        causal,
        causal & document(torch.arange(48) // 9),
        causal & (sliding(7) | ma.prefix(3)),
        causal & sliding(torch.tensor([3, 5, 7, 9])),
    ],
    ids=str,
)
def test_it_computes_the_case(library, mask):
    case = Case(SMALL, mask)
    given = inputs(gradients=True)
    contender = peers.contenders(case, given)[peer.NAME]()
    torch.testing.assert_close(contender.run(), ma.attention(*given, mask))
    ((points, build_backward),) = library
    assert build_backward and points.shape[0] in (1, 4)
    gradients = contender.backward()()
    assert [g.shape for g in gradients] == [t.shape for t in given]


def test_what_it_does_not_take_part_in(library):
    assert peer.cudnn_flex_attention(Case(SMALL, causal + alibi(torch.ones(4))), inputs()) == {}
    scattered = ma.document(torch.arange(2048) % 8)
    case = Case(replace(SMALL, length=2048), scattered)
    with pytest.raises(ValueError, match="up to 513 endpoints"):
        peer.cudnn_flex_attention(case, inputs())[peer.NAME]()
    assert not library


def test_flex_attention_with_intervals_is_the_same_mask():
    """The row that tells what intervals give FlexAttention's own kernels."""
    small = replace(SHAPES["D64"], length=512)
    documents = {name: case for name, case in rows(small, "cpu").items() if case.ids is not None}
    assert documents
    for name, case in documents.items():
        mods = [case.mask_mod, peers._intervals(case)]
        place = torch.arange(512)
        zero = torch.zeros((), dtype=torch.int64)
        first, second = (mod(zero, zero, place[:, None], place) for mod in mods)
        assert torch.equal(first, second), name
