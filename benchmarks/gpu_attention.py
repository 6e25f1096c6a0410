"""Forward attention on one GPU: maskalg beside FlexAttention, cuDNN and FlashAttention-2.

Contenders of a case are interleaved in one process; the figures are medians over rounds, the
spread is min-max, TFLOP/s count the kept elements only. Run as

    python benchmarks/gpu_attention.py [--cases causal,window] [--rounds 7] [--tiles 128x64x8x3,...]

`--backward` times the backward pass alone. `--tiles` times the kernel at several tile shapes
(block_q x block_kv x warps x stages) instead of comparing with the peers.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import maskalg as ma
from maskalg.backends import triton as backend
from maskalg.tiles import Tile

Shape = tuple[int, int, int, int, int]  # batch, heads, kv_heads, length, head_dim

A128: Shape = (2, 16, 16, 8192, 128)
A64: Shape = (2, 32, 32, 8192, 64)
LONG: Shape = (1, 32, 8, 32768, 128)


@dataclass
class Case:
    """One row: our expression, and the same for FlexAttention."""

    shape: Shape
    expression: ma.Mask | ma.Score
    mask_mod: Callable | None = None
    score_mod: Callable | None = None
    sdpa_causal: bool | None = None


def documents(length: int, mean: int, device: str) -> torch.Tensor:
    """Document ids with lengths between half and one and a half of `mean`, from a fixed seed."""
    generator = torch.Generator().manual_seed(0)
    low, high, count = mean // 2, mean + mean // 2, 2 * length // mean + 2
    sizes = torch.randint(low, high, (count,), generator=generator)
    ids = torch.repeat_interleave(torch.arange(len(sizes)), sizes)[:length]
    return ids.to(device, torch.int32)


def cases(device: str) -> dict[str, Case]:
    found: dict[str, Case] = {}
    for name, shape in (("D128", A128), ("D64", A64), ("GQA32k", LONG)):
        heads, length = shape[1], shape[3]
        ids = documents(length, 1000, device)
        short = documents(length, 256, device)
        slopes = torch.exp2(-8 * torch.arange(1, heads + 1, device=device) / heads)

        def causal(b, h, q, k):
            return q >= k

        def window(b, h, q, k):
            return (q >= k) & (q - k < 1024)

        def document(b, h, q, k, ids=ids):
            return (q >= k) & (ids[q] == ids[k])

        def three(b, h, q, k, ids=ids):
            return (q >= k) & (q - k < 1024) & (ids[q] == ids[k])

        def documents_256(b, h, q, k, ids=short):
            return (q >= k) & (ids[q] == ids[k])

        def prefix(b, h, q, k, n=length // 4):
            return (q >= k) | (k < n)

        def sinks(b, h, q, k):
            return (q >= k) & ((q - k < 1024) | (k < 4))

        def alibi(s, b, h, q, k, slopes=slopes):
            return s + slopes[h] * (k - q)

        def cap(s, b, h, q, k):
            return 30 * torch.tanh(s / 30)

        c = ma.causal
        rows = {
            "full": Case(shape, ma.everything, sdpa_causal=False),
            "causal": Case(shape, c, causal, sdpa_causal=True),
            "window": Case(shape, c & ma.sliding(1024), window),
            "document": Case(shape, c & ma.document(ids), document),
            "document&window": Case(shape, c & ma.document(ids) & ma.sliding(1024), three),
            "documents of 256": Case(shape, c & ma.document(short), documents_256),
            "prefix": Case(shape, c | ma.prefix(length // 4), prefix),
            "sinks": Case(shape, c & (ma.sliding(1024) | ma.prefix(4)), sinks),
            "alibi": Case(shape, c + ma.alibi(slopes), causal, alibi),
            "softcap": Case(shape, c + ma.softcap(30.0), causal, cap),
        }
        found |= {f"{name} {row}": case for row, case in rows.items()}
    return found


def contenders(
    case: Case, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> dict[str, Callable]:
    gqa = q.shape[1] != k.shape[1]
    block_mask = None
    if case.mask_mod is not None:
        make = torch.compile(create_block_mask)
        block_mask = make(case.mask_mod, None, None, q.shape[2], k.shape[2], q.device)
    flex = torch.compile(flex_attention, dynamic=False)
    found: dict[str, Callable] = {
        "maskalg": lambda: ma.attention(q, k, v, case.expression),
        "flex": lambda: flex(q, k, v, case.score_mod, block_mask, enable_gqa=gqa),
    }
    if case.sdpa_causal is not None:
        for name, kind in (
            ("cudnn", SDPBackend.CUDNN_ATTENTION),
            ("fa2", SDPBackend.FLASH_ATTENTION),
        ):

            def sdpa(kind=kind):
                with sdpa_kernel(kind):
                    return F.scaled_dot_product_attention(
                        q, k, v, is_causal=case.sdpa_causal, enable_gqa=gqa
                    )

            found[name] = sdpa
    return found


def interleaved(
    functions: dict[str, Callable], rounds: int, slot_ms: float = 25
) -> dict[str, list]:
    """Milliseconds a call of each function in each round, one function after the other."""
    repeats: dict[str, int] = {}
    for name, function in functions.items():
        for _ in range(3):
            function()
        repeats[name] = max(3, int(slot_ms / max(_timed(function, 3), 1e-3)))
    times: dict[str, list] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            times[name].append(_timed(function, repeats[name]))
    return times


def _timed(function: Callable, repeats: int) -> float:
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(repeats):
        function()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) / repeats


def kept_pairs(case: Case, heads: int) -> int:
    """Kept elements of one head's matrix, counted in slices of 1024 queries."""
    mask = case.expression if isinstance(case.expression, ma.Mask) else case.expression.mask
    length, total = case.shape[3], 0
    for first in range(0, length, 1024):
        slice_ = mask.shift(q=first).to_dense(1024, length, heads=heads)
        total += int(slice_[0, 0].sum())
    return total


