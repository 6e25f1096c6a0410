"""Labels of tiles from bits of pairs."""

import pytest
import torch

pytest.importorskip("triton", reason="needs Triton")
from maskalg.backends.triton.kept import BitsLayout, labels_of_bits

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
