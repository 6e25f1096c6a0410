"""Packed requests: those with few queries are divided by their own lengths; their launches."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, NamedTuple, cast

import torch

from ....tiles.decode import decode_programs_for, decode_tiles_for
from ....tiles.shapes import Tile, in_turn
from ....values.weights import Weight
from ...call import Call
from ..arguments import Hooked, inputs_of, numbers_of, sinks_of
from ..constants import architecture, has_dependent_launches
from ..launching.fitting import that_fits, tried_for
from ..launching.launch import Launch
from ..launching.spec import KernelSpec, Sizes
from ..plan import Plan
from .decode import LEAST_KEYS, decode_constants, members_of, programs_at_once

LISTED: Final = KernelSpec("maskalg_kernels.ragged.listed")
RAGGED: Final = KernelSpec("maskalg_kernels.ragged.ragged")
RAGGED_JOINED: Final = KernelSpec("maskalg_kernels.ragged.ragged_joined")

_ROWS: Final = 64  # queries times heads that share keys; a request with more is a chunk
_KEYS_OF_PART: Final = 1024
_BYTES_OF_PARTS: Final = 2**28  # from which on parts are longer; each tile of rows has one at least


class Ragged(NamedTuple):
    """How packed requests with few queries are computed.

    Attributes:
        members: query heads of a tile of rows: one, or all that share keys.
        apart: entries of a request in the list: one, or one for each head if the mask differs.
        tiles: candidates in the order to try.
        programs: how many run at once.
        few: the most queries of such a request; 0 if all requests are such.
    """

    members: int
    apart: int
    tiles: tuple[Tile, ...]
    programs: int
    few: int

    def rows(self, call: Call, tile: Tile) -> int:
        """The most tiles of rows of these requests."""
        requests, queries = call.extents.batch, call.query.shape[2]
        most = queries * self.members // tile.block_q + min(requests, queries)
        if not self.few:
            return most
        return min(requests * -(-self.few * self.members // tile.block_q), most)

    def part_tiles(self, call: Call, tile: Tile, pad: int) -> int:
        """The tiles of keys of a part; more if parts would take too much memory."""
        items = max(_BYTES_OF_PARTS // (4 * tile.block_q * pad), 1)
        of_all = call.extents.batch * (call.extents.heads // self.members)
        most = max(items // of_all, 1)
        keys = -(-call.extents.kv_len // tile.block_kv)
        return max(-(-_KEYS_OF_PART // tile.block_kv), -(-keys // most))

    def room(self, call: Call, tile: Tile, pad: int) -> int:
        """The most items of the list. A request with one tile of rows has `parts`; one with t tiles
        has parts t times as long, and so at most t - 1 items more."""
        keys = -(-call.extents.kv_len // tile.block_kv)
        parts = -(-keys // self.part_tiles(call, tile, pad))
        requests = min(call.extents.batch, call.query.shape[2])
        each = requests * (parts - 1) + self.rows(call, tile)
        return each * (call.extents.heads // self.members)


def ragged_of(call: Call, plan: Plan) -> Ragged | None:
    """How packed requests with few queries are computed; None if one kernel computes all requests.

    The number of requests and `most_queries` only decide whether the other requests have a kernel:
    the bits of a request's results depend on neither.
    """
    if not call.packed or call.extents.kv_len < LEAST_KEYS:
        return None
    members, device = members_of(call), call.query.device
    arch = architecture(device)
    tiles = decode_tiles_for(
        arch,
        max(plan.constants["HEAD_PAD"], plan.constants["VALUE_PAD"]),
        call.query.dtype.itemsize,
        plan.pattern,
        1,
        described=False,
        crowded=False,
        paged=True,
    )
    few = max(_ROWS // members, 1)
    return Ragged(
        members=members,
        apart=call.extents.heads if "head" in call.form.structure.mask.indices() else 1,
        tiles=tiles,
        programs=programs_at_once(device) * decode_programs_for(arch, tiles[0], paged=True),
        few=0 if call.extents.q_len <= few else few,
    )


def launch_ragged(
    call: Call,
    how: Ragged,
    plan: Plan,
    reads: Hooked,
    results: tuple[torch.Tensor, torch.Tensor | None],
) -> list[Launch]:
    """Fill `results`, the output and the lse, for requests with few queries; returns the launches.

    Args:
        plan: the plan of the hooks.
        reads: the numbers and tables of the hooks.
    """
    lists: dict[Tile, Launch] = {}

    def with_tile(tile: Tile) -> Launch:
        lists[tile] = _launch(LISTED, call, how, plan, tile, {}, reads)
        made = {"list": lists[tile].tensors["list"]}
        return _launch(RAGGED, call, how, plan, tile, made, reads)

    launches = map(with_tile, in_turn(how.tiles))
    parts = that_fits(tried_for("ragged", plan, call), launches)
    if parts is None:
        return []
    tile = cast(Tile, parts.tile)
    given = {**parts.tensors, "o": results[0], "lse": results[1], "sink": sinks_of(call)}
    joins = _launch(RAGGED_JOINED, call, how, plan, tile, given, Hooked())
    return [each.run() for each in (lists[tile], parts, joins)]


def _launch(
    spec: KernelSpec,
    call: Call,
    how: Ragged,
    plan: Plan,
    tile: Tile,
    given: dict[str, Any],
    reads: Hooked,
) -> Launch:
    """A launch of one of the three kernels; `given` has the tensors made by those before it."""
    device = call.query.device
    return Launch(
        spec,
        (plan, call.page_size, call.weight.normalised, device),
        call,
        inputs_of(call) | given,
        partial(_sizes, spec, how, tile, plan.constants["VALUE_PAD"]),
        lambda: ragged_constants(
            spec, plan, call.weight, tile, architecture(device), call.page_size
        ),
        reads,
        tile=tile,
    )


def ragged_constants(
    spec: KernelSpec, plan: Plan, weight: Weight, tile: Tile, arch: str, page_size: int
) -> dict[str, Any]:
    """The constants and options of one of the three kernels."""
    constants = decode_constants(plan, weight, tile, arch, page_size)
    if spec is not RAGGED:
        constants["num_warps"] = 1 if spec is LISTED else 4
    if spec is not LISTED and has_dependent_launches(arch):
        constants["launch_pdl"] = True
    return constants


def _sizes(spec: KernelSpec, how: Ragged, tile: Tile, pad: int, call: Call) -> Sizes:
    queries, entries = call.query.shape[2], call.extents.batch * how.apart
    room = how.room(call, tile, pad)
    numbers = {
        **numbers_of(call),
        "few": how.few or queries,
        "room": room,
        "part_tiles": how.part_tiles(call, tile, pad),
        "members": how.members,
        "apart": how.apart,
    }
    if spec is LISTED:
        return Sizes(entries, numbers, {"list": ((3, entries), torch.int32)})
    if spec is RAGGED:
        made = {
            "part": ((room, tile.block_q, pad), torch.float32),
            "statistic": ((2, room, tile.block_q), torch.float32),
        }
        return Sizes(min(how.programs, room), numbers, made)
    return Sizes(call.extents.heads * queries, numbers)
