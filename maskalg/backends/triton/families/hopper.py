"""The warp-specialised forward kernel of sm_90, in Gluon: what it serves, and its launch."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

import torch

from ....codegen.hooks import Hooks
from ....engine.float8 import FLOAT8
from ....tiles.forward import HopperTile, Pattern, hopper_tile_for
from ...call import Call
from ..arguments import describable, padded, sinks_of
from ..constants import hooks_ahead, weight_constants
from ..launching.descriptors import Descriptor
from ..launching.launch import Launch, Sizes, sized_now
from ..trust import has_gluon
from .float8 import values_in_order

if TYPE_CHECKING:
    from ..plan import Plan

_REGISTERS: Final = 2**16  # of a multiprocessor of sm_90
_QUERIES: Final = 64  # of a consumer
SMALLEST_PAD: Final = 64  # what the layout of descriptors' blocks holds
_LARGEST_SCALE: Final = 1e6  # a scale is factored out of the maximum: it must keep order and range


def hopper_tile(
    arch: str,
    pads: tuple[int, int],
    dtype: torch.dtype,
    pattern: Pattern,
    *,
    biased: bool,
    weighted: bool,
) -> HopperTile | None:
    """The configuration for inputs of these padded head dimensions, or None."""
    tile = hopper_tile_for(
        arch, max(pads), dtype.itemsize, pattern, biased=biased, weighted=weighted
    )
    return tile if tile is not None and min(pads) >= SMALLEST_PAD and has_gluon() else None


def serves_pads(pads: tuple[int, int]) -> bool:
    """Whether a tile that was tuned on equal dimensions serves these padded ones."""
    # Output and queries share memory where both have 256 dimensions; a tile may need that.
    return min(pads) >= SMALLEST_PAD and (max(pads) < 256 or min(pads) == 256) and has_gluon()


def serving(tile: HopperTile | None, call: Call) -> HopperTile | None:
    """The configuration where it serves the call, whose inputs descriptors must reach."""
    if tile is None:
        return None
    value = call.value
    served = (
        0 < call.scale < _LARGEST_SCALE
        and describable(call.query)
        and describable(call.key)
        # Values of float8 are put in order first, wherever they lie.
        and (value.dtype == FLOAT8 or describable(value))
        and value.shape[-1] * call.out_dtype.itemsize % 16 == 0
    )
    return tile if served else None


def hopper_constants(tile: HopperTile, constants: dict[str, Any], hooks: Hooks) -> dict[str, Any]:
    """The kernel's constants, from those of the plain one."""
    shared = (
        "HOLD", "MASKED", "BIASED", "NEXT_RUN", "HEAD_PAD", "VALUE_PAD", "HEADS_TOGETHER",
        "WEIGHTED", "NORMALISED", "NUMBERS", "TABLES",
    )  # fmt: skip
    of_tile = {
        "BLOCK_N": tile.block_kv,
        "CONSUMERS": tile.consumers,
        "STAGES": tile.stages,
        "CONSUMER_REGISTERS": tile.consumer_registers,
        "PRODUCER_REGISTERS": tile.producer_registers,
        "TURNS": tile.turns,
        "PERSISTENT": tile.persistent,
        "OVERLAP": tile.overlap,
        # A score that a formula follows is too much to compile twice, for two groups of warps.
        "APART": hooks.additive or tile.consumers == 1,
        # Queries, output and two stages of 256 dimensions exceed a multiprocessor's memory.
        "OUTPUT_OVER_QUERIES": constants["HEAD_PAD"] == constants["VALUE_PAD"] == 256,
    }
    return {name: constants[name] for name in shared} | hooks_ahead(hooks) | of_tile


def hopper_options(tile: HopperTile) -> dict[str, int]:
    """Launch options: the four warps of the first consumer; Gluon adds the others."""
    return {"num_warps": 4, "maxnreg": tile.registers}


def hopper_launches(
    call: Call,
    tile: HopperTile,
    plan: Plan,
    hooked: tuple[list[int], tuple[torch.Tensor, ...]],
    results: tuple[torch.Tensor, torch.Tensor | None],
) -> list[Launch]:
    """What fills `results`, the output and the lse, one after the other.

    Args:
        plan: what the tile follows from.
        hooked: numbers and tables of its hooks.
    """
    from maskalg_kernels.hopper_forward import hopper_forward

    (scalars, tables), (out, lse) = hooked, results
    value, device, launches = call.value, call.query.device, []
    if value.dtype == FLOAT8:
        value, in_order = values_in_order(value)
        launches.append(in_order)
    described = (call.query, call.key, value, out)
    sized = partial(_sizes, tile)

    def constants() -> dict[str, Any]:
        own = plan.constants | weight_constants(call.weight)
        return hopper_constants(tile, own, plan.hooks) | hopper_options(tile)

    last = (lse, sinks_of(call), padded(tables, device), call.descales)
    launches.append(
        Launch(
            hopper_forward,
            # Not the kernel itself: its hash is that of its source's, made anew each time.
            ("hopper forward", plan, device, call.weight.normalised),
            [*map(Descriptor, described), *last],
            sized_now(sized, call),
            constants,
            sized,
            scalars,
            blocks=lambda: _descriptors(described, tile, plan.constants),
            tile=tile,
        )
    )
    return launches


def _sizes(tile: HopperTile, call: Call, _strides: list[int]) -> Sizes:
    extents = call.extents
    rows = -(-extents.q_len // (tile.consumers * _QUERIES))
    batch_heads = extents.batch * extents.heads
    programs = rows * batch_heads
    if tile.persistent:
        threads = 128 * (tile.consumers + 1)
        programs = min(programs, programs_at_once(call.query.device, threads, tile.registers))
    specialised = (extents.heads, call.group)
    lengths = (extents.q_len, extents.kv_len, rows, batch_heads)
    return Sizes(programs, (call.scale, *lengths, *specialised), specialised)


def _descriptors(
    tensors: tuple[torch.Tensor, ...], tile: HopperTile, constants: dict[str, Any]
) -> list[Any]:
    from maskalg_kernels.hopper_common import block_layout, byte_layout
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    head_pad, value_pad = constants["HEAD_PAD"], constants["VALUE_PAD"]
    of_value = (tile.block_kv, value_pad)
    if tensors[2].dtype == FLOAT8:
        of_value = (value_pad, tile.block_kv)
    blocks = ((_QUERIES, head_pad), (tile.block_kv, head_pad), of_value, (_QUERIES, value_pad))
    return [
        TensorDescriptor(
            t, t.shape, t.stride(), [1, 1, *block],
            byte_layout(block[1]) if t.dtype == FLOAT8 else block_layout,
        )
        for t, block in zip(tensors, blocks, strict=True)
    ]  # fmt: skip


@lru_cache(maxsize=64)
def programs_at_once(device: torch.device, threads: int, registers: int) -> int:
    """How many programs of so many threads with so many registers each run at the same time."""
    multiprocessors = torch.cuda.get_device_properties(device).multi_processor_count
    return multiprocessors * (_REGISTERS // (threads * registers))


def hopper_compilations() -> int:
    """How many variants of the kernel this process compiled or loaded."""
    if not has_gluon():
        return 0
    from maskalg_kernels.hopper_forward import hopper_forward

    caches = getattr(hopper_forward, "device_caches", {})  # the interpreter compiles nothing
    return sum(len(variants[0]) for variants in caches.values())
