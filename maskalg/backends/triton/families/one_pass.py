"""All gradients in one pass on sm_90: the turns to add to dQ, and the launches."""

from __future__ import annotations

import math
from collections.abc import Hashable
from functools import partial
from typing import Any, Final

import torch

from ....engine.extents import dependence
from ....schedule.intervals.rung import tiles_of_documents, tiles_of_intervals
from ....tiles.shapes import HopperBackwardTile
from ...call import Call
from ..arguments import Hooked, numbers_of
from ..constants import hopper_backward_constants
from ..launching.launch import Launch
from ..launching.spec import KernelSpec, Sizes
from ..plan import BackwardPlan

ONE_PASS: Final = KernelSpec(
    "maskalg_kernels.hopper_gradients.hopper_gradients",
    {
        "q": (1, 1, "BLOCK", "HEAD_PAD"),
        "k": (1, 1, 64, "HEAD_PAD"),
        "v": (1, 1, 64, "VALUE_PAD"),
        "g": (1, 1, "BLOCK", "VALUE_PAD"),
        "shift": ("BLOCK", 16),
        "dk": (1, 1, 64, "HEAD_PAD"),
        "dv": (1, 1, 64, "VALUE_PAD"),
        "sum": (1, 1, 64, 32),
    },
)
VISITS: Final = KernelSpec("maskalg_kernels.gradient_sums.visits")
_TURNS: Final = KernelSpec("maskalg_kernels.gradient_sums.turns")
_QUERY_GRADIENTS: Final = KernelSpec("maskalg_kernels.gradient_sums.query_gradients")

_KEYS: Final = 128  # of both consumers
_PART_COLUMNS: Final = 32  # of a part of dQ as it lies in memory
_SUMS_TOGETHER: Final = 2**22  # that share the L2 cache
_DIMENSIONS_TOGETHER: Final = 256  # of heads together; more gain nothing
_DIMENSIONS_SHARED: Final = 32  # see `Least.kv_keys`
_PROGRAMS_TURNED: Final = 256  # about two of a multiprocessor
_TURNS_TOGETHER: Final = 64  # rows and columns of a table that are counted at a time
_MOST_TILES: Final = 2**24  # of a table of turns, which has eight bytes for each
_MOST_KEPT: Final = 2**18  # numbers of a table that is kept: of 32k queries and keys


def one_pass_tile(head_pad: int) -> HopperBackwardTile:
    """The tile of the kernel, with as many queries as a thread's registers allow for two tiles."""
    return HopperBackwardTile(128 if head_pad == 64 else 64, 2)


