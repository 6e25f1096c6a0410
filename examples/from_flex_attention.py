"""Porting a FlexAttention model in two steps: its functions as they are, then as expressions.

`ma.mask(mask_mod)` and `ma.score(score_mod)` trace FlexAttention's functions, so only the call in
the model changes. No block mask is built, not for a new batch either. The same mask written as an
expression is shorter, and its parts have names.
`python examples/from_flex_attention.py` prints:

    traced: logits equal those of flex_attention
    composed: logits equal those of flex_attention
    (ids[batch, kv_idx] == ids[batch, q_idx]) & (q_idx >= kv_idx) & (q_idx - kv_idx < 64)
      is causal & sliding(64) & document(ids[2, 256])
       True
    blocks dropped: 73.4%, of create_block_mask 73.4%
"""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import maskalg as ma
from maskalg import alibi, causal, document, sliding, softcap

LENGTH, HEADS, DIM, VOCABULARY, WINDOW, CAP = 256, 4, 64, 100, 64, 20.0
Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

slopes = 2.0 ** -torch.arange(1, HEADS + 1)


def score_mod(score: Tensor, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    return CAP * torch.tanh((score + slopes[h] * (kv_idx - q_idx)) / CAP)


def mask_mod_of(ids: Tensor) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    def mask_mod(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        near = (q_idx >= kv_idx) & (q_idx - kv_idx < WINDOW)
        return near & (ids[b, q_idx] == ids[b, kv_idx])

    return mask_mod


def flex(q: Tensor, k: Tensor, v: Tensor, ids: Tensor) -> Tensor:
    """Before."""
    block_mask = create_block_mask(mask_mod_of(ids), len(ids), None, LENGTH, LENGTH, q.device)
    return flex_attention(q, k, v, score_mod=score_mod, block_mask=block_mask)


def traced(q: Tensor, k: Tensor, v: Tensor, ids: Tensor) -> Tensor:
    """Step 1: the same functions."""
    return ma.attention(q, k, v, ma.mask(mask_mod_of(ids)) + ma.score(score_mod))


def composed(q: Tensor, k: Tensor, v: Tensor, ids: Tensor) -> Tensor:
    """Step 2: the same as an expression."""
    mask = causal & sliding(WINDOW) & document(ids)
    return ma.attention(q, k, v, mask + softcap(CAP) @ alibi(slopes))


class Model(nn.Module):
    def __init__(self, attend: Attend) -> None:
        super().__init__()
        self.attend = attend
        self.embed = nn.Embedding(VOCABULARY, DIM)
        self.layers = nn.ModuleList([nn.Linear(DIM, 3 * DIM, bias=False) for _ in range(2)])
        self.out = nn.Linear(DIM, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor, ids: Tensor) -> Tensor:
        x = self.embed(tokens)
        for project in self.layers:
            q, k, v = project(x).unflatten(-1, (3, HEADS, -1)).transpose(1, 3).unbind(2)
            x = x + self.attend(q, k, v, ids).transpose(1, 2).flatten(2)
        return self.out(x)


@torch.no_grad()  # on the CPU flex_attention has no backward pass; maskalg's has
def main() -> None:
    warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
    torch.manual_seed(0)
    tokens = torch.randint(VOCABULARY, (2, LENGTH))
    ids = torch.stack([torch.arange(LENGTH) // 100, torch.arange(LENGTH) // 37])

    before = Model(flex)
    wanted = before(tokens, ids)
    for attend in (traced, composed):
        after = Model(attend)
        after.load_state_dict(before.state_dict())
        torch.testing.assert_close(after(tokens, ids), wanted, atol=1e-5, rtol=1e-4)
        print(f"{attend.__name__}: logits equal those of flex_attention")

    mask = causal & sliding(WINDOW) & document(ids)
    print(ma.mask(mask_mod_of(ids)))
    print("  is", mask)
    print("  ", ma.equivalent(ma.mask(mask_mod_of(ids)), mask))
    theirs = create_block_mask(mask_mod_of(ids), 2, None, LENGTH, LENGTH, "cpu", BLOCK_SIZE=32)
    dropped = mask.blocks(LENGTH, block=32).sparsity
    print(f"blocks dropped: {dropped:.1%}, of create_block_mask {theirs.sparsity():.1f}%")


if __name__ == "__main__":
    main()
