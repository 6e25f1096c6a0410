"""The GPU backend: one fused kernel with hooks rendered from the expression, and its `explain`."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar, cast

import torch

from ... import errors
from ...codegen.arguments import BitsTable, DistanceTable, MarksArgument
from ...engine.float8 import FLOAT8
from ...tiles.shapes import HopperBackwardTile, HopperTile, Tile, in_turn
from ..call import Call, Result, positively_scaled, recorded
from ..results import empty_result
from ..traits import Bounds, Explained
from . import tables as tables
from . import trust
from .arguments import bits_of_pairs, describable, sinks_of
from .constants import architecture
from .documents import in_units, room_in_units
from .families import backward, decode, forward, one_pass, ragged
from .families.backward import fill_gradients, fill_rows, route_of_gradients
from .families.entries import table_gradients
from .families.forward import launch_forward, route_of_forward
from .families.rows import BackwardPass, Rows, empty_statistics, known_of, sink_gradient
from .finite import spoiled_tables, with_finite_gradients, with_finite_values
from .kept import MOST_OF_TILES
from .launching.fitting import failed, tried_for, why_not
from .launching.launch import elsewhere
from .launching.ready import launch_again, remember
from .plan import Plan, Side, backward_plan_of, bits_lack_memory, plan_of

_Tile = TypeVar("_Tile")
_ALL_GRADIENTS: Final = (True,) * 5  # and the row statistics


def explain(call: Call) -> Explained:
    """The kernels and tiles of a call, and the tiles that failed, by the call's own plans."""
    tier, tile, tables = _forward(call)
    if call.nan_safe:
        tier += ", of copies without NaN"
    gradients = _gradients_told(call)
    plan = plan_of(call)
    marks = [t for t in plan.hooks.tables if isinstance(t, MarksArgument)]
    bounds: Bounds = "spans" if plan.told.style.few_tiles else "kernel"
    if any(mark.bits for mark in marks):
        bounds = "bits"
    compilations = forward.compilations()
    return Explained(tier, tile, gradients, bounds, tables, _elements_told(call), compilations)


def _elements_told(call: Call) -> str:
    """The text about bits that are looked up, or lack memory; else empty: the mask is computed."""
    plan = plan_of(call)
    passes = [(plan.hooks, "MiB")]
    if call.query.dtype != FLOAT8:
        passes.append((backward_plan_of(call, plan).hooks, "MiB for gradients"))
    told, pairs = [], "each pair"
    for hooks, of in passes:
        tables = [table for table in hooks.tables if isinstance(table, BitsTable)]
        size = sum(bits_of_pairs(table, call).nbytes for table in tables)
        if size:
            told.append(f"{size / 2**20:.2f} {of}")
        if any(table.tiled for table in tables):
            pairs = "each pair of partial tiles"
    if not told and bits_lack_memory(call, plan):
        return (
            "computed, which is slower: a bit for each pair of partial tiles would take more than "
            f"{MOST_OF_TILES >> 20} MiB"
        )
    if not told:
        return ""
    return (
        f"looked up: a bit for {pairs}, {', '.join(told)}, made once while the tensors of the "
        "mask live unchanged"
    )


def _forward(call: Call) -> tuple[str, str, int]:
    """The family of kernels, the tile, and the number of distance tables."""
    plan = plan_of(call)
    wide = ", 64-bit indices" if plan.told.style.wide else ""
    tables = sum(isinstance(table, DistanceTable) for table in plan.hooks.tables)
    few = decode.shared(call, plan)
    if few is not None:
        best, gave_way = _serving(tried_for("decode", plan, call), in_turn(few.tiles))
        _, splits = few.counts(call.extents, best)
        sharing = f"{splits} programs share the keys of a row of tiles{gave_way}"
        return f"plain Triton, few queries{wide}", f"{_plain(best)}; {sharing}", tables
    of_few = ragged.ragged_of(call, plan)
    if of_few is None:
        return *_of_many(call, plan, wide), tables
    best, gave_way = _serving(tried_for("ragged", plan, call), in_turn(of_few.tiles))
    keys = of_few.part_tiles(call, best, plan.constants["VALUE_PAD"]) * best.block_kv
    tier = f"plain Triton, few queries{wide}"
    tile = f"{_plain(best)}; programs take parts of {keys} keys of each request{gave_way}"
    if of_few.few:
        others, of_others = _of_many(call, plan, wide)
        queries = "1 query" if of_few.few == 1 else f"up to {of_few.few} queries"
        tier = f"{tier}, where a request has {queries}; {others}, where it has more"
        tile = f"{tile}; {of_others}"
    return tier, tile, tables


