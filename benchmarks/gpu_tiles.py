"""Tile shapes of the plain kernels on one GPU: what `maskalg/tiles.py` rests on.

    python benchmarks/gpu_tiles.py --tiles 128x128x8x3,64x64x4x3x1 [--cases causal] [--backward]

A tile is block_q x block_kv x warps x stages, with x1 for one loop. Tiles of a case are interleaved
in one process. Peers are compared by `maskalg bench`.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from collections.abc import Callable

import torch

import maskalg as ma
from maskalg.backends import triton as backend
from maskalg.bench.cases import Case, cases
from maskalg.bench.contender import backward_of
from maskalg.bench.contenders import inputs_of
from maskalg.bench.measure import interleaved, kept_pairs
from maskalg.tiles import Tile


def sweep_backward(name: str, case: Case, tiles: list[Tile], rounds: int, of: str) -> None:
    """Times the backward pass with each tile for the gradients `of` "queries" or "keys"."""
    inputs = inputs_of(case, torch.bfloat16, gradients=True)
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
    q, k, v = inputs_of(case, torch.bfloat16, gradients=False)
    functions: dict[str, Callable] = {}
    for tile in tiles:

        def run(tile=tile):
            backend.tiles_for = lambda *_, **__: (tile,)
            backend.hopper_tile = lambda *_, **__: None
            backend.structure_plan.cache_clear()
            return ma.attention(q, k, v, case.expression)

        try:
            run()
        except Exception as error:
            print(f"{name:24} {tile}: {type(error).__name__}", flush=True)
            continue
        functions[
            f"{tile.block_q}x{tile.block_kv}x{tile.warps}x{tile.stages}" + "x1" * tile.one_loop
        ] = run
    shape = case.shape
    flops = 4 * shape.batch * shape.heads * shape.dim * kept_pairs(case)
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
    parser.add_argument("--tiles", required=True)
    options = parser.parse_args()
    wanted = [part for part in options.cases.split(",") if part]
    name = torch.cuda.get_device_name()
    print(f"{name}, torch {torch.__version__}, bfloat16, median ms [min-max] of {options.rounds}")
    for case_name, case in cases("cuda").items():
        if wanted and not any(part in case_name for part in wanted):
            continue
        tiles = [_tile(text) for text in options.tiles.split(",")]
        if options.backward:
            sweep_backward(case_name, case, tiles, options.rounds, "queries")
            sweep_backward(case_name, case, tiles, options.rounds, "keys")
        else:
            sweep(case_name, case, tiles, options.rounds)


if __name__ == "__main__":
    main()
