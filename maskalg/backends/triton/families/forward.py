"""The forward kernels: the choice between the plain one and that of sm_90, and its launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain
from math import gcd
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import torch

from ....engine.float8 import FLOAT8
from ....tiles.shapes import HopperTile, Tile, in_turn
from ....values.weights import Weight
from ...call import Call
from ..arguments import describable, hooked, inputs_of, numbers_of, sinks_of
from ..constants import hooks_ahead, power_of_two, rows_as_pads, tile_constants, weight_constants
from ..documents import rows_of_tiles, with_rows
from ..launching.fitting import that_fits, tried_for
from ..launching.launch import Launch
from ..launching.spec import KEYS_AND_VALUES, KernelSpec, Sizes
from ..plan import Plan
from ..trust import has_gluon
from .decode import Shared, launch_decode, shared
from .ragged import Ragged, launch_ragged, ragged_of

FORWARD: Final = KernelSpec("maskalg_kernels.forward.forward", KEYS_AND_VALUES)
HOPPER_FORWARD: Final = KernelSpec(
    "maskalg_kernels.hopper_forward.hopper_forward",
    {"q": (1, 1, 64, "HEAD_PAD"), **KEYS_AND_VALUES, "o": (1, 1, 64, "VALUE_PAD")},
)
# Values are in the order in which products of float8 read them.
_HOPPER_FLOAT8: Final = replace(
    HOPPER_FORWARD, blocks={**HOPPER_FORWARD.blocks, "v": (1, 1, "VALUE_PAD", "BLOCK_N")}
)
_NO_ROWS_DRAWN: Final = KernelSpec("maskalg_kernels.hopper_rows.no_rows_drawn")
# Of keys in pages a tile is copied in pieces.
_HOPPER_PAGES: Final = replace(
    HOPPER_FORWARD,
    blocks={
        **HOPPER_FORWARD.blocks,
        "k": (1, 1, "PIECE", "HEAD_PAD"),
        "v": (1, 1, "PIECE", "VALUE_PAD"),
    },
    columns={"k": 64, "v": 64},
)
_FLOAT8_VALUES: Final = KernelSpec("maskalg_kernels.float8_values.float8_values")

_OUTPUT_OVER_QUERIES: Final = ((160, 160), (192, 128), (192, 192), (256, 256))  # dimensions of rows
_NOTHING_MADE: Final[Mapping[str, Any]] = MappingProxyType({})
_WORDS: Final = 32  # of four keys, of a program of `float8_values`: the most keys of a tile
_REGISTERS: Final = 2**16  # of a multiprocessor of sm_90
_QUERIES: Final = 64  # of a consumer
_LEAST_PIECE: Final = 8  # rows of a page that are copied at once: those of a pattern of swizzling
_LARGEST_SCALE: Final = 1e6  # a scale is factored out of the maximum: it must keep order and range


class Route(NamedTuple):
    """The kernels of a plan for a call.

    With `few`, programs share the keys of few queries. Else the Hopper kernel of a tile computes
    the call, or the plain one, with descriptors or without. `in_words`: float8 values lie in whole
    words. `ragged`: packed requests with few queries have further kernels.
    """

    few: Shared | None
    hopper: HopperTile | None = None
    described: bool = False
    in_words: bool = False
    ragged: Ragged | None = None


def route_of_forward(plan: Plan, call: Call, _given: Sequence[Any] = ()) -> Route:
    """The kernel for a call."""
    few = shared(call, plan)
    if few is not None:
        return Route(few)
    ragged = ragged_of(call, plan)
    if ragged is not None and not ragged.few:
        return Route(None, ragged=ragged)
    hopper = serving(plan.hopper, call)
    if hopper is not None:
        words = call.query.dtype == FLOAT8 and in_words(call.value)
        return Route(None, hopper, in_words=words, ragged=ragged)
    return Route(None, None, described(plan, call), ragged=ragged)


def described(plan: Plan, call: Call) -> bool:
    """Whether the plain kernel reads keys and values by descriptor."""
    apart = plan.tma and call.pages is None
    return apart and describable(call.key) and describable(call.value)


def serving(tile: HopperTile | None, call: Call) -> HopperTile | None:
    """The Hopper tile if it can compute the call, given that descriptors reach the inputs."""
    if tile is None:
        return None
    value = call.value
    if call.pages is not None and value.shape[-1] > 128:
        # Addresses of pages need the registers of scores.
        tile = replace(tile, block_kv=min(tile.block_kv, 64))
    if call.pages is not None and (
        # Pages of another dtype than the queries' are converted as they are read.
        call.key.dtype != call.query.dtype
        or call.query.dtype == FLOAT8
        or gcd(call.page_size, tile.block_kv) < _LEAST_PIECE
    ):
        return None
    served = (
        0 < call.scale < _LARGEST_SCALE
        and describable(call.query)
        and describable(call.key)
        # Values of float8 are put in order first, wherever they lie.
        and (value.dtype == FLOAT8 or describable(value))
        and value.shape[-1] * call.out_dtype.itemsize % 16 == 0
    )
    return tile if served else None


def launch_forward(
    call: Call, plan: Plan, out: torch.Tensor, lse: torch.Tensor | None
) -> list[Launch]:
    """Fill output and lse; returns the launches, none if there is no tile to try."""
    reads = hooked(plan.hooks, call)
    few, hopper, _, _, ragged = route_of_forward(plan, call)
    if few is not None:
        return launch_decode(call, few, plan, reads, (out, lse))
    of_few: list[Launch] = []
    if ragged is not None:
        of_few = launch_ragged(call, ragged, plan, reads, (out, lse))
        if not ragged.few:
            return of_few
    left = 0 if ragged is None else ragged.few
    tma = described(plan, call)
    results = {"o": out, "lse": lse, "sink": sinks_of(call)}
    given = inputs_of(call) | results | {"counter": None, "packed": out if call.packed else None}

    def with_tile(tile: Tile | HopperTile, made: Mapping[str, Any] = _NOTHING_MADE) -> Launch:
        return Launch(
            forward_spec(tile, call.query.dtype, call.page_size),
            (plan, tma, call.weight.normalised, call.page_size, left, call.query.device),
            call,
            {**given, **made},
            partial(_sizes, tile),
            lambda: forward_constants(plan, call.weight, tile, call.page_size, left),
            with_rows(plan.hooks, call, reads, call.extents.q_len, _side(tile)),
            tma,
            tile=tile,
        )

    before: dict[str, Launch] = {}
    launches: Iterator[Launch] = map(with_tile, in_turn(plan.candidates))
    if hopper is not None:
        if call.value.dtype == FLOAT8:
            before["v"] = values_in_order(call)
        if hopper.persistent:
            before["counter"] = counter_launch(call)
        made = {name: launch.tensors["out"] for name, launch in before.items()}
        launches = chain([with_tile(hopper, made)], launches)
    found = that_fits(tried_for("forward", plan, call), launches)
    if found is None:
        return []
    of_others = [*before.values(), found] if found.tile is hopper else [found]
    return of_few + [each.run() for each in of_others]


def counter_launch(call: Call) -> Launch:
    """The launch that makes the counter for persistent programs, which leave it at zero."""
    return Launch(
        _NO_ROWS_DRAWN, call.query.device, call, {}, _sizes_of_counter, lambda: {}, once=True
    )


def _sizes_of_counter(_call: Call) -> Sizes:
    return Sizes(1, {}, {"out": ((1,), torch.int32)})


def forward_spec(tile: Tile | HopperTile, dtype: torch.dtype, page_size: int = 0) -> KernelSpec:
    """The kernel of a tile."""
    if isinstance(tile, Tile):
        return FORWARD
    if page_size:
        return _HOPPER_PAGES
    return _HOPPER_FLOAT8 if dtype == FLOAT8 else HOPPER_FORWARD


def forward_constants(
    plan: Plan, weight: Weight, tile: Tile | HopperTile, page_size: int = 0, few: int = 0
) -> dict[str, Any]:
    """The kernel's constants and options, except `TMA`; skips packed requests of `few` queries."""
    known = plan.constants | weight_constants(weight)
    if isinstance(tile, Tile):
        # With pages, partial tiles, whose dropped keys may be NaN, have a loop of their own.
        own = {"PAGE": page_size, "FEW": few, "ONE_LOOP": tile.one_loop and not page_size}
        return known | tile_constants(tile) | own
    known |= rows_as_pads(known)
    return known | hooks_ahead(plan.hooks) | {
        "BLOCK_N": tile.block_kv,
        "CONSUMERS": tile.consumers,
        "STAGES": tile.stages,
        "CONSUMER_REGISTERS": tile.consumer_registers,
        "PRODUCER_REGISTERS": tile.producer_registers,
        "TURNS": tile.turns,
        "PERSISTENT": tile.persistent,
        "OVERLAP": tile.overlap,
        "HELD": tile.held,
        # A score that a formula follows is too much to compile twice, for two groups of warps.
        "APART": plan.hooks.additive or tile.consumers == 1,
        # Beside both, stages of wide heads would exceed a multiprocessor's memory.
        "OUTPUT_OVER_QUERIES": (known["HEAD_PAD"], known["VALUE_PAD"]) in _OUTPUT_OVER_QUERIES,
        "PAGE": page_size,
        "PIECE": gcd(page_size, tile.block_kv),
        "FEW": few,
        # The four warps of the first consumer; Gluon adds the others.
        "num_warps": 4,
        "maxnreg": tile.registers,
    }  # fmt: skip


