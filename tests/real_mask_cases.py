"""Masks that compare real numbers, at pairs where one rounding more or less decides."""

import torch

from maskalg import exp, floor, kv_idx, q_idx, scalar, sqrt, table, truncate

LENGTH = 64


def masks():
    shares = torch.tensor(0.1) * torch.tensor(0.7) * torch.arange(LENGTH)
    ticks = table(1_700_000_000 + 3 * torch.arange(LENGTH), "ticks")
    later = ticks[q_idx] - ticks[kv_idx]
    seconds = table(1.7e9 + torch.arange(LENGTH, dtype=torch.float64), "seconds")
    half = table(torch.linspace(0, 1, LENGTH, dtype=torch.float16), "half")
    brain = table(torch.linspace(0, 1, LENGTH, dtype=torch.bfloat16), "brain")
    levels = table(torch.tensor([0.25, 0.75]).repeat(LENGTH // 2), "levels")
    broken = table(torch.tensor([0.5, torch.nan, 0.75, 0.75]).repeat(LENGTH // 4), "broken")
    ends = table(torch.tensor([torch.inf, -torch.inf, torch.nan, 5.0]).repeat(LENGTH // 4), "ends")
    return {
        "equal levels": levels[q_idx] == levels[kv_idx],
        "equal levels, causal": (q_idx >= kv_idx) & (levels[q_idx] == levels[kv_idx]),
        "no numbers": broken[q_idx] == broken[kv_idx],
        "ends of integers": kv_idx - q_idx < truncate(ends[q_idx]),
        "past integers": kv_idx < q_idx + truncate(exp(0.5 * q_idx)),
        "float64": seconds[q_idx] >= seconds[kv_idx],
        "equal float64": seconds[q_idx] == seconds[kv_idx],
        "float16": half[q_idx] + half[kv_idx] * 0.3 >= half[q_idx] * half[q_idx],
        "bfloat16": brain[q_idx] + brain[kv_idx] * 0.3 >= brain[q_idx] * brain[q_idx],
        "roots": sqrt(q_idx) * sqrt(q_idx) >= kv_idx,
        "ticks": later + 0.5 < 10,
        "shares of ticks": later * 0.5 < 10,
        "quotients": floor(q_idx / 41) == floor(kv_idx / 41),
        "numbers": scalar(0.1, "a") * scalar(0.7, "b") * q_idx == table(shares)[kv_idx],
        "order": 0.3 * q_idx * (q_idx / (kv_idx + 1)) / 3 > 0.5,
    }
