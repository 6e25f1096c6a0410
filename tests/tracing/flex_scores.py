"""FlexAttention score functions as people write them, anew from their formulas."""

import math

import torch
import torch.nn.functional as F

B, H, N = 2, 4, 24


def scores():
    torch.manual_seed(0)
    per_head, per_query = torch.rand(H), torch.randn(N)
    pairs, whole = torch.randn(N, N), torch.randn(B, H, N, N)
    by_distance = torch.randn(H, 2 * N)
    ids = torch.arange(N) // 7
    bidirectional = torch.tensor([4, 11])
    kinds = torch.tensor([0, 1, 1, 0])
    distances = torch.randint(0, 4, (B, N, N))
    spatial = torch.randn(H, 4)
    lengths = torch.randint(0, 4, (B, N, N))
    edges = torch.randint(0, 5, (B, N, N, 3))
    layers = [torch.randn(H, 5) for _ in range(3)]
    rope_q, rope_k = torch.randn(B, H, N, 8), torch.randn(B, 1, N, 8)
    infinity = float("inf")
    buckets, farthest = 8, 20

    def documents(s, b, h, q, k):
        return torch.where(ids[q] == ids[k], s, -infinity)

    def prefix_or_causal(s, b, h, q, k):
        after = torch.where(k <= q, s, -float("inf"))
        return torch.where(k <= bidirectional[b], s, after)

    def buckets_of_t5(s, b, h, q, k):
        far = (q - k).abs()
        half = buckets // 2
        large = half + (
            torch.log(far.float() / half) / math.log(farthest / half) * (buckets - half)
        ).to(torch.long)
        bucket = torch.where(far < half, far, torch.clamp(large, max=buckets - 1))
        return s + by_distance[h, bucket]

    def along_paths(s, b, h, q, k):
        count, total = lengths[b, q, k], 0.0
        for step, table in enumerate(layers):
            total = total + torch.where(count > step, table[h, edges[b, q, k, step]], 0.0)
        return s + total / torch.clamp(count, min=1)

    def dropped_twice(s, b, h, q, k):
        s = torch.where((q - k).abs() < 9, s, -infinity)
        return torch.where(k % 2 == 1, -infinity, s)

    def capped(cap):
        return lambda s, b, h, q, k: cap * torch.tanh(s / cap)

    return {
        "identity": lambda s, b, h, q, k: s,
        "times-two": lambda s, b, h, q, k: s * 2,
        "squared": lambda s, b, h, q, k: s * s,
        "power": lambda s, b, h, q, k: s**2 - (s + 9).pow(1.5) + torch.pow(2, -s),
        "causal": lambda s, b, h, q, k: torch.where(q >= k, s, float("-inf")),
        "causal-method": lambda s, b, h, q, k: s.where(q >= k, float("-inf")),
        "inverse-causal": lambda s, b, h, q, k: torch.where(q <= k, s, float("-inf")),
        "relative": lambda s, b, h, q, k: s + (q - k),
        "relative-causal": lambda s, b, h, q, k: torch.where(q >= k, s + (q - k), -infinity),
        "alibi": lambda s, b, h, q, k: s + (k - q) * torch.exp2(-((h + 1) * 8.0 / H)),
        "head-offset": lambda s, b, h, q, k: s * per_head[h],
        "trigonometric": lambda s, b, h, q, k: torch.sin(torch.cos(s)) + torch.tan(b),
        "branching": lambda s, b, h, q, k: torch.cos(s) * torch.sin(s) + torch.tan(b),
        "documents": documents,
        "prefix-or-causal": prefix_or_causal,
        "dropped-twice": dropped_twice,
        "per-query": lambda s, b, h, q, k: s + per_query[q] * per_query[k],
        "pairs": lambda s, b, h, q, k: s + pairs[q, k],
        "whole": lambda s, b, h, q, k: s + whole[b, h, q, k],
        "chained-indices": lambda s, b, h, q, k: s + whole[b][h][q][k] - whole[b, :, 3][h, k],
        "aten-index": lambda s, b, h, q, k: s + torch.ops.aten.index(per_head, [h]),
        "shifted-distance": lambda s, b, h, q, k: s + by_distance[h, q - k + N],
        "wrapped-distance": lambda s, b, h, q, k: s + by_distance[h, q - k],
        "choice-by-head": lambda s, b, h, q, k: torch.where(kinds[h] == 0, s, s * 0.5),
        "buckets": buckets_of_t5,
        "graph": lambda s, b, h, q, k: s + spatial[h, distances[b, q, k]],
        "paths": along_paths,
        "rotary": lambda s, b, h, q, k: s + 0.5 * torch.dot(rope_q[b, h, q], rope_k[b, h // H, k]),
        "softcap": capped(3),
        "gelu": lambda s, b, h, q, k: torch.log(F.gelu(s) + 1.0),
        "activations": lambda s, b, h, q, k: F.silu(s) + F.relu(s) + F.softplus(s) + s.sigmoid(),
        "rounded": lambda s, b, h, q, k: s + (s * 3).floor() + torch.ceil(s) + s.trunc() + s // 0.7,
        "functions": lambda s, b, h, q, k: (
            torch.rsqrt(s.square() + 1) + s.abs().log1p().sqrt() - s.clamp(-1, 1).expm1().neg()
        ),
        "no-score": lambda s, b, h, q, k: torch.where(q >= k, 1.0, 0.0) + (q == k),
        "extremes": lambda s, b, h, q, k: torch.maximum(s, torch.minimum(s * 2, s + 1)) % 2.5,
        "zeros-like": lambda s, b, h, q, k: torch.zeros_like(s) + torch.full_like(s, 0.5) * s,
        "double-alpha": lambda s, b, h, q, k: torch.add(s, k, alpha=0.25).sub(q, alpha=0.25),
    }
