"""The GPU backend: one fused kernel, with hooks rendered from the expression."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

import torch
import triton
from maskalg_kernels.forward import SCALARS, forward
from triton.tools.tensor_descriptor import TensorDescriptor

from .. import errors
from ..codegen.hooks import Hooks, hooks_of
from ..codegen.store import load
from ..codegen.triton_text import ScalarArgument, TableArgument
from ..extents import fits_int32
from ..normalform import Structure, Value
from ..proof.proof import prove_structure
from ..schedule.steps import step_tables
from ..tiles import Pattern, Tile, tiles_for
from .call import Call, Result

_HEADS_TOGETHER: Final = 8
_CONTIGUOUS_COPY_LIMIT: Final = 1 << 20  # bytes; a larger table is not copied without a word


@dataclass(frozen=True)
class Plan:
    """What serves a structure at a head dimension, dtype and architecture."""

    hooks: Hooks
    constants: dict[str, Any]
    candidates: tuple[Tile, ...]
    wide: bool
    tma: bool


def attend(call: Call) -> Result:
    """Output `[batch, heads, q_len, value_dim]`, and lse `[batch, heads, q_len]` when wanted."""
    if call.differentiable():
        raise errors.no_backward()
    query, value = call.query, call.value
    batch, heads, q_len, _ = query.shape
    out = query.new_empty(batch, heads, q_len, value.shape[-1])
    lse = query.new_empty(batch, heads, q_len, dtype=torch.float32) if call.return_lse else None
    if not out.numel() and (lse is None or not lse.numel()):
        return out, lse
    if not call.extents.kv_len:
        return out.zero_(), None if lse is None else lse.fill_(float("-inf"))
    _launch(call, plan_of(call), out, lse)
    return out, lse


def plan_of(call: Call) -> Plan:
    """The plan of a call, looked up by structure, shapes and dtype."""
    head_dim, value_dim = call.query.shape[-1], call.value.shape[-1]
    return _plan(
        call.form.structure,
        not fits_int32(call.form, call.extents),
        _narrow(call),
        head_dim,
        value_dim,
        call.query.dtype,
        architecture(call.query.device),
    )


@lru_cache(maxsize=4096)
def _plan(
    structure: Structure,
    wide: bool,
    narrow: bool,
    head_dim: int,
    value_dim: int,
    dtype: torch.dtype,
    arch: str,
) -> Plan:
    for dim in (head_dim, value_dim):
        if not 16 <= dim <= 256:
            raise errors.head_dim_unsupported(dim)
    if dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise errors.kernel_dtype(dtype)
    hooks = hooks_of(structure, wide, narrow and arch.startswith("sm_"))
    if len(hooks.scalars) > len(SCALARS):
        raise errors.too_many_scalars(len(hooks.scalars), len(SCALARS))
    pads = (_power_of_two(head_dim), _power_of_two(value_dim))
    return Plan(
        hooks=hooks,
        constants=hook_constants(hooks) | shape_constants(head_dim, value_dim, dtype, wide, arch),
        candidates=tiles_for(arch, max(pads), dtype.itemsize, pattern_of(structure)),
        wide=wide,
        tma=has_tma(arch),
    )


def _narrow(call: Call) -> bool:
    """Whether no integer table is wider than the 32 bits inline assembly compares."""
    return all(tensor.dtype != torch.int64 for _, tensor in call.form.tensors())


def has_tma(arch: str) -> bool:
    """Whether the architecture copies tiles by descriptor (Hopper's tensor memory accelerator)."""
    return arch in ("sm_90", "sm_100", "sm_103", "sm_120", "interpreter")


def _describable(tensor: torch.Tensor) -> bool:
    """What a descriptor needs: unit last stride, everything else in units of 16 bytes."""
    size = tensor.element_size()
    return (
        tensor.stride(-1) == 1
        and tensor.data_ptr() % 16 == 0
        and all(stride * size % 16 == 0 for stride in tensor.stride()[:-1])
    )


def pattern_of(structure: Structure) -> Pattern:
    """What decides the tile: the structure of an expression, never its values."""
    if structure.reads_positions:
        return "reading"
    touched = prove_structure(structure).forms.touched
    banded = all(span.lows and span.highs for span in touched[:1])
    return "banded" if touched and banded else "dense"


def hook_constants(hooks: Hooks) -> dict[str, Any]:
    """The rendered hooks as the kernel's constants."""
    module = load(hooks.source, hooks.digest)
    return {
        "MASKED": module.masked,
        "BIASED": module.biased if hooks.biased else None,
        "NEXT_RUN": module.next_run,
    }


def shape_constants(
    head_dim: int, value_dim: int, dtype: torch.dtype, wide: bool, arch: str
) -> dict[str, Any]:
    """The constants that follow from the shapes of the inputs."""
    return {
        "HEAD_DIM": head_dim,
        "VALUE_DIM": value_dim,
        "HEAD_PAD": _power_of_two(head_dim),
        "VALUE_PAD": _power_of_two(value_dim),
        "HEADS_TOGETHER": _HEADS_TOGETHER,
        "WIDE": wide,
        "PRECISION": precision(dtype, arch),
    }


def precision(dtype: torch.dtype, arch: str) -> str:
    """How float32 products are made: three tf32 products on NVIDIA's matrix units, else exactly.

    Three products keep all but the last two or three of the 24 bits. Exact products are left to
    other targets: here they spill kilobytes of registers, and one such variant was miscompiled.
    """
    if dtype != torch.float32:
        return "tf32"  # not used: half precision products are exact
    return "tf32x3" if arch.startswith("sm_") else "ieee"


def tile_constants(tile: Tile) -> dict[str, Any]:
    """A tile as the kernel's constants and launch options."""
    return {
        "BLOCK_M": tile.block_q,
        "BLOCK_N": tile.block_kv,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }


@lru_cache(maxsize=64)
def architecture(device: torch.device) -> str:
    """ "sm_90", "gfx942" and the like; "interpreter" for the CPU under TRITON_INTERPRET=1."""
    if device.type == "cpu":
        if not triton.knobs.runtime.interpret:
            raise errors.no_gpu()
        return "interpreter"
    if torch.version.hip is not None:
        return torch.cuda.get_device_properties(device).gcnArchName.split(":")[0]
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def compilations() -> int:
    """How many variants of the kernel this process compiled or loaded."""
    caches = getattr(forward, "device_caches", {})  # the interpreter compiles nothing
    return sum(len(variants[0]) for variants in caches.values())


def _launch(call: Call, plan: Plan, out: torch.Tensor, lse: torch.Tensor | None) -> None:
    query, key, value, extents = call.query, call.key, call.value, call.extents
    values = call.form.values
    scalars: list[int | float | None] = [_scalar(a, values) for a in plan.hooks.scalars]
    scalars += [None] * (len(SCALARS) - len(scalars))
    tables = tuple([_table(argument, values) for argument in plan.hooks.tables])
    batch_heads = extents.batch * extents.heads
    strides = [stride for t in (query, key, value, out) for stride in t.stride()]
    tma = plan.tma and _describable(key) and _describable(value)
    for i, tile in enumerate(plan.candidates):
        rows = -(-extents.q_len // tile.block_q)
        sources = (key, value)
        if tma:
            pads = (plan.constants["HEAD_PAD"], plan.constants["VALUE_PAD"])
            sources = tuple(
                TensorDescriptor(t, t.shape, t.stride(), [1, 1, tile.block_kv, pad])
                for t, pad in zip(sources, pads, strict=True)
            )
        try:
            forward[(rows * batch_heads,)](
                query, *sources, out, lse, tables, call.scale, extents.q_len, extents.kv_len, rows,
                batch_heads, extents.heads, call.group, *strides, *scalars,
                TMA=tma, **plan.constants, **tile_constants(tile),
            )  # fmt: skip
            return
        except triton.runtime.errors.OutOfResources:
            if i + 1 == len(plan.candidates):
                raise


def _scalar(argument: ScalarArgument, values: tuple[Value, ...]) -> int | float:
    value = values[argument.slot]
    if argument.axis is None:
        return cast("int | float", value)
    sizes = cast(torch.Tensor, value).shape
    if argument.kv_slot is None:
        return sizes[argument.axis]
    others = cast(torch.Tensor, values[argument.kv_slot]).shape
    return max(shape[argument.axis] for shape in (sizes, others) if len(shape) == 2)


def _table(argument: TableArgument, values: tuple[Value, ...]) -> torch.Tensor:
    tensor = cast(torch.Tensor, values[argument.slot])
    if argument.step is not None:
        kv_ids = cast(torch.Tensor, values[cast(int, argument.kv_slot)])
        return step_tables(tensor, kv_ids).named(argument.step)
    if tensor.is_contiguous():
        return tensor
    if tensor.numel() * tensor.element_size() > _CONTIGUOUS_COPY_LIMIT:
        raise errors.not_contiguous(tuple(tensor.shape), tuple(tensor.stride()))
    return tensor.contiguous()


def _power_of_two(size: int) -> int:
    return max(16, 1 << (size - 1).bit_length())
