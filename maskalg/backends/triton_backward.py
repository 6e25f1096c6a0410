"""Gradients on the GPU: dQ by tiles of queries, dK and dV by tiles of keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any, Final, Literal

import torch
from maskalg_kernels.backward import backward_keys, backward_queries, row_products
from triton.tools.tensor_descriptor import TensorDescriptor

from ..codegen.hooks import Hooks, Style, hooks_of
from ..codegen.store import load
from ..normalform import Structure
from ..tiles import (
    HopperBackwardTile,
    Pattern,
    Tile,
    backward_tiles_for,
    hopper_backward_tile_for,
)
from ..tuned.choices import NOTHING_TUNED, Choices, Key
from .call import Call
from .triton_arguments import describable, first_that_fits, scalars_of, tables_of
from .triton_constants import tile_constants, weight_constants
from .triton_hopper_backward import (
    launch_keys,
    launch_queries,
    serves,
)
from .triton_launch import Descriptor, launch, variant_key
from .triton_tuned import preferred

_PRODUCT_ROWS: Final = 64

Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Rows:
    """What the backward kernels know of each query, float32 `[batch, heads, q_len]`, contiguous.

    Attributes:
        statistic: lse with the sink, or for weights that have a formula 1 / z.
        delta: what is subtracted from dO . v.
        product: dO . O.
    """

    statistic: torch.Tensor
    delta: torch.Tensor
    product: torch.Tensor


@dataclass(frozen=True, eq=False)
class BackwardPlan:
    """The hooks of a structure for the backward kernels, and the tiles to try.

    A kernel without a tile of either kind is not launched.

    Attributes:
        hooks: of the structure.
        of_queries, of_keys: as constants of the kernels of dQ, and of dK and dV.
        query_tiles, key_tiles: candidates of the plain kernels.
        hopper_queries, hopper_keys: of the warp-specialised ones, None where the plain ones serve.
        entry_tiles: candidates of the kernel of tables' gradients.
    """

    hooks: Hooks
    of_queries: dict[str, Any]
    of_keys: dict[str, Any]
    query_tiles: tuple[Tile, ...]
    key_tiles: tuple[Tile, ...]
    hopper_queries: HopperBackwardTile | None
    hopper_keys: HopperBackwardTile | None
    entry_tiles: tuple[Tile, ...]


@lru_cache(maxsize=4096)
def backward_plan(
    structure: Structure,
    pattern: Pattern,
    style: Style,
    arch: str,
    head_pad: int,
    element_bytes: int,
    weighted: bool = False,
    tuned: Choices = NOTHING_TUNED,
) -> BackwardPlan:
    """The plan of a structure at a padded head dimension and an element size."""
    hooks = hooks_of(structure, style, backward=True)
    module = load(hooks.source, hooks.digest)

    def chosen(
        of: Literal["queries", "keys"],
    ) -> tuple[HopperBackwardTile | None, tuple[Tile, ...]]:
        at = (arch, head_pad, element_bytes, pattern)
        hopper = hopper_backward_tile_for(*at, of=of, biased=hooks.biased, weighted=weighted)
        if style.wide:
            hopper = None
        tiles = backward_tiles_for(*at, of=of)
        key = Key(of, head_pad, element_bytes, pattern, hooks.biased)
        return preferred(key, tuned, hopper, tiles, HopperBackwardTile, served=not style.wide)

    hopper_queries, query_tiles = chosen("queries")
    hopper_keys, key_tiles = chosen("keys")
    return BackwardPlan(
        hooks=hooks,
        of_queries=_constants(hooks, module, ""),
        of_keys=_constants(hooks, module, "_of_keys"),
        query_tiles=query_tiles,
        key_tiles=key_tiles,
        hopper_queries=hopper_queries,
        hopper_keys=hopper_keys,
        entry_tiles=backward_tiles_for(arch, head_pad, element_bytes, pattern, of="queries"),
    )


def _constants(hooks: Hooks, module: ModuleType, suffix: str) -> dict[str, Any]:
    """The hooks whose names end so, as the constants of a kernel."""

    def hook(name: str) -> Any:
        return getattr(module, name + suffix)

    return {
        "HOLD": hook("hold"),
        "MASKED": hook("masked"),
        "BIASED": hook("biased") if hooks.biased else None,
        "SLOPE": hook("slope") if hooks.sloped else None,
        "NEXT_RUN": hook("next_run"),
    }


def gradients(
    call: Call,
    plan: BackwardPlan,
    shape: dict[str, Any],
    tma: bool,
    of_rows: Rows,
    grad_out: torch.Tensor,
) -> Gradients:
    """dQ, dK and dV.

    Args:
        call: the inputs, without gradients.
        plan: of the structure.
        shape: the kernels' constants that follow from shapes.
        tma: whether the device copies tiles by descriptor.
        of_rows: what is known of each query.
        grad_out: of the output.
    """
    query, key, value = call.query, call.key, call.value
    if not grad_out.numel() or not key.numel():
        return torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value)
    dq = torch.empty_like(query, memory_format=torch.contiguous_format)
    dk = torch.empty_like(key, memory_format=torch.contiguous_format)
    dv = torch.empty_like(value, memory_format=torch.contiguous_format)
    tensors = (query, key, value, grad_out)
    weighting = weight_constants(call.weight)
    described = tma and all(describable(tensor) for tensor in tensors)
    pads = [shape[name] for name in ("HEAD_PAD", "HEAD_PAD", "VALUE_PAD", "VALUE_PAD")]

    tables = tables_of(plan.hooks, call)
    scalars = scalars_of(plan.hooks, call.form.values)
    strides = [stride for tensor in tensors for stride in tensor.stride()]
    extents, kv_heads = call.extents, key.shape[1]
    # What the constants follow from, beside the kernel and its tile.
    described_as = (described, query.dtype, query.device)
    fixed = (plan, *shape.values(), call.weight.normalised, *described_as)

    def run(kernel: Any, tile: Tile, outs: tuple[torch.Tensor, ...]) -> None:
        of_queries = kernel is backward_queries
        length, side, heads, looped, block = (
            (extents.q_len, tile.block_q, extents.heads, (1, 2), tile.block_kv)
            if of_queries
            else (extents.kv_len, tile.block_kv, kv_heads, (0, 3), tile.block_q)
        )
        rows, batch_heads = -(-length // side), extents.batch * heads

        def arguments(describe: Callable[[int], Any]) -> list[Any]:
            sources = [
                describe(i) if described and i in looped else t for i, t in enumerate(tensors)
            ]
            return [
                *sources, of_rows.statistic, of_rows.delta, *outs, tables, call.scale,
                extents.q_len, extents.kv_len, rows, batch_heads, heads, call.group, *strides,
                *scalars,
            ]  # fmt: skip

        def descriptor(i: int) -> Any:
            t = tensors[i]
            return TensorDescriptor(t, t.shape, t.stride(), [1, 1, block, pads[i]])

        def first() -> tuple[list[Any], dict[str, Any]]:
            own = tile_constants(tile) | {"TMA": described}
            hooks = plan.of_queries if of_queries else plan.of_keys
            own |= {"WEIGHTED": weighting["WEIGHTED"]}
            return arguments(descriptor), shape | hooks | own

        def again() -> list[Any]:
            return arguments(lambda i: Descriptor(tensors[i]))

        specialised = variant_key(
            (*tensors, of_rows.statistic, of_rows.delta, *outs, *tables),
            (heads, call.group, *strides),
            (extents.q_len, extents.kv_len, rows * batch_heads),
        )
        variant = (of_queries, tile, fixed, specialised)
        launch(kernel, (rows * batch_heads, 1), variant, first, again)

    hopper = serves(call, shape, grad_out)
    numbers = (scalars, tables)
    per_row = (of_rows.statistic, of_rows.delta)
    if hopper and plan.hopper_queries is not None:
        constants = shape | weighting | plan.of_queries
        launch_queries(
            call, plan.hopper_queries, constants, numbers, per_row, (grad_out, dq), fixed
        )
    else:
        first_that_fits(plan.query_tiles, lambda tile: run(backward_queries, tile, (dq,)))
    if hopper and plan.hopper_keys is not None:
        constants = shape | weighting | plan.of_keys
        launch_keys(call, plan.hopper_keys, constants, numbers, per_row, (grad_out, dk, dv), fixed)
    else:
        first_that_fits(plan.key_tiles, lambda tile: run(backward_keys, tile, (dk, dv)))
    return dq, dk, dv


def row_statistics(
    call: Call,
    shape: dict[str, Any],
    saved: tuple[torch.Tensor, torch.Tensor],
    change: tuple[torch.Tensor, torch.Tensor | None],
    sinks: torch.Tensor | None,
) -> Rows:
    """What the kernels know of each query.

    Args:
        saved: output and lse of the forward pass (the sum of weights that have a formula).
        change: gradients of the output and, where it was returned, of the lse.
        sinks: `[heads]`, or None.
    """
    (out, lse), (grad_out, grad_lse) = saved, change
    if call.weight.formula is not None and not call.weight.normalised:
        none = torch.zeros_like(lse)
        return Rows(torch.ones_like(lse), none, none)
    product = _row_products(out, grad_out, shape)
    if call.weight.formula is not None:
        return Rows(torch.where(lse == 0, 0.0, 1 / lse), product, product)
    statistic, delta = lse, product
    if sinks is not None:
        # A query that keeps nothing stays at -inf, whatever the sink.
        with_sink = torch.logaddexp(lse, sinks.float()[:, None])
        statistic = torch.where(lse == float("-inf"), lse, with_sink)
    if grad_lse is not None:
        # d lse / d s is exp(s - lse), which is the weight times exp(statistic - lse).
        grown = grad_lse if sinks is None else grad_lse * torch.exp(statistic - lse).nan_to_num_()
        delta = product - grown
    return Rows(statistic, delta, product)


def sink_gradient(rows: Rows, sinks: torch.Tensor) -> torch.Tensor:
    """Of the logits `[heads]`: minus the weight of the sink times dO . O, over all queries."""
    share = torch.exp(sinks.float()[:, None] - rows.statistic)
    # Where nothing is kept the output is 0 whatever the sink, and so is the product.
    change = torch.where(rows.statistic == float("-inf"), 0.0, share * rows.product)
    return -change.sum(dim=(0, 2)).to(sinks.dtype)


def _row_products(out: torch.Tensor, grad_out: torch.Tensor, shape: dict[str, Any]) -> torch.Tensor:
    """dO . O of each query, float32 `[batch, heads, q_len]`."""
    batch, heads, q_len, _ = out.shape
    product = out.new_empty(batch, heads, q_len, dtype=torch.float32)
    if product.numel():
        arguments: list[Any] = [out, grad_out, product, q_len, heads, *grad_out.stride()]
        constants = {name: shape[name] for name in ("VALUE_DIM", "VALUE_PAD")}
        constants["ROWS"] = _PRODUCT_ROWS
        specialised = variant_key(
            (out, grad_out, product), (heads, *grad_out.stride()), (batch * heads * q_len,)
        )
        launch(
            row_products,
            (-(-q_len // _PRODUCT_ROWS), batch * heads),
            ("row products", *constants.values(), out.device, specialised),
            lambda: (arguments, constants),
            lambda: arguments,
        )
    return product
