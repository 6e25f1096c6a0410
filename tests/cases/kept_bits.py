"""Masks that cost more to compute than bits of their pairs to look up."""

import torch

import maskalg as ma
from maskalg import causal, sliding


class Anew:
    """In place of the memory of bits: each kernel's are made from its own hooks, and counted."""

    def __init__(self):
        self.made = 0

    def recall(self, _key, _masks, _values, made):
        self.made += 1
        return made()


BY_DISTANCE = (ma.q_idx - ma.kv_idx) % 7 < 3


def masks(length, device="cpu"):
    """By name, over `length` queries and as many keys, a multiple of 160, with four heads."""
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(length, generator=generator).to(device)
    blocks = (torch.rand(length // 16, length // 16, generator=generator) < 0.3).to(device)
    place = torch.arange(length, device=device)
    by_level = torch.div(place[: length - 10] - 1, 3, rounding_mode="floor")
    bands = torch.stack([place + 40, place + 90], dim=-1).clamp(max=length).int()
    return {
        "strided": causal & BY_DISTANCE,
        "of heads": causal & ((ma.q_idx // 8 + ma.head) % 3 == (ma.kv_idx // 8) % 3),
        "no keys": BY_DISTANCE & (ma.q_idx % 5 != 2) & (ma.q_idx >= 100),
        "permutation": ma.permutation(order),
        "permutation, sliding": sliding(100) & ma.permutation(order),
        "neighborhood": ma.neighborhood((length // 32, 32), (3, 7), 1),
        "tree": ma.tree(by_level, 10),
        "per document": ma.per_document(causal & ma.chunked(30), place // 150),
        "blocks": causal & ma.block_table(blocks, 16),
        "bands": ma.flashmask(bands.view(1, 1, length, 2), causal=True),
        "per document, by its ends": ma.per_document.from_cu_seqlens(
            causal | ma.prefix(3),
            torch.tensor([0, 1, length // 4, length // 4, length - 30], device=device),
            total=length,
        ),
        "biased": (causal & BY_DISTANCE) + ma.alibi(0.5 ** torch.arange(1, 5, device=device)),
    }
