"""The kernels of an expression, compiled for an absent GPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import torch
import triton

from ... import errors
from ...codegen.arguments import TableArgument
from ...codegen.entries import Reads, entries_of
from ...codegen.hooks import Hooks, Style
from ...codegen.text.integer_sizes import sizes_of
from ...engine.float8 import FLOAT8
from ...engine.normal_form import Bound, bound
from ...formula.expression import Expression
from ...tiles.decode import SIDES, decode_tiles_for
from ...tiles.shapes import HopperBackwardTile, HopperTile, Tile, in_turn
from ...values.weights import softmax
from .arguments import tables_missing
from .constants import (
    has_tma,
    power_of_two,
    tile_constants,
    weight_constants,
)
from .families.backward import gradient_constants, gradient_spec
from .families.decode import DECODE, by_descriptor, decode_constants
from .families.entries import ENTRIES, entry_constants, held_by
from .families.forward import forward_constants, forward_spec
from .families.one_pass import ONE_PASS, one_pass_constants, one_pass_tile
from .launching.ahead import Compiled, compile_kernel
from .launching.fitting import first_that_fits
from .launching.spec import KernelSpec
from .plan import (
    SMALLEST_PAD,
    BackwardPlan,
    Inputs,
    Plan,
    Side,
    Told,
    backward_plan,
    structure_plan,
)
from .trust import has_gluon

# Bytes of shared memory a program may have.
_SHARED: Final = {
    "sm_80": 163 * 1024, "sm_86": 99 * 1024, "sm_89": 99 * 1024, "sm_90": 227 * 1024,
    "sm_100": 227 * 1024, "sm_120": 99 * 1024, "gfx942": 64 * 1024, "gfx90a": 64 * 1024,
}  # fmt: skip
TARGETS: Final = tuple(_SHARED)
_T = TypeVar("_T", bound=Tile | HopperTile | HopperBackwardTile)

_KINDS: Final = {
    "matrix products": r"wgmma\.mma_async|mma\.sync|tcgen05\.mma|v_mfma_",
    "copies to shared memory": r"cp\.async",
    "shared memory": r"ld\.shared|st\.shared|ldmatrix|stmatrix|ds_(read|write)",
    "global memory": r"ld\.global|st\.global|global_(load|store)|buffer_(load|store)",
    "exponentials": r"ex2\.|v_exp_",
    "comparisons and choices": r"setp|selp|v_cmp|v_cndmask",
    "barriers": r"bar\.|barrier|mbarrier|s_barrier",
}
_OPCODE: Final = re.compile(r"(?:@!?%?\w+\s+)?([a-z][\w.:]*)")
# Statements of PTX end with a semicolon, also within inline assembly; those of GCN with the line.
_PTX_BREAKS: Final = re.compile(r"//[^\n]*|[;\n{}]")
_GCN_BREAKS: Final = re.compile(r";[^\n]*|\n")


@dataclass(frozen=True, kw_only=True)
class Report(Compiled):
    """The result of compiling one kernel.

    Attributes:
        kernel: its name.
        tier: the family of kernels, and the tile.
        shared_limit: the most bytes of shared memory of a program.
    """

    kernel: str
    tier: str
    shared_limit: int

    @property
    def instructions(self) -> dict[str, int]:
        """Counts of instructions of the assembly (PTX or GCN): all, and by kind."""
        return instructions(self.assembly)


def compile_offline(
    expression: Expression, target: str, head_dim: int, dtype: torch.dtype, *, backward: bool
) -> Iterator[Report]:
    """Compile the kernels that `attention` would launch on a target, one after the other.

    Args:
        expression: a mask, a bias or both.
        target: one of `TARGETS`.
        head_dim: of queries, keys and values.
        dtype: float16, bfloat16 or float32, or float8_e4m3fn forward.
        backward: the kernels of the gradients instead of the forward one.

    Raises:
        BackendError: an unknown target, or a compiler that failed.
    """
    if backward and dtype == FLOAT8:
        raise errors.float8_gradient()
    compilers = kernels_offline(expression, target, head_dim, dtype)
    names = ("queries", "keys", "one pass") if backward else ("forward",)
    return (compilers[name]() for name in names if name in compilers)


def kernels_offline(
    expression: Expression, target: str, head_dim: int, dtype: torch.dtype
) -> dict[str, Callable[[], Report]]:
    """Every kernel that a call of `attention` or its gradient may launch on a target: by name, a
    function that compiles it. Arguments and errors are those of `compile_offline`.

    Left out are the variants of "keys" that store sums of parts of the query heads in float32, and
    the kernel that adds them.

    Names are "forward"; "decode, 16 rows" and so on; "queries"; "keys"; "one pass"; and "entries of
    0" and so on, for each group of reads of bias tables whose gradients one kernel adds up.
    """
    if target not in _SHARED:
        raise errors.BackendError(
            f"target {target!r} is not served. The targets: {', '.join(TARGETS)}."
        )
    if triton.knobs.runtime.interpret:
        raise errors.interpreter_compiles_nothing()
    request = _Request(bound(expression), target, head_dim, dtype)
    found: dict[str, Callable[[], Report]] = {"forward": request.forward}
    for rows in SIDES:
        tiles = request.decode_tiles(rows)
        if tiles[0].block_q == rows:
            found[f"decode, {rows} rows"] = partial(request.decode, tiles)
    if dtype != FLOAT8:
        found |= {of: partial(request.gradient, of) for of in request.plan_of_gradients().sides}
        if request.plan_of_gradients().one_pass_from is not None and request.reached:
            found["one pass"] = request.one_pass
        for place, reads in enumerate(request.entries()):
            found[f"entries of {place}"] = partial(request.entry, reads)
    return {name: partial(_told, target, compiler) for name, compiler in found.items()}


def _told(target: str, compiler: Callable[[], Report]) -> Report:
    """The compiler's report; its errors become the package's own."""
    try:
        return compiler()
    except errors.MaskalgError:
        raise
    except Exception as problem:
        # Triton's compiler raises errors of many types, not all its own.
        first = (str(problem).splitlines() or [""])[0]
        raise errors.BackendError(
            f"compiling for {target} failed: {type(problem).__name__}: {first}"
        ) from problem


def table_dtypes(hooks: Hooks, form: Bound) -> list[torch.dtype]:
    """Dtypes of the tables that hooks read, and of the empty tables passed with them."""
    found = []
    for argument in hooks.tables:
        held = torch.int32  # tables made from others, lists and marks
        if isinstance(argument, TableArgument) and not argument.step:
            table = form.values[argument.slot]
            assert isinstance(table, torch.Tensor)
            held = table.dtype
        found.append(held)
    return found + [torch.int32] * tables_missing(len(found))


@dataclass(frozen=True)
class _Request:
    form: Bound
    target: str
    head_dim: int
    dtype: torch.dtype

    @property
    def style(self) -> Style:
        return Style(
            limbs=sizes_of(self.form).limbs,
            ptx=self.target.startswith("sm_"),
            long=self.form.long,
            grain=self.form.grain(),
        )

    @property
    def described(self) -> bool:
        """Whether rows of the inputs are multiples of 16 bytes, as descriptors require."""
        return self.head_dim * self.dtype.itemsize % 16 == 0

    @property
    def tma(self) -> bool:
        """Whether plain kernels read tiles by descriptor."""
        return has_tma(self.target) and self.described

    @property
    def reached(self) -> bool:
        """Whether the warp-specialised gradient kernels are reached."""
        large = power_of_two(self.head_dim) >= SMALLEST_PAD
        return large and self.described and has_gluon()

    @property
    def inputs(self) -> Inputs:
        return Inputs(self.head_dim, self.head_dim, self.dtype, self.target)

    def plan(self) -> Plan:
        return structure_plan(self.form.structure, Told(self.style), self.inputs)

    def plan_of_gradients(self) -> BackwardPlan:
        return backward_plan(self.form.structure, Told(self.style), self.inputs)

    def forward(self) -> Report:
        plan = self.plan()
        tiles: tuple[Tile | HopperTile, ...] = in_turn(plan.candidates)
        if plan.hopper is not None and self.described:
            tiles = (plan.hopper,)

        def made(tile: Tile | HopperTile) -> Compiled:
            constants = forward_constants(plan, softmax, tile)
            return self._compiled(forward_spec(tile, self.dtype), constants, plan.hooks, self.tma)

        return self._first("forward", tiles, made)

    def decode_tiles(self, rows: int) -> tuple[Tile, ...]:
        """The candidates for a number of queries."""
        plan = self.plan()
        described = plan.tma and self.described
        pad, size = power_of_two(self.head_dim), self.dtype.itemsize
        at = (self.target, pad, size, plan.pattern, rows)
        return decode_tiles_for(*at, described=described, crowded=False)

    def decode(self, tiles: tuple[Tile, ...]) -> Report:
        """The kernel for few queries, whose keys programs share."""
        plan = self.plan()

        def made(tile: Tile) -> Compiled:
            constants = decode_constants(plan, softmax, tile, self.target)
            return self._compiled(DECODE, constants, plan.hooks, by_descriptor(tile))

        return self._first("decode", in_turn(tiles), made)

    def entries(self) -> tuple[Reads, ...]:
        """The kernels for reads of bias tables that may need a gradient."""
        tables = tuple(slot.index for slot, t in self.form.tensors() if t.is_floating_point())
        return entries_of(self.form.structure, tables, self.style)

    def entry(self, reads: Reads) -> Report:
        plan, held = self.plan_of_gradients(), held_by(reads.mode)
        constants = plan.shape | weight_constants(softmax) | entry_constants(reads, reads.mode)

        def made(tile: Tile) -> Compiled:
            own = constants | tile_constants(tile)
            return self._compiled(ENTRIES, own, reads.hooks, self.tma, held)

        return self._first("backward, entries", in_turn(plan.entry_tiles), made)

    def gradient(self, of: Side) -> Report:
        plan = self.plan_of_gradients()
        _, hopper, plain = plan.sides[of]
        tiles: tuple[Tile | HopperBackwardTile, ...] = in_turn(plain)
        if hopper is not None and self.reached:
            tiles = hopper.in_turn()

        def made(tile: Tile | HopperBackwardTile) -> Compiled:
            constants = weight_constants(softmax) | gradient_constants(plan, of, tile)
            return self._compiled(gradient_spec(of, tile), constants, plan.hooks, self.tma)

        return self._first(f"backward, {of}", tiles, made)

    def one_pass(self) -> Report:
        """The kernel for all gradients of long rows."""
        plan = self.plan_of_gradients()

        def made(_tile: HopperBackwardTile) -> Compiled:
            return self._compiled(ONE_PASS, one_pass_constants(plan), plan.hooks, self.tma)

        return self._first("backward, one pass", (one_pass_tile(plan.shape["HEAD_PAD"]),), made)

    def _compiled(
        self,
        spec: KernelSpec,
        constants: dict[str, Any],
        hooks: Hooks,
        tma: bool,
        held: Mapping[str, torch.dtype] | None = None,
    ) -> Compiled:
        tables = table_dtypes(hooks, self.form)
        return compile_kernel(
            spec, self.target, constants, self.dtype, tables, tma=tma, held=held or {}
        )

    def _first(
        self, kernel: str, tiles: Sequence[_T], compiled: Callable[[_T], Compiled]
    ) -> Report:
        """The kernel with the tile that fits, or with the last tile if none does."""

        def spilled(found: tuple[_T, Compiled]) -> int | None:
            fits = found[1].shared <= _SHARED[self.target]
            return (found[1].stack or 0) if fits else None

        found = first_that_fits(((tile, compiled(tile)) for tile in tiles), spilled)
        assert found is not None  # tables have a tile for every supported call
        tile, made = found
        limit = _SHARED[self.target]
        return Report(**vars(made), kernel=kernel, tier=_tier(tile), shared_limit=limit)


def _tier(tile: Tile | HopperTile | HopperBackwardTile) -> str:
    """The family of kernels that a tile is of, and the tile."""
    if isinstance(tile, HopperTile):
        return f"Gluon, {tile.consumers} x 64 x {tile.block_kv}, {tile.stages} stages"
    if isinstance(tile, HopperBackwardTile):
        return f"Gluon, blocks of {tile.block}"
    size = f"{tile.block_q} x {tile.block_kv}, {tile.warps} warps, {tile.stages} stages"
    return f"plain Triton, {size}"


def instructions(assembly: str) -> dict[str, int]:
    """How many instructions an assembly text has: "all", and by kind where there are any."""
    breaks = _PTX_BREAKS if ".version" in assembly else _GCN_BREAKS
    # Lines without indentation are labels, or data about the kernel.
    lines = breaks.split("\n".join(x for x in assembly.splitlines() if x[:1] in " \t{"))
    opcodes = [found[1] for line in lines if (found := _OPCODE.match(line.strip()))]
    counts = {"all": len(opcodes)}
    for kind, pattern in _KINDS.items():
        number = sum(re.match(pattern, opcode) is not None for opcode in opcodes)
        if number:
            counts[kind] = number
    return counts
