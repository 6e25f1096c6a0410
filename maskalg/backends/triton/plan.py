"""Plans: the kernels and tiles of a structure on a device, by tables and by tuning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

import torch

from ... import errors
from ...codegen import store
from ...codegen.bits import looks_up
from ...codegen.hooks import Hooks, Style, bits_table, hooks_of
from ...codegen.store import load
from ...codegen.text.integer_sizes import elements_are_short, sizes_of
from ...engine.extents import Extents, distances_are_short
from ...engine.float8 import FLOAT8
from ...engine.normal_form import Bound, Structure, transposed
from ...formula.separation import Index
from ...schedule.intervals.rung import tiles_of_documents
from ...schedule.rung import has_few_tiles, rung_of
from ...tiles.backward import backward_tiles_for, hopper_backward_tile_for, one_pass_for
from ...tiles.forward import hopper_tile_for, tiles_for
from ...tiles.pattern import LONG_DOCUMENT, LONG_PATH, SHORT_ROW, Counted, tiles_of_counts
from ...tiles.patterns import PATTERNS, as_counted, as_long, as_short, pattern_of
from ...tiles.shapes import HopperBackwardTile, HopperTile, Least, Tile, size_of
from ...tiles.tuned.choices import NOTHING_TUNED, Choices, Key
from ..call import Call
from .arguments import bits_of_pairs, style_of_gradients, tables_are_worth
from .constants import has_tma, hook_constants, power_of_two, shape_constants
from .kept import KeptBits, bits_worth
from .trust import has_gluon
from .tuned import machine_of, preferred

_SMALLEST_DIM: Final = 8
SMALLEST_PAD: Final = 64  # what the layout of descriptors' blocks holds
_WITHOUT_FLOAT8: Final = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_87")


class Told(NamedTuple):
    """Facts about a call, from its lengths and the values bound to the structure.

    Attributes:
        style: how its hooks are written.
        short: whether rows have few keys.
        long_documents: whether documents, or paths of them, are known to be long.
        counted: the size of tiles for its rows, if tiles were counted.
    """

    style: Style
    short: bool = False
    long_documents: bool = False
    counted: Counted | None = None


class Inputs(NamedTuple):
    """The facts about inputs that a plan depends on.

    Attributes:
        head_dim, value_dim: numbers of a query or key, and of a value.
        dtype: theirs.
        arch: the architecture of their device, such as "sm_90".
        weighted: whether weights have a formula.
        tuned: the choices that were tuned for their device.
    """

    head_dim: int
    value_dim: int
    dtype: torch.dtype
    arch: str
    weighted: bool = False
    tuned: Choices = NOTHING_TUNED


@dataclass(frozen=True, eq=False)
class Plan:
    """Kernels of a structure at a head dimension, dtype and architecture; `hopper` if it can."""

    hooks: Hooks
    constants: dict[str, Any]
    pattern: str
    hopper: HopperTile | None
    candidates: tuple[Tile, ...]
    told: Told
    tma: bool


def plan_of(call: Call, *, tuned: bool = True) -> Plan:
    """The plan of a call, by structure, shapes and dtype; from tables alone unless `tuned`."""
    return structure_plan(call.form.structure, told_of(call), _inputs(call, tuned))


def told_of(call: Call) -> Told:
    """The facts about lengths, numbers and tensors that a plan depends on."""
    form, extents = call.form, call.extents
    sizes = sizes_of(form, extents)
    arch, _ = machine_of(call.query.device)
    by_summaries = rung_of(form.structure).in_kernel == "summaries"
    style = Style(
        wide=sizes.wide,
        limbs=sizes.limbs,
        ptx=arch.startswith("sm_"),
        long=form.long,
        far=not distances_are_short(form, extents),
        tabled="costly" if tables_are_worth(extents) else "nothing",
        grain=form.grain(extents.kv_len),
        few_tiles=by_summaries and has_few_tiles(form, extents),  # then there are no bits
    )
    if call.aligned:
        return Told(_aligned(style))
    counted = None
    if (by_bits := _by_bits(call, style)) is not None:
        looked_up, bits = by_bits
        if bits.serve and bits.fit:
            style = looked_up
            if _takes_counted(call) and (found := bits.counted) is not None:
                counted = tiles_of_counts(*found)
    dim = max(call.query.shape[-1], call.value.shape[-1])
    long_documents = documents_are_long(form, extents, dim)
    return Told(style, extents.kv_len <= SHORT_ROW, long_documents, counted)


def _by_bits(call: Call, style: Style) -> tuple[Style, KeptBits] | None:
    """The style that looks bits up, and the bits, if they are worth it for a call."""
    if style.wide or style.limbs > 1 or style.aligned or call.pages is not None:
        return None
    structure = call.form.structure
    worth, scattered = bits_worth(call.form, call.extents, call.query.device)
    if not worth:
        return None
    looked_up = replace(style, bits=worth, scattered=scattered)
    # Forward, bits are used if the loop over keys is costly, else for gradients alone.
    moving: Index = "kv_idx" if looks_up(structure, looked_up, "kv_idx") else "q_idx"
    return looked_up, bits_of_pairs(bits_table(structure, looked_up, moving), call)


def bits_lack_memory(call: Call, plan: Plan) -> bool:
    """Whether a mask is computed because its bits would take too much memory."""
    by_bits = _by_bits(call, plan.told.style)
    return by_bits is not None and by_bits[1].serve and not by_bits[1].fit


def _aligned(style: Style) -> Style:
    """The style for tiles that begin with documents: no rounding in it depends on lengths, and keys
    that are loaded together may have any alignment."""
    return replace(style, aligned=True, far=True, tabled="nothing", grain=1, few_tiles=False)


def documents_are_long(form: Bound, extents: Extents, dim: int) -> bool:
    """Whether documents, or paths of them, are known to be long, by their mean, for heads of `dim`
    dimensions."""
    if not form.structure.mask_rows:
        return False
    least = LONG_PATH if of_paths(form.structure) else LONG_DOCUMENT[64 if dim <= 64 else 128]
    return tiles_of_documents(form, extents, least) >= 1


def of_paths(structure: Structure) -> bool:
    """Whether rows have gaps (the keys of other documents), so that runs are looked up."""
    return rung_of(structure).in_kernel == "summaries"


def _inputs(call: Call, tuned: bool) -> Inputs:
    """The facts of a call's inputs; tuned choices only if `tuned`, and for softmax alone."""
    (arch, choices), weighted = machine_of(call.query.device), call.weight.formula is not None
    dims = (call.query.shape[-1], call.value.shape[-1])
    held = choices if tuned and not weighted else NOTHING_TUNED
    if call.query.dtype != FLOAT8:  # else `structure_plan` checks it
        _check_float8(call.key.dtype, arch, "Keep the pages in int8 or bfloat16.")
    return Inputs(*dims, call.query.dtype, arch, weighted, held)


