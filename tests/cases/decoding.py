"""Expressions of the last queries of a long cache of keys, that tests of decoding run over."""

import torch

import maskalg as ma
from maskalg import causal, sliding

HEADS = 4
MOST_QUERIES = 90


def expressions(length, device="cpu"):
    """Name: an expression for a few queries, the last of `length` positions."""
    torch.manual_seed(0)
    offset = length - MOST_QUERIES
    ids = (torch.arange(length + 8, device=device) // (length // 4)).int()
    scattered = torch.randint(0, 3, (2, length + 8), device=device)
    slopes = torch.rand(HEADS, device=device)
    last = causal.shift(q=offset)
    now, slots, size = ma.scalar(offset, "now", low=0), length - 20, 16
    real = torch.ones(2, length, dtype=torch.bool, device=device)
    real[0, :33], real[1, 70] = False, False
    first, past = (
        ma.table(torch.tensor(at, device=device).int())[ma.batch] for at in ((33, 0), (length, 0))
    )
    pages = torch.randperm(length // size + 1)[None] - 2  # two hold nothing
    token = ma.table(pages.to(device), "pages")[ma.batch, ma.kv_idx // size] * size
    return {
        "everything": ma.everything,
        "nothing": ma.nothing,
        "causal": last,
        "window": (causal & sliding(100)).shift(q=offset),
        "sinks": (causal & (sliding(60) | ma.prefix(3))).shift(q=offset),
        "document": (causal & ma.document(ids)).shift(q=offset),
        "scattered": ma.document(scattered).shift(q=offset),
        "not-document": ~ma.document(ids).shift(q=offset),
        "entries": causal.shift(q=torch.tensor([7, offset], device=device)),
        "padding": ma.padding(torch.tensor([length, 33], device=device)),
        "padded": (causal & ma.padding.from_mask(real)).shift(q=offset),
        "padded, by bounds": (
            causal & (ma.kv_idx >= first) & ((ma.kv_idx < past) | ma.padding.from_mask(real))
        ).shift(q=offset),
        "per-head": ma.where(ma.head % 2 == 0, causal, sliding(70)).shift(q=offset),
        "dilated": (sliding(300) & ma.dilated(3)).shift(q=offset),
        "dense": ma.dense(torch.rand(2, HEADS, MOST_QUERIES, length, device=device) > 0.7),
        "alibi": (causal + ma.alibi(slopes)).shift(q=offset),
        "softcap": last + ma.softcap(4.0) @ ma.alibi(slopes).shift(q=offset),
        "ring": (causal & (sliding(60) | ma.prefix(3))).at(
            q=ma.q_idx + now, kv=length - (length - ma.kv_idx) % slots
        ),
        "pages": (causal & sliding(100)).at(q=ma.q_idx + now, kv=token + ma.kv_idx % size),
        "reordered": (causal & ma.document(ids) + ma.alibi(slopes)).at(
            q=offset, kv=torch.randperm(length, device=device)
        ),
        "wide": causal.shift(q=2**31 - 200),
        "canvas": ma.neighborhood((4, -(-length // 4)), (3, 9)),
    }


NAMES = list(expressions(400))
# Queries, key-value heads: a row with idle queries; several to a tile; several tiles, some of one
# head each; all heads in one tile.
SHAPES = [(1, HEADS), (3, 2), (5, 1), (MOST_QUERIES, 2)]
