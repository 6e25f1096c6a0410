"""Every tile shape by itself on one GPU: what `maskalg/tiles/forward.py` rests on.

    python benchmarks/gpu_tiles.py [--cases causal] [--dim 128] [--kernels forward,keys]
    python benchmarks/gpu_tiles.py --tiles 128x128x8x3,64x64x4x3x1

Times of each case, interleaved in one process, of the tiles that `maskalg tune` starts from, or of
those named: block_q x block_kv x warps x stages of the plain kernels, with x1 for one loop. Results
are compared with the table's. `maskalg tune --dry-run` searches further; `maskalg bench` compares
with peers.
"""

from __future__ import annotations

import argparse
import statistics

import torch

from maskalg.attention import checked_call
from maskalg.backends.triton.trial import Trial
from maskalg.bench.agreement import TOLERANCE, distance
from maskalg.bench.contenders import inputs_of
from maskalg.bench.measure import interleaved, kept_pairs
from maskalg.bench.tuning_session import tuning_cases
from maskalg.tiles.shapes import Tile
from maskalg.tiles.tuned.candidates import first_candidates
from maskalg.tiles.tuned.choices import KERNELS, text

PRODUCTS = {"forward": 2, "queries": 3, "keys": 4}


def sweep(label: str, trial: Trial, kernel: str, tiles: list[Tile], rounds: int) -> dict:
    """Milliseconds of each tile, the table's first, in each round."""
    default = trial.table(kernel)[0]
    runs = {text(default): trial.run(kernel, default)}
    wanted = trial.attempt(runs[text(default)])
    if isinstance(wanted, str):
        print(f"{label} {text(default)}: {wanted}", flush=True)
        return {}
    for tile in tiles or first_candidates(trial.architecture, trial.key(kernel)):
        if text(tile) in runs or not trial.serves(tile):
            continue
        run = trial.run(kernel, tile)
        found = trial.attempt(run)
        if not isinstance(found, str):
            apart = distance(found, wanted)
            if apart <= TOLERANCE[wanted[0].dtype]:
                runs[text(tile)] = run
                continue
            found = f"its result is {apart:.1e} from the table's"
        print(f"{label} {text(tile)}: {found[:100]}", flush=True)
    return interleaved(runs, rounds)


def tile_of(written: str) -> Tile:
    """ "64x64x4x3" with two loops, "64x64x4x3x1" with one."""
    numbers = [int(part) for part in written.split("x")]
    return Tile(*numbers[:4], one_loop=len(numbers) > 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default="", help="comma-separated parts of case names")
    parser.add_argument("--dim", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--kernels", default=",".join(KERNELS), help="comma-separated")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tiles", default="", help="comma-separated, of the plain kernels")
    options = parser.parse_args()
    wanted = [part for part in options.cases.split(",") if part]
    tiles = [tile_of(written) for written in options.tiles.split(",") if written]
    name = torch.cuda.get_device_name()
    print(
        f"{name}, torch {torch.__version__}, bfloat16, median ms [min-max] of {options.rounds}; "
        "TFLOP/s of the products of kept pairs"
    )
    for dim in options.dim:
        for case_name, case in tuning_cases(dim, "cuda").items():
            if wanted and not any(part in case_name for part in wanted):
                continue
            q, k, v = inputs_of(case, torch.bfloat16, gradients=False)
            trial = Trial(checked_call(q, k, v, case.expression))
            flops = 2 * dim * kept_pairs(case)
            for kernel in options.kernels.split(","):
                label = f"D{dim} {case_name:26} {kernel:8}"
                for tile, times in sweep(label, trial, kernel, tiles, options.rounds).items():
                    middle = statistics.median(times)
                    rate = PRODUCTS[kernel] * flops / middle / 1e9
                    spread = f"{middle:.3f} [{min(times):.3f}-{max(times):.3f}]"
                    print(f"{label} {spread} {rate:.0f}T  {tile}", flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