def _of_many(call: Call, plan: Plan, wide: str) -> tuple[str, str]:
    """The kernel for programs with all keys of their queries, and its tile."""
    hopper = forward.serving(plan.hopper, call)
    first = () if hopper is None else (hopper,)
    best, gave_way = _serving(tried_for("forward", plan, call), (*first, *in_turn(plan.candidates)))
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
    return tier, tile


def _serving(plan: Hashable, tiles: Sequence[_Tile]) -> tuple[_Tile, str]:
    """The first tile that no trial for the plan has ruled out, and why earlier ones failed."""
    failed = [why for tile in tiles if (why := why_not(plan, tile)) is not None]
    serving = next((tile for tile in tiles if why_not(plan, tile) is None), tiles[-1])
    return serving, "".join(f"; another tile gave way: {why}" for why in failed)


def _of_unknown_triton() -> str:
    """The verdict on the Gluon kernels, if this Triton was not tested."""
    if trust.is_tested():
        return ""
    return f" (Triton {trust.version()}: {trust.verdict().why})"


def _gradients_told(call: Call) -> str:
    """The text about backward kernels; empty for float8 inputs, which have no gradients."""
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

    def told(of: Side) -> str:
        _, first, plain = steps.sides[of]
        tiles: tuple[Tile | HopperBackwardTile, ...] = in_turn(plain)
        if first is not None and hopper:
            tiles = (*first.in_turn(), *tiles)
        tile, why = _serving((of, steps), tiles)
        if isinstance(tile, Tile):
            return f"plain Triton, {_plain(tile)}{why}"
        return f"Gluon on Hopper, {64 * tile.consumers} x {tile.block}, {tile.stages} stages{why}"

    return f"dQ: {told('queries')}; dK and dV: {told('keys')}"


def _plain(tile: Tile) -> str:
    return f"{tile.block_q} x {tile.block_kv}, {tile.warps} warps, {tile.stages} stages"


def attend(call: Call) -> Result:
    """Output `[batch, heads, q_len, value_dim]`, and lse `[batch, heads, q_len]` when wanted."""
    if not call.differentiable():
        return compute(call, call.return_lse)
    sink = call.weight.sink if isinstance(call.weight.sink, torch.Tensor) else None
    out, lse = recorded(call, sink, compute, _gradients)
    return out, lse if call.return_lse else None


def differentiate(
    call: Call,
    saved: tuple[torch.Tensor, torch.Tensor],
    change: tuple[torch.Tensor, torch.Tensor | None],
    tables: tuple[int, ...],
) -> list[torch.Tensor]:
    """Gradients of query, key, value and the tables in these slots, in their dtypes."""
    query, key, value, _, *of_tables = _gradients(call, saved, change, tables, None, inputs=True)
    return cast("list[torch.Tensor]", [query, key, value, *of_tables])


