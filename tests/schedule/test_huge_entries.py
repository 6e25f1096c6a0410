"""Entries of 64 bits, such as hashes of documents: no label is taken from bounds that saturate."""

import pytest
import torch

import maskalg as ma
from maskalg.schedule.tile_runs import EMPTY, FULL, PARTIAL
from maskalg.views.inspect.picture import picture

LENGTH, SIDE = 16, 4
PARENTS = torch.tensor([-1, 0, 0, 1, 1, 2, 3, 3, -1, 8, 8, 9, 9, 10, 12, 12])


def labels_of(mask):
    """EMPTY, PARTIAL or FULL of each block, from the matrix."""
    dense = mask.to_dense(LENGTH, LENGTH)[0, 0]
    blocks = dense.view(LENGTH // SIDE, SIDE, LENGTH // SIDE, SIDE)
    some, every = blocks.any(3).any(1), blocks.all(3).all(1)
    return torch.where(every, FULL, torch.where(some, PARTIAL, EMPTY))


def others():
    return {
        "neighborhood": ma.neighborhood((4, 4), 3),
        "tree": ma.tree(PARENTS),
        "morton": ma.morton_neighborhood((4, 4), 3),
    }


@pytest.mark.parametrize("name", list(others()))
@pytest.mark.parametrize("base", [2**52 - 8, 2**60 - 8, 2**61, 2**63 - 64])
def test_labels_of_hashes(name, base):
    generator = torch.Generator().manual_seed(0)
    ids = base + torch.randint(0, 40, (4,), generator=generator).repeat_interleave(4)
    other = others()[name]
    document = ma.document(ids)
    for mask in (document | other, ~document & other, document & ~other, ~document | other):
        found = mask.blocks(LENGTH, LENGTH, block=SIDE)
        wanted = labels_of(mask)
        assert torch.equal(found.labels[0, 0].to(wanted.dtype), wanted)
        kept = int(mask.to_dense(LENGTH, LENGTH).sum())
        assert mask.cost(LENGTH, LENGTH, block=SIDE).kept == kept


def test_pictures_of_hashes():
    ids = 2**60 + torch.arange(128) // 32 % 2
    drawn = picture(ma.document(ids), 128, None, cells=4, block=32, most_elements=0)
    wanted = torch.tensor([FULL, EMPTY, FULL, EMPTY], dtype=drawn.labels.dtype)
    unsure = drawn.labels[0] == PARTIAL
    assert torch.equal(drawn.labels[0][~unsure], wanted[~unsure]) and not unsure.all()


def test_order_of_entries_near_the_largest():
    entries = 2**62 + torch.arange(64) // 32 * 5
    left, right = ma.table(entries), ma.table(entries.clone())
    q, k = left[ma.q_idx], right[ma.kv_idx]
    mask = ~(q == k) | (q >= k)
    assert mask.cost(64).kept == int(mask.to_dense(64, 64).sum())


def test_times_in_nanoseconds():
    now = 2**60
    times, limits = torch.full((16,), now), torch.full((16,), now + 5)
    other = torch.zeros(16, dtype=torch.int64)
    late = ma.table(times)[ma.q_idx] >= ma.table(limits)[ma.kv_idx]
    ordered = ma.table(other)[ma.q_idx] >= ma.table(other.clone())[ma.kv_idx]
    for mask, label in ((late & ordered, EMPTY), (~late & ordered, FULL)):
        blocks = mask.blocks(16, block=8)
        assert (blocks.labels == label).all() and blocks.evaluated == 0


def test_trees_under_another_default_device():
    parents = torch.tensor([-1, 0, 0, 1], device="cpu")
    with torch.device("meta"):
        mask = ma.tree(parents)
    assert torch.equal(mask.to_dense(4, 4), ma.tree(parents).to_dense(4, 4))