def _check_float8(dtype: torch.dtype, arch: str, write: str) -> None:
    if dtype == FLOAT8 and arch in _WITHOUT_FLOAT8:
        raise errors.BackendError(
            f"the fused kernel reads float8 from sm_89 on, and this device is {arch}. {write}"
        )


@lru_cache(maxsize=4096)
def structure_plan(structure: Structure, told: Told, inputs: Inputs) -> Plan:
    """The plan of a structure, for calls of which the same is told, and inputs like these."""
    style, counted = told.style, told.counted
    head_dim, value_dim, dtype, arch, weighted, tuned = inputs
    for dim in (head_dim, value_dim):
        if not _SMALLEST_DIM <= dim <= 256:
            raise errors.head_dim_unsupported(dim)
    if dtype not in (torch.float16, torch.bfloat16, torch.float32, FLOAT8):
        raise errors.BackendError(
            f"the fused kernel serves float16, bfloat16, float32 and float8_e4m3fn, got {dtype}. "
            "backend='reference' serves float64."
        )
    as_bfloat16 = "Pass bfloat16: `(q8.float() * descale[:, :, None, None]).bfloat16()`."
    _check_float8(dtype, arch, as_bfloat16)
    short_integers = elements_are_short(structure, style)
    store.count(structure)
    hooks = hooks_of(structure, style)
    shape = shape_constants(head_dim, value_dim, dtype, style.wide, arch, style.aligned)
    pads = (shape["HEAD_PAD"], shape["VALUE_PAD"])
    size, smallest = size_of((head_dim, value_dim)), min(pads)
    pattern = pattern_of(structure)
    plain = not hooks.biased and not weighted and dtype != FLOAT8
    if told.short and plain:
        pattern = as_short(pattern)
    if told.long_documents:
        pattern = as_long(pattern, of_paths(structure))
    if counted and plain and _was_measured(counted, size):
        pattern = as_counted(pattern, counted)
    served = short_integers and smallest >= SMALLEST_PAD and has_gluon() and not style.aligned
    hopper, candidates = preferred(
        Key("forward", size, dtype.itemsize, pattern, hooks.biased),
        tuned,
        hopper_tile_for(arch, size, dtype.itemsize, pattern, biased=hooks.biased, weighted=weighted)
        if served
        else None,
        tiles_for(arch, max(pads), dtype.itemsize, pattern),
        HopperTile,
        # Output and queries share memory where both have 256 dimensions; a tile may need that.
        served=served and (size < 256 or smallest == 256),
    )
    return Plan(
        hooks=hooks,
        constants=hook_constants(hooks) | shape,
        pattern=pattern,
        hopper=hopper,
        candidates=candidates,
        told=told,
        # A descriptor would copy the keys after a document into its last tile.
        tma=has_tma(arch) and not style.aligned,
    )


def backward_plan_of(call: Call, plan: Plan, *, tuned: bool = True) -> BackwardPlan:
    """The plan of the gradients of a call; by tables alone unless `tuned`."""
    told = Told(_style_of_gradients(call, plan), counted=plan.told.counted)
    return backward_plan(call.form.structure, told, _inputs(call, tuned))


