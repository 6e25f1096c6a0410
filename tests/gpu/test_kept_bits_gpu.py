"""Bits of pairs in place of masks that cost more to compute, against float64."""

import pytest
import torch

import maskalg as ma
from maskalg.backends.triton import kept, plan
from maskalg.schedule.summaries import labels
from tests.cases.gradients import check_gradients
from tests.cases.kept_bits import BY_DISTANCE, Anew, masks

LENGTH = 640

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


def inputs(dims, dtype, q_len=LENGTH, kv_len=LENGTH, kv_heads=2):
    torch.manual_seed(0)
    sizes = ((4, q_len, dims[0]), (kv_heads, kv_len, dims[0]), (kv_heads, kv_len, dims[1]))
    return [torch.randn(2, *size, device="cuda", dtype=dtype) for size in sizes]


def check(mask, tensors, *, most=2e-2, **options):
    # Memory that was NaN is handed out again: a part that is not written would be seen.
    poison = [torch.full((n,), float("nan"), device="cuda") for n in (2**10, 2**16, 2**20, 2**22)]
    del poison
    out = ma.attention(*tensors, mask, **options)
    wide = [t.double() for t in tensors]
    want = ma.attention(*wide, mask, backend="reference", **options)
    error = (out.double() - want).abs().max() / want.abs().max()
    assert error.item() <= most
    change = torch.randn(*tensors[0].shape[:3], tensors[2].shape[3], device="cuda")
    check_gradients(tensors, mask, change, most=most, **options)
    assert kept._MEMORY.made > 0


@pytest.fixture(autouse=True, params=["rows", "tiles"])
def bits(request, monkeypatch):
    monkeypatch.setattr(labels, "_FEWEST_TILES", 0)
    monkeypatch.setattr(kept, "_FEWEST_PAIRS", 0)
    monkeypatch.setattr(kept, "_MEMORY", Anew())
    if request.param == "tiles":
        monkeypatch.setattr(kept, "_MOST_BITS", 1 << 17)
        monkeypatch.setattr(kept, "_AT_ONCE", 1 << 15)  # made in pieces


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("name", list(masks(LENGTH)))
def test_masks(name, dim):
    check(masks(LENGTH, "cuda")[name], inputs((dim, dim), torch.bfloat16))


@pytest.mark.parametrize("dims", [(32, 32), (80, 96), (192, 128), (256, 256)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_dimensions(dims, dtype):
    most = 1e-4 if dtype == torch.float32 else 1e-2
    check(masks(LENGTH, "cuda")["strided"], inputs(dims, dtype), most=most)


@pytest.mark.parametrize(
    "q_len, kv_len", [(513, 700), (700, 513), (1100, 1100), (900, 77), (65, 1000), (197, 197)]
)
@pytest.mark.parametrize("dim", [64, 128])
def test_lengths(q_len, kv_len, dim):
    check(ma.causal & BY_DISTANCE, inputs((dim, dim), torch.bfloat16, q_len, kv_len))


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("rows", ["", "large, in long runs"])
def test_ids_in_no_order(rows, dim, monkeypatch):
    monkeypatch.setattr(kept, "_FEWEST_COUNTED", 0)
    monkeypatch.setattr(kept, "_SCATTERED", kept.Recent(8))
    if rows:
        monkeypatch.setattr(plan, "tiles_of_counts", lambda *_: rows)
    tensors = inputs((dim, dim), torch.bfloat16)
    for ids in (torch.arange(LENGTH) * 7919 % 11, torch.arange(LENGTH) // 100):
        mask = ma.causal & ma.document(ids.cuda())
        check(mask, tensors)
        assert "looked up" in ma.explain(*tensors, mask).elements


def test_weights():
    check(masks(LENGTH, "cuda")["strided"], inputs((128, 128), torch.bfloat16), weight=ma.relu)


@pytest.mark.parametrize("name", ["strided", "permutation"])
@pytest.mark.parametrize("dim", [64, 128])
def test_one_pass(name, dim, one_pass_from):
    one_pass_from(0)
    check(masks(LENGTH, "cuda")[name], inputs((dim, dim), torch.bfloat16))


@pytest.mark.parametrize("one_pass", [False, True])
@pytest.mark.parametrize(
    "name", ["bands", "blocks", "neighborhood", "strided", "of heads", "no keys"]
)
def test_long_rows(name, one_pass, one_pass_from, monkeypatch):
    """Rows that are counted as long take the kernels of dense masks, and one pass for gradients."""
    monkeypatch.setattr(kept, "_FEWEST_COUNTED", 0)
    monkeypatch.setattr(plan, "tiles_of_counts", lambda *_: "large, in long runs")
    if one_pass:
        one_pass_from(0)
    mask, tensors = masks(LENGTH, "cuda")[name], inputs((128, 128), torch.bfloat16)
    check(mask, tensors)
    if torch.cuda.get_device_capability()[0] == 9:
        told = ma.explain(*tensors, mask)
        assert "looked up" in told.elements
        assert ("one kernel" in told.gradients) == (
            one_pass and name not in ("of heads", "neighborhood")
        )
