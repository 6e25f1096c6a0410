"""Gradients on the GPU: dQ by tiles of queries, dK and dV by tiles of keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from types import ModuleType
from typing import Any, Literal

import torch
from maskalg_kernels.backward import backward_keys, backward_queries
from triton.tools.tensor_descriptor import TensorDescriptor

from .... import errors
from ....codegen.hooks import Hooks, Style, hooks_of
from ....codegen.store import load
from ....codegen.text.integer_sizes import elements_are_short
from ....engine.normal_form import Structure, transposed
from ....schedule.rung import rung_of
from ....tiles.backward import (
    HopperBackwardTile,
    Least,
    backward_tiles_for,
    hopper_backward_tile_for,
    one_pass_for,
)
from ....tiles.forward import Pattern, Tile
from ....tiles.tuned.choices import NOTHING_TUNED, Choices, Key
from ...call import Call
from ...results import row_steps
from ..arguments import describable, padded, scalars_of, tables_of
from ..constants import count_constants, tile_constants, weight_constants
from ..distances import style_of_gradients
from ..launching.descriptors import Descriptor
from ..launching.fitting import failed, that_fits, with_last_resort
from ..launching.launch import Launch, Sizes, compile_together, sized_now
from ..tuned import preferred
from .hopper_backward import keys_launch, queries_launch, serves
from .one_pass import (
    kept_turns,
    one_pass_counts,
    one_pass_launches,
    room_for_turns,
    tiles_in_turn,
    turn_launches,
)
from .rows import Counts, OnePassRows, Rows, one_pass_rows, padded_length, per_row_of, rows_launch


@dataclass(frozen=True, eq=False)
class BackwardPlan:
    """The hooks of a structure for the backward kernels, and the tiles to try.

    A kernel without a tile of either kind is not launched.

    Attributes:
        hooks: of the structure.
        of_queries, of_keys: as constants of the kernels of dQ, and of dK and dV.
        in_one_pass: as those of one kernel for all.
        query_tiles, key_tiles: candidates of the plain kernels.
        hopper_queries, hopper_keys: of the warp-specialised ones, None where the plain ones serve.
        one_pass_from: what there must be for one kernel to compute all gradients instead, where
            descriptors reach; None where two always do.
        entry_tiles: candidates of the kernel of tables' gradients.
    """

    hooks: Hooks
    of_queries: dict[str, Any]
    of_keys: dict[str, Any]
    in_one_pass: dict[str, Any]
    query_tiles: tuple[Tile, ...]
    key_tiles: tuple[Tile, ...]
    hopper_queries: HopperBackwardTile | None
    hopper_keys: HopperBackwardTile | None
    one_pass_from: Least | None
    entry_tiles: tuple[Tile, ...]


@lru_cache(maxsize=4096)
def backward_plan(
    structure: Structure,
    pattern: Pattern,
    style: Style,
    arch: str,
    head_pad: int,
    element_bytes: int,
    weighted: bool = False,
    tuned: Choices = NOTHING_TUNED,
) -> BackwardPlan:
    """The plan of a structure at a padded head dimension and an element size."""
    style = style_of_gradients(style, head_pad)
    hooks = hooks_of(structure, style, backward=True)
    module, short = load(hooks.source, hooks.digest), elements_are_short(structure, style)

    def chosen(
        of: Literal["queries", "keys"],
    ) -> tuple[HopperBackwardTile | None, tuple[Tile, ...]]:
        at = (arch, head_pad, element_bytes, pattern)
        hopper = hopper_backward_tile_for(*at, of=of, biased=hooks.biased, weighted=weighted)
        if not short:
            hopper = None
        tiles = backward_tiles_for(*at, of=of)
        key = Key(of, head_pad, element_bytes, pattern, hooks.biased)
        return preferred(key, tuned, hopper, tiles, HopperBackwardTile, served=short)

    hopper_queries, query_tiles = chosen("queries")
    hopper_keys, key_tiles = chosen("keys")
    at = (arch, head_pad, element_bytes, pattern)
    one_pass_from = one_pass_for(*at, additive=hooks.additive, weighted=weighted)
    of_keys = _constants(hooks, module, "_of_keys")
    # Marks are not walked from the last tile.
    both_ways = (structure, transposed(structure))
    looked_up = any(rung_of(each).in_kernel != "spans" for each in both_ways)
    spanned = structure.same_for_all_heads and not looked_up
    return BackwardPlan(
        hooks=hooks,
        of_queries=_constants(hooks, module, ""),
        of_keys=of_keys,
        in_one_pass=of_keys | {"NEXT_RUN": module.next_run_either_way_of_keys},
        query_tiles=query_tiles,
        key_tiles=key_tiles,
        hopper_queries=hopper_queries,
        hopper_keys=hopper_keys,
        one_pass_from=one_pass_from if spanned and short else None,
        entry_tiles=backward_tiles_for(arch, head_pad, element_bytes, pattern, of="queries"),
    )


def _constants(hooks: Hooks, module: ModuleType, suffix: str) -> dict[str, Any]:
    """The hooks whose names end so, as the constants of a kernel."""

    def hook(name: str) -> Any:
        return getattr(module, name + suffix)

    return {
        "HOLD": hook("hold"),
        "MASKED": hook("masked"),
        "BIASED": hook("biased") if hooks.biased else None,
        "SLOPE": hook("slope") if hooks.sloped else None,
        "NEXT_RUN": hook("next_run"),
        **count_constants(hooks),
    }


def fill_gradients(
    call: Call,
    plan: BackwardPlan,
    shape: dict[str, Any],
    tma: bool,
    of_rows: Rows,
    grad_out: torch.Tensor,
    results: list[torch.Tensor],
) -> list[Launch]:
    """Fill dQ, dK and dV, and what is known of each query; what was launched.

    Args:
        call: the inputs, without gradients.
        plan: of the structure.
        shape: the kernels' constants that follow from shapes.
        tma: whether the device copies tiles by descriptor.
        of_rows: what is known of each query.
        grad_out: of the output.
        results: dQ, dK and dV, as of `empty_gradients`.
    """
    if not grad_out.numel() or not call.key.numel():
        of_rows.fill_with_nothing()
        for tensor in results:
            tensor.zero_()
        return []
    dq, dk, dv = results
    launches = _Launches(call, plan, shape, tma, of_rows, grad_out)
    in_one_pass = ("one pass", plan)
    steps = [(("queries", plan), launches.queries(dq)), (("keys", plan), launches.keys(dk, dv))]
    if not failed(in_one_pass) and (others := launches.in_one_pass(dq, dk, dv)):
        steps = [(in_one_pass, each) for each in others]
    # A kernel without a tile is not launched.
    begun = [(of, launch, rest) for of, rest in steps if (launch := next(rest, None)) is not None]
    compile_together([launch for _, launch, _ in begun])
    try:
        chosen = [that_fits(of, chain([launch], rest)) for of, launch, rest in begun]
    except errors.BackendError:
        if not failed(in_one_pass) or steps[0][0] != in_one_pass:
            raise
        return fill_gradients(call, plan, shape, tma, of_rows, grad_out, results)  # by two kernels
    return [launch.run() for launch in chosen if launch is not None]


def fill_rows(
    call: Call,
    plan: BackwardPlan,
    shape: dict[str, Any],
    tma: bool,
    of_rows: Rows,
    grad_out: torch.Tensor,
) -> None:
    """What `fill_gradients` fills of `of_rows`, where no gradient of an input is wanted."""
    if grad_out.numel() and call.key.numel():
        _Launches(call, plan, shape, tma, of_rows, grad_out).rows().run()
    else:
        of_rows.fill_with_nothing()


def _reached(
    call: Call, shape: dict[str, Any], tma: bool, grad_out: torch.Tensor
) -> tuple[bool, bool]:
    """Whether descriptors are passed, and whether the kernels of sm_90 serve the call."""
    reached = all(map(describable, (call.query, call.key, call.value, grad_out)))
    return tma and reached, reached and serves(call, shape)


def route_of_gradients(
    plan: BackwardPlan, shape: dict[str, Any], tma: bool, call: Call, given: Sequence[Any]
) -> Hashable:
    """Which kernels `fill_gradients` launches, and how; dO is the fourth that is given."""
    described, hopper = _reached(call, shape, tma, given[3])
    tiles = tiles_in_turn(call, plan.one_pass_from, shape) if hopper else None
    if tiles is None:
        return described, hopper
    _block, parts = one_pass_counts(shape["HEAD_PAD"], call)
    return "one pass", kept_turns(call, 2 * math.prod(tiles)), parts > 0


class _Launches:
    """The kernels of one backward pass, with what both are passed."""

    def __init__(
        self,
        call: Call,
        plan: BackwardPlan,
        shape: dict[str, Any],
        tma: bool,
        of_rows: Rows,
        grad_out: torch.Tensor,
    ) -> None:
        self.call, self.plan, self.shape, self.grad_out = call, plan, shape, grad_out
        self.tensors = (call.query, call.key, call.value, grad_out)
        self.of_rows = of_rows
        self.weighting = weight_constants(call.weight)
        self.described, self.hopper = _reached(call, shape, tma, grad_out)
        self.numbers = (
            scalars_of(plan.hooks, call.form, call.extents),
            tables_of(plan.hooks, call),
        )
        # What the constants follow from, beside the kernel and its tile.
        described_as = (self.described, call.query.dtype, call.query.device)
        self.fixed = (plan, *shape.values(), call.weight.normalised, *described_as)

    def queries(self, dq: torch.Tensor) -> Iterator[Launch]:
        """What fills dQ: launches to try in this order."""
        hopper = self.plan.hopper_queries
        if self.hopper and hopper is not None:
            own = (self.numbers, self.of_rows, (self.grad_out, dq), self.fixed)
            yield queries_launch(self.call, hopper, self.shape, self._hooked("queries"), *own)
        for tile in with_last_resort(self.plan.query_tiles):
            yield self._plain(True, tile, (dq,))

    def keys(self, dk: torch.Tensor, dv: torch.Tensor) -> Iterator[Launch]:
        """What fills dK and dV: launches to try in this order."""
        hopper = self.plan.hopper_keys
        if self.hopper and hopper is not None:
            own = (self.numbers, self.of_rows, (self.grad_out, dk, dv), self.fixed)
            yield keys_launch(self.call, hopper, self.shape, self._hooked("keys"), *own)
        for tile in with_last_resort(self.plan.key_tiles):
            yield self._plain(False, tile, (dk, dv))

    def rows(self, more: OnePassRows | None = None, counts: Counts | None = None) -> Launch:
        """What fills what is known of each query, without dQ."""
        own = (self.shape, self.grad_out, self.fixed, more, counts)
        return rows_launch(self.call, self.of_rows, *own)

    def in_one_pass(
        self, dq: torch.Tensor, dk: torch.Tensor, dv: torch.Tensor
    ) -> list[Iterator[Launch]]:
        """What fills all gradients in one pass, one after the other; nothing for two kernels."""
        least = self.plan.one_pass_from
        if not self.hopper or (turns := room_for_turns(self.call, least, self.shape)) is None:
            return []
        hooked, tensors = self._hooked("both"), (self.grad_out, dq, dk, dv)
        counts = partial(one_pass_counts, self.shape["HEAD_PAD"])
        more = one_pass_rows(self.call, counts)
        own = (self.numbers, more, tensors, self.fixed)
        steps = [
            self.rows(more, counts),
            *turn_launches(self.call, turns, hooked(), self.numbers, self.fixed),
            *one_pass_launches(self.call, turns, self.shape, hooked, *own),
        ]
        return [iter([launch]) for launch in steps]

    def _hooked(self, of: Literal["queries", "keys", "both"]) -> Callable[[], dict[str, Any]]:
        """The constants of a kernel but for its tile's, made when it is compiled."""
        plan = self.plan
        hooks = {"queries": plan.of_queries, "keys": plan.of_keys, "both": plan.in_one_pass}[of]
        return lambda: self.shape | self.weighting | hooks

    def _plain(self, of_queries: bool, tile: Tile, outs: tuple[torch.Tensor, ...]) -> Launch:
        call, tensors, (scalars, tables) = self.call, self.tensors, self.numbers
        # A loop over keys reads queries once, and the other way round.
        both, block = ((1, 2), tile.block_kv) if of_queries else ((0, 3), tile.block_q)
        looped = both if self.described else ()
        sources = [Descriptor(t) if i in looped else t for i, t in enumerate(tensors)]
        per_row = per_row_of(self.of_rows, of_queries=of_queries)
        sized = partial(_sizes, of_queries, tile)

        def blocks() -> list[Any]:
            pads = [self.shape["HEAD_PAD" if i < 2 else "VALUE_PAD"] for i in looped]
            described = [tensors[i] for i in looped]
            return [
                TensorDescriptor(t, t.shape, t.stride(), [1, 1, block, pad])
                for t, pad in zip(described, pads, strict=True)
            ]

        def constants() -> dict[str, Any]:
            hooks = self.plan.of_queries if of_queries else self.plan.of_keys
            own = {"TMA": self.described, "WEIGHTED": self.weighting["WEIGHTED"]}
            return self.shape | hooks | tile_constants(tile) | own

        return Launch(
            backward_queries if of_queries else backward_keys,
            (of_queries, tile, self.fixed),
            [*sources, *per_row, *outs, padded(tables, call.query.device)],
            sized_now(sized, call, tensors),
            constants,
            sized,
            scalars,
            tensors,
            blocks,
            tile=tile,
        )


def _sizes(of_queries: bool, tile: Tile, call: Call, strides: list[int]) -> Sizes:
    extents = call.extents
    length, side, heads = (
        (extents.q_len, tile.block_q, extents.heads)
        if of_queries
        else (extents.kv_len, tile.block_kv, call.key.shape[1])
    )
    rows, batch_heads = -(-length // side), extents.batch * heads
    specialised = (heads, call.group, *strides)
    lengths = (extents.q_len, extents.kv_len, padded_length(extents.q_len), rows, batch_heads)
    apart = row_steps(call.query if of_queries else call.key)
    return Sizes(
        rows * batch_heads,
        (call.scale, *lengths, heads, call.group, *apart, *strides),
        specialised,
    )