def backward_of(function: Callable, inputs: tuple[torch.Tensor, ...]) -> Callable:
    """The backward pass of a contender, from a fixed gradient of its output."""
    out = function()
    torch.manual_seed(1)
    gradient = torch.randn(out.shape, device=out.device).to(out.dtype)
    return lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True)


def one_case(name: str, case: Case, rounds: int, backward: bool) -> None:
    batch, heads, kv_heads, length, dim = case.shape
    torch.manual_seed(0)
    q = torch.randn(batch, heads, length, dim, device="cuda", dtype=torch.bfloat16)
    k, v = (
        torch.randn(batch, kv_heads, length, dim, device="cuda", dtype=torch.bfloat16)
        for _ in range(2)
    )
    inputs = tuple(tensor.requires_grad_(backward) for tensor in (q, k, v))
    functions = contenders(case, q, k, v)
    flops = 4 * batch * heads * dim * kept_pairs(case, heads)
    if backward:
        functions = {label: backward_of(f, inputs) for label, f in functions.items()}
        flops *= 2.5
        out, other = (torch.cat([g.flatten() for g in functions[n]()]) for n in ("maskalg", "flex"))
    else:
        out, other = functions["maskalg"](), functions["flex"]()
    difference = ((out.float() - other.float()).norm() / other.float().norm()).item()
    times = interleaved(functions, rounds)
    ours = statistics.median(times["maskalg"])
    cells = []
    for other_name, found in times.items():
        middle = statistics.median(found)
        ratio = "" if other_name == "maskalg" else f" x{middle / ours:.2f}"
        cells.append(
            f"{other_name} {middle:.3f} [{min(found):.3f}-{max(found):.3f}] "
            f"{flops / middle / 1e9:.0f}T{ratio}"
        )
    print(f"{name:24} {'  '.join(cells)}  diff to flex {difference:.1e}", flush=True)


def sweep_backward(name: str, case: Case, tiles: list[Tile], rounds: int, of: str) -> None:
    """Times the backward pass with each tile for the gradients `of` "queries" or "keys"."""
    batch, heads, kv_heads, length, dim = case.shape
    inputs = tuple(
        torch.randn(batch, h, length, dim, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for h in (heads, kv_heads, kv_heads)
    )
    field = "query_tiles" if of == "queries" else "key_tiles"
    plan_of = backend.backward_plan
    functions: dict[str, Callable] = {}
    base = backward_of(lambda: ma.attention(*inputs, case.expression), inputs)
    for tile in tiles:

        def run(tile=tile):
            backend.backward_plan = lambda *a: dataclasses.replace(plan_of(*a), **{field: (tile,)})
            return base()

        try:
            run()
        except Exception as error:
            print(f"{name:24} {of} {tile}: {type(error).__name__}", flush=True)
            continue
        functions[
            f"{tile.block_q}x{tile.block_kv}x{tile.warps}x{tile.stages}" + "x1" * tile.one_loop
        ] = run
    for label, found in interleaved(functions, rounds).items():
        print(f"{name:24} {of:8} {label:14} {statistics.median(found):.3f} ms", flush=True)
    backend.backward_plan = plan_of


def sweep(name: str, case: Case, tiles: list[Tile], rounds: int) -> None:
    batch, heads, kv_heads, length, dim = case.shape
    q = torch.randn(batch, heads, length, dim, device="cuda", dtype=torch.bfloat16)
    k, v = (
        torch.randn(batch, kv_heads, length, dim, device="cuda", dtype=torch.bfloat16)
        for _ in range(2)
    )
    functions: dict[str, Callable] = {}
    for tile in tiles:

        def run(tile=tile):
            backend.tiles_for = lambda *_, **__: (tile,)
            backend._plan.cache_clear()
            return ma.attention(q, k, v, case.expression)

        try:
            run()
        except Exception as error:
            print(f"{name:24} {tile}: {type(error).__name__}", flush=True)
            continue
        functions[
            f"{tile.block_q}x{tile.block_kv}x{tile.warps}x{tile.stages}" + "x1" * tile.one_loop
        ] = run
    flops = 4 * batch * heads * dim * kept_pairs(case, heads)
    for label, found in interleaved(functions, rounds).items():
        middle = statistics.median(found)
        rate = flops / middle / 1e9
        print(f"{name:24} {label:14} {middle:.3f} ms {rate:.0f} TFLOP/s", flush=True)


def _tile(text: str) -> Tile:
    """ "64x64x4x3" with two loops, "64x64x4x3x1" with one."""
    numbers = [int(part) for part in text.split("x")]
    return Tile(*numbers[:4], one_loop=len(numbers) > 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default="", help="comma-separated parts of case names")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--tiles", default="")
    options = parser.parse_args()
    wanted = [part for part in options.cases.split(",") if part]
    name = torch.cuda.get_device_name()
    print(f"{name}, torch {torch.__version__}, bfloat16, median ms [min-max] of {options.rounds}")
    for case_name, case in cases("cuda").items():
        if wanted and not any(part in case_name for part in wanted):
            continue
        torch._dynamo.reset()
        if options.tiles:
            tiles = [_tile(text) for text in options.tiles.split(",")]
            if options.backward:
                sweep_backward(case_name, case, tiles, options.rounds, "queries")
                sweep_backward(case_name, case, tiles, options.rounds, "keys")
            else:
                sweep(case_name, case, tiles, options.rounds)
        else:
            one_case(case_name, case, options.rounds, options.backward)


if __name__ == "__main__":
    main()
