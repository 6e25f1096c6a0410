"""Pictures of masks too long to look at: what their blocks claim holds for every element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

import maskalg as ma
from maskalg import causal, head, kv_idx, q_idx
from maskalg.testing import oracle
from maskalg.views.inspect.choice import Choice, one_entry
from maskalg.views.inspect.picture import picture
from maskalg.views.inspect.tally import Tally, sharpened

LENGTH = 120
IDS = torch.arange(LENGTH) * 7 % 11

MASKS: dict[str, Callable[[], ma.Mask]] = {
    "Morton order": lambda: ma.morton_neighborhood((8, 15), (3, 5)),
    "Morton order, causal": lambda: ma.morton_neighborhood((5, 3, 8), 3, 1, (True, False, True)),
    "a tree by levels": lambda: ma.tree((torch.arange(LENGTH) + 1) // 2 - 1),
    "recurring documents": lambda: causal & ma.document(IDS),
    "other documents": lambda: ~ma.document(IDS) | ma.sliding(9),
    "a tensor over pairs": lambda: ma.dense(torch.arange(LENGTH**2).view(LENGTH, -1) % 997 < 400),
    "by head": lambda: (ma.table(torch.stack([IDS, IDS // 4]))[head, kv_idx] < 3) & causal,
    "opaque": lambda: ma.mask(lambda b, h, q, k: (q // 16 + k // 16) % 2 == 0, opaque=True),
    "products": lambda: q_idx * kv_idx >= ma.table(IDS)[q_idx] * 200,
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("block", [16, 7])
def test_no_empty_or_full_block_of_a_long_mask_is_wrong(name: str, block: int) -> None:
    mask = MASKS[name]()
    for choice in (Choice(), Choice(head=1)) if name == "by head" else (Choice(),):
        shown = picture(
            mask, LENGTH, None, cells=64, block=block, choice=choice, most_elements=0
        ).labels
        dense = mask.to_dense(LENGTH, batch=1, heads=2 if name == "by head" else 1)
        wanted = oracle.labels(
            dense.numpy()[:, [min(choice.head, dense.shape[1] - 1)]], block, block
        )
        exact = torch.from_numpy(wanted)[0, 0].to(torch.uint8)
        assert bool(((shown == exact) | (shown == 1)).all())


@pytest.mark.parametrize("name", MASKS)
def test_counts_sharpened_by_a_picture_enclose_the_true_ones(name: str) -> None:
    mask = one_entry(MASKS[name](), Choice())
    dense = mask.to_dense(LENGTH, heads=1, batch=1)[0, 0]
    true = oracle.labels(dense.numpy()[None, None], 8, 8)
    shown = picture(mask, LENGTH, None, cells=64, block=16, most_elements=0)
    known_empty, known_full = int((true == 0).sum()) // 3, int((true == 2).sum()) // 3
    found = Tally(
        block=8,
        rows=15,
        columns=15,
        empty=known_empty,
        partial=225 - known_empty - known_full,
        full=known_full,
        exact=False,
        visited=LENGTH**2,
        kept=(0, LENGTH**2),
        total=LENGTH**2,
    )
    better = sharpened(found, shown)
    assert found.empty <= better.empty <= int((true == 0).sum())
    assert found.full <= better.full <= int((true == 2).sum())
    assert better.empty + better.partial + better.full == 225
    assert better.kept[0] <= int(dense.sum()) <= better.kept[1]
    assert better.visited == found.visited
    assert sharpened(replace(found, exact=True), shown).kept == found.kept


def test_blocks_of_a_canvas_in_morton_order_are_told_apart_by_their_places() -> None:
    """32 x 32 pixels: a block is a square of 8 x 8, and a window reaches its neighbours."""
    shown = picture(ma.morton_neighborhood((32, 32), 3), 1024, None, cells=16, most_elements=0)
    rows, columns = [0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3], [0, 1, 0, 1, 2, 3, 2, 3] * 2
    near = [[abs(r - s) < 2 and abs(c - d) < 2 for s, d in zip(rows, columns, strict=True)]
            for r, c in zip(rows, columns, strict=True)]  # fmt: skip
    assert shown.block == 64
    assert torch.equal(shown.labels, torch.tensor(near).to(torch.uint8))
