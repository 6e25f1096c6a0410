"""Plans: what serves a structure on a device, from the tables and from what was tuned there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import torch

from ... import errors
from ...codegen import recompiled
from ...codegen.distance_tables import Tabled
from ...codegen.hooks import Hooks, Style, hooks_of
from ...codegen.text.integer_sizes import elements_are_short, sizes_of
from ...engine.extents import Extents, distances_are_short
from ...engine.float8 import FLOAT8
from ...engine.normal_form import Bound, Structure
from ...formula.nodes import TRUE
from ...proof.proof import prove_structure
from ...schedule.intervals.bands import tiles_of_documents
from ...tiles.forward import (
    LONG_DOCUMENT,
    SHORT_ROW,
    HopperTile,
    Pattern,
    Tile,
    as_long,
    as_short,
    tiles_for,
)
from ...tiles.tuned.choices import NOTHING_TUNED, Choices, Key
from ..call import Call
from .constants import has_tma, hook_constants, power_of_two, shape_constants
from .distances import tables_are_worth
from .families.backward import BackwardPlan, backward_plan
from .families.hopper import hopper_tile, serves_pads
from .tuned import machine_of, preferred

_SMALLEST_DIM: Final = 8
_WITHOUT_FLOAT8: Final = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_87")


@dataclass(frozen=True, eq=False)
class Plan:
    """What serves a structure at a head dimension, dtype and architecture; `hopper` if it can."""

    hooks: Hooks
    constants: dict[str, Any]
    pattern: Pattern
    hopper: HopperTile | None
    candidates: tuple[Tile, ...]
    style: Style
    tma: bool


def plan_of(call: Call, *, tuned: bool = True) -> Plan:
    """The plan of a call, looked up by structure, shapes and dtype; of the tables alone, if not
    `tuned`."""
    wide, limbs, long, far, tabled, grain, short, long_documents = of_sizes(call)
    arch, choices = machine_of(call.query.device)
    return structure_plan(
        call.form.structure,
        Style(
            wide=wide,
            limbs=limbs,
            ptx=arch.startswith("sm_"),
            long=long,
            far=far,
            tabled=tabled,
            grain=grain,
        ),
        call.query.shape[-1],
        call.value.shape[-1],
        call.query.dtype,
        arch,
        *_weights(call, choices if tuned else NOTHING_TUNED),
        short=short,
        long=long_documents,
    )


def of_sizes(call: Call) -> tuple[bool, int, bool, bool, Tabled, int, bool, bool]:
    """All that the plan follows from of lengths, and of what is bound to the structure."""
    form, extents = call.form, call.extents
    sizes = sizes_of(form, extents)
    return (
        sizes.wide,
        sizes.limbs,
        form.long,
        not distances_are_short(form, extents),
        "costly" if tables_are_worth(extents) else "nothing",
        form.grain(extents.kv_len),
        extents.kv_len <= SHORT_ROW,
        documents_are_long(form, extents),
    )


def documents_are_long(form: Bound, extents: Extents) -> bool:
    """Whether it is known that documents are, by their mean."""
    return tiles_of_documents(form, extents, LONG_DOCUMENT) >= 1


def _weights(call: Call, choices: Choices) -> tuple[bool, Choices]:
    """Whether weights have a formula, and the choices that hold then: they are of softmaxes."""
    weighted = call.weight.formula is not None
    return weighted, NOTHING_TUNED if weighted else choices


@lru_cache(maxsize=4096)
def structure_plan(
    structure: Structure,
    style: Style,
    head_dim: int,
    value_dim: int,
    dtype: torch.dtype,
    arch: str,
    weighted: bool = False,
    tuned: Choices = NOTHING_TUNED,
    short: bool = False,
    long: bool = False,
) -> Plan:
    """The plan of a structure; `short` and `long` say whether rows or documents have few or many
    keys."""
    for dim in (head_dim, value_dim):
        if not _SMALLEST_DIM <= dim <= 256:
            raise errors.head_dim_unsupported(dim)
    if dtype not in (torch.float16, torch.bfloat16, torch.float32, FLOAT8):
        raise errors.kernel_dtype(dtype)
    if dtype == FLOAT8 and arch in _WITHOUT_FLOAT8:
        raise errors.float8_architecture(arch)
    wide, short_integers = style.wide, elements_are_short(structure, style)
    recompiled.count(structure)
    hooks = hooks_of(structure, style)
    pads = (power_of_two(head_dim), power_of_two(value_dim))
    pattern = pattern_of(structure)
    if short and not hooks.biased and not weighted and dtype != FLOAT8:
        pattern = as_short(pattern)
    if long:
        pattern = as_long(pattern)
    hopper, candidates = preferred(
        Key("forward", max(pads), dtype.itemsize, pattern, hooks.biased),
        tuned,
        None
        if not short_integers
        else hopper_tile(arch, pads, dtype, pattern, biased=hooks.biased, weighted=weighted),
        tiles_for(arch, max(pads), dtype.itemsize, pattern),
        HopperTile,
        served=short_integers and serves_pads(pads),
    )
    return Plan(
        hooks=hooks,
        constants=hook_constants(hooks) | shape_constants(head_dim, value_dim, dtype, wide, arch),
        pattern=pattern,
        hopper=hopper,
        candidates=candidates,
        style=style,
        tma=has_tma(arch),
    )


def pattern_of(structure: Structure, *, gradients: bool = False) -> Pattern:
    """What decides the tile: the structure of an expression, never its values.

    Beside what gradients cost, it does not count what a bias reads, but for tables of pairs.
    """
    reads = structure.mask_reads_positions if gradients else structure.reads_positions
    if structure.mask == TRUE and not structure.reads_pairs and not reads:
        return "full"
    touched = prove_structure(structure).forms.touched
    if reads and touched and len(touched[0].lows) > 1:
        return "reading band"
    banded = bool(touched) and bool(touched[0].lows and touched[0].highs)
    if structure.reads_pairs and not banded and not (reads and gradients):
        return "pairs"
    if reads:
        return "reading"
    return "banded" if banded else "dense"


def steps_of(call: Call, plan: Plan, *, tuned: bool = True) -> tuple[BackwardPlan, dict[str, Any]]:
    """The plan of the gradients of a call, and the kernels' constants that follow from shapes."""
    arch, choices = machine_of(call.query.device)
    dtype, structure = call.query.dtype, call.form.structure
    steps = backward_plan(
        structure,
        pattern_of(structure, gradients=True),
        plan.style,
        arch,
        max(plan.constants["HEAD_PAD"], plan.constants["VALUE_PAD"]),
        dtype.itemsize,
        *_weights(call, choices if tuned else NOTHING_TUNED),
    )
    dims = (call.query.shape[-1], call.value.shape[-1])
    return steps, shape_constants(*dims, dtype, plan.style.wide, arch)
