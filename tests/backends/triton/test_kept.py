"""Labels of tiles from bits of pairs."""

import pytest
import torch

pytest.importorskip("triton", reason="needs Triton")
import maskalg as ma
from maskalg.backends.triton import kept
from maskalg.backends.triton.bit_tiles import (
    COLUMNS,
    ROWS,
    bits_in_tiles,
    labels_of_tiles,
    places_of,
    pooled,
)
from maskalg.backends.triton.kept import BitsLayout, ids_are_scattered, labels_of_bits
from maskalg.engine.extents import Extents, Lengths, resolve
from maskalg.engine.normal_form import bound
from maskalg.schedule.tile_runs import label_of

MORE = 256  # rows behind the last one


@pytest.mark.parametrize("rows, columns", [(128, 256), (130, 200), (1, 65), (63, 300)])
def test_labels_of_bits(rows, columns):
    generator = torch.Generator().manual_seed(0)
    kept = torch.rand(2, 3, rows, columns, generator=generator) < 0.5
    kept[0, :, :64] = True
    kept[1, :, :, 64:130] = False
    words = -(-columns // 256) * 8
    padded = torch.zeros(2, 3, rows, words * 32, dtype=torch.int64)
    padded[..., :columns] = kept
    bits = (padded.unflatten(-1, (words, 32)) << torch.arange(32)).sum(-1)
    bits = (bits - (bits >> 31 << 32)).to(torch.int32).flatten()
    bits = torch.cat([bits, torch.full((MORE * words,), 12345, dtype=torch.int32)])
    layout = BitsLayout((2, 3), rows, columns, words, 3 * rows * words, rows * words)
    labels = labels_of_bits(bits, layout, 64)
    assert labels.shape == (2, 3, -(-rows // 64), -(-columns // 64))
    for row in range(labels.shape[2]):
        for column in range(labels.shape[3]):
            tile = kept[:, :, 64 * row : 64 * row + 64, 64 * column : 64 * column + 64]
            # A tile that the columns' end cuts is masked.
            whole = tile.shape[3] == 64
            full, some = tile.flatten(2).all(-1) & whole, tile.flatten(2).any(-1)
            wanted = torch.where(some, torch.where(full, 2, 1), 0)
            assert torch.equal(labels[:, :, row, column].long(), wanted)


def drawn(members, rows, columns, area=(50, 90)):
    """The bits of rows, in areas that are empty, full or neither."""
    generator = torch.Generator().manual_seed(0)
    areas = torch.randint(
        0, 3, (members, -(-rows // area[0]), -(-columns // area[1])), generator=generator
    )
    areas = areas.repeat_interleave(area[0], 1).repeat_interleave(area[1], 2)
    areas = areas[:, :rows, :columns]
    kept = (areas == 2) | (areas == 1) & (torch.rand(areas.shape, generator=generator) < 0.5)
    padded = torch.nn.functional.pad(kept, (0, -columns % COLUMNS)).long().unflatten(-1, (-1, 32))
    bits = (padded << torch.arange(32)).sum(-1)
    return (bits - (bits >> 31 << 32)).int()


@pytest.mark.parametrize("lines", [1, 3, 100])
@pytest.mark.parametrize("rows, columns", [(640, 1000), (513, 256), (1, 65), (64, 300), (130, 513)])
def test_bits_in_tiles(rows, columns, lines):
    members, most = 3, 1 << 26
    bits = drawn(members, rows, columns)
    pieces = []

    def made(begin, end):
        pieces.append((begin, end))
        return bits[:, begin:end].clone()

    size = (members, rows, columns)
    at_once = lines * members * -(-columns // COLUMNS) * ROWS * COLUMNS // 8
    table = bits_in_tiles(made, size, at_once, most, torch.device("cpu"))
    assert [begin for begin, _ in pieces] == [0, *[end for _, end in pieces[:-1]]]
    assert pieces[-1][1] == rows
    down, across = places_of(rows, columns)
    places = table[: members * down * across].view(members, down, across)
    assert down * ROWS >= rows + 256 - ROWS  # tiles that the rows' end cuts read more
    count, partial = places.numel(), 0
    for member in range(members):
        for line in range(rows):
            for tile in range(across):
                first = int(places[member, line // ROWS, tile]) + line % ROWS * (COLUMNS // 32)
                found = table[first : first + COLUMNS // 32]
                wanted = bits[member, line, tile * COLUMNS // 32 :][: COLUMNS // 32]
                assert torch.equal(found, wanted)
    after = places[:, -(-rows // ROWS) :]
    assert (after == count).all() and not table[count : count + ROWS * COLUMNS // 32].any()
    for member in range(members):
        for row in range(0, rows, ROWS):
            for column in range(0, columns, COLUMNS):
                tile = bits[member, row : row + ROWS, column // 32 : (column + COLUMNS) // 32]
                partial += int((tile != 0).any() and (tile != -1).any())
    assert table.numel() == count + (2 + partial) * ROWS * COLUMNS // 32
    for most in (table.nbytes - 4, table.nbytes):
        bounded = bits_in_tiles(made, size, at_once, most, table.device)
        assert (bounded is None) == (most < table.nbytes)
    one_line = at_once // lines
    assert bits_in_tiles(made, size, one_line - 1, most, table.device) is None


@pytest.mark.parametrize("side", [32, 64, 128, 256])
@pytest.mark.parametrize("rows, columns", [(640, 1024), (513, 700), (1, 65), (130, 513)])
def test_labels_of_tiles(rows, columns, side):
    bits = drawn(6, rows, columns, (2 * side, 2 * side))
    size, words = (6, rows, columns), bits.shape[2]
    table = bits_in_tiles(lambda a, b: bits[:, a:b], size, 1 << 20, 1 << 26, torch.device("cpu"))
    layout = BitsLayout((2, 3), rows, columns, words, 3 * rows * words, rows * words)
    of_rows = torch.cat([bits.flatten(), torch.full((MORE * words,), 12345, dtype=torch.int32)])
    wanted = labels_of_bits(of_rows, layout, side).flatten(0, 1)
    assert len(wanted.unique()) > 1 or rows == 1
    assert torch.equal(labels_of_tiles(table, size, side), wanted)
    # The longest calls have larger tiles.
    of_256, of_512 = [labels_of_tiles(table, size, side) for side in (256, 512)]
    some, every = pooled(of_256 > 0, of_256 == 2, (2, 2))
    assert torch.equal(of_512, label_of(some, ~every))


IDS = {
    "clusters": (torch.arange(16384) * 7919 % 50, True),
    "packed": (torch.arange(16384) // 1000, False),
    "short documents": (torch.arange(16384) // 5, False),
    "in any order": (torch.randperm(17).repeat_interleave(1000)[:16384], False),
    "recurring": (torch.arange(16384) // 500 % 3, False),
    "one row of two": (torch.stack([torch.arange(16384) % 9, torch.zeros(16384).long()]), True),
}


@pytest.mark.parametrize("name", list(IDS))
def test_scattered_ids(name, monkeypatch):
    """The first mask of a structure decides; few pairs do not count, nor ids with an order."""
    monkeypatch.setattr(kept, "_SCATTERED", kept.Recent(8))
    (ids, wanted), cpu = IDS[name], torch.device("cpu")
    batch = ids.shape[0] if ids.ndim == 2 else 1

    def found(mask, heads=1):
        form = bound(mask)
        return ids_are_scattered(form, resolve(form, Lengths(16384, 16384, batch, heads)), cpu)

    for heads in (1, 16):
        assert found(ma.causal & ma.document(ids), heads) == wanted
    assert found(ma.causal & ma.document(ids.flip(0))) == wanted
    assert found(ma.causal & ma.document(torch.zeros_like(ids))) == wanted
    assert found(ma.document(ids)) == wanted and len(kept._SCATTERED) == 2
    assert not found(ma.document.from_lengths([8192, 8192], total=16384))
    form = bound(ma.sliding(100) & ma.document(ids))
    assert not ids_are_scattered(form, resolve(form, Lengths(1000, 1000, batch, 1)), cpu)
    assert not found(ma.causal & ma.permutation(torch.arange(16384)))


@pytest.mark.parametrize(
    "q_len, kv_len, heads, worth",
    [(8192, 64, 32, "rows"), (8192, 63, 64, ""), (1024, 1024, 16, "rows"), (1024, 1024, 15, "")],
)
def test_bits_serve_many_pairs_of_all_heads(q_len, kv_len, heads, worth):
    extents = Extents(q_len, kv_len, 1, heads)
    mask = ma.neighborhood((20, 30), 3)
    assert kept.bits_worth(bound(mask), extents, torch.device("cpu"))[0] == worth


@pytest.mark.parametrize(
    "length, batch, worth",
    [
        (600, 2, "rows"), (600, 60_000, "tiles"), (600, 70_000, ""),
        (64, 30_000, "rows"), (64, 33_000, "tiles"), (64, 70_000, ""),
    ],
)  # fmt: skip
def test_masks_of_more_entries_than_a_grid_has_places_are_computed(length, batch, worth):
    """Rows of 64 keys take the memory of 256."""
    last = ma.table(torch.arange(batch) % 7)
    mask = ma.neighborhood((20, 30), 3) & (ma.kv_idx >= last[ma.batch])
    extents = Extents(length, length, batch, 64)
    assert kept.bits_worth(bound(mask), extents, torch.device("cpu"))[0] == worth
