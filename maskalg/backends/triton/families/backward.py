"""Gradients on the GPU: dQ by tiles of queries, dK and dV by tiles of keys, or all in one pass.

Plain kernels, and on sm_90 warp-specialised ones in Gluon.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain
from typing import Any, Final

import torch

from .... import errors
from ....schedule.intervals.rung import tiles_of_columns
from ....tiles.shapes import HopperBackwardTile, Tile, in_turn
from ...call import Call
from ..arguments import describable, hooked, numbers_of, padded_length
from ..constants import (
    HOPPER_BACKWARD_REGISTERS,
    hopper_backward_constants,
    rows_as_pads,
    tile_constants,
    weight_constants,
)
from ..documents import rows_of_tiles, with_rows
from ..launching.fitting import failed, that_fits
from ..launching.launch import Launch, compile_together
from ..launching.spec import KEYS_AND_VALUES, KernelSpec, Sizes
from ..plan import SMALLEST_PAD, BackwardPlan, Side
from ..trust import has_gluon
from .forward import counter_launch, programs_at_once
from .one_pass import (
    kept_turns,
    one_pass_counts,
    one_pass_launches,
    tiles_in_turn,
    turn_launches,
)
from .rows import BackwardPass, Counts, rows_launch

_PLAIN: Final = {
    "queries": KernelSpec("maskalg_kernels.backward.backward_queries", KEYS_AND_VALUES),
    "keys": KernelSpec(
        "maskalg_kernels.backward.backward_keys",
        # A loop over keys reads queries once, and a loop over queries keys.
        {"q": (1, 1, "BLOCK_M", "HEAD_PAD"), "g": (1, 1, "BLOCK_M", "VALUE_PAD")},
    ),
}
_HOPPER: Final = {
    "queries": KernelSpec(
        "maskalg_kernels.hopper_queries.hopper_backward_queries",
        {
            "q": (1, 1, 64, "HEAD_PAD"),
            "k": (1, 1, "BLOCK", "HEAD_PAD"),
            "v": (1, 1, "BLOCK", "VALUE_PAD"),
            "g": (1, 1, 64, "VALUE_PAD"),
            "dq": (1, 1, 64, "HEAD_PAD"),
        },
    ),
    "keys": KernelSpec(
        "maskalg_kernels.hopper_keys.hopper_backward_keys",
        {
            "q": (1, 1, "BLOCK", "HEAD_PAD"),
            "k": (1, 1, 64, "HEAD_PAD"),
            "v": (1, 1, 64, "VALUE_PAD"),
            "g": (1, 1, "BLOCK", "VALUE_PAD"),
            "statistic": ("BLOCK",),
            "delta": ("BLOCK",),
            "dk": (1, 1, 64, "HEAD_PAD"),
            "dv": (1, 1, 64, "VALUE_PAD"),
        },
    ),
}
_DIVIDED: Final = replace(
    _HOPPER["keys"], path="maskalg_kernels.hopper_wide_keys.hopper_backward_wide_keys"
)
_OF_PARTS: Final = (_PLAIN["keys"], _HOPPER["keys"], _DIVIDED)
_SUMS: Final = KernelSpec("maskalg_kernels.gradient_sums.sums_of_parts")

_ROWS: Final = 64  # of a consumer
_KEYS: Final = 128  # of a program of dK and dV, counted by which heads are divided
_AT_ONCE: Final = 128  # programs that a GPU runs, about
_ALONE: Final = 0.75  # of a tile's time, if no other program uses the multiprocessor
_PROGRAMS: Final = 3  # for each that runs, where it is not known how long columns are
_OF_SUMS: Final = 0.03  # tiles of 128 in whose time a GPU stores and adds a program's sums
_MOST_OF_SUMS: Final = 1 << 28  # bytes, or four times as many as the queries have
_SUMMED: Final = 8192  # numbers of a program that adds parts
_INT32_MAX: Final = 2**31 - 1  # of the row that a descriptor of rows is asked for


def gradient_spec(of: Side, tile: Tile | HopperBackwardTile) -> KernelSpec:
    """The kernel of a tile."""
    if isinstance(tile, HopperBackwardTile) and tile.divided:
        return _DIVIDED
    return (_PLAIN if isinstance(tile, Tile) else _HOPPER)[of]


def gradient_constants(
    plan: BackwardPlan, of: Side, tile: Tile | HopperBackwardTile
) -> dict[str, Any]:
    """Its constants and launch options, except those of weights and `TMA`."""
    known = plan.shape | plan.sides[of].hooks
    if isinstance(tile, Tile):
        return known | tile_constants(tile)
    # The derivative of a bias takes registers.
    anew = tile.anew or known["SLOPE"] is not None
    return known | rows_as_pads(known) | hopper_backward_constants(tile) | {"ANEW": anew}


def serves(call: Call, plan: BackwardPlan) -> bool:
    """Whether the warp-specialised kernels can compute a call, if descriptors reach its tensors."""
    dims = (call.query.shape[-1], call.value.shape[-1])
    extents = call.extents
    return (
        extents.batch * extents.heads * padded_length(extents.q_len) <= _INT32_MAX
        and min(plan.shape["HEAD_PAD"], plan.shape["VALUE_PAD"]) >= SMALLEST_PAD
        and all(dim * call.query.element_size() % 16 == 0 for dim in dims)
        and has_gluon()
        and not call.aligned
    )


def fill_gradients(of: BackwardPass, results: list[torch.Tensor]) -> list[Launch]:
    """Fill dQ, dK, dV and the row statistics; returns the launches.

    Args:
        results: dQ, dK and dV, as from `empty_gradients`.
    """
    plan = of.plan
    if not of.grad_out.numel() or not of.call.key.numel():
        of.rows.fill_with_nothing()
        for tensor in results:
            tensor.zero_()
        return []
    launches = _Launches(of, results)
    in_one_pass = ("one pass", plan)
    steps: list[tuple[Hashable, Iterator[Launch]]] = [
        ((side, plan), launches.candidates(side)) for side in plan.sides
    ]
    if not failed(in_one_pass) and (others := launches.in_one_pass()):
        steps = [(in_one_pass, iter([launch])) for launch in others]
    # A kernel without a tile is not launched.
    begun = [(at, launch, rest) for at, rest in steps if (launch := next(rest, None)) is not None]
    compile_together([launch for _, launch, _ in begun])
    try:
        chosen = [that_fits(at, chain([launch], rest)) for at, launch, rest in begun]
    except errors.BackendError:
        if not failed(in_one_pass) or steps[0][0] != in_one_pass:
            raise
        return fill_gradients(of, results)  # by two kernels
    found = [launch for launch in chosen if launch is not None]
    return [
        launch.run()
        for launch in [*launches.counter_of(found), *found, *launches.sums_of_parts(found)]
    ]


def fill_rows(of: BackwardPass) -> None:
    """Fill the row statistics, if no gradient of an input is needed."""
    if of.grad_out.numel() and of.call.key.numel():
        _Launches(of, []).rows().run()
    else:
        of.rows.fill_with_nothing()


def _reached(
    call: Call, plan: BackwardPlan, tma: bool, grad_out: torch.Tensor
) -> tuple[bool, bool]:
    """Whether descriptors are passed, and whether the kernels of sm_90 compute the call."""
    reached = all(map(describable, (call.query, call.key, call.value, grad_out)))
    return tma and reached, reached and serves(call, plan)


def route_of_gradients(plan: BackwardPlan, tma: bool, call: Call, given: Sequence[Any]) -> Hashable:
    """The kernels that `fill_gradients` launches, and how; dO is the fourth of `given`."""
    described, hopper = _reached(call, plan, tma, given[3])
    tiles = tiles_in_turn(call, plan) if hopper else None
    if tiles is None:
        return described, hopper, _parts(call)
    _block, parts = one_pass_counts(plan.shape["HEAD_PAD"], call)
    return "one pass", kept_turns(call, 2 * math.prod(tiles)), parts > 0


class _Launches:
    """The kernels of one backward pass, and the arguments they share."""

    def __init__(self, of: BackwardPass, results: list[torch.Tensor]) -> None:
        self.of, self.call, self.plan = of, of.call, of.plan
        self.given = of.tensors | dict(zip(("dq", "dk", "dv"), results, strict=False))
        self.weighting = weight_constants(of.call.weight)
        self.described, self.hopper = _reached(of.call, of.plan, of.tma, of.grad_out)
        self.hooked = hooked(of.plan.hooks, of.call)
        # Launches follow one another, and leave it as they found it.
        self.counter = counter_launch(of.call)
        # Together with the kernel and its tile, these determine the constants.
        device = of.call.query.device
        self.fixed = (of.plan, *self.weighting.values(), self.described, device)

    def candidates(self, side: Side) -> Iterator[Launch]:
        """The launches that may fill dQ, or dK and dV, in the order to try them."""
        _, hopper, tiles = self.plan.sides[side]
        if self.hopper and hopper is not None:
            yield from (self._launch(side, tile) for tile in hopper.in_turn())
        for tile in in_turn(tiles):
            yield self._launch(side, tile)

    def _launch(self, side: Side, tile: Tile | HopperBackwardTile) -> Launch:
        persistent = isinstance(tile, HopperBackwardTile) and tile.persistent
        given = {**self.given, "key_part": None, "value_part": None}
        return Launch(
            gradient_spec(side, tile),
            self.fixed,
            self.call,
            {**given, "counter": self.counter.tensors["out"] if persistent else None},
            partial(_sizes, side, tile),
            lambda: self.weighting | gradient_constants(self.plan, side, tile),
            with_rows(self.plan.hooks, self.call, self.hooked, *_rows_side(side, tile, self.call)),
            self.described,
            tile=tile,
        )

    def counter_of(self, launches: list[Launch]) -> list[Launch]:
        """The launch that makes the counter, if one of these launches uses it."""
        counter = self.counter.tensors["out"]
        served = any(launch.tensors.get("counter") is counter for launch in launches)
        return [self.counter] if served else []

    def sums_of_parts(self, launches: list[Launch]) -> list[Launch]:
        """The launch that adds parts of dK and dV, if one of these launches made some."""
        parts = [launch.made for launch in launches if launch.spec in _OF_PARTS and launch.made]
        if not parts:
            return []
        given = self.given | dict(zip(("key_part", "value_part"), parts[0], strict=True))
        shape = self.plan.shape
        rows = _rows_summed(shape)
        sized = partial(_sizes_of_sums, rows)
        return [Launch(_SUMS, self.fixed, self.call, given, sized, lambda: {**shape, "ROWS": rows})]

    def rows(self, counts: Counts | None = None) -> Launch:
        """The launch that fills the row statistics, without dQ."""
        return rows_launch(self.of, self.fixed, counts)

    def in_one_pass(self) -> list[Launch]:
        """The launches of the one-pass gradients, in order; empty if two kernels compute them."""
        call, plan = self.call, self.plan
        if not self.hopper or tiles_in_turn(call, plan) is None:
            return []
        rows = self.rows(partial(one_pass_counts, plan.shape["HEAD_PAD"]))
        visits, turns = turn_launches(call, plan, self.hooked, self.fixed)
        given = self.given | rows.tensors | {"turn": turns.tensors["ptr"]}
        gradients = one_pass_launches(call, plan, self.hooked, given, self.fixed)
        return [rows, visits, turns, *gradients]


def _rows_side(of: Side, tile: Tile | HopperBackwardTile, call: Call) -> tuple[int, int]:
    """The positions of all rows of tiles, and of one row."""
    length = call.extents.q_len if of == "queries" else call.extents.kv_len
    if isinstance(tile, HopperBackwardTile):
        return length, tile.rows
    return length, tile.block_q if of == "queries" else tile.block_kv


def _parts(call: Call) -> int:
    """The parts into which the query heads that share keys are divided, each part for a program.

    As many as keep a GPU from waiting for the longest column of tiles, unless their sums would take
    longer or too much memory; one if bits must not depend on the batch.
    """
    group, extents = call.group, call.extents
    if call.aligned or group == 1:
        return 1
    keys = max(extents.batch * call.key.shape[1] * extents.kv_len, 1)
    columns = -(-keys // _KEYS)
    longest, mean = tiles_of_columns(call.form, extents, _KEYS)
    if not mean:
        wanted = _PROGRAMS * _AT_ONCE / columns
        return next((n for n in range(1, group) if group % n == 0 and n >= wanted), group)
    room = max(_MOST_OF_SUMS, 4 * call.query.numel() * call.query.element_size())
    numbers = call.key.shape[3] + call.value.shape[3]
    most = min(max(room // (4 * numbers * keys), 1), group)
    return _fastest(group, most, columns, longest, mean)


@lru_cache(maxsize=1024)
def _fastest(group: int, most: int, columns: int, longest: float, mean: float) -> int:
    """The parts, at most `most`, with which `columns` of tiles take the least time."""
    shared = mean * columns * group / _AT_ONCE

    def tiles(parts: int) -> float:
        own = max(_ALONE * longest * group / parts, shared)
        return own if parts == 1 else own + _OF_SUMS * parts * columns

    return min((n for n in range(1, most + 1) if group % n == 0), key=tiles)


def _sizes(of: Side, tile: Tile | HopperBackwardTile, call: Call) -> Sizes:
    extents, parts = call.extents, 1 if of == "queries" else _parts(call)
    heads = extents.heads if of == "queries" else call.key.shape[1] * parts
    rows = rows_of_tiles(call, *_rows_side(of, tile, call))
    batch_heads = extents.batch * heads
    programs = rows * batch_heads
    if isinstance(tile, HopperBackwardTile) and tile.persistent:
        threads, registers = 128 * (tile.consumers + 1), HOPPER_BACKWARD_REGISTERS[tile.consumers]
        programs = min(programs, programs_at_once(call.query.device, threads, registers))
    head_step, row_step = call.row_steps(0 if of == "queries" else 2)
    own = {
        "rows": rows,
        "batch_heads": batch_heads,
        "heads": heads,
        "group": call.group // parts,
        "parts": parts,
        "head_step": head_step,
        "row_step": row_step,
    }
    own["dq_head_step"], own["dq_row_step"] = call.row_steps(1)
    made: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
    if parts > 1:
        of_parts = ("dk", "dv") if isinstance(tile, Tile) else ("key_part", "value_part")
        for name, like in zip(of_parts, (call.key, call.value), strict=True):
            shape = (extents.batch, heads, extents.kv_len, like.shape[3])
            made[name] = (shape, torch.float32)
        if isinstance(tile, Tile):
            own["head_step"], own["row_step"] = extents.kv_len, 1
    return Sizes(programs, {**numbers_of(call), **own}, made)


def _rows_summed(shape: dict[str, Any]) -> int:
    """Keys of a program that adds parts."""
    return _SUMMED // int(max(shape["HEAD_PAD"], shape["VALUE_PAD"]))


def _sizes_of_sums(summed: int, call: Call) -> Sizes:
    rows, kv_heads = -(-call.extents.kv_len // summed), call.key.shape[1]
    head_step, row_step = call.row_steps(2)
    own = {"rows": rows, "parts": _parts(call), "head_step": head_step, "row_step": row_step}
    return Sizes(rows * call.extents.batch * kv_heads, {**numbers_of(call), **own})
