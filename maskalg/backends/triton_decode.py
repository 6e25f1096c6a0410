"""Few queries against many keys: when programs share the keys of a row, and their launches."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from maskalg_kernels.decode import decode, joined

from ..decode_tiles import decode_tiles_for
from ..extents import Extents
from ..tiles import Tile
from .call import Call
from .triton_arguments import describable, first_that_fits, padded, sinks_of
from .triton_constants import (
    architecture,
    has_dependent_launches,
    tile_constants,
    weight_constants,
)
from .triton_descriptors import Descriptor, blocks_of_keys
from .triton_launch import Launch, variant_key

if TYPE_CHECKING:
    from .triton_plan import Plan

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

    def run(tile: Tile) -> list[Launch]:
        counts = how.counts(call.extents, tile)
        of_parts = _of_parts(call, plan, tile, (how.members, *counts), hooked).run()
        return [of_parts, _of_joined(call, plan, of_parts.made, counts[1], results).run()]

    return first_that_fits(partial(run, tile) for tile in how.tiles) or []


def _of_parts(
    call: Call,
    plan: Plan,
    tile: Tile,
    counts: tuple[int, int, int],
    hooked: tuple[list[int], tuple[torch.Tensor, ...]],
) -> Launch:
    """What fills the two tensors that it makes: the parts of each split, and their statistics.

    Args:
        counts: members, tiles and splits.
    """
    (scalars, tables), (members, tiles, splits) = hooked, counts
    query, key, value, extents = call.query, call.key, call.value, call.extents
    batch_heads = extents.batch * extents.heads
    programs = tiles * splits * batch_heads // members
    queries = batch_heads * extents.q_len
    part = query.new_empty((queries, splits, plan.constants["VALUE_PAD"]), dtype=torch.float32)
    statistic = query.new_empty((2, queries, splits), dtype=torch.float32)
    tma = tile.block_q == _OF_WARPGROUP
    numbers = (
        extents.heads, call.group, members, *query.stride(), *key.stride(), *value.stride(),
    )  # fmt: skip

    def arguments(sources: tuple[Any, ...]) -> list[Any]:
        return [
            query, *sources, part, statistic, padded(tables, query.device), call.descales,
            call.scale, extents.q_len, extents.kv_len, tiles, splits, batch_heads, *numbers,
            *scalars,
        ]  # fmt: skip

    def first() -> tuple[list[Any], dict[str, Any]]:
        own = decode_constants(plan.constants | weight_constants(call.weight), tile)
        sources: tuple[Any, ...] = (key, value)
        if tma:
            sources = blocks_of_keys(key, value, tile.block_kv, own)
        own["DEPENDENT"] = has_dependent_launches(architecture(query.device))
        return arguments(sources), own

    specialised = variant_key(
        (query, key, value, part, statistic, *(call.descales or ()), *tables),
        numbers,
        (extents.q_len, extents.kv_len, programs, queries * splits),
    )
    return Launch(
        decode,
        (programs, 1),
        ("decode", plan, tile, query.device, specialised),
        first,
        lambda: arguments((Descriptor(key), Descriptor(value)) if tma else (key, value)),
        made=(part, statistic),
    )


def _of_joined(
    call: Call,
    plan: Plan,
    parts: tuple[torch.Tensor, ...],
    splits: int,
    results: tuple[torch.Tensor, torch.Tensor | None],
) -> Launch:
    """What fills `results` from the parts of so many splits."""
    (out, lse), extents, device = results, call.extents, call.query.device
    batch_heads, sinks = extents.batch * extents.heads, sinks_of(call)
    numbers = (extents.heads, *out.stride())
    passed = [*parts, out, lse, sinks, extents.q_len, splits, batch_heads, *numbers]
    dependent = has_dependent_launches(architecture(device))
    dims = {name: plan.constants[name] for name in ("VALUE_DIM", "VALUE_PAD")}
    own = dims | weight_constants(call.weight) | {"DEPENDENT": dependent}
    options = {"launch_pdl": True} if dependent else {}
    specialised = variant_key(
        (*parts, out, lse, sinks), numbers, (extents.q_len, batch_heads * extents.q_len * splits)
    )
    return Launch(
        joined,
        (batch_heads * extents.q_len, 1),
        ("joined", *own.values(), device, specialised),
        lambda: (passed, own | options),
        lambda: passed,
    )


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
