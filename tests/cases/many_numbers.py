"""Expressions of more numbers than kernels take one by one."""

import torch

import maskalg as ma
from maskalg import causal, head, kv_idx, q_idx, scalar


def expressions():
    """Each with how many numbers its forward kernel reads at least."""
    torch.manual_seed(0)
    tiles = ma.tiled_neighborhood((2, 4, 8), (2, 2, 4), (1, 3, 3)) | ma.neighborhood(
        (2, 4, 8), (1, 3, 5)
    )
    ids = torch.randint(0, 5, (78,)).sort().values
    return {
        "tiles": (tiles, 25),
        "canvases": (tiles | ma.neighborhood((7, 10), (3, 2), (2, 1)), 34),
        "sixty": (sixty(), 60),
        "one canvas": (ma.neighborhood((7, 10), (3, 4)) + waves(10), 25),
        "documents": ((causal & windows(14) & ma.document(ids)).shift(q=5, kv=3), 25),
        "large": (windows(13) & ma.window(2**31 - 1, 3) & (q_idx - 3 >= kv_idx), 25),
    }


def windows(count, first=3):
    """A union of bands of two or three keys, two numbers each."""
    mask = ma.nothing
    for i in range(count):
        low = scalar(first + 4 * i, f"low{i}")
        mask |= (q_idx - kv_idx >= low - 1) & (q_idx - kv_idx <= low + scalar(i % 2, f"more{i}"))
    return mask


def sixty(slopes=None, table=None):
    """Numbers of masks and biases, integers and real ones, divisors, and tables with sizes."""
    mask = windows(10)
    for i in range(5):
        c, d = scalar(3 + i, f"c{i}", low=1), scalar(2 + i, f"d{i}", low=1)
        mask |= (kv_idx % c == q_idx // d % c) & (head <= scalar(i, f"h{i}"))
    bias = ma.softcap(20.0) @ ma.alibi(torch.rand(2) if slopes is None else slopes)
    table = torch.randn(2, 11) if table is None else table
    return causal & mask + (bias + waves(4) + ma.relative(table))


def waves(count):
    """A bias of so many frequencies and phases."""
    bias = 0.0
    for i in range(count):
        turned = scalar(0.1 * (i + 1), f"w{i}") * kv_idx + scalar(0.5 + i, f"p{i}") * q_idx
        bias = ma.bias(ma.sin(turned)) + bias
    return bias
