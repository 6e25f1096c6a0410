"""The GPU backend: one fused kernel, with hooks rendered from the expression."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, cast

import torch
from maskalg_kernels.forward import forward

from ... import errors
from ...engine.float8 import FLOAT8
from ...tiles.forward import HopperTile, Tile
from ..call import Call, Result
from ..results import empty_gradients, empty_result
from .arguments import describable, padded, scalars_of, sinks_of, tables_of
from .constants import tile_constants, weight_constants
from .families.backward import fill_gradients, fill_rows, route_of_gradients
from .families.decode import Shared, launch_decode, shared
from .families.entries import table_gradients
from .families.float8 import in_words
from .families.hopper import hopper_compilations, hopper_launches, serving
from .families.rows import Rows, per_row_of, rows_of, sink_gradient
from .launching.descriptors import Descriptor, blocks_of_keys
from .launching.device import elsewhere
from .launching.fitting import that_fits, with_last_resort
from .launching.launch import Launch, Sizes, sized_now
from .launching.ready import ready_for, remember
from .plan import Plan, plan_of, steps_of
from .scale import positively_scaled


def attend(call: Call) -> Result:
    """Output `[batch, heads, q_len, value_dim]`, and lse `[batch, heads, q_len]` when wanted."""
    if not call.differentiable():
        return compute(call, call.return_lse)
    sink = call.weight.sink if isinstance(call.weight.sink, torch.Tensor) else None
    learned = [(slot.index, t) for slot, t in call.form.tensors() if t.requires_grad]
    slots, tables = tuple([i for i, _ in learned]), [t for _, t in learned]
    out, lse = cast(
        "tuple[torch.Tensor, torch.Tensor]",
        _Attention.apply(call, slots, call.query, call.key, call.value, sink, *tables),  # type: ignore[no-untyped-call]
    )
    return out, lse if call.return_lse else None


class _Attention(torch.autograd.Function):
    """Forward and backward kernels as one differentiable operation."""

    @staticmethod
    def forward(
        ctx: Any,
        call: Call,
        slots: tuple[int, ...],
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        sink: torch.Tensor | None,
        *tables: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        out, lse = compute(call, lse_wanted=True)
        assert lse is not None
        ctx.save_for_backward(query, key, value, sink, out, lse, *call.watched)
        # The inputs are saved as autograd wants them saved, and put back in backward.
        none = query.new_empty(0)
        ctx.call = call.with_inputs(none, none, none)
        ctx.slots = slots
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(
        ctx: Any, grad_out: torch.Tensor | None, grad_lse: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise errors.no_double_backward()
        query, key, value, sink, out, lse, *_ = ctx.saved_tensors
        call = ctx.call.with_inputs(query, key, value)
        if grad_out is None:
            grad_out = torch.zeros_like(out)
        wanted = any(ctx.needs_input_grad[2:5])
        change = (grad_out, grad_lse)
        inputs, rows, tables = _gradients(call, (out, lse), change, ctx.slots, inputs=wanted)
        of_sink = None
        if sink is not None and ctx.needs_input_grad[5]:
            of_sink = sink_gradient(rows, sink, grad_out)
        of_inputs = inputs or (None, None, None)
        return (None, None, *of_inputs, of_sink, *tables)


def differentiate(
    call: Call,
    saved: tuple[torch.Tensor, torch.Tensor],
    change: tuple[torch.Tensor, torch.Tensor | None],
    tables: tuple[int, ...],
) -> list[torch.Tensor]:
    """Gradients of query, key, value and the tables in these slots, in their dtypes."""
    inputs, _, of_tables = _gradients(call, saved, change, tables, inputs=True)
    return [*inputs, *of_tables]


def _gradients(
    call: Call,
    saved: tuple[torch.Tensor, torch.Tensor],
    change: tuple[torch.Tensor, torch.Tensor | None],
    slots: tuple[int, ...],
    *,
    inputs: bool,
) -> tuple[list[torch.Tensor], Rows, list[torch.Tensor]]:
    """Gradients of the inputs or nothing, what is known of rows, and gradients of tables."""
    if elsewhere(call.query.device):
        with torch.cuda.device(call.query.device):
            return _gradients(call, saved, change, slots, inputs=inputs)
    call, factor = positively_scaled(call)
    rows = rows_of(call, saved, change[1], sinks_of(call))
    *known, statistic, delta = per_row_of(rows, of_queries=True)
    given = (call.query, call.key, call.value, change[0], *known)
    of_inputs = empty_gradients(call.query, call.key, call.value) if inputs else []
    results = (statistic, delta, *of_inputs)
    alike = inputs and not slots and factor == 1
    if alike and (ready := ready_for(call, "backward", given, results)) is not None:
        ready.launch(given, results)
        return of_inputs, rows, []
    plan = plan_of(call)
    steps, shape = steps_of(call, plan)
    arguments = (call, steps, shape, plan.tma, rows, change[0])
    if inputs:
        launches = fill_gradients(*arguments, of_inputs)
        of_inputs[0] = of_inputs[0] if factor == 1 else of_inputs[0] * factor
        if alike and launches:
            route = partial(route_of_gradients, steps, shape, plan.tma)
            remember(call, "backward", given, results, steps.hooks, launches, route)
    else:
        fill_rows(*arguments)
    of_tables: dict[int, torch.Tensor] = {}
    if slots:
        how = (plan.style, plan.tma)
        of_tables = table_gradients(call, slots, shape, steps.entry_tiles, how, rows, change[0])
    return of_inputs, rows, [of_tables[slot] for slot in slots]


def compute(call: Call, lse_wanted: bool) -> Result:
    """Output and, where wanted, lse, in new tensors."""
    query, value = call.query, call.value
    if elsewhere(query.device):
        with torch.cuda.device(query.device):
            return compute(call, lse_wanted)
    batch, heads, q_len, _ = query.shape
    out = empty_result(query, value.shape[-1], call.out_dtype)
    lse = query.new_empty(batch, heads, q_len, dtype=torch.float32) if lse_wanted else None
    given = (query, call.key, value, sinks_of(call), call.descales)
    if (ready := ready_for(call, "forward", given, (out, lse))) is not None:
        ready.launch(given, (out, lse))
        return out, lse
    if not out.numel() and (lse is None or not lse.numel()):
        return out, lse
    if not call.extents.kv_len:
        nothing = float("-inf") if call.weight.formula is None else 0.0
        return out.zero_(), None if lse is None else lse.fill_(nothing)
    asked = call
    if query.dtype != FLOAT8:  # with which other scales are refused
        call, _ = positively_scaled(call)
    plan = plan_of(call)
    launches = launch_forward(call, plan, out, lse)
    if launches and call is asked:
        remember(call, "forward", given, (out, lse), plan.hooks, launches, partial(_route, plan))
    return out, lse


def compilations() -> int:
    """How many variants of the forward kernels this process compiled or loaded."""
    caches = getattr(forward, "device_caches", {})  # the interpreter compiles nothing
    return sum(len(variants[0]) for variants in caches.values()) + hopper_compilations()


class Route(NamedTuple):
    """Which kernel of a plan serves a call: programs that `few` queries share, the Hopper kernel of
    a tile, or the plain one, with descriptors or without; and whether float8 values lie in words.
    """

    few: Shared | None
    hopper: HopperTile | None = None
    described: bool = False
    in_words: bool = False


def _route(plan: Plan, call: Call, _given: Sequence[Any] = ()) -> Route:
    few = shared(call, plan)
    if few is not None:
        return Route(few)
    hopper = serving(plan.hopper, call)
    if hopper is not None:
        return Route(None, hopper, in_words=call.query.dtype == FLOAT8 and in_words(call.value))
    return Route(None, None, plan.tma and describable(call.key) and describable(call.value))


def launch_forward(
    call: Call, plan: Plan, out: torch.Tensor, lse: torch.Tensor | None
) -> list[Launch]:
    """Fill output and lse; what was launched, nothing without a tile to try."""
    scalars = scalars_of(plan.hooks, call.form, call.extents)
    tables = tables_of(plan.hooks, call)
    few, hopper, tma, _ = _route(plan, call)
    if few is not None:
        return launch_decode(call, few, plan, (scalars, tables), (out, lse))
    query, key, value = call.query, call.key, call.value
    strided = (query, key, value, out)
    tma = plan.tma and describable(key) and describable(value)
    sources = (Descriptor(key), Descriptor(value)) if tma else (key, value)
    last = (out, lse, sinks_of(call), padded(tables, query.device), call.descales)

    def with_tile(tile: Tile) -> Launch:
        sized = partial(_sizes, tile)

        def constants() -> dict[str, Any]:
            more = {"TMA": tma} | weight_constants(call.weight) | tile_constants(tile)
            return plan.constants | more

        return Launch(
            forward,
            ("forward", plan, tile, tma, call.weight.normalised, query.device),
            [query, *sources, *last],
            sized_now(sized, call, strided),
            constants,
            sized,
            scalars,
            strided,
            lambda: blocks_of_keys(key, value, tile.block_kv, plan.constants),
            tile=tile,
        )

    before: list[Launch] = []
    launches: Iterator[Launch] = map(with_tile, with_last_resort(plan.candidates))
    if hopper is not None:
        *before, launch = hopper_launches(call, hopper, plan, (scalars, tables), (out, lse))
        launches = chain([launch], launches)
    found = that_fits(("forward", plan), launches)
    if found is None:
        return []
    return [each.run() for each in ([*before, found] if found.tile is hopper else [found])]


def _sizes(tile: Tile, call: Call, strides: list[int]) -> Sizes:
    extents = call.extents
    rows, batch_heads = -(-extents.q_len // tile.block_q), extents.batch * extents.heads
    specialised = (extents.heads, call.group, *strides)
    lengths = (extents.q_len, extents.kv_len, rows, batch_heads)
    return Sizes(rows * batch_heads, (call.scale, *lengths, *specialised), specialised)
