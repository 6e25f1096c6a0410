"""The kernels' constants, which follow from hooks, shapes, tiles and the architecture."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import torch
import triton

from ...codegen.arguments import MOST_PASSED
from ...codegen.hooks import Hooks
from ...codegen.store import load
from ...engine.float8 import FLOAT8
from ...errors import BackendError
from ...schedule.tiling import Of
from ...tiles.shapes import HopperBackwardTile, Tile
from ...values.weights import Weight

_HEADS_TOGETHER: Final = 8

HOPPER_BACKWARD_REGISTERS: Final = {1: 128, 2: 168}
"""Registers a thread starts with, by consumers; with one, two programs share a multiprocessor."""


def has_tma(arch: str) -> bool:
    """Whether the architecture copies tiles by descriptor (Hopper's tensor memory accelerator)."""
    return arch in ("sm_90", "sm_100", "sm_103", "sm_120", "interpreter")


def has_dependent_launches(arch: str) -> bool:
    """Whether programs of a kernel may start before those of the previous kernel have ended."""
    return arch in ("sm_90", "sm_100", "sm_103", "sm_120")


def hook_constants(hooks: Hooks, of: Of = "queries") -> dict[str, Any]:
    """The rendered hooks as the constants of a kernel that holds a tile of queries, or of keys."""
    module = load(hooks.source, hooks.digest)

    def hook(name: str) -> Any:
        return getattr(module, name if of == "queries" else f"{name}_of_keys")

    return {
        "HOLD": hook("hold"),
        "MASKED": hook("masked"),
        "BIASED": hook("biased") if hooks.biased else None,
        "SLOPE": hook("slope") if hooks.sloped else None,
        "NEXT_RUN": hook("next_run"),
        "LOOKED_UP": hooks.looks_up(of),
        **count_constants(hooks),
    }


def hooks_ahead(hooks: Hooks) -> dict[str, Any]:
    """The constants of kernels that start loads ahead of time."""
    if not hooks.ahead:
        return {"AHEAD": None}
    module = load(hooks.source, hooks.digest)
    return {"AHEAD": module.ahead, "BIASED": module.biased_ahead}


def count_constants(hooks: Hooks) -> dict[str, int]:
    """How many of the numbers and tables passed to a kernel its hooks read."""
    return {"NUMBERS": min(len(hooks.scalars), MOST_PASSED), "TABLES": len(hooks.tables)}


def shape_constants(
    head_dim: int,
    value_dim: int,
    dtype: torch.dtype,
    wide: bool,
    arch: str,
    aligned: bool = False,
) -> dict[str, Any]:
    """The constants that follow from the shapes of the inputs."""
    rows = [_row(dim, dtype) for dim in (head_dim, value_dim)]
    if min(rows) > 128 and max(rows) < 256:
        rows = [max(rows)] * 2  # gradients want rows of keys and values that are alike
    return {
        "HEAD_DIM": head_dim,
        "VALUE_DIM": value_dim,
        "HEAD_PAD": power_of_two(head_dim),
        "VALUE_PAD": power_of_two(value_dim),
        "HEAD_ROW": rows[0],
        "VALUE_ROW": rows[1],
        "HEADS_TOGETHER": _HEADS_TOGETHER,
        "WIDE": wide,
        "PRECISION": precision(dtype, arch),
        "ALIGNED": aligned,
    }


def weight_constants(weight: Weight) -> dict[str, Any]:
    """The constants that follow from the weight function."""
    return {"WEIGHTED": weight.formula is not None, "NORMALISED": weight.normalised}


def precision(dtype: torch.dtype, arch: str) -> str:
    """How float32 products are computed: as three tf32 products on NVIDIA, else exactly.

    Three products keep all but the last two or three of the 24 bits. On NVIDIA, exact products
    spill kilobytes of registers, and one such variant was miscompiled.
    """
    if not arch.startswith("sm_"):
        return "ieee"  # not every GPU of AMD knows another name
    # Not used for half precision, whose products are exact.
    return "tf32x3" if dtype == torch.float32 else "tf32"


def tile_constants(tile: Tile) -> dict[str, Any]:
    """A tile as the kernel's constants and launch options."""
    return {
        "BLOCK_M": tile.block_q,
        "BLOCK_N": tile.block_kv,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
        "ONE_LOOP": tile.one_loop,
    }


def hopper_backward_constants(tile: HopperBackwardTile) -> dict[str, Any]:
    """A tile of the warp-specialised gradients as the kernel's constants and launch options."""
    return {
        "BLOCK": tile.block,
        "STAGES": tile.stages,
        "CONSUMERS": tile.consumers,
        "HELD": 2 if tile.persistent else 1,
        "OVERLAP": tile.overlap,
        "ANEW": tile.anew,
        "ONE_RING": tile.one_ring,
        # The four warps of the first consumer; Gluon adds the others.
        "num_warps": 4,
        "maxnreg": HOPPER_BACKWARD_REGISTERS[tile.consumers],
    }


def power_of_two(size: int) -> int:
    """The side of the block that holds `size` elements, at least 16."""
    return max(16, 1 << (size - 1).bit_length())


def _row(size: int, dtype: torch.dtype) -> int:
    """Dimensions of a row in the shared memory of warp-specialised kernels.

    They are a power of two or the sum of two, of 32 at least (`memory_of` in the kernels).
    """
    row = -(-size // 32) * 32
    return row if size > 128 and row.bit_count() == 2 and dtype != FLOAT8 else power_of_two(size)


def rows_as_pads(known: Mapping[str, Any]) -> dict[str, Any]:
    """The padded dimensions of warp-specialised kernels."""
    return {"HEAD_PAD": known["HEAD_ROW"], "VALUE_PAD": known["VALUE_ROW"]}


@lru_cache(maxsize=64)
def architecture(device: torch.device) -> str:
    """ "sm_90", "gfx942" and the like; "interpreter" for the CPU under TRITON_INTERPRET=1."""
    if device.type == "cpu":
        if not triton.knobs.runtime.interpret:
            raise BackendError(
                "backend='triton' needs tensors on a GPU, got CPU tensors. Leave backend out, or "
                "ask for backend='cpu'. (TRITON_INTERPRET=1 runs the kernel in Triton's "
                "interpreter, for tests.)"
            )
        return "interpreter"
    if torch.version.hip is not None:
        return torch.cuda.get_device_properties(device).gcnArchName.split(":")[0]
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"
