"""Sliding tile attention on a video with a caption: whole tiles of tokens, no partial block.

The video is stored tile by tile, with the caption after it. A token sees the tiles around its own
and the caption; the caption sees everything. If a block of the kernel is as large as a tile, every
block is full or empty. `python examples/sliding_tile_video.py` prints:

    Attention(sliding_tile((2 * 4, 6 * 4, 8 * 4), (4, 4, 4), (1, 3, 3), 64))
    BlockMap(q_len=6208, kv_len=6208, block=(64, 64), empty=8352, partial=0, full=1057, evaluated=0)
    equals dense attention on the tokens row by row
"""

import torch
import torch.nn.functional as F
from torch import nn

import maskalg as ma
from maskalg import sliding_tile

VIDEO, TILE, WINDOW = (8, 24, 32), (4, 4, 4), (1, 3, 3)  # frames, height, width; WINDOW in tiles
CAPTION, HEADS, DIM = 64, 2, 32


class VideoAttention(nn.Module):
    """Attention of a video `[batch, *VIDEO, DIM]` and its caption `[batch, CAPTION, DIM]`."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(DIM, 3 * DIM)
        self.attention = ma.nn.Attention(sliding_tile(VIDEO, TILE, WINDOW, text=CAPTION))

    def forward(
        self, video: torch.Tensor, caption: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.project(torch.cat([tiles(video), caption], 1))
        q, k, v = x.unflatten(-1, (3, HEADS, -1)).transpose(1, 3).unbind(2)
        out = self.attention(q, k, v).transpose(1, 2).flatten(2)
        return video_of(out[:, :-CAPTION]), out[:, -CAPTION:]


def tiles(video: torch.Tensor) -> torch.Tensor:
    """`[batch, frames, height, width, channels]` as a sequence, one tile after the other."""
    for axis in (3, 2, 1):
        video = video.unflatten(axis, (-1, TILE[axis - 1]))
    return video.permute(0, 1, 3, 5, 2, 4, 6, 7).flatten(1, 6)


def video_of(sequence: torch.Tensor) -> torch.Tensor:
    """The way back."""
    counts = [extent // side for extent, side in zip(VIDEO, TILE, strict=True)]
    cut = sequence.unflatten(1, (*counts, *TILE)).permute(0, 1, 4, 2, 5, 3, 6, 7)
    return cut.flatten(5, 6).flatten(3, 4).flatten(1, 2)


def kept_by_hand() -> torch.Tensor:
    """The matrix of the tokens in row-major order, caption last."""
    places = torch.meshgrid([torch.arange(extent) for extent in VIDEO], indexing="ij")
    kept = torch.ones((), dtype=torch.bool)
    for place, extent, side, window in zip(places, VIDEO, TILE, WINDOW, strict=True):
        tile = place.flatten() // side
        first = (tile - window // 2).clamp(0, extent // side - window)[:, None]
        kept = kept & (tile >= first) & (tile < first + window)
    return F.pad(kept, (0, CAPTION, 0, CAPTION), value=True)


def main() -> None:
    torch.manual_seed(0)
    layer = VideoAttention()
    video, caption = torch.randn(1, *VIDEO, DIM), torch.randn(1, CAPTION, DIM)
    print(layer.attention)
    tokens = VIDEO[0] * VIDEO[1] * VIDEO[2] + CAPTION
    print(layer.attention.score.blocks(tokens, block=64))
    with torch.no_grad():
        seen, read = layer(video, caption)
        x = layer.project(torch.cat([video.flatten(1, 3), caption], 1))
        q, k, v = x.unflatten(-1, (3, HEADS, -1)).transpose(1, 3).unbind(2)
        wanted = F.scaled_dot_product_attention(q, k, v, attn_mask=kept_by_hand())
        found = torch.cat([seen.flatten(1, 3), read], 1)
        torch.testing.assert_close(found, wanted.transpose(1, 2).flatten(2), atol=1e-5, rtol=1e-4)
    print("equals dense attention on the tokens row by row")


if __name__ == "__main__":
    main()
