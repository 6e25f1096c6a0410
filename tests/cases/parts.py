"""Outputs and lses of parts of keys, some of which queries keep nothing of."""

import torch


def parts(number, shape, dtype, *, tokens_first=False, seed=0):
    """Outputs `shape` and lses `shape[:-1]`; NaN where a part keeps nothing."""
    draw = torch.Generator().manual_seed(seed)
    outs, lses = [], []
    for _ in range(number):
        out = torch.randn(shape, generator=draw)
        lse = 30 * torch.randn(shape[:-1], generator=draw)
        lse[torch.rand(lse.shape, generator=draw) < 0.3] = float("-inf")
        out[lse == float("-inf")] = float("nan")
        if tokens_first:
            out = out.transpose(1, 2).contiguous().transpose(1, 2)
        outs.append(out.to(dtype))
        lses.append(lse)
    return outs, lses


LAYOUTS = [
    (2, (2, 3, 50, 64), False), (3, (2, 3, 50, 40), True), (1, (1, 1, 1, 5), False),
    (9, (1, 4, 7, 128), True), (2, (30, 24), False), (4, (2, 2, 2, 3, 16), False),
]  # fmt: skip
