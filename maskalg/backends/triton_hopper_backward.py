"""The warp-specialised gradients of sm_90, in Gluon: what they serve, and their launches."""

from __future__ import annotations

from typing import Any, Final

import torch

from ..tiles import HopperBackwardTile
from .call import Call
from .triton_arguments import describable
from .triton_hopper import has_gluon

_ROWS: Final = 64  # of a consumer
_CONSUMERS: Final = 2
_SMALLEST_PAD: Final = 64  # what the layout of descriptors' blocks holds
_PADDED_BLOCK: Final = 256  # a multiple of every tile

HOPPER_OPTIONS: Final = {"num_warps": 4, "maxnreg": 168}
"""Launch options: the four warps of the first consumer; Gluon adds the others."""

Arguments = tuple[list[int | float | None], tuple[torch.Tensor, ...]]


def serves(call: Call, constants: dict[str, Any], grad_out: torch.Tensor) -> bool:
    """Whether the kernels serve the call, whose tensors descriptors must reach."""
    tensors = (call.query, call.key, call.value, grad_out)
    dims = (call.query.shape[-1], call.value.shape[-1])
    return (
        min(constants["HEAD_PAD"], constants["VALUE_PAD"]) >= _SMALLEST_PAD
        and call.weight.formula is None
        and all(describable(t) for t in tensors)
        and all(dim * call.query.element_size() % 16 == 0 for dim in dims)
        and has_gluon()
    )


def hopper_backward_constants(
    tile: HopperBackwardTile, constants: dict[str, Any]
) -> dict[str, Any]:
    """The kernels' constants, from those of the plain ones."""
    shared = (
        "HOLD", "MASKED", "BIASED", "SLOPE", "NEXT_RUN", "HEAD_PAD", "VALUE_PAD", "HEADS_TOGETHER",
    )  # fmt: skip
    return {name: constants[name] for name in shared} | {
        "BLOCK": tile.block,
        "STAGES": tile.stages,
    }


def launch_queries(
    call: Call,
    tile: HopperBackwardTile,
    constants: dict[str, Any],
    arguments: Arguments,
    of_rows: tuple[torch.Tensor, torch.Tensor],
    tensors: tuple[torch.Tensor, torch.Tensor],
) -> None:
    """Fill dQ; `of_rows` are lse and delta, `tensors` are dO and dQ."""
    from maskalg_kernels.hopper_backward import hopper_backward_queries

    scalars, tables = arguments
    grad_out, dq = tensors
    extents, head_pad, value_pad = call.extents, constants["HEAD_PAD"], constants["VALUE_PAD"]
    rows = -(-extents.q_len // (_CONSUMERS * _ROWS))
    batch_heads = extents.batch * extents.heads
    hopper_backward_queries[(rows * batch_heads,)](
        _described(call.query, _ROWS, head_pad), _described(call.key, tile.block, head_pad),
        _described(call.value, tile.block, value_pad), _described(grad_out, _ROWS, value_pad),
        *of_rows, _described(dq, _ROWS, head_pad), tables, call.scale, extents.q_len,
        extents.kv_len, rows, batch_heads, extents.heads, call.group, *scalars,
        OVERLAP=tile.overlap, **constants, **HOPPER_OPTIONS,
    )  # fmt: skip


def launch_keys(
    call: Call,
    tile: HopperBackwardTile,
    constants: dict[str, Any],
    arguments: Arguments,
    of_rows: tuple[torch.Tensor, torch.Tensor],
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    """Fill dK and dV; `of_rows` are lse and delta, `tensors` are dO, dK and dV."""
    from maskalg_kernels.hopper_backward import hopper_backward_keys, pad_rows, row_layout
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    scalars, tables = arguments
    grad_out, dk, dv = tensors
    extents, head_pad, value_pad = call.extents, constants["HEAD_PAD"], constants["VALUE_PAD"]
    heads = extents.batch * extents.heads
    blocks = -(-extents.q_len // _PADDED_BLOCK)
    padded = blocks * _PADDED_BLOCK
    flat = call.query.new_empty(2, heads * padded, dtype=torch.float32)
    pad_rows[(blocks, heads)](*of_rows, flat[0], flat[1], extents.q_len, padded, _PADDED_BLOCK)
    numbers = [
        TensorDescriptor(t, t.shape, t.stride(), [tile.block], row_layout)
        for t in (flat[0], flat[1])
    ]
    rows = -(-extents.kv_len // (_CONSUMERS * _ROWS))
    kv_heads = call.key.shape[1]
    hopper_backward_keys[(rows * extents.batch * kv_heads,)](
        _described(call.query, tile.block, head_pad), _described(call.key, _ROWS, head_pad),
        _described(call.value, _ROWS, value_pad), _described(grad_out, tile.block, value_pad),
        *numbers, _described(dk, _ROWS, head_pad), _described(dv, _ROWS, value_pad), tables,
        call.scale, extents.q_len, extents.kv_len, padded, rows, extents.batch * kv_heads, kv_heads,
        call.group, *scalars, **constants, **HOPPER_OPTIONS,
    )  # fmt: skip


def _described(tensor: torch.Tensor, length: int, pad: int) -> Any:
    from maskalg_kernels.hopper_forward import block_layout
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    return TensorDescriptor(
        tensor, tensor.shape, tensor.stride(), [1, 1, length, pad], block_layout
    )
