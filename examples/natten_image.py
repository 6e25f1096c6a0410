"""Neighborhood attention on an image: each patch sees the 7 x 7 patches around it (NATTEN).

Near a border the window is shifted to stay in the image, so that every patch sees 49 others. Stored
tile by tile instead of row by row, neighbours are close in memory and a block of queries meets
fewer blocks of keys; the result is the same. `python examples/natten_image.py` prints:

    Attention(tiled_neighborhood((4 * 8, 16 * 8), (8, 8), (7, 7)))
    row by row: 3200 empty blocks, 896 partial, 0 full
    tile by tile: 3636 empty blocks, 460 partial, 0 full
    equals attention computed patch by patch
"""

import torch
from torch import nn

import maskalg as ma
from maskalg import neighborhood, tiled_neighborhood

HEIGHT, WIDTH, WINDOW, TILE, HEADS, DIM = 32, 128, 7, (8, 8), 2, 32


class NeighborhoodAttention(nn.Module):
    """Attention of the patches of an image `[batch, HEIGHT, WIDTH, DIM]`."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(DIM, 3 * DIM)
        self.out = nn.Linear(DIM, DIM)
        self.attention = ma.nn.Attention(tiled_neighborhood((HEIGHT, WIDTH), TILE, WINDOW))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(tiles(image)).unflatten(-1, (3, HEADS, -1)).transpose(1, 3).unbind(2)
        return self.out(image_of(self.attention(q, k, v).transpose(1, 2).flatten(2)))


def tiles(image: torch.Tensor) -> torch.Tensor:
    """`[batch, HEIGHT, WIDTH, channels]` as a sequence, one tile after the other."""
    cut = image.unflatten(2, (-1, TILE[1])).unflatten(1, (-1, TILE[0]))
    return cut.transpose(2, 3).flatten(1, 4)


def image_of(sequence: torch.Tensor) -> torch.Tensor:
    """The way back."""
    cut = sequence.unflatten(1, (HEIGHT // TILE[0], WIDTH // TILE[1], *TILE))
    return cut.transpose(2, 3).flatten(3, 4).flatten(1, 2)


def by_hand(layer: NeighborhoodAttention, image: torch.Tensor) -> torch.Tensor:
    """Patch by patch, from the 49 patches it sees."""
    q, k, v = layer.project(image[0]).unflatten(-1, (3, HEADS, -1)).unbind(-3)
    rows = []
    for y in range(HEIGHT):
        for x in range(WIDTH):
            top = min(max(y - WINDOW // 2, 0), HEIGHT - WINDOW)
            left = min(max(x - WINDOW // 2, 0), WIDTH - WINDOW)
            seen = slice(top, top + WINDOW), slice(left, left + WINDOW)
            scores = torch.einsum("hd, yxhd -> hyx", q[y, x], k[seen]) / (DIM // HEADS) ** 0.5
            weights = scores.flatten(1).softmax(1).view_as(scores)
            rows.append(torch.einsum("hyx, yxhd -> hd", weights, v[seen]).flatten())
    return layer.out(torch.stack(rows).view(1, HEIGHT, WIDTH, DIM))


def main() -> None:
    torch.manual_seed(0)
    layer, image = NeighborhoodAttention(), torch.randn(1, HEIGHT, WIDTH, DIM)
    row_by_row = neighborhood((HEIGHT, WIDTH), WINDOW)
    print(layer.attention)
    for name, mask in (("row by row", row_by_row), ("tile by tile", layer.attention.score)):
        empty, partial, full = mask.blocks(HEIGHT * WIDTH, block=64).counts()
        print(f"{name}: {empty} empty blocks, {partial} partial, {full} full")
    with torch.no_grad():
        torch.testing.assert_close(layer(image), by_hand(layer, image), atol=1e-5, rtol=1e-4)
    print("equals attention computed patch by patch")


if __name__ == "__main__":
    main()
