"""The choices of the GPU backend for a call."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

from ...codegen.arguments import DistanceTable
from ...engine.float8 import FLOAT8
from ...tiles.backward import HopperBackwardTile
from ...tiles.forward import HopperTile, Tile
from ..call import Call
from ..traits import Explained
from . import trust
from .arguments import describable
from .families import backward, decode, forward, one_pass
from .launching.fitting import failed, why_not
from .plan import backward_plan_of, plan_of

_Tile = TypeVar("_Tile")


def explain(call: Call) -> Explained:
    """Kernels, tiles and what gave way, by the plans that a call would follow."""
    tier, tile, tables = _forward(call)
    gradients = _gradients(call)
    return Explained(tier, tile, gradients, "kernel", tables, forward.compilations())


def _forward(call: Call) -> tuple[str, str, int]:
    """The family of kernels, the tile, and the tables of distances that are read."""
    plan = plan_of(call)
    wide = ", 64-bit indices" if plan.style.wide else ""
    tables = sum(isinstance(table, DistanceTable) for table in plan.hooks.tables)
    few = decode.shared(call, plan)
    if few is not None:
        best, gave_way = _serving(("decode", plan), few.tiles)
        _, splits = few.counts(call.extents, best)
        sharing = f"{splits} programs share the keys of a row of tiles{gave_way}"
        return f"plain Triton, few queries{wide}", f"{_plain(best)}; {sharing}", tables
    hopper = forward.serving(plan.hopper, call)
    first = () if hopper is None else (hopper,)
    best, gave_way = _serving(("forward", plan), (*first, *plan.candidates))
    if isinstance(best, HopperTile):
        tier = "Gluon on Hopper, forward"
        tile = (
            f"{best.consumers} x 64 x {best.block_kv}, {4 * best.consumers} + 1 warps, "
            f"{best.stages} stages"
        )
    else:
        tier, tile = f"plain Triton, forward{wide}", _plain(best)
    tile += gave_way
    tier += _of_unknown_triton()
    table = plan_of(call, tuned=False)
    if (plan.hopper, plan.candidates) != (table.hopper, table.candidates):
        tile += ", tuned"
    return tier, tile, tables


def _serving(plan: Hashable, tiles: Sequence[_Tile]) -> tuple[_Tile, str]:
    """The first tile that no trial for a plan ruled out so far, and why others gave way."""
    failed = [why for tile in tiles if (why := why_not(plan, tile)) is not None]
    serving = next((tile for tile in tiles if why_not(plan, tile) is None), tiles[-1])
    return serving, "".join(f"; another tile gave way: {why}" for why in failed)


def _of_unknown_triton() -> str:
    """The verdict on the Gluon kernels, where this Triton was not tested."""
    if trust.is_tested():
        return ""
    return f" (Triton {trust.version()}: {trust.verdict().why})"


def _gradients(call: Call) -> str:
    """The kernels of the backward pass; empty for inputs of float8, which have no gradients."""
    if call.query.dtype == FLOAT8:
        return ""
    steps = backward_plan_of(call, plan_of(call))
    inputs = (call.query, call.key, call.value)
    hopper = backward.serves(call, steps) and all(map(describable, inputs))
    if (
        hopper
        and one_pass.tiles_in_turn(call, steps) is not None
        and not failed(("one pass", steps))
    ):
        block = one_pass.one_pass_tile(steps.shape["HEAD_PAD"]).block
        return f"one kernel, Gluon on Hopper, {block} queries at a time"

    def told(of: str, first: HopperBackwardTile | None, plain: tuple[Tile, ...]) -> str:
        tiles: tuple[Tile | HopperBackwardTile, ...] = plain
        if first is not None and hopper:
            tiles = (first, *plain)
        tile, why = _serving((of, steps), tiles)
        if isinstance(tile, Tile):
            return f"plain Triton, {_plain(tile)}{why}"
        return f"Gluon on Hopper, {64 * tile.consumers} x {tile.block}, {tile.stages} stages{why}"

    of_queries = told("queries", steps.hopper_queries, steps.query_tiles)
    return f"dQ: {of_queries}; dK and dV: {told('keys', steps.hopper_keys, steps.key_tiles)}"


def _plain(tile: Tile) -> str:
    return f"{tile.block_q} x {tile.block_kv}, {tile.warps} warps, {tile.stages} stages"