def _sizes(tile: Tile | HopperTile, call: Call) -> Sizes:
    side = _side(tile)
    extents = call.extents
    batch, heads, q_len, _ = call.query.shape
    rows = rows_of_tiles(call, q_len, side)
    if call.packed:  # as the kernels' `request_of` numbers them
        rows = q_len // side + extents.batch + 1
    programs = rows * batch * heads
    if isinstance(tile, HopperTile) and tile.persistent:
        threads = 128 * (tile.consumers + 1)
        programs = min(programs, programs_at_once(call.query.device, threads, tile.registers))
    head_step, row_step = call.row_steps(0)
    own = {"rows": rows, "head_step": head_step, "row_step": row_step}
    return Sizes(programs, {**numbers_of(call), **own})


def _side(tile: Tile | HopperTile) -> int:
    """The number of queries of a tile."""
    return tile.block_q if isinstance(tile, Tile) else tile.consumers * _QUERIES


@lru_cache(maxsize=64)
def programs_at_once(device: torch.device, threads: int, registers: int) -> int:
    """How many programs run at once, given their threads and the registers of each."""
    multiprocessors = torch.cuda.get_device_properties(device).multi_processor_count
    return multiprocessors * (_REGISTERS // (threads * registers))


def values_in_order(call: Call) -> Launch:
    """The launch that copies float8 values to `[batch, kv_heads, value_dim, keys]`, in the order in
    which products read them; keys are padded with zeros to a multiple of 128.

    The dimension of values is a multiple of 4.
    """
    value = call.value
    if not in_words(value):
        # A contiguous tensor may have any stride along an axis of size 1.
        value = value.new_empty(value.shape).copy_(value)
        call = call.with_inputs(call.query, call.key, value)
    dim = value.shape[-1]
    own = {"VALUE_DIM": dim, "VALUE_PAD": power_of_two(dim), "WORDS": _WORDS, "num_warps": 4}
    of = (dim, value.device)
    return Launch(_FLOAT8_VALUES, of, call, {"v": value}, _sizes_of_values, lambda: own)


def in_words(value: torch.Tensor) -> bool:
    """Whether keys lie in whole words of four bytes, by which the kernel reads them."""
    along_batch, along_heads, along_keys, last = value.stride()
    return last == 1 and (along_batch | along_heads | along_keys | value.data_ptr()) & 3 == 0


def _sizes_of_values(call: Call) -> Sizes:
    batch, heads, kv_len, dim = call.value.shape
    words = -(-kv_len // (4 * _WORDS)) * _WORDS
    along_batch, along_heads, along_keys, _ = call.value.stride()
    numbers = {
        "kv_len": kv_len,
        "words": words,
        "kv_heads": heads,
        "stride_b": along_batch // 4,
        "stride_h": along_heads // 4,
        "stride_n": along_keys // 4,
    }
    made = {"out": ((batch, heads, dim, 4 * words), FLOAT8)}
    return Sizes(batch * heads * (words // _WORDS), numbers, made)


def compilations() -> int:
    """How many variants of the forward kernels this process compiled or loaded."""
    specs = (FORWARD, HOPPER_FORWARD) if has_gluon() else (FORWARD,)
    # The interpreter compiles nothing.
    caches = [getattr(spec.kernel, "device_caches", {}) for spec in specs]
    return sum(len(variants[0]) for known in caches for variants in known.values())
