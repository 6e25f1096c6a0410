"""Attention on a CPU: maskalg beside SDPA with a dense Boolean mask and compiled FlexAttention.

Contenders of a case are interleaved in one process; the figures are medians over rounds, the
spread is min-max. Run as

    python benchmarks/cpu_attention.py [--rounds 9] [--threads 2]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import maskalg as ma

BATCH, HEADS, LENGTH, DIM = 1, 8, 4096, 64


def cases() -> dict[str, tuple]:
    """Name: expression, FlexAttention's mask_mod and score_mod, additive bias for SDPA."""
    ids = torch.arange(LENGTH) // 500
    slopes = torch.exp2(-torch.arange(1, HEADS + 1))
    places = torch.arange(LENGTH)
    added = slopes.view(-1, 1, 1) * (places - places.view(-1, 1))

    def window(b, h, q, k):
        return (q >= k) & (q - k < 512)

    def causal(b, h, q, k):
        return q >= k

    def document(b, h, q, k):
        return (q >= k) & (ids[q] == ids[k])

    def alibi(s, b, h, q, k):
        return s + slopes[h] * (k - q)

    c = ma.causal
    return {
        "causal & sliding(512)": (c & ma.sliding(512), window, None, None),
        "causal": (c, causal, None, None),
        "causal & document": (c & ma.document(ids), document, None, None),
        "causal & sliding + alibi": (
            c & ma.sliding(512) + ma.alibi(slopes),
            window,
            alibi,
            added,
        ),
    }


def interleaved(functions: dict[str, Callable], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each function in each round, one after the other."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name].append(1000 * (time.perf_counter() - start))
    return times


def report(title: str, times: dict[str, list[float]]) -> None:
    ours = statistics.median(times["maskalg"])
    cells = []
    for name, found in times.items():
        ratio = "" if name == "maskalg" else f" x{statistics.median(found) / ours:.2f}"
        spread = f"[{min(found):.1f}-{max(found):.1f}]"
        cells.append(f"{name} {statistics.median(found):.1f} ms {spread}{ratio}")
    print(f"{title:28} {'   '.join(cells)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    q, k, v = (torch.randn(BATCH, HEADS, LENGTH, DIM) for _ in range(3))
    inputs = tuple(t.clone().requires_grad_() for t in (q, k, v))
    print(
        f"[{BATCH}, {HEADS}, {LENGTH}, {DIM}] float32, torch {torch.__version__}, "
        f"{options.threads} threads, median ms [min-max] of {options.rounds}"
    )
    for name, (expression, mask_mod, score_mod, added) in cases().items():
        mask = expression if isinstance(expression, ma.Mask) else expression.mask
        dense = mask.to_dense(LENGTH)
        if added is not None:
            dense = added.masked_fill(~dense, float("-inf"))
        block_mask = create_block_mask(mask_mod, None, None, LENGTH, LENGTH, device="cpu")
        torch._dynamo.reset()
        flex = torch.compile(flex_attention, dynamic=False)
        functions = {
            "maskalg": lambda e=expression: ma.attention(q, k, v, e),
            "sdpa dense": lambda d=dense: F.scaled_dot_product_attention(q, k, v, attn_mask=d),
            "flex": lambda s=score_mod, b=block_mask, f=flex: f(q, k, v, s, b),
        }
        difference = (functions["maskalg"]() - functions["sdpa dense"]()).abs().max().item()
        assert difference < 1e-4, difference
        report(name, interleaved(functions, options.rounds))

        def step(attend: Callable) -> None:
            torch.autograd.grad(attend(*inputs).sum(), inputs)

        training = {
            "maskalg": lambda e=expression: step(lambda *t: ma.attention(*t, e)),
            "sdpa dense": lambda d=dense: step(
                lambda *t: F.scaled_dot_product_attention(*t, attn_mask=d)
            ),
        }
        report("  forward and backward", interleaved(training, max(3, options.rounds // 3)))


if __name__ == "__main__":
    main()
