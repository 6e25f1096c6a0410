"""Few queries against many keys: when programs share the keys of a row, and their launches."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import torch
from maskalg_kernels.decode import decode, joined

from ....engine.extents import Extents
from ....tiles.decode import decode_tiles_for
from ....tiles.forward import Tile
from ...call import Call
from ..arguments import describable, padded, sinks_of
from ..constants import architecture, has_dependent_launches, tile_constants, weight_constants
from ..launching.descriptors import Descriptor, blocks_of_keys
from ..launching.fitting import that_fits, with_last_resort
from ..launching.launch import Launch, Sizes, sized_now

if TYPE_CHECKING:
    from ..plan import Plan

_LEAST_KEYS: Final = 256
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
        """Tiles of rows of one member of each group, and programs that share the keys of each."""
        tiles = -(-extents.q_len * self.members // tile.block_q)
        others = extents.batch * extents.heads // self.members
        keys = -(-extents.kv_len // tile.block_kv)
        if tiles > 1:
            keys = extents.kv_len // _LEAST_OF_SPLIT
        return tiles, max(1, min(self.programs // (tiles * others), keys))


def shared(call: Call, plan: Plan) -> Shared | None:
    """How programs share the keys of a call; None where each has all keys of its queries."""
    extents, device = call.extents, call.query.device
    if extents.kv_len < _LEAST_KEYS:
        return None
    # Rows of a tile visit the same tiles of keys, as heads do that the mask does not tell apart.
    members = 1 if "head" in call.form.structure.mask.indices() else call.group
    at_once = _programs_at_once(device)
    others = extents.batch * extents.heads // members
    tiles = decode_tiles_for(
        architecture(device),
        max(plan.constants["HEAD_PAD"], plan.constants["VALUE_PAD"]),
        call.query.dtype.itemsize,
        plan.pattern,
        extents.q_len * members,
        described=plan.tma and describable(call.key) and describable(call.value),
        crowded=others > _CROWD * at_once,
    )
    how = Shared(members, tiles, at_once)
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
    hooked: tuple[list[int], tuple[torch.Tensor, ...]],
    results: tuple[torch.Tensor, torch.Tensor | None],
) -> list[Launch]:
    """Fill `results`, the output and the lse; what was launched.

    Args:
        plan: what the hooks follow from.
        hooked: numbers and tables of the hooks.
    """

    of_parts = that_fits(
        ("decode", plan),
        (_of_parts(call, plan, tile, how, hooked) for tile in with_last_resort(how.tiles)),
    )
    if of_parts is None:
        return []
    tile = cast(Tile, of_parts.tile)
    joined = _of_joined(call, plan, tile, how, of_parts.made, results)
    return [of_parts.run(), joined.run()]


def _of_parts(
    call: Call,
    plan: Plan,
    tile: Tile,
    how: Shared,
    hooked: tuple[list[int], tuple[torch.Tensor, ...]],
) -> Launch:
    """What fills the two tensors that it makes: the parts of each split, and their statistics."""
    (scalars, tables), query, key, value = hooked, call.query, call.key, call.value
    strided = (query, key, value)
    sized = partial(_sizes_of_parts, how, tile, plan.constants["VALUE_PAD"])
    sizes = sized_now(sized, call, strided)
    made = tuple([query.new_empty(shape, dtype=torch.float32) for shape in sizes.made])
    tma = tile.block_q == _OF_WARPGROUP
    sources = (Descriptor(key), Descriptor(value)) if tma else (key, value)

    def constants() -> dict[str, Any]:
        own = decode_constants(plan.constants | weight_constants(call.weight), tile)
        return own | {"DEPENDENT": has_dependent_launches(architecture(query.device))}

    return Launch(
        decode,
        ("decode", plan, tile, query.device),
        [query, *sources, *made, padded(tables, query.device), call.descales],
        sizes,
        constants,
        sized,
        scalars,
        strided,
        lambda: blocks_of_keys(key, value, tile.block_kv, plan.constants),
        made,
        tile=tile,
    )


def _sizes_of_parts(how: Shared, tile: Tile, pad: int, call: Call, strides: list[int]) -> Sizes:
    extents = call.extents
    tiles, splits = how.counts(extents, tile)
    batch_heads = extents.batch * extents.heads
    queries = batch_heads * extents.q_len
    specialised = (extents.heads, call.group, how.members, *strides)
    lengths = (extents.q_len, extents.kv_len, tiles, splits, batch_heads)
    return Sizes(
        tiles * splits * batch_heads // how.members,
        (call.scale, *lengths, *specialised),
        specialised,
        ((queries, splits, pad), (2, queries, splits)),
    )


def _of_joined(
    call: Call,
    plan: Plan,
    tile: Tile,
    how: Shared,
    parts: tuple[torch.Tensor, ...],
    results: tuple[torch.Tensor, torch.Tensor | None],
) -> Launch:
    """What fills `results` from the parts of the splits."""
    (out, lse), device = results, call.query.device
    sized = partial(_sizes_of_joined, how, tile)
    dependent = has_dependent_launches(architecture(device))
    dims = {name: plan.constants[name] for name in ("VALUE_DIM", "VALUE_PAD")}
    own = dims | weight_constants(call.weight) | {"DEPENDENT": dependent}
    options = {"launch_pdl": True} if dependent else {}
    return Launch(
        joined,
        ("joined", *own.values(), device),
        [*parts, out, lse, sinks_of(call)],
        sized_now(sized, call, (out,)),
        lambda: own | options,
        sized,
        strided=(out,),
    )


def _sizes_of_joined(how: Shared, tile: Tile, call: Call, strides: list[int]) -> Sizes:
    extents = call.extents
    batch_heads, (_tiles, splits) = extents.batch * extents.heads, how.counts(extents, tile)
    specialised = (extents.heads, *strides)
    numbers = (extents.q_len, splits, batch_heads, *specialised)
    return Sizes(batch_heads * extents.q_len, numbers, specialised)


def decode_constants(constants: dict[str, Any], tile: Tile) -> dict[str, Any]:
    """The constants of the kernel of parts, from those of the plain one, and its options."""
    shared = (
        "HOLD", "MASKED", "BIASED", "NEXT_RUN", "HEAD_DIM", "VALUE_DIM", "HEAD_PAD", "VALUE_PAD",
        "NUMBERS", "TABLES", "WIDE", "PRECISION", "WEIGHTED",
    )  # fmt: skip
    found = {name: constants[name] for name in shared} | tile_constants(tile)
    del found["ONE_LOOP"]
    return found | {"TMA": tile.block_q == _OF_WARPGROUP}


@lru_cache(maxsize=64)
def _programs_at_once(device: torch.device) -> int:
    """One for each multiprocessor: more were slower."""
    if device.type == "cpu":
        return _IN_INTERPRETER
    return torch.cuda.get_device_properties(device).multi_processor_count
