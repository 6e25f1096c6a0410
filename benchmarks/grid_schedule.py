"""How long the row schedule of masks on canvases takes, at up to a million tokens.

    python benchmarks/grid_schedule.py

For each mask: tiles of 128 x 128 that are not empty and full ones, runs, bytes of first and last
tile of the runs in 32 bits, time of the first proof of a structure, and time of the schedule (least
and median of 7). No tile is evaluated element by element.
"""

from __future__ import annotations

import statistics
import time

import torch

from maskalg import Mask, neighborhood, sliding_tile, temporal, tiled_neighborhood
from maskalg.engine.extents import Lengths, resolve
from maskalg.engine.normal_form import bound
from maskalg.schedule.rung import rung_of
from maskalg.schedule.tile_runs import FULL, TileRuns
from maskalg.schedule.tiling import Tiling

BLOCK = (128, 128)
REPETITIONS = 7

CASES: dict[str, tuple[Mask, int]] = {
    "1024 x 1024, window 7": (neighborhood((1024, 1024), 7), 1024**2),
    "1024 x 1024, window 13": (neighborhood((1024, 1024), 13), 1024**2),
    "1024 x 1024, window 63": (neighborhood((1024, 1024), 63), 1024**2),
    "1000 x 1048, window 13": (neighborhood((1000, 1048), 13), 1000 * 1048),
    "1024 x 1024, window 13, dilation 4": (neighborhood((1024, 1024), 13, 4), 1024**2),
    "1024 x 1024, window 13, causal": (neighborhood((1024, 1024), 13, 1, True), 1024**2),
    "1024 x 1024, window 13, tiles 8 x 16": (
        tiled_neighborhood((1024, 1024), (8, 16), 13),
        1024**2,
    ),
    "64 x 128 x 128, window 9": (neighborhood((64, 128, 128), 9), 1024**2),
    "30 x 48 x 80, window (18, 24, 24)": (neighborhood((30, 48, 80), (18, 24, 24)), 115200),
    "30 x 48 x 80, 3 tiles of 6 x 8 x 8, 256 text": (
        sliding_tile((30, 48, 80), (6, 8, 8), 3, 256),
        115456,
    ),
    "60 x 128 x 128, 3 tiles of 6 x 8 x 8": (sliding_tile((60, 128, 128), (6, 8, 8), 3), 983040),
    "temporal, 32 frames of 32768, reach 64": (temporal(32768, 64), 1024**2),
}


def schedule(mask: Mask, tokens: int) -> TileRuns:
    form = bound(mask)
    rung = rung_of(form.structure)
    assert rung.on_host == "digits", mask
    return rung.runs(Tiling(form, resolve(form, Lengths(tokens, None, 1, 1)), BLOCK))


def main() -> None:
    import sympy  # noqa: F401  (its import is not part of a proof)

    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, blocks {BLOCK}")
    print(f"{'mask':46} {'tiles':>8} {'full':>8} {'runs':>8} {'MiB':>6} {'proof':>8} schedule, ms")
    for name, (mask, tokens) in CASES.items():
        proof = mask.prove().milliseconds
        times = []
        for _ in range(REPETITIONS):
            started = time.perf_counter()
            runs = schedule(mask, tokens)
            times.append(1000 * (time.perf_counter() - started))
        length = runs.tiles
        print(
            f"{name:46} {int(length.sum()):8} {int(length[runs.label == FULL].sum()):8} "
            f"{len(length):8} {8 * len(length) / 2**20:6.2f} {proof:5.0f} ms "
            f"{min(times):8.1f} {statistics.median(times):8.1f}"
        )


if __name__ == "__main__":
    main()
