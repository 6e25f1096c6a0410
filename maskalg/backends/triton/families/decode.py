"""Few queries and many keys: when programs share the keys of a row, and their launches."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, cast

import torch

from ....engine.extents import Extents
from ....tiles.decode import decode_programs_for, decode_tiles_for
from ....tiles.shapes import Tile, in_turn
from ....values.weights import Weight
from ...call import Call
from ..arguments import Hooked, describable, inputs_of, numbers_of, sinks_of
from ..constants import architecture, has_dependent_launches, tile_constants, weight_constants
from ..launching.fitting import that_fits, tried_for
from ..launching.launch import Launch
from ..launching.spec import KEYS_AND_VALUES, KernelSpec, Sizes
from ..plan import Plan

DECODE: Final = KernelSpec("maskalg_kernels.decode.decode", KEYS_AND_VALUES)
_JOINED: Final = KernelSpec("maskalg_kernels.decode.joined")

LEAST_KEYS: Final = 256
_LEAST_OF_SPLIT: Final = 512  # keys, where there are several tiles of rows
_SHARE: Final = 0.7  # of the others' time, at most
_OF_WARPGROUP: Final = 64  # rows of a tile that a warpgroup multiplies
_CROWD: Final = 3  # tiles of rows for each program at once; of more, programs are smaller
_IN_INTERPRETER: Final = 16  # programs at once


class Shared(NamedTuple):
    """How programs share the keys of a call.

    Attributes:
        members: query heads of a tile of rows: one, or all that share keys.
        tiles: candidates in the order to try.
        programs: how many run at once.
    """

    members: int
    tiles: tuple[Tile, ...]
    programs: int

    def counts(self, extents: Extents, tile: Tile) -> tuple[int, int]:
        """Tiles of rows of a batch entry, and programs that share the keys of each tile."""
        tiles = -(-extents.q_len * self.members // tile.block_q)
        others = extents.heads // self.members * extents.batch
        keys = -(-extents.kv_len // tile.block_kv)
        if tiles > 1:
            keys = extents.kv_len // _LEAST_OF_SPLIT
        return tiles, max(1, min(self.programs // max(tiles * others, 1), keys))


def members_of(call: Call) -> int:
    """The number of query heads in a tile of rows. All rows of a tile visit the same tiles of keys,
    so a tile has several heads only if the mask is the same for them."""
    return 1 if "head" in call.form.structure.mask.indices() else call.group


def shared(call: Call, plan: Plan) -> Shared | None:
    """How programs share the keys of a call; None if each program has all keys of its queries.

    Packed requests are divided by their own lengths (`ragged`), or have one kernel.
    """
    extents, device = call.extents, call.query.device
    if extents.kv_len < LEAST_KEYS or call.packed or call.aligned:
        return None
    members = members_of(call)
    at_once = programs_at_once(device)
    others = call.query.shape[0] * extents.heads // members
    paged, arch = call.pages is not None, architecture(device)
    tiles = decode_tiles_for(
        arch,
        max(plan.constants["HEAD_PAD"], plan.constants["VALUE_PAD"]),
        call.query.dtype.itemsize,
        plan.pattern,
        extents.q_len * members,
        described=plan.tma and not paged and describable(call.key) and describable(call.value),
        crowded=others > _CROWD * at_once,
        paged=paged,
    )
    programs = at_once * decode_programs_for(arch, tiles[0], paged=paged)
    how = Shared(members, tiles, programs)
    of_rows, splits = how.counts(extents, tiles[0])
    # A tile of keys takes a program of either kernel about as long.
    side = plan.candidates[0].block_q if plan.hopper is None else 64 * plan.hopper.consumers
    waves = -(-of_rows * splits * others // at_once) / splits
    unshared = -(-(-(-extents.q_len // side) * others * members) // at_once)
    return how if waves <= _SHARE * unshared else None


def launch_decode(
    call: Call,
    how: Shared,
    plan: Plan,
    reads: Hooked,
    results: tuple[torch.Tensor, torch.Tensor | None],
) -> list[Launch]:
    """Fill `results`, the output and the lse; returns the launches.

    Args:
        plan: the plan of the hooks.
        reads: the numbers and tables of the hooks.
    """
    tiles = in_turn(how.tiles)
    launches = (_parts(call, plan, tile, how, reads) for tile in tiles)
    parts = that_fits(tried_for("decode", plan, call), launches)
    if parts is None:
        return []
    return [parts.run(), _joined(call, plan, how, parts, results).run()]


def _parts(call: Call, plan: Plan, tile: Tile, how: Shared, reads: Hooked) -> Launch:
    """The launch that computes the parts of each split, and their statistics."""
    device = call.query.device
    return Launch(
        DECODE,
        (plan, call.page_size, device),
        call,
        inputs_of(call),
        partial(_sizes_of_parts, how, tile, plan.constants["VALUE_PAD"]),
        lambda: decode_constants(plan, call.weight, tile, architecture(device), call.page_size),
        reads,
        tma=by_descriptor(tile),
        tile=tile,
    )


def by_descriptor(tile: Tile) -> bool:
    """Whether the kernel of parts reads keys and values by descriptor."""
    return tile.block_q == _OF_WARPGROUP


def decode_constants(
    plan: Plan, weight: Weight, tile: Tile, arch: str, page_size: int = 0
) -> dict[str, Any]:
    """The constants and options of either kernel, except `TMA`."""
    own = {"DEPENDENT": has_dependent_launches(arch), "PAGE": page_size}
    return plan.constants | weight_constants(weight) | tile_constants(tile) | own


def _sizes_of_parts(how: Shared, tile: Tile, pad: int, call: Call) -> Sizes:
    extents = call.extents
    tiles, splits = how.counts(extents, tile)
    batch, heads, q_len, _ = call.query.shape
    batch_heads, queries = batch * heads, batch * heads * q_len
    made = {
        "part": ((queries, splits, pad), torch.float32),
        "statistic": ((2, queries, splits), torch.float32),
    }
    own = {"tiles": tiles, "splits": splits, "members": how.members}
    return Sizes(tiles * splits * batch_heads // how.members, {**numbers_of(call), **own}, made)


def _joined(
    call: Call,
    plan: Plan,
    how: Shared,
    parts: Launch,
    results: tuple[torch.Tensor, torch.Tensor | None],
) -> Launch:
    """The launch that joins the parts of the splits into `results`."""
    tile, device = cast(Tile, parts.tile), call.query.device
    dependent = has_dependent_launches(architecture(device))
    constants = {
        "VALUE_DIM": plan.constants["VALUE_DIM"],
        "VALUE_PAD": plan.constants["VALUE_PAD"],
        **weight_constants(call.weight),
        "DEPENDENT": dependent,
    }
    options = {"launch_pdl": True} if dependent else {}
    return Launch(
        _JOINED,
        (*constants.values(), device),
        call,
        {**parts.tensors, "o": results[0], "lse": results[1], "sink": sinks_of(call)},
        partial(_sizes_of_joined, how, tile),
        lambda: constants | options,
    )


def _sizes_of_joined(how: Shared, tile: Tile, call: Call) -> Sizes:
    batch, heads, q_len, _ = call.query.shape
    own = {"splits": how.counts(call.extents, tile)[1]}
    return Sizes(batch * heads * q_len, {**numbers_of(call), **own})


@lru_cache(maxsize=64)
def programs_at_once(device: torch.device) -> int:
    """One program for each multiprocessor; for contiguous keys, more were slower."""
    if device.type == "cpu":
        return _IN_INTERPRETER
    return torch.cuda.get_device_properties(device).multi_processor_count
