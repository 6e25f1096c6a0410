"""Gradients on the GPU: dQ by tiles of queries, dK and dV by tiles of keys."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import torch
import triton
from maskalg_kernels.backward import backward_keys, backward_queries, row_deltas
from triton.tools.tensor_descriptor import TensorDescriptor

from ..codegen.hooks import Hooks, hooks_of
from ..codegen.store import load
from ..normalform import Structure
from ..tiles import Tile, backward_tiles_for
from .call import Call
from .triton_arguments import describable, scalars_of, tables_of

_DELTA_ROWS: Final = 64

Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class BackwardPlan:
    """The hooks of a structure for the backward kernels, and the tiles to try."""

    hooks: Hooks
    constants: dict[str, Any]
    query_tiles: tuple[Tile, ...]
    key_tiles: tuple[Tile, ...]


@lru_cache(maxsize=4096)
def backward_plan(
    structure: Structure, wide: bool, ptx: bool, arch: str, head_pad: int, element_bytes: int
) -> BackwardPlan:
    """The plan of a structure at a padded head dimension and an element size."""
    hooks = hooks_of(structure, wide, ptx, True)
    module = load(hooks.source, hooks.digest)
    return BackwardPlan(
        hooks=hooks,
        constants={
            "MASKED": module.masked,
            "BIASED": module.biased if hooks.biased else None,
            "SLOPE": module.slope if hooks.sloped else None,
        },
        query_tiles=backward_tiles_for(arch, head_pad, element_bytes, of="queries"),
        key_tiles=backward_tiles_for(arch, head_pad, element_bytes, of="keys"),
    )


def gradients(
    call: Call,
    plan: BackwardPlan,
    shape: dict[str, Any],
    tma: bool,
    saved: tuple[torch.Tensor, torch.Tensor],
    change: tuple[torch.Tensor, torch.Tensor | None],
) -> Gradients:
    """dQ, dK and dV.

    Args:
        call: the inputs, without gradients.
        plan: of the structure.
        shape: the kernels' constants that follow from shapes.
        tma: whether the device copies tiles by descriptor.
        saved: output and lse of the forward pass.
        change: gradients of the output and, where it was returned, of the lse.
    """
    out, lse = saved
    grad_out, grad_lse = change
    query, key, value = call.query, call.key, call.value
    if not out.numel() or not key.numel():
        return torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value)
    delta = _deltas(out, grad_out, grad_lse, shape)
    dq = torch.empty_like(query, memory_format=torch.contiguous_format)
    dk = torch.empty_like(key, memory_format=torch.contiguous_format)
    dv = torch.empty_like(value, memory_format=torch.contiguous_format)
    tensors = (query, key, value, grad_out)
    module = load(plan.hooks.source, plan.hooks.digest)
    common = plan.constants | shape
    described = tma and all(describable(tensor) for tensor in tensors)
    pads = [shape[name] for name in ("HEAD_PAD", "HEAD_PAD", "VALUE_PAD", "VALUE_PAD")]

    def sources(which: tuple[int, int], block: int) -> list[Any]:
        """The tensors, with those a loop runs over as descriptors."""
        found: list[Any] = list(tensors)
        for i in which if described else ():
            t = tensors[i]
            found[i] = TensorDescriptor(t, t.shape, t.stride(), [1, 1, block, pads[i]])
        return found

    strides = [stride for tensor in tensors for stride in tensor.stride()]
    arguments = (
        tables_of(plan.hooks, call.form.values),
        call.scale,
        call.extents.q_len,
        call.extents.kv_len,
    )
    rest = [*strides, *scalars_of(plan.hooks, call.form.values)]
    batch, heads, kv_heads = call.extents.batch, call.extents.heads, key.shape[1]

    def launch(kernel: Any, tile: Tile, hook: Any, outs: tuple[torch.Tensor, ...]) -> None:
        of_queries = kernel is backward_queries
        length, side, of_head = (
            (call.extents.q_len, tile.block_q, heads)
            if of_queries
            else (call.extents.kv_len, tile.block_kv, kv_heads)
        )
        rows = -(-length // side)
        looped = sources((1, 2), tile.block_kv) if of_queries else sources((0, 3), tile.block_q)
        kernel[(rows * batch * of_head,)](
            *looped, lse, delta, *outs, *arguments, rows, batch * of_head, of_head, call.group,
            *rest, NEXT_RUN=hook, TMA=described, BLOCK_M=tile.block_q, BLOCK_N=tile.block_kv,
            num_warps=tile.warps, num_stages=tile.stages, **common,
        )  # fmt: skip

    _first_that_fits(plan.query_tiles, backward_queries, launch, module.next_run, (dq,))
    _first_that_fits(plan.key_tiles, backward_keys, launch, module.next_query_run, (dk, dv))
    return dq, dk, dv


def _deltas(
    out: torch.Tensor,
    grad_out: torch.Tensor,
    grad_lse: torch.Tensor | None,
    shape: dict[str, Any],
) -> torch.Tensor:
    """sum(dO * O) - dlse of each query, float32 `[batch, heads, q_len]`."""
    batch, heads, q_len, _ = out.shape
    delta = out.new_empty(batch, heads, q_len, dtype=torch.float32)
    row_deltas[(-(-q_len // _DELTA_ROWS), batch * heads)](
        out, grad_out, None if grad_lse is None else grad_lse.contiguous(), delta, q_len, heads,
        *grad_out.stride(), shape["VALUE_DIM"], shape["VALUE_PAD"], _DELTA_ROWS,
    )  # fmt: skip
    return delta


def _first_that_fits(
    tiles: tuple[Tile, ...], kernel: Any, launch: Any, hook: Any, outs: tuple[torch.Tensor, ...]
) -> None:
    for i, tile in enumerate(tiles):
        try:
            launch(kernel, tile, hook, outs)
            return
        except triton.runtime.errors.OutOfResources:
            if i + 1 == len(tiles):
                raise
