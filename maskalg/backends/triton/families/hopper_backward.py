"""The warp-specialised gradients of sm_90, in Gluon: what they serve, and their launches."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Final, Literal

import torch

from ....tiles.backward import HopperBackwardTile
from ...call import Call
from ...results import row_steps
from ..arguments import padded
from ..launching.descriptors import Descriptor
from ..launching.launch import Launch, Sizes, sized_now
from ..trust import has_gluon
from .hopper import programs_at_once
from .rows import Rows, padded_length, per_row_of

_ROWS: Final = 64  # of a consumer
_INT32_MAX: Final = 2**31 - 1  # of the row that a descriptor of rows is asked for
_SMALLEST_PAD: Final = 64  # what the layout of descriptors' blocks holds

_REGISTERS: Final = {1: 128, 2: 168}
"""What every thread starts with, by consumers; with one, two programs share a multiprocessor."""

Arguments = tuple[list[int], tuple[torch.Tensor, ...]]


def serves(call: Call, shape: dict[str, Any]) -> bool:
    """Whether the kernels serve the call, if descriptors reach its tensors."""
    dims = (call.query.shape[-1], call.value.shape[-1])
    extents = call.extents
    return (
        extents.batch * extents.heads * padded_length(extents.q_len) <= _INT32_MAX
        and min(shape["HEAD_PAD"], shape["VALUE_PAD"]) >= _SMALLEST_PAD
        and all(dim * call.query.element_size() % 16 == 0 for dim in dims)
        and has_gluon()
    )


def hopper_backward_constants(
    tile: HopperBackwardTile, constants: dict[str, Any], of: Literal["queries", "keys"]
) -> dict[str, Any]:
    """The constants of a kernel, from those of the plain ones."""
    shared = (
        "HOLD", "MASKED", "BIASED", "SLOPE", "NEXT_RUN", "HEAD_PAD", "VALUE_PAD", "HEADS_TOGETHER",
        "WEIGHTED", "NORMALISED", "NUMBERS", "TABLES",
    )  # fmt: skip
    found = {name: constants[name] for name in shared} | {
        "BLOCK": tile.block,
        "STAGES": tile.stages,
        "CONSUMERS": tile.consumers,
        "HELD": 2 if tile.persistent else 1,
    }
    if of == "keys":
        # The derivative of a bias takes registers.
        found["ANEW"] = tile.anew or constants["SLOPE"] is not None
    else:
        found |= {"OVERLAP": tile.overlap, "VALUE_DIM": constants["VALUE_DIM"]}
    return found


def hopper_backward_options(tile: HopperBackwardTile) -> dict[str, int]:
    """Launch options: the four warps of the first consumer; Gluon adds the others."""
    return {"num_warps": 4, "maxnreg": _REGISTERS[tile.consumers]}


def queries_launch(
    call: Call,
    tile: HopperBackwardTile,
    shape: dict[str, Any],
    constants: Callable[[], dict[str, Any]],
    arguments: Arguments,
    of_rows: Rows,
    tensors: tuple[torch.Tensor, torch.Tensor],
    fixed: Hashable,
) -> Launch:
    """What fills dQ.

    Args:
        shape: constants that follow from shapes.
        constants: all but those of the tile.
        arguments: numbers and tables of the hooks.
        of_rows: what is known of each query, and filled.
        tensors: dO and dQ.
        fixed: what the constants follow from, and the device.
    """
    from maskalg_kernels.hopper_queries import hopper_backward_queries

    scalars, tables = arguments
    grad_out, dq = tensors
    head_pad, value_pad = shape["HEAD_PAD"], shape["VALUE_PAD"]
    blocks = (
        (call.query, _ROWS, head_pad), (call.key, tile.block, head_pad),
        (call.value, tile.block, value_pad), (grad_out, _ROWS, value_pad), (dq, _ROWS, head_pad),
    )  # fmt: skip
    *sources, target = described(blocks)
    return hopper_launch(
        hopper_backward_queries,
        call,
        [*sources, *per_row_of(of_rows, of_queries=True), target, padded(tables, dq.device)],
        blocks,
        lambda: hopper_backward_constants(tile, constants(), "queries"),
        tile,
        ("queries", fixed),
        partial(_sizes_of_queries, tile),
        scalars,
    )


def _sizes_of_queries(tile: HopperBackwardTile, call: Call, _strides: list[int]) -> Sizes:
    extents = call.extents
    rows = -(-extents.q_len // (tile.consumers * _ROWS))
    batch_heads, specialised = extents.batch * extents.heads, (extents.heads, call.group)
    lengths = (extents.q_len, extents.kv_len, padded_length(extents.q_len), rows, batch_heads)
    return Sizes(
        at_most_at_once(rows * batch_heads, tile, call),
        (call.scale, *lengths, *specialised, *row_steps(call.query)),
        specialised,
    )


def keys_launch(
    call: Call,
    tile: HopperBackwardTile,
    shape: dict[str, Any],
    constants: Callable[[], dict[str, Any]],
    arguments: Arguments,
    of_rows: Rows,
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    fixed: Hashable,
) -> Launch:
    """What fills dK and dV; `tensors` are dO, dK and dV, the others as of `queries_launch`."""
    from maskalg_kernels.hopper_keys import hopper_backward_keys

    scalars, tables = arguments
    grad_out, dk, dv = tensors
    head_pad, value_pad = shape["HEAD_PAD"], shape["VALUE_PAD"]
    blocks = (
        (call.query, tile.block, head_pad), (call.key, _ROWS, head_pad),
        (call.value, _ROWS, value_pad), (grad_out, tile.block, value_pad),
        (of_rows.statistic, tile.block, None), (of_rows.delta, tile.block, None),
        (dk, _ROWS, head_pad), (dv, _ROWS, value_pad),
    )  # fmt: skip
    return hopper_launch(
        hopper_backward_keys,
        call,
        [*described(blocks), padded(tables, dk.device)],
        blocks,
        lambda: hopper_backward_constants(tile, constants(), "keys"),
        tile,
        ("keys", fixed),
        partial(_sizes_of_keys, tile),
        scalars,
    )


def _sizes_of_keys(tile: HopperBackwardTile, call: Call, _strides: list[int]) -> Sizes:
    extents, kv_heads = call.extents, call.key.shape[1]
    rows = -(-extents.kv_len // (tile.consumers * _ROWS))
    all_heads, specialised = extents.batch * kv_heads, (kv_heads, call.group)
    lengths = (extents.q_len, extents.kv_len, padded_length(extents.q_len), rows, all_heads)
    programs = at_most_at_once(rows * all_heads, tile, call)
    return Sizes(programs, (call.scale, *lengths, *specialised), specialised)


def at_most_at_once(programs: int, tile: HopperBackwardTile, call: Call) -> int:
    """One program for each row of tiles; fewer where they take rows in turn."""
    if not tile.persistent:
        return programs
    threads = 128 * (tile.consumers + 1)
    registers = _REGISTERS[tile.consumers]
    return min(programs, programs_at_once(call.query.device, threads, registers))


Blocks = tuple[tuple[torch.Tensor, int, int | None], ...]


def described(blocks: Blocks) -> list[Descriptor]:
    """Descriptors of the tensors of blocks, for a direct launch."""
    return [Descriptor(tensor) for tensor, _, _ in blocks]


def hopper_launch(
    kernel: Any,
    call: Call,
    tensors: list[Any],
    blocks: Blocks,
    constants: Callable[[], dict[str, Any]],
    tile: HopperBackwardTile,
    fixed: Hashable,
    sized: Callable[[Call, list[int]], Sizes],
    scalars: list[int],
    made: tuple[torch.Tensor, ...] = (),
) -> Launch:
    """The launch of a kernel on descriptors of `blocks`: tensor, rows of a block, padded dimension.

    Args:
        tensors: the first arguments, with `described(blocks)` among them.
        constants: but for options.
        fixed: what the constants follow from, beside the tile, which follows from the plan.
        sized, scalars, made: of a `Launch`.
    """
    options = hopper_backward_options(tile)
    return Launch(
        kernel,
        fixed,
        tensors,
        sized_now(sized, call),
        lambda: constants() | options,
        sized,
        scalars,
        blocks=lambda: [_described(*block) for block in blocks],
        made=made,
        tile=tile,
    )


def _described(tensor: torch.Tensor, length: int, pad: int | None) -> Any:
    """A descriptor of blocks of so many rows; of a flat tensor where `pad` is None."""
    from maskalg_kernels.hopper_common import block_layout
    from maskalg_kernels.hopper_keys import row_layout
    from maskalg_kernels.hopper_shifts import shift_layout
    from maskalg_kernels.hopper_sums import sum_layout
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    if pad is None:
        block, layout = [length], row_layout
    elif tensor.dim() == 2:
        block, layout = [length, pad], shift_layout
    else:
        of_sums = tensor.dtype == torch.float32
        block, layout = [1, 1, length, pad], sum_layout if of_sums else block_layout
    return TensorDescriptor(tensor, tensor.shape, tensor.stride(), block, layout)
