"""Long documents for encoders: Longformer's and BigBird's masks, composed of their parts.

Longformer: a window, and marked tokens that see all tokens and are seen by all. BigBird, on blocks
of tokens: a window of blocks, a first and a last block that see all and are seen by all, and random
blocks, other ones for each head. `python examples/longformer_and_bigbird.py` prints:

    Longformer: 812 empty blocks, 118 partial, 94 full
      equals attention with the matrix written by hand
    BigBird: 3048 empty blocks, 0 partial, 1048 full
      equals attention with the matrix written by hand
"""

import torch
import torch.nn.functional as F

import maskalg as ma
from maskalg import block_table, global_tokens, kv_idx, q_idx, sliding

LENGTH, HEADS, DIM, BLOCK, RANDOM = 2048, 4, 16, 64, 2


def longformer(questions: torch.Tensor) -> ma.Mask:
    """`questions`: bool `[length]`, the tokens that see everything."""
    return sliding(128) | global_tokens(questions)


def bigbird(generator: torch.Generator) -> ma.Mask:
    rows = LENGTH // BLOCK
    drawn = torch.rand(HEADS, rows, rows, generator=generator).topk(RANDOM).indices
    table = torch.zeros(HEADS, rows, rows, dtype=torch.bool).scatter_(2, drawn, True)
    q_block, kv_block = q_idx // BLOCK, kv_idx // BLOCK
    near = (q_block - kv_block <= 1) & (kv_block - q_block <= 1)
    place = torch.arange(LENGTH) // BLOCK
    ends = (place == 0) | (place == rows - 1)
    return near | global_tokens(ends) | block_table(table, BLOCK)


def longformer_by_hand(questions: torch.Tensor) -> torch.Tensor:
    place = torch.arange(LENGTH)
    near = (place[:, None] - place).abs() < 128
    return (near | questions[:, None] | questions)[None, None]


def bigbird_by_hand(generator: torch.Generator) -> torch.Tensor:
    rows = LENGTH // BLOCK
    drawn = torch.rand(HEADS, rows, rows, generator=generator).topk(RANDOM).indices
    kept = torch.zeros(1, HEADS, rows, rows, dtype=torch.bool)
    for h in range(HEADS):
        for row in range(rows):
            kept[0, h, row, drawn[h, row]] = True
            kept[0, h, row, max(row - 1, 0) : row + 2] = True
    kept[..., [0, -1], :] = kept[..., [0, -1]] = True
    return kept.repeat_interleave(BLOCK, 2).repeat_interleave(BLOCK, 3)


def main() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, HEADS, LENGTH, DIM)
    questions = torch.arange(LENGTH) < 20
    cases = {
        "Longformer": (longformer(questions), longformer_by_hand(questions)),
        "BigBird": (
            bigbird(torch.Generator().manual_seed(1)),
            bigbird_by_hand(torch.Generator().manual_seed(1)),
        ),
    }
    for name, (mask, by_hand) in cases.items():
        empty, partial, full = mask.blocks(LENGTH, block=BLOCK).counts()
        print(f"{name}: {empty} empty blocks, {partial} partial, {full} full")
        assert torch.equal(mask.to_dense(LENGTH).expand(by_hand.shape), by_hand)
        wanted = F.scaled_dot_product_attention(q, k, v, attn_mask=by_hand)
        torch.testing.assert_close(ma.attention(q, k, v, mask), wanted, atol=1e-5, rtol=1e-5)
        print("  equals attention with the matrix written by hand")


if __name__ == "__main__":
    main()
