"""Blocks as FlexAttention's `BlockMask` and as FlashAttention-4's tensors."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

import maskalg as ma
from maskalg import causal, document, prefix, sliding
from maskalg.schedule.block_map import BlockMap
from maskalg.schedule.tile_runs import EMPTY, FULL, PARTIAL
from maskalg.testing.case import BATCH, HEADS, Case
from maskalg.testing.catalogue import CATALOGUE
from maskalg.testing.strategies import Shape, masks, shapes

# Lengths that blocks divide and that they do not, square and other blocks.
CASES = ((40, 40, 8), (33, 40, (8, 4)), (24, 31, (5, 7)), (17, 9, (2, 16)))
IDS = torch.tensor([0] * 5 + [1] * 19 + [2] * 16)


def assert_same_block_mask(found: BlockMask, wanted: BlockMask) -> None:
    assert found.seq_lengths == wanted.seq_lengths
    assert found.BLOCK_SIZE == wanted.BLOCK_SIZE
    for name in BlockMask._TENSOR_ATTRS:
        got, want = getattr(found, name), getattr(wanted, name)
        assert (got is None) == (want is None), name
        if want is not None:
            assert got.dtype == want.dtype and torch.equal(got, want), name


def torch_block_mask(mask: ma.Mask, found: BlockMap, batch: int, heads: int, **options: bool):
    return create_block_mask(
        mask.to_mask_mod(),
        batch,
        heads,
        found.q_len,
        found.kv_len,
        "cpu",
        BLOCK_SIZE=found.block,
        **options,
    )


@pytest.mark.parametrize(
    "name, case", list(zip(CATALOGUE, itertools.cycle(CASES), strict=False)), ids=list(CATALOGUE)
)
def test_the_catalogue_as_block_masks(name: str, case: tuple) -> None:
    mask, (q_len, kv_len, block) = CATALOGUE[name].mask, case
    found = mask.blocks(q_len, kv_len, block=block, batch=BATCH, heads=HEADS)
    wanted = torch_block_mask(mask, found, BATCH, HEADS)
    assert_same_block_mask(found.to_flex(batch=BATCH, heads=HEADS), wanted)


@settings(max_examples=25)
@given(masks(depth=2), shapes())
def test_random_compositions_as_block_masks(case: Case, shape: Shape) -> None:
    found = case.mask.blocks(*shape.lengths, block=shape.block, batch=BATCH, heads=HEADS)
    batch, heads = found.labels.shape[:2]
    assert_same_block_mask(found.to_flex(), torch_block_mask(case.mask, found, batch, heads))


@pytest.mark.parametrize("block", [1, 3, 8, 16, 64, (4, 32), (32, 4), (7, 5), (40, 1)])
@pytest.mark.parametrize("separate", [True, False])
def test_every_block_size(block: int | tuple[int, int], separate: bool) -> None:
    mask = causal & (document(IDS) | prefix(torch.tensor([3, 9])))
    found = mask.blocks(40, 38, block=block)
    wanted = torch_block_mask(mask, found, 2, 1, separate_full_blocks=separate)
    assert_same_block_mask(found.to_flex(separate_full_blocks=separate), wanted)


def test_sizes_that_are_broadcast() -> None:
    found = (causal & sliding(9)).blocks(40, block=8)
    for batch, heads in ((1, 1), (3, 1), (1, 4), (3, 4)):
        assert_same_block_mask(
            found.to_flex(batch=batch, heads=heads),
            torch_block_mask(found.mask, found, batch, heads),
        )
    assert found.to_flex().shape == (1, 1, 40, 40)
    assert found.to_flex(device="cpu").kv_indices.device.type == "cpu"


def test_sizes_that_do_not_fit() -> None:
    per_batch = prefix(torch.tensor([3, 9])).blocks(40, block=8)
    for arguments in ({"batch": 3}, {"batch": 1}, {"heads": 0}, {"heads": 2.0}):
        with pytest.raises(ma.MaskValueError, match=rf"to_flex\({next(iter(arguments))}="):
            per_batch.to_flex(**arguments)
    with pytest.raises(ma.MaskValueError, match=r"to_fa4\(batch=3\): .* found for batch=2. Pass 2"):
        per_batch.to_fa4(batch=3)
    assert per_batch.to_flex(batch=2, heads=5).kv_indices.shape == (2, 5, 5, 5)


def test_long_sequences_are_not_evaluated() -> None:
    """The matrix of 131,072 positions would take 16 GiB."""
    found = (causal & sliding(1024)).blocks(1 << 17)
    assert found.evaluated == 0
    block_mask = found.to_flex()
    assert block_mask.kv_num_blocks[0, 0, -3:].tolist() == [2, 2, 2]
    assert block_mask.full_kv_num_blocks[0, 0, -3:].tolist() == [7, 7, 7]
    assert block_mask.full_kv_indices[0, 0, -1, :7].tolist() == list(range(1016, 1023))


@pytest.mark.parametrize("name", ["causal", "document", "prefix LM", "dense per head"])
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_takes_them(name: str) -> None:
    """A masked kernel would be wrong where a cut block were called full."""
    torch.manual_seed(0)
    masks_by_name = {
        "causal": causal,
        "document": causal & document(IDS),
        "prefix LM": causal | prefix(torch.tensor([3, 9])),
        "dense per head": ma.dense(torch.rand(HEADS, 40, 40) < 0.3) | causal & sliding(1),
    }
    mask = masks_by_name[name]
    q, k, v = (torch.randn(2, HEADS, 37, 16) for _ in range(3))
    block_mask = mask.blocks(37, block=8).to_flex()
    wanted = ma.attention(q, k, v, mask, backend="reference")
    torch.testing.assert_close(flex_attention(q, k, v, block_mask=block_mask), wanted)


def labels_of(tensors, columns: int) -> torch.Tensor:
    """The labels that a kernel reading FlashAttention-4's tensors would meet."""
    counts = tensors.mask_block_cnt
    found = torch.full((*counts.shape, columns), EMPTY)
    for kind, cnt, idx in (
        (PARTIAL, tensors.mask_block_cnt, tensors.mask_block_idx),
        (FULL, tensors.full_block_cnt, tensors.full_block_idx),
    ):
        assert cnt.dtype == idx.dtype == torch.int32
        assert cnt.is_contiguous() and idx.is_contiguous()
        assert cnt.stride(-1) == idx.stride(-1) == 1
        assert idx.shape[:3] == cnt.shape and idx.shape[3] <= columns
        for place in itertools.product(*map(range, cnt.shape)):
            listed = idx[place][: cnt[place]].tolist()
            assert listed == sorted(set(listed))
            for column in listed:
                assert found[(*place, column)] == EMPTY
                found[(*place, column)] = kind
    return found