def tiles_in_turn(call: Call, plan: BackwardPlan) -> tuple[int, int] | None:
    """The tiles of keys and of queries in one pass; None if two kernels compute gradients."""
    extents, least, shape = call.extents, plan.one_pass_from, plan.shape
    if least is None or shape["HEAD_PAD"] < shape["VALUE_PAD"]:
        return None
    keys, queries = (-(-length // _KEYS) for length in (extents.kv_len, extents.q_len))
    heads = extents.batch * extents.heads
    pairs = least.pairs
    if keys * heads // call.group < least.kv_keys:
        if least.band:
            return None
        pairs *= shape["HEAD_PAD"] // _DIMENSIONS_SHARED
    found = keys * heads, keys * queries * heads, queries
    needed = least.keys, pairs, min(least.queries, keys)
    if any(have < need for have, need in zip(found, needed, strict=True)):
        return None
    form = call.form
    told = dependence(form.structure.mask, form, extents)
    if max(told.batch, told.heads) > 1:
        return None
    if least.band and tiles_of_intervals(form, extents, _KEYS) < least.band:
        return None
    if least.document and tiles_of_documents(form, extents, _KEYS) < least.document:
        return None
    size = (keys, -(-extents.q_len // one_pass_tile(shape["HEAD_PAD"]).block))
    return size if math.prod(size) <= _MOST_TILES else None


def one_pass_constants(plan: BackwardPlan) -> dict[str, Any]:
    """The kernel's constants and launch options."""
    tile = one_pass_tile(plan.shape["HEAD_PAD"])
    return plan.shape | plan.in_one_pass | hopper_backward_constants(tile)


def one_pass_counts(head_pad: int, call: Call) -> tuple[int, int]:
    """The queries of a tile, and the counters of query heads that share keys, one for 64 keys.

    There are none if a program has all query heads of its keys.
    """
    block = one_pass_tile(head_pad).block
    return block, _part_counters(call) if _members(call) < call.group else 0


def _members(call: Call) -> int:
    """The query heads of a program: one, or all that share its keys.

    Programs of one head are shorter, and read the same queries at about the same time, from the L2
    cache. The kernel of row statistics sets one of their counters to zero for each row, so there
    are at most as many counters as rows.
    """
    queries = call.extents.batch * call.extents.heads * call.extents.q_len
    return 1 if _part_counters(call) <= queries else call.group


def _part_counters(call: Call) -> int:
    return call.extents.batch * call.key.shape[1] * -(-call.extents.kv_len // _KEYS) * 2


def turn_launches(call: Call, plan: BackwardPlan, reads: Hooked, fixed: Hashable) -> list[Launch]:
    """The launches that count turns: how many later tiles of keys come before, and how many earlier
    ones; int32 `[2, tiles of keys, tiles of queries]`.

    If the mask reads no tensor, turns are the same for all calls with this expression and these
    lengths, and are remembered if they are small.

    Args:
        reads: the numbers and tables of the hooks.
        fixed: the key of the constants, and the device.
    """
    block = one_pass_tile(plan.shape["HEAD_PAD"]).block
    kept = kept_turns(call, 2 * math.prod(_tiles(call, block)))
    sides = {"KEYS": _KEYS, "BLOCK": block, "ROWS": _TURNS_TOGETHER, "COLUMNS": _TURNS_TOGETHER}
    of_visits, of_turns = partial(_sizes_of_visits, block), partial(_sizes_of_turns, block)
    visiting = plan.in_one_pass | sides
    visited = Launch(VISITS, fixed, call, {}, of_visits, lambda: visiting, reads, once=kept)
    turns = {"ptr": visited.tensors["out"]}
    device = call.query.device
    return [visited, Launch(_TURNS, device, call, turns, of_turns, lambda: sides, once=kept)]


def kept_turns(call: Call, size: int) -> bool:
    """Whether turns are remembered: `size` numbers that depend on no tensor."""
    return size <= _MOST_KEPT and not call.form.structure.mask_tables


def _tiles(call: Call, block: int) -> tuple[int, int]:
    """The number of tiles of keys, and of tiles of `block` queries."""
    return -(-call.extents.kv_len // _KEYS), -(-call.extents.q_len // block)


def _sizes_of_visits(block: int, call: Call) -> Sizes:
    rows, tiles = _tiles(call, block)
    made = {"out": ((2, rows, tiles), torch.int32)}
    return Sizes(rows, {**numbers_of(call), "tiles": tiles}, made)


def _sizes_of_turns(block: int, call: Call) -> Sizes:
    rows, tiles = _tiles(call, block)
    return Sizes(-(-tiles // _TURNS_TOGETHER), {"rows": rows, "tiles": tiles})


def one_pass_launches(
    call: Call, plan: BackwardPlan, reads: Hooked, given: dict[str, Any], fixed: Hashable
) -> list[Launch]:
    """The launch that fills dK and dV and adds up dQ, then the launch that makes dQ of the sums.

    Args:
        reads: the numbers and tables of the hooks.
        given: tensors by name: inputs, gradients, turns, and those made by `rows_launch`.
        fixed: the key of the constants, and the device.
    """
    head_pad, value_pad = plan.shape["HEAD_PAD"], plan.shape["VALUE_PAD"]
    tile = one_pass_tile(head_pad)
    # Sums of query heads that share keys are made if these have several programs.
    gradients = Launch(
        ONE_PASS,
        fixed,
        call,
        {**given, "key_sum": None, "value_sum": None},
        partial(_sizes_of_gradients, tile.block, head_pad, value_pad),
        lambda: one_pass_constants(plan),
        reads,
        tile=tile,
    )
    added = Launch(
        _QUERY_GRADIENTS,
        fixed,
        call,
        {**given, "sum": gradients.tensors["sum"]},
        partial(_sizes_of_sums, tile.block),
        lambda: plan.shape | {"BLOCK": tile.block},
    )
    return [gradients, added]


def _sizes_of_gradients(block: int, head_pad: int, value_pad: int, call: Call) -> Sizes:
    extents, (rows, tiles) = call.extents, _tiles(call, block)
    kv_heads, heads = call.key.shape[1], extents.batch * extents.heads
    members, together, turned = _order(call, rows, tiles * block, head_pad)
    parts = tiles * block * head_pad // _PART_COLUMNS
    made: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
        "sum": ((extents.batch, extents.heads, parts, _PART_COLUMNS), torch.float32)
    }
    if members < call.group:
        keys = extents.batch * kv_heads * rows * _KEYS
        made["key_sum"] = ((keys, head_pad), torch.float32)
        made["value_sum"] = ((keys, value_pad), torch.float32)
    own = {
        "rows": rows,
        "batch_heads": extents.batch * kv_heads,
        "heads": kv_heads,
        "tiles": tiles,
        "members": members,
        "together": together,
        "turned": turned,
    }
    return Sizes(rows * heads // members, {**numbers_of(call), **own}, made)


def _sizes_of_sums(block: int, call: Call) -> Sizes:
    extents, (_rows, tiles) = call.extents, _tiles(call, block)
    head_step, row_step = call.row_steps(1)
    own = {"tiles": tiles, "head_step": head_step, "row_step": row_step}
    return Sizes(tiles * extents.batch * extents.heads, {**numbers_of(call), **own})


def _order(call: Call, rows: int, padded_queries: int, head_pad: int) -> tuple[int, int, int]:
    """The kernel's `members`, `together` and `turned`, given the number of tiles of keys."""
    members = _members(call)
    fit = _SUMS_TOGETHER // (padded_queries * head_pad)
    together = max(1, min(fit, _DIMENSIONS_TOGETHER // head_pad))
    parts = call.extents.batch * call.extents.heads // members
    return members, together, min(-(-_PROGRAMS_TURNED // rows), parts)
