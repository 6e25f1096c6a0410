"""All gradients in one pass on sm_90: whose turn it is to add to dQ, and the launches."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple

import torch
from maskalg_kernels.gradient_sums import query_gradients, visits

from ..backward_tiles import HopperBackwardTile
from ..normalform import Structure
from .call import Call
from .triton_arguments import padded
from .triton_hopper_backward import Arguments, hopper_launch, short
from .triton_launch import Launch, variant_key
from .triton_rows import Rows

_KEYS: Final = 128  # of both consumers
_HEADS_TOGETHER: Final = 2  # whose sums share the L2 cache
_MOST_TILES: Final = 2**24  # of a table of turns, which has four bytes for each
_MOST_TABLES: Final = 64

_TURNS: Final[dict[Hashable, torch.Tensor]] = {}


class Turns(NamedTuple):
    """How many programs add to a tile of queries before another does.

    Attributes:
        table: int32 `[tiles of keys, tiles of queries]`.
        visited: what the table is made from, None where it was.
        remember: keep the table, once it is filled.
    """

    table: torch.Tensor
    visited: torch.Tensor | None
    remember: Callable[[], None]

    def fill(self) -> None:
        """Programs are started from the last keys on: those behind come before."""
        assert self.visited is not None
        behind = self.visited.flip(0).cumsum(0, dtype=torch.int32).flip(0)
        torch.sub(behind, self.visited, out=self.table)
        self.remember()


def one_for_all(structure: Structure) -> bool:
    """Whether a mask is one for all batch entries and heads, and reads no tensor."""
    mask = structure.mask
    return mask.indices() <= {"q_idx", "kv_idx"} and not any(
        node.op in ("read", "extent", "step", "opaque") for node in mask.walk()
    )


def one_pass_tile(head_pad: int) -> HopperBackwardTile:
    """The tile of the kernel: so many queries that a thread has registers for two of them."""
    return HopperBackwardTile(128 if head_pad == 64 else 64, 2)


def turns_of(call: Call, plan: Hashable, head_pad: int, scalars: list[int]) -> Turns | None:
    """The turns of a call, remembered; None where their table would be too large.

    Args:
        plan: which the hooks follow from.
        scalars: the numbers that these read.
    """
    extents, device = call.extents, call.query.device
    size = (-(-extents.kv_len // _KEYS), -(-extents.q_len // one_pass_tile(head_pad).block))
    if size[0] * size[1] > _MOST_TILES:
        return None
    # Work on another stream would not wait for what fills the table.
    stream = torch.cuda.current_stream(device).cuda_stream
    key = (plan, *scalars, extents.q_len, extents.kv_len, device, stream)
    known = _TURNS.get(key)
    if known is not None:
        return Turns(known, None, lambda: None)
    visited = torch.zeros(size, dtype=torch.int32, device=device)
    table = torch.empty_like(visited)

    def remember() -> None:
        # What is captured is not computed yet.
        if not torch.cuda.is_current_stream_capturing():
            if len(_TURNS) >= _MOST_TABLES:
                _TURNS.clear()
            _TURNS[key] = table

    return Turns(table, visited, remember)


def one_pass_constants(constants: dict[str, Any]) -> dict[str, Any]:
    """The constants of the kernel, from those of the plain ones."""
    shared = (
        "HOLD", "MASKED", "BIASED", "SLOPE", "NEXT_RUN", "HEAD_PAD", "VALUE_PAD", "WEIGHTED",
        "NORMALISED", "NUMBERS", "TABLES",
    )  # fmt: skip
    found = {name: constants[name] for name in shared}
    tile = one_pass_tile(constants["HEAD_PAD"])
    return found | {"BLOCK": tile.block, "STAGES": tile.stages, "HEADS_TOGETHER": _HEADS_TOGETHER}


def visits_launch(
    call: Call,
    visited: torch.Tensor,
    constants: dict[str, Any],
    arguments: Arguments,
    fixed: Hashable,
) -> Launch:
    """What marks the tiles of queries that each tile of keys has."""
    scalars, tables = arguments
    rows, tiles = visited.shape
    extents = call.extents
    passed = [
        visited, padded(tables, visited.device), extents.q_len, extents.kv_len, tiles, *scalars
    ]  # fmt: skip
    own = {name: constants[name] for name in ("NUMBERS", "TABLES", "NEXT_RUN")}
    own |= {"KEYS": _KEYS, "BLOCK": one_pass_tile(constants["HEAD_PAD"]).block}
    specialised = variant_key((visited, *tables), (), (extents.q_len, extents.kv_len))
    return Launch(
        visits, (rows, 1), ("visits", fixed, specialised), lambda: (passed, own), lambda: passed
    )


def one_pass_launches(
    call: Call,
    turns: torch.Tensor,
    shape: dict[str, Any],
    constants: Callable[[], dict[str, Any]],
    arguments: Arguments,
    of_rows: Rows,
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
    fixed: Hashable,
) -> list[Launch]:
    """What fills dK and dV and adds up dQ, then what makes dQ of the sums.

    Args:
        turns: the table of `Turns`.
        shape: constants that follow from shapes.
        constants: all but those of the tile.
        arguments: numbers and tables of the hooks.
        of_rows: what is known of each query, filled.
        tensors: dO, dQ, dK and dV.
        fixed: what the constants follow from, and the device.
    """
    from maskalg_kernels.hopper_gradients import hopper_gradients

    scalars, tables = arguments
    grad_out, dq, dk, dv = tensors
    extents, head_pad, value_pad = call.extents, shape["HEAD_PAD"], shape["VALUE_PAD"]
    rows, tiles = turns.shape
    kv_heads, heads = call.key.shape[1], extents.batch * extents.heads
    sums = torch.empty(dq.shape, dtype=torch.float32, device=dq.device)
    counters = torch.zeros(heads * tiles, dtype=torch.int32, device=dq.device)
    tile = one_pass_tile(head_pad)
    block, side = tile.block, _KEYS // tile.consumers
    blocks = (
        (call.query, block, head_pad), (call.key, side, head_pad), (call.value, side, value_pad),
        (grad_out, block, value_pad), (of_rows.statistic, block, None),
        (of_rows.delta, block, None), (dk, side, head_pad), (dv, side, value_pad),
        (sums, side, side),
    )  # fmt: skip

    def passed(*descriptors: Any) -> list[Any]:
        return [
            *descriptors, counters, turns, padded(tables, dq.device), call.scale, extents.q_len,
            extents.kv_len, of_rows.padded, rows, extents.batch * kv_heads, kv_heads, call.group,
            tiles, *scalars,
        ]  # fmt: skip

    gradients = hopper_launch(
        hopper_gradients,
        rows * extents.batch * kv_heads,
        passed,
        blocks,
        (counters, turns, *tables),
        lambda: one_pass_constants(constants()),
        tile,
        ("one pass", fixed, kv_heads, call.group, short(call)),
    )
    given = [dq, sums, counters, call.scale, extents.q_len, tiles]
    dims = {"BLOCK": block, "HEAD_DIM": shape["HEAD_DIM"], "HEAD_PAD": head_pad}
    key = variant_key((dq, sums, counters), (), (extents.q_len,))
    of_sums = Launch(
        query_gradients,
        (tiles, heads),
        ("dQ of sums", fixed, key),
        lambda: (given, dims),
        lambda: given,
    )
    return [gradients, of_sums]