def _takes_counted(call: Call) -> bool:
    """Whether counts may choose the tiles of a call; for other calls this was not measured."""
    plain = call.form.structure.bias.op == "score" and call.weight.formula is None
    dims = (call.query.shape[-1], call.value.shape[-1])
    return plain and call.query.dtype != FLOAT8 and max(dims) <= 128


def _was_measured(counted: Counted, size: int) -> bool:
    """Whether the tiles chosen by counts were measured for rows of this many dimensions."""
    return size <= 128 if counted == "small" else size == 128


def _style_of_gradients(call: Call, plan: Plan) -> Style:
    """The style of the plan, without bits if those of loops over queries cannot be made."""
    head_pad = max(power_of_two(tensor.shape[-1]) for tensor in (call.query, call.value))
    style = style_of_gradients(plan.told.style, head_pad)
    if not style.bits:
        return style
    bits = bits_of_pairs(bits_table(call.form.structure, style, "q_idx"), call)
    if bits.serve and bits.fit:
        return style
    return replace(style, bits="")


Side = Literal["queries", "keys"]


class OfSide(NamedTuple):
    """The kernel of dQ, or that of dK and dV.

    Attributes:
        hooks: the hooks as its constants.
        hopper: the tile of the warp-specialised kernel, None if the plain one is used.
        tiles: candidates for the plain kernel.
    """

    hooks: dict[str, Any]
    hopper: HopperBackwardTile | None
    tiles: tuple[Tile, ...]


@dataclass(frozen=True, eq=False)
class BackwardPlan:
    """The hooks of a structure for the backward kernels, and the tiles to try.

    A kernel without any tile is not launched.

    Attributes:
        pattern: the pattern of its rows.
        hooks: the structure's hooks.
        shape: constants from the shapes of the inputs.
        sides: the kernels of dQ ("queries"), and of dK and dV ("keys").
        in_one_pass: hooks as constants of the kernel for all gradients.
        one_pass_from: the least sizes at which one kernel computes all gradients, if descriptors
            reach; None if two always do.
        entry_tiles: candidates for the kernel of tables' gradients.
    """

    pattern: str
    hooks: Hooks
    shape: dict[str, Any]
    sides: dict[Side, OfSide]
    in_one_pass: dict[str, Any]
    one_pass_from: Least | None
    entry_tiles: tuple[Tile, ...]


@lru_cache(maxsize=4096)
def backward_plan(structure: Structure, told: Told, inputs: Inputs) -> BackwardPlan:
    """The plan of the gradients of a structure, the same for short rows and for long documents."""
    head_dim, value_dim, dtype, arch, weighted, tuned = inputs
    style, counted = told.style, told.counted
    shape = shape_constants(head_dim, value_dim, dtype, style.wide, arch, style.aligned)
    head_pad, element_bytes = max(shape["HEAD_PAD"], shape["VALUE_PAD"]), dtype.itemsize
    size = size_of((head_dim, value_dim))
    style = style_of_gradients(style, head_pad)
    hooks = hooks_of(structure, style, backward=True)
    pattern = pattern_of(structure, gradients=True)
    if counted and not hooks.biased and not weighted and _was_measured(counted, size):
        pattern = as_counted(pattern, counted, gradients=True)
    short = elements_are_short(structure, style)
    # Two different wide dimensions other than those of size 192 were not measured.
    special = short and (size not in (160, 256) or shape["HEAD_ROW"] == shape["VALUE_ROW"])

    at = (arch, head_pad, element_bytes, pattern)

    def side(of: Side) -> OfSide:
        hopper = hopper_backward_tile_for(
            arch, size, element_bytes, pattern, of=of, biased=hooks.biased, weighted=weighted
        )
        tiles = backward_tiles_for(*at, of=of)
        key = Key(of, size, element_bytes, pattern, hooks.biased)
        hopper = hopper if special else None
        chosen = preferred(key, tuned, hopper, tiles, HopperBackwardTile, served=special)
        return OfSide(hook_constants(hooks, of), *chosen)

    sides: dict[Side, OfSide] = {"queries": side("queries"), "keys": side("keys")}
    one_pass_from = one_pass_for(*at, additive=hooks.additive, weighted=weighted)
    # Among looked-up rows, only those with known lengths were measured.
    both_ways = (structure, transposed(structure))
    looked_up = any(rung_of(each).in_kernel != "spans" for each in both_ways)
    in_long_runs = counted == "large, in long runs" and (pattern, size) == ("dense", 128)
    served = in_long_runs or PATTERNS[pattern].looked_up or not looked_up
    return BackwardPlan(
        pattern=pattern,
        hooks=hooks,
        shape=shape,
        sides=sides,
        in_one_pass=sides["keys"].hooks
        | {"NEXT_RUN": load(hooks.source, hooks.digest).next_run_either_way_of_keys},
        one_pass_from=one_pass_from if served and short else None,
        entry_tiles=backward_tiles_for(arch, head_pad, element_bytes, pattern, of="entries"),
    )