@pytest.mark.parametrize("name", ["causal", "document", "BigBird", "nothing", "padding"])
@pytest.mark.parametrize("lengths", [(40, 40), (33, 38)])
def test_flash_attention_4(name: str, lengths: tuple[int, int]) -> None:
    masks_by_name = {
        "causal": causal,
        "document": document(IDS),
        "BigBird": ma.dense(torch.rand(HEADS, 40, 40) < 0.02) | sliding(9) | prefix(8),
        "nothing": ma.nothing,
        "padding": ma.padding(torch.tensor([3, 32])),
    }
    found = masks_by_name[name].blocks(*lengths, block=(8, 4))
    forward, backward = found.to_fa4()
    rows, columns = -(-lengths[0] // 8), -(-lengths[1] // 4)
    assert forward.block_size == backward.block_size == (8, 4)
    wanted = found.labels.clone()
    if lengths[0] % 8:  # cut blocks are masked
        wanted[:, :, -1] = wanted[:, :, -1].clamp(max=PARTIAL)
    if lengths[1] % 4:
        wanted[..., -1] = wanted[..., -1].clamp(max=PARTIAL)
    assert (labels_of(forward, columns) == wanted).all()
    assert (labels_of(backward, rows) == wanted.mT).all()
    # Compact: no longer than the longest row, and never without an entry.
    assert forward.mask_block_idx.shape[3] == max(int(forward.mask_block_cnt.max()), 1)
    written = found.to_fa4(batch=2, heads=HEADS)[0]
    assert written.mask_block_cnt.shape == (2, HEADS, rows)


def test_flash_attention_4_agrees_with_flex_attention() -> None:
    """FlexAttention hands the lists of its `BlockMask` to FlashAttention-4 as they are."""
    found = (causal & document(IDS)).blocks(40, 37, block=(16, 4))
    block_mask, (forward, backward) = found.to_flex(), found.to_fa4()
    for tensors, side in ((forward, "kv"), (backward, "q")):
        for ours, theirs in (("mask", ""), ("full", "full_")):
            counts = getattr(tensors, f"{ours}_block_cnt")
            indices = getattr(tensors, f"{ours}_block_idx")
            assert torch.equal(counts, getattr(block_mask, f"{theirs}{side}_num_blocks"))
            whole = getattr(block_mask, f"{theirs}{side}_indices")
            assert torch.equal(indices, whole[..., : indices.shape[3]])


def test_blocks_of_the_only_entry_asked_for_are_no_others() -> None:
    mask = ma.kv_idx + 16 * ma.batch <= ma.q_idx
    with pytest.raises(ValueError, match="pass batch="):
        mask.blocks(64, block=16)
    with pytest.raises(ValueError, match=r"mask\.blocks\(…, batch=2\)"):
        mask.blocks(64, block=16, batch=1).to_flex(batch=2)
    found = mask.blocks(64, block=16, batch=2).to_flex(batch=2, heads=3)
    assert found.kv_num_blocks[:, 0].tolist() == [[1, 1, 1, 1], [0, 1, 1, 1]]