def _gradients(
    call: Call,
    saved: tuple[torch.Tensor, torch.Tensor],
    change: tuple[torch.Tensor, torch.Tensor | None],
    slots: tuple[int, ...],
    sink: torch.Tensor | None,
    *,
    inputs: bool,
) -> list[torch.Tensor | None]:
    """Gradients for `recorded`: of query, key and value (or None), sink and tables."""
    if elsewhere(call.query.device):
        with torch.cuda.device(call.query.device):
            return _gradients(call, saved, change, slots, sink, inputs=inputs)
    if call.nan_safe:
        call, saved, change = with_finite_gradients(call, saved, change)
    call, factor = positively_scaled(call)
    known = known_of(call, saved, change[1], sinks_of(call))
    given = (call.query, call.key, call.value, change[0], *known)
    alike = inputs and not slots and factor == 1 and not call.aligned
    if alike:
        new = partial(_empty_gradients, call)
        if (found := launch_again(call, "backward", given, _ALL_GRADIENTS, new)) is not None:
            statistic, delta, *of_inputs = cast(list[torch.Tensor], found)
            rows = Rows(*known, statistic, delta)
            return [*of_inputs, None if sink is None else sink_gradient(rows, sink, change[0])]
    statistic, delta = empty_statistics(call.query)
    of_inputs = _empty_inputs(call) if inputs else []
    rows = Rows(*known, statistic, delta)
    grad_out = change[0]
    if call.aligned:
        call, grad_out = _in_units(call), in_units(grad_out)
    plan = plan_of(call)
    steps = backward_plan_of(call, plan)
    of = BackwardPass(call, steps, plan.tma, rows, grad_out)
    if inputs:
        launches = fill_gradients(of, of_inputs)
        of_inputs[0] = of_inputs[0] if factor == 1 else of_inputs[0] * factor
        if alike and launches:
            route = partial(route_of_gradients, steps, plan.tma)
            results = (statistic, delta, *of_inputs)
            remember(call, "backward", given, results, steps.hooks, launches, route)
    else:
        fill_rows(of)
    of_tables = table_gradients(of, slots, replace(plan.told.style, aligned=False)) if slots else {}
    if call.nan_safe and slots:
        assert rows.lse is not None
        of_tables = spoiled_tables(rows.lse, of_tables)
    of_sink = None if sink is None else sink_gradient(rows, sink, change[0])
    return [*(of_inputs or (None, None, None)), of_sink, *[of_tables[slot] for slot in slots]]


def _empty_gradients(call: Call) -> list[torch.Tensor]:
    """New tensors for the row statistics, dQ, dK and dV."""
    return [*empty_statistics(call.query), *_empty_inputs(call)]


def _empty_inputs(call: Call) -> list[torch.Tensor]:
    """Tensors for dQ, dK and dV: the rooms if given, else new ones."""
    like = ((call.query, None), (call.key, None), (call.key, call.value.shape[-1]))
    rooms = [call.room(number) for number in (1, 2, 3)]
    return [
        empty_result(*of) if room is None else room for room, of in zip(rooms, like, strict=True)
    ]


def compute(call: Call, lse_wanted: bool) -> Result:
    """Output and, where wanted, lse."""
    if elsewhere(call.query.device):
        with torch.cuda.device(call.query.device):
            return compute(call, lse_wanted)
    if call.nan_safe:
        call = with_finite_values(call)
    in_pages = None
    if call.pages is not None:
        pages = call.pages.as_read()
        call, in_pages = call._replace(pages=pages), pages.tensors
    given = (call.query, call.key, call.value, sinks_of(call), call.descales, in_pages)
    new = partial(_empty_output, call, lse_wanted)
    if not call.aligned:
        found = launch_again(call, "forward", given, (True, lse_wanted), new)
        if found is not None:
            return cast("tuple[torch.Tensor, torch.Tensor | None]", tuple(found))
    out, lse = new()
    if not out.numel() and (lse is None or not lse.numel()):
        return out, lse
    if not call.extents.kv_len or not call.extents.batch:
        nothing = float("-inf") if call.weight.formula is None else 0.0
        return out.zero_(), None if lse is None else lse.fill_(nothing)
    query = call.query
    if query.dtype == torch.bfloat16 and architecture(query.device) == "interpreter":
        raise errors.BackendError(
            "Triton's interpreter (TRITON_INTERPRET=1) computes bfloat16 wrongly. Pass float32 or "
            "float16 inputs, or unset the variable."
        )
    asked = call
    if query.dtype != FLOAT8:  # with which other scales are refused
        call, _ = positively_scaled(call)
    target = out
    if call.aligned:
        call, target = _in_units(call), room_in_units(out)
    plan = plan_of(call)
    launches = launch_forward(call, plan, target, lse)
    if target is not out:
        out.copy_(target)
    if launches and call is asked:
        route = partial(route_of_forward, plan)
        remember(call, "forward", given, (out, lse), plan.hooks, launches, route)
    return out, lse


def _in_units(call: Call) -> Call:
    """The call with inputs aligned so that one variant of each kernel computes all of them."""
    return call.with_inputs(*map(in_units, (call.query, call.key, call.value)))


def _empty_output(call: Call, lse_wanted: bool) -> Result:
    """Tensors for the output (the room or a new one) and, if wanted, the lse."""
    query = call.query
    out = call.room(0)
    if out is None:
        out = empty_result(query, call.value.shape[-1], call.out_dtype)
    return out, query.new_empty(query.shape[:3], dtype=torch.float32) if lse_wanted else None
