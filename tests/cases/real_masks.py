"""Masks that compare real numbers, at pairs where one rounding more or less decides."""

import torch

from maskalg import exp, floor, kv_idx, mask, maximum, minimum, q_idx, scalar, sqrt, table, truncate

LENGTH = 64


def masks():
    shares = torch.tensor(0.1) * torch.tensor(0.7) * torch.arange(LENGTH)
    times = 1_700_000_000 + 3 * torch.arange(LENGTH)
    ticks = table(times, "ticks")
    later = ticks[q_idx] - ticks[kv_idx]
    seconds = table(1.7e9 + torch.arange(LENGTH, dtype=torch.float64), "seconds")
    half = table(torch.linspace(0, 1, LENGTH, dtype=torch.float16), "half")
    brain = table(torch.linspace(0, 1, LENGTH, dtype=torch.bfloat16), "brain")
    most = table(torch.tensor([2**31 - 1, -(2**31), 1_700_000_000, 3] * 16).int(), "most")
    parts = table(torch.tensor([2**31 - 1, 2**31 - 2, 17, 1] * 16).int(), "parts", low=1)
    longest = table(torch.tensor([2**63 - 1, -(2**63), 2**63 - 9, 40] * 16), "longest")
    portions = table(torch.tensor([2**63 - 1, 2**63 - 9, 3, 1] * 16), "portions", low=1)
    one = scalar(1, "block", low=1)
    levels = table(torch.tensor([0.25, 0.75]).repeat(LENGTH // 2), "levels")
    broken = table(torch.tensor([0.5, torch.nan, 0.75, 0.75]).repeat(LENGTH // 4), "broken")
    ends = table(torch.tensor([torch.inf, -torch.inf, torch.nan, 5.0]).repeat(LENGTH // 4), "ends")
    far = table(torch.tensor([3e9, 4e9, -5e9, 7.5, 1.5e9, 1.7e9, 2.0, 0.5]).repeat(8), "far")
    whole = [truncate(far[index]) for index in (q_idx, kv_idx)]
    return {
        "far integers, equal": whole[0] == whole[1],
        "far integers, in order": whole[0] > whole[1],
        "remainders of far integers": whole[0] % 7 == whole[1] % 7,
        "remainders of sums": (whole[0] + 200) % 7 == (whole[1] + 200) % 7,
        "differences of far integers": whole[0] - whole[1] >= kv_idx - q_idx,
        "hours": (ticks[q_idx] + 5) // 17 == (ticks[kv_idx] + 5) // 17,
        "hours of one": (ticks[q_idx] + 5) // 17 % 4 >= kv_idx % 3,
        "bits of times": mask(lambda b, h, q, k: ((times[q] + 1) & 6) == ((times[k] + 1) & 6)),
        "hours before": (q_idx - ticks[q_idx]) // 17 == (kv_idx - ticks[kv_idx]) // 17,
        "minutes before": (q_idx - ticks[q_idx]) % 17 >= (kv_idx - ticks[kv_idx]) % 17,
        "hours at the ends": (most[q_idx] + 5) // 17 % 5 == (most[kv_idx] + 5) // 17 % 5,
        "no limit, in blocks": (most[q_idx] + q_idx) // one >= kv_idx,
        "no limit before": (q_idx - most[q_idx]) // one < kv_idx,
        "no limits, equal": (q_idx - most[q_idx]) // one == (kv_idx - most[q_idx]) // one,
        "no limits, in order": (q_idx + most[q_idx]) // one >= (kv_idx + most[kv_idx]) // one,
        "no limits, divided": (q_idx - most[q_idx]) // one // 3 == (kv_idx - most[kv_idx]) // one,
        "no limits, counted": (q_idx - most[kv_idx]) // one % 3 >= kv_idx % 3,
        "no limits, doubled": (q_idx - most[q_idx]) // one * 2 > most[kv_idx],
        "minutes at the ends": (9 - most[q_idx]) % 17 >= (most[kv_idx] + q_idx) % 17,
        "remainders by entries": (kv_idx + most[kv_idx] - q_idx) % parts[q_idx] >= 9,
        "remainders of what is left": (kv_idx - most[q_idx] - q_idx) % parts[kv_idx] >= 9,
        "quotients by entries": (kv_idx + most[kv_idx] - q_idx) // parts[q_idx] >= 0,
        "quotients of what is left": (kv_idx - most[q_idx] - q_idx) // parts[kv_idx] >= 1,
        "equal quotients by entries": (
            (kv_idx + most[q_idx]) // parts[q_idx] == (q_idx + most[q_idx]) // parts[q_idx]
        ),
        "long remainders": (kv_idx + longest[kv_idx] - q_idx) % portions[q_idx] >= 9,
        "long quotients": (kv_idx - longest[q_idx] - q_idx) // portions[kv_idx] >= 1,
        "times as real numbers": (ticks[q_idx] + 5) * 0.5 >= (ticks[kv_idx] + 99) * 0.5,
        "largest times": maximum(ticks[q_idx] + 3, 0) == maximum(ticks[kv_idx] + 6, 0),
        "constants beside far integers": truncate(q_idx * 1e12) + 2**30 + 2**29 >= kv_idx,
        "equal levels": levels[q_idx] == levels[kv_idx],
        "equal levels, causal": (q_idx >= kv_idx) & (levels[q_idx] == levels[kv_idx]),
        "no numbers": broken[q_idx] == broken[kv_idx],
        "larger of no numbers": maximum(broken[q_idx], broken[kv_idx]) >= 0.5,
        "smaller of no numbers": minimum(0.3, minimum(broken[kv_idx], q_idx) - 0.3) < 1,
        "ends of integers": kv_idx - q_idx < truncate(ends[q_idx]),
        "past integers": kv_idx < q_idx + truncate(exp(0.5 * q_idx)),
        "float64": seconds[q_idx] >= seconds[kv_idx],
        "equal float64": seconds[q_idx] == seconds[kv_idx],
        "float16": half[q_idx] + half[kv_idx] * 0.3 >= half[q_idx] * half[q_idx],
        "bfloat16": brain[q_idx] + brain[kv_idx] * 0.3 >= brain[q_idx] * brain[q_idx],
        "divisors past float32": levels[q_idx] / 1e300 >= levels[kv_idx] - 0.5,
        "roots": sqrt(q_idx) * sqrt(q_idx) >= kv_idx,
        "ticks": later + 0.5 < 10,
        "shares of ticks": later * 0.5 < 10,
        "quotients": floor(q_idx / 41) == floor(kv_idx / 41),
        "numbers": scalar(0.1, "a") * scalar(0.7, "b") * q_idx == table(shares)[kv_idx],
        "order": 0.3 * q_idx * (q_idx / (kv_idx + 1)) / 3 > 0.5,
    }
