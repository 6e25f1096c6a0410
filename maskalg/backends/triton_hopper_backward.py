"""The warp-specialised gradients of sm_90, in Gluon: what they serve, and their launches."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, Literal

import torch

from ..backward_tiles import HopperBackwardTile
from .call import Call
from .results import row_steps
from .triton_arguments import padded
from .triton_descriptors import Descriptor
from .triton_hopper import has_gluon, programs_at_once
from .triton_launch import Launch, variant_key
from .triton_rows import Rows, padded_length, per_row_of

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
    extents, head_pad, value_pad = call.extents, shape["HEAD_PAD"], shape["VALUE_PAD"]
    rows = -(-extents.q_len // (tile.consumers * _ROWS))
    batch_heads = extents.batch * extents.heads
    blocks = (
        (call.query, _ROWS, head_pad), (call.key, tile.block, head_pad),
        (call.value, tile.block, value_pad), (grad_out, _ROWS, value_pad), (dq, _ROWS, head_pad),
    )  # fmt: skip

    per_row = per_row_of(of_rows, of_queries=True)

    def passed(*descriptors: Any) -> list[Any]:
        *sources, target = descriptors
        return [
            *sources, *per_row, target, padded(tables, dq.device), call.scale, extents.q_len,
            extents.kv_len, of_rows.padded, rows, batch_heads, extents.heads, call.group,
            *row_steps(call.query), *scalars,
        ]  # fmt: skip

    return hopper_launch(
        hopper_backward_queries,
        rows * batch_heads,
        passed,
        blocks,
        (*per_row, *tables),
        lambda: hopper_backward_constants(tile, constants(), "queries"),
        tile,
        ("queries", fixed, extents.heads, call.group, short(call)),
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
    extents, head_pad, value_pad = call.extents, shape["HEAD_PAD"], shape["VALUE_PAD"]
    rows = -(-extents.kv_len // (tile.consumers * _ROWS))
    kv_heads = call.key.shape[1]
    programs = rows * extents.batch * kv_heads
    blocks = (
        (call.query, tile.block, head_pad), (call.key, _ROWS, head_pad),
        (call.value, _ROWS, value_pad), (grad_out, tile.block, value_pad),
        (of_rows.statistic, tile.block, None), (of_rows.delta, tile.block, None),
        (dk, _ROWS, head_pad), (dv, _ROWS, value_pad),
    )  # fmt: skip

    def passed(*descriptors: Any) -> list[Any]:
        return [
            *descriptors, padded(tables, dk.device), call.scale, extents.q_len, extents.kv_len,
            of_rows.padded, rows, extents.batch * kv_heads, kv_heads, call.group, *scalars,
        ]  # fmt: skip

    return hopper_launch(
        hopper_backward_keys,
        programs,
        passed,
        blocks,
        tables,
        lambda: hopper_backward_constants(tile, constants(), "keys"),
        tile,
        ("keys", fixed, kv_heads, call.group, short(call)),
    )


def short(call: Call) -> bool:
    """Whether lengths fit 32 bits, which the type of what is passed follows from."""
    extents = call.extents
    return max(extents.q_len, extents.kv_len) * extents.batch * extents.heads < 2**31


def hopper_launch(
    kernel: Any,
    programs: int,
    passed: Callable[..., list[Any]],
    blocks: tuple[tuple[torch.Tensor, int, int | None], ...],
    pointers: tuple[torch.Tensor | None, ...],
    constants: Callable[[], dict[str, Any]],
    tile: HopperBackwardTile,
    fixed: tuple[Hashable, ...],
) -> Launch:
    """The launch of a kernel on descriptors of `blocks`: tensor, rows of a block, padded dimension.

    Args:
        passed: all arguments, of descriptors.
        pointers: tensors that are passed as they are.
        constants: but for options.
        programs: one for each row of tiles; fewer run where they take rows in turn.
        fixed: what the constants follow from, beside the tile, which follows from the plan.
    """
    tensors = tuple([tensor for tensor, _, _ in blocks])
    if tile.persistent:
        threads = 128 * (tile.consumers + 1)
        at_once = programs_at_once(tensors[0].device, threads, _REGISTERS[tile.consumers])
        programs = min(programs, at_once)
    options = hopper_backward_options(tile)
    return Launch(
        kernel,
        (programs, 1),
        # Tensors with a descriptor are aligned, and have the dtype of the plan.
        (*fixed, variant_key(pointers, (), ())),
        lambda: (passed(*[_described(*block) for block in blocks]), constants() | options),
        lambda: passed(*[Descriptor(tensor) for tensor in tensors]),
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
