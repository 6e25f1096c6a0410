"""All gradients in one pass on sm_90: whose turn it is to add to dQ, and the launches."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Final

import torch
from maskalg_kernels.gradient_sums import query_gradients, turns, visits

from ....schedule.intervals.bands import tiles_of_documents, tiles_of_intervals
from ....tiles.backward import HopperBackwardTile, Least
from ...call import Call
from ...results import row_steps
from ..arguments import padded
from ..launching.launch import Launch, Sizes, sized_now
from .hopper_backward import Arguments, described, hopper_launch
from .rows import OnePassRows, padded_length

_KEYS: Final = 128  # of both consumers
_PART_COLUMNS: Final = 32  # of a part of dQ as it lies in memory
_ROWS_AT_ONCE: Final = 64  # that are added to sums
_SUMS_TOGETHER: Final = 2**22  # that share the L2 cache
_DIMENSIONS_TOGETHER: Final = 256  # of so many heads; more gain nothing
_PROGRAMS_TURNED: Final = 256  # about two of a multiprocessor
_TURNS_TOGETHER: Final = 64  # rows and columns of a table that are counted at a time
_MOST_TILES: Final = 2**24  # of a table of turns, which has eight bytes for each
_MOST_KEPT: Final = 2**18  # numbers of a table that is kept: of 32k queries and keys


def one_pass_tile(head_pad: int) -> HopperBackwardTile:
    """The tile of the kernel: so many queries that a thread has registers for two of them."""
    return HopperBackwardTile(128 if head_pad == 64 else 64, 2)


def room_for_turns(call: Call, least: Least | None, shape: dict[str, Any]) -> torch.Tensor | None:
    """What the turns of a call fill, `[2, tiles of keys, tiles of queries]`; None for two kernels.

    Arguments as of `tiles_in_turn`.
    """
    size = tiles_in_turn(call, least, shape)
    if size is None:
        return None
    return torch.empty((2, *size), dtype=torch.int32, device=call.query.device)


def tiles_in_turn(call: Call, least: Least | None, shape: dict[str, Any]) -> tuple[int, int] | None:
    """Tiles of keys and of queries of the pass that computes all; None for two kernels.

    Args:
        least: what there must be, None where two kernels always serve.
        shape: constants that follow from shapes.
    """
    extents = call.extents
    if least is None or shape["HEAD_PAD"] < shape["VALUE_PAD"]:
        return None
    keys, queries = (-(-length // _KEYS) for length in (extents.kv_len, extents.q_len))
    heads = extents.batch * extents.heads
    found = Least(keys * heads // call.group, keys * heads, keys * queries * heads, queries)
    needed = least._replace(queries=min(least.queries, keys), band=0, document=0)
    if any(have < need for have, need in zip(found, needed, strict=True)):
        return None
    form = call.form
    if least.band and tiles_of_intervals(form, extents, _KEYS) < least.band:
        return None
    if least.document and tiles_of_documents(form, extents, _KEYS) < least.document:
        return None
    size = (keys, -(-extents.q_len // one_pass_tile(shape["HEAD_PAD"]).block))
    return size if math.prod(size) <= _MOST_TILES else None


def one_pass_counts(head_pad: int, call: Call) -> tuple[int, int]:
    """Queries of a tile; and how many counters of query heads that share keys, one for each 64.

    There are none where a program has all query heads of its keys.
    """
    block = one_pass_tile(head_pad).block
    return block, _part_counters(call) if _members(call) < call.group else 0


def _members(call: Call) -> int:
    """Query heads of a program: one, or all that share its keys.

    Programs of one head are shorter, and go through the queries close to one another, which then
    are in the L2 cache. What they count is set to zero where rows are stored, one for each.
    """
    queries = call.extents.batch * call.extents.heads * call.extents.q_len
    return 1 if _part_counters(call) <= queries else call.group


def _part_counters(call: Call) -> int:
    return call.extents.batch * call.key.shape[1] * -(-call.extents.kv_len // _KEYS) * 2


def one_pass_constants(constants: dict[str, Any]) -> dict[str, Any]:
    """The constants of the kernel, from those of the plain ones."""
    shared = (
        "HOLD", "MASKED", "BIASED", "NEXT_RUN", "HEAD_PAD", "VALUE_PAD", "NUMBERS", "TABLES",
    )  # fmt: skip
    found = {name: constants[name] for name in shared}
    tile = one_pass_tile(constants["HEAD_PAD"])
    return found | {"BLOCK": tile.block, "STAGES": tile.stages}


def turn_launches(
    call: Call,
    room: torch.Tensor,
    constants: dict[str, Any],
    arguments: Arguments,
    fixed: Hashable,
) -> list[Launch]:
    """What fills the turns: how many later tiles of keys come before, and how many earlier ones.

    They are the same for calls with this expression and these lengths if no tensor says what is
    kept, and remembered then if they are small.

    Args:
        room: of `room_for_turns`.
        constants: but those of the tile.
        arguments: numbers and tables of the hooks.
        fixed: what the constants follow from, and the device.
    """
    scalars, tables = arguments
    block = one_pass_tile(constants["HEAD_PAD"]).block
    own = {name: constants[name] for name in ("NUMBERS", "TABLES", "NEXT_RUN")}
    own |= {"KEYS": _KEYS, "BLOCK": block}
    kept = kept_turns(call, room.numel())
    of_visits, of_turns = partial(_sizes_of_visits, block), partial(_sizes_of_turns, block)
    visited = Launch(
        visits,
        ("visits", fixed),
        [room, padded(tables, room.device)],
        sized_now(of_visits, call),
        lambda: own,
        of_visits,
        scalars,
        made=(room,),
        once=kept,
    )
    sides = {"ROWS": _TURNS_TOGETHER, "COLUMNS": _TURNS_TOGETHER}
    counted = Launch(
        turns,
        ("turns", room.device),
        [room],
        sized_now(of_turns, call),
        lambda: sides,
        of_turns,
        once=kept,
    )
    return [visited, counted]


def kept_turns(call: Call, size: int) -> bool:
    """Whether turns of so many numbers are remembered."""
    return size <= _MOST_KEPT and not call.form.structure.mask_tables


def _tiles(call: Call, block: int) -> tuple[int, int]:
    """Tiles of keys, and of so many queries."""
    return -(-call.extents.kv_len // _KEYS), -(-call.extents.q_len // block)


def _sizes_of_visits(block: int, call: Call, _strides: list[int]) -> Sizes:
    extents, (rows, tiles) = call.extents, _tiles(call, block)
    return Sizes(rows, (extents.q_len, extents.kv_len, tiles), (), ((2, rows, tiles),))


def _sizes_of_turns(block: int, call: Call, _strides: list[int]) -> Sizes:
    rows, tiles = _tiles(call, block)
    return Sizes(-(-tiles // _TURNS_TOGETHER), (rows, tiles), ())


def one_pass_launches(
    call: Call,
    of_turns: torch.Tensor,
    shape: dict[str, Any],
    constants: Callable[[], dict[str, Any]],
    arguments: Arguments,
    of_rows: OnePassRows,
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
    fixed: Hashable,
) -> list[Launch]:
    """What fills dK and dV and adds up dQ, then what makes dQ of the sums.

    Args:
        of_turns: filled by `turn_launches`.
        shape: constants that follow from shapes.
        constants: all but those of the tile.
        arguments: numbers and tables of the hooks.
        of_rows: what is known of queries, filled.
        tensors: dO, dQ, dK and dV.
        fixed: what the constants follow from, and the device.
    """
    from maskalg_kernels.hopper_gradients import hopper_gradients

    scalars, tables = arguments
    grad_out, dq, dk, dv = tensors
    head_pad, value_pad = shape["HEAD_PAD"], shape["VALUE_PAD"]
    tile, (shifts, counters, of_parts, _block) = one_pass_tile(head_pad), of_rows
    block, side = tile.block, _KEYS // tile.consumers
    sized = partial(_sizes_of_gradients, block, head_pad, value_pad)
    made = tuple([dq.new_empty(room, dtype=torch.float32) for room in sized(call, []).made])
    # What query heads that share keys have summed so far.
    sums, *part_sums = made if of_parts is not None else (*made, None, None)
    assert sums is not None
    blocks = (
        (call.query, block, head_pad), (call.key, side, head_pad), (call.value, side, value_pad),
        (grad_out, block, value_pad), (shifts, block, shifts.shape[1]),
        (dk, side, head_pad), (dv, side, value_pad),
        (sums, _ROWS_AT_ONCE, _PART_COLUMNS),
    )  # fmt: skip
    last = (counters, of_turns, *part_sums, of_parts, padded(tables, dq.device))
    gradients = hopper_launch(
        hopper_gradients,
        call,
        [*described(blocks), *last],
        blocks,
        lambda: one_pass_constants(constants()),
        tile,
        ("one pass", fixed),
        sized,
        scalars,
        made,
    )
    of_sums = partial(_sizes_of_sums, block)
    dims = {"BLOCK": block, "HEAD_DIM": shape["HEAD_DIM"], "HEAD_PAD": shape["HEAD_PAD"]}
    added = Launch(
        query_gradients,
        ("dQ of sums", fixed),
        [dq, sums, counters],
        sized_now(of_sums, call),
        lambda: dims,
        of_sums,
    )
    return [gradients, added]


def _sizes_of_gradients(
    block: int, head_pad: int, value_pad: int, call: Call, _strides: list[int]
) -> Sizes:
    extents, (rows, tiles) = call.extents, _tiles(call, block)
    kv_heads, heads = call.key.shape[1], extents.batch * extents.heads
    members, together, turned = _order(call, rows, tiles * block, head_pad)
    made: list[tuple[int, ...]] = [
        (extents.batch, extents.heads, tiles * block * head_pad // _PART_COLUMNS, _PART_COLUMNS)
    ]
    if members < call.group:
        keys = extents.batch * kv_heads * rows * _KEYS
        made += [(keys, head_pad), (keys, value_pad)]
    specialised = (kv_heads, call.group)
    lengths = (extents.q_len, extents.kv_len, padded_length(extents.q_len), rows)
    return Sizes(
        rows * heads // members,
        (
            call.scale, *lengths, extents.batch * kv_heads, *specialised, tiles, members, together,
            turned,
        ),
        specialised,
        tuple(made),
    )  # fmt: skip


def _sizes_of_sums(block: int, call: Call, _strides: list[int]) -> Sizes:
    extents, (_rows, tiles) = call.extents, _tiles(call, block)
    return Sizes(
        tiles * extents.batch * extents.heads,
        (call.scale, extents.q_len, tiles, extents.heads, *row_steps(call.query)),
        (extents.heads,),
    )


def _order(call: Call, rows: int, padded_queries: int, head_pad: int) -> tuple[int, int, int]:
    """What the kernel calls `members`, `together` and `turned`, of so many tiles of keys."""
    members = _members(call)
    fit = _SUMS_TOGETHER // (padded_queries * head_pad)
    together = max(1, min(fit, _DIMENSIONS_TOGETHER // head_pad))
    parts = call.extents.batch * call.extents.heads // members
    return members, together, min(-(-_PROGRAMS_TURNED // rows), parts)
