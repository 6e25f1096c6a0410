"""The kernels of an expression, compiled for a GPU that is not here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

import torch
import triton

from ... import errors
from ...codegen.arguments import TableArgument
from ...codegen.entries import Entry, entries_of
from ...codegen.hooks import Hooks, Style
from ...codegen.text.integer_sizes import sizes_of
from ...engine.float8 import FLOAT8
from ...engine.normal_form import Bound, bound
from ...formula.expression import Expression
from ...tiles.decode import SIDES, decode_tiles_for
from ...tiles.forward import Tile
from ...values.weights import softmax
from .arguments import tables_missing
from .constants import (
    has_dependent_launches,
    has_tma,
    power_of_two,
    shape_constants,
    tile_constants,
    weight_constants,
)
from .families.backward import BackwardPlan, backward_plan
from .families.decode import decode_constants
from .families.entries import entry_constants
from .families.hopper import SMALLEST_PAD, hopper_constants, hopper_options
from .families.hopper_backward import hopper_backward_constants, hopper_backward_options
from .families.one_pass import one_pass_constants, one_pass_tile
from .launching.fitting import first_that_fits
from .plan import Plan, pattern_of, structure_plan
from .trust import has_gluon

ELEMENTS: Final = {
    torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32",
    torch.float8_e4m3fn: "fp8e4nv",
}  # fmt: skip
_POINTERS: Final = {
    torch.int64: "*i64", torch.int32: "*i32", torch.int16: "*i16", torch.int8: "*i8",
    torch.uint8: "*u8", torch.bool: "*i1", torch.float64: "*fp64", torch.float32: "*fp32",
    torch.float16: "*fp16", torch.bfloat16: "*bf16",
}  # fmt: skip
# Bytes of shared memory a program may have.
_SHARED: Final = {
    "sm_80": 163 * 1024, "sm_86": 99 * 1024, "sm_89": 99 * 1024, "sm_90": 227 * 1024,
    "sm_100": 227 * 1024, "sm_120": 99 * 1024, "gfx942": 64 * 1024, "gfx90a": 64 * 1024,
}  # fmt: skip
TARGETS: Final = tuple(_SHARED)
_SOFTMAX: Final = weight_constants(softmax)

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


@dataclass(frozen=True)
class Report:
    """What compiling one kernel gave.

    Attributes:
        kernel: its name.
        tier: which family of kernels, and its tile.
        registers: a thread's; None off NVIDIA.
        spills: bytes that a thread's instructions store of what registers do not hold, each place
            in the kernel counted; None off NVIDIA.
        stack: bytes of memory in which they lie; None off NVIDIA.
        shared, shared_limit: bytes of shared memory of a program, and how many it may have.
        instructions: of the assembly (PTX or GCN): all of them, and by kind.
        remarks: what NVIDIA's assembler warned of.
    """

    kernel: str
    tier: str
    registers: int | None
    spills: int | None
    shared: int
    shared_limit: int
    instructions: dict[str, int]
    remarks: str
    stack: int | None


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
        BackendError: a target that is not served, or a compiler that failed.
    """
    if backward and dtype == FLOAT8:
        raise errors.float8_gradient()
    compilers = kernels_offline(expression, target, head_dim, dtype)
    names = ("queries", "keys", "one pass") if backward else ("forward",)
    return (compilers[name]() for name in names if name in compilers)


def kernels_offline(
    expression: Expression, target: str, head_dim: int, dtype: torch.dtype
) -> dict[str, Callable[[], Report]]:
    """Every kernel that a call of `attention` or its gradient may launch on a target, by its name,
    as a function that compiles it; arguments and errors as of `compile_offline`.

    The names: "forward", "decode, 16 rows" and so on, "queries", "keys", "one pass", and "entries
    of 0" and so on, of each reading of a bias's table.
    """
    if target not in _SHARED:
        raise errors.unknown_target(target, list(TARGETS))
    if triton.knobs.runtime.interpret:
        raise errors.interpreter_compiles_nothing()
    request = _Request(bound(expression), target, head_dim, dtype)
    found: dict[str, Callable[[], Report]] = {"forward": request.forward}
    for rows in SIDES:
        tiles = request.decode_tiles(rows)
        if tiles[0].block_q == rows:
            found[f"decode, {rows} rows"] = partial(request.decode, tiles)
    if dtype != FLOAT8:
        found |= {"queries": request.queries, "keys": request.keys}
        if request.plan_of_gradients().one_pass_from is not None and request.reached:
            found["one pass"] = request.one_pass
        for place, entry in enumerate(request.entries()):
            found[f"entries of {place}"] = partial(request.entry, entry)
    return {name: partial(_told, target, compiler) for name, compiler in found.items()}


def _told(target: str, compiler: Callable[[], Report]) -> Report:
    """What a compiler gives; of what it raises, the package's own error."""
    try:
        return compiler()
    except errors.MaskalgError:
        raise
    except Exception as problem:
        # Triton's compiler raises errors of many kinds, and some that are not its own.
        raise errors.compiler_failed(target, problem) from problem


@dataclass(frozen=True)
class _Request:
    form: Bound
    target: str
    head_dim: int
    dtype: torch.dtype

    def tables(self, hooks: Hooks) -> list[str]:
        """Types of the tables that hooks read, and of the empty ones that are passed with them."""
        values = self.form.values
        types = []
        for a in hooks.tables:
            if not isinstance(a, TableArgument):
                types.append("*i32")
                continue
            table = values[a.slot]
            assert a.step or isinstance(table, torch.Tensor)
            types.append("*i32" if a.step else _POINTERS[table.dtype])  # type: ignore[union-attr]
        return types + ["*i32"] * tables_missing(len(types))

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
        """Whether rows of the inputs are whole units of 16 bytes, as descriptors need them."""
        return self.head_dim * self.dtype.itemsize % 16 == 0

    @property
    def reached(self) -> bool:
        """Whether the warp-specialised gradient kernels are reached."""
        large = power_of_two(self.head_dim) >= SMALLEST_PAD
        return large and self.described and has_gluon()

    def plan_of_gradients(self) -> BackwardPlan:
        structure = self.form.structure
        pads, size = power_of_two(self.head_dim), self.dtype.itemsize
        pattern = pattern_of(structure, gradients=True)
        return backward_plan(structure, pattern, self.style, self.target, pads, size, False)

    def plan(self) -> Plan:
        at = (self.head_dim, self.head_dim, self.dtype, self.target)
        return structure_plan(self.form.structure, self.style, *at)

    def shape(self) -> dict[str, Any]:
        return shape_constants(self.head_dim, self.head_dim, self.dtype, False, self.target)

    def forward(self) -> Report:
        from maskalg_kernels.forward import forward
        from maskalg_kernels.hopper_offline import compile_hopper_forward

        plan = self.plan()
        tables = self.tables(plan.hooks)
        if plan.hopper is not None and self.described:
            tile = plan.hopper
            constants = hopper_constants(tile, plan.constants | _SOFTMAX, plan.hooks)
            element = ELEMENTS[self.dtype]
            made = compile_hopper_forward(constants, hopper_options(tile), element, tables)
            text = f"Gluon, {tile.consumers} x 64 x {tile.block_kv}, {tile.stages} stages"
            return self._report("forward", text, made)
        constants = plan.constants | _SOFTMAX
        return self._plain(forward, plan.candidates, constants, tables)

    def decode_tiles(self, rows: int) -> tuple[Tile, ...]:
        """Candidates for so many queries."""
        plan = self.plan()
        described = plan.tma and self.described
        pad, size = power_of_two(self.head_dim), self.dtype.itemsize
        at = (self.target, pad, size, plan.pattern, rows)
        return decode_tiles_for(*at, described=described, crowded=False)

    def decode(self, tiles: tuple[Tile, ...]) -> Report:
        """Few queries, whose keys programs share."""
        from maskalg_kernels.decode import decode

        plan = self.plan()

        def constants(tile: Tile) -> dict[str, Any]:
            own = decode_constants(plan.constants | _SOFTMAX, tile)
            return own | {"DEPENDENT": has_dependent_launches(self.target)}

        return self._first(decode, tiles, constants, self.tables(plan.hooks))

    def entries(self) -> tuple[Entry, ...]:
        """The readings of tables in the bias that may want a gradient."""
        tables = tuple(slot.index for slot, t in self.form.tensors() if t.is_floating_point())
        return entries_of(self.form.structure, tables, self.style)

    def entry(self, entry: Entry) -> Report:
        from maskalg_kernels.entries import backward_entries

        constants = self.shape() | entry_constants(entry)
        own: dict[str, Any] = {"TMA": has_tma(self.target) and self.described}
        own |= {"WEIGHTED": False, "MODE": entry.mode}

        def of_tile(tile: Tile) -> dict[str, Any]:
            found = constants | own | tile_constants(tile)
            del found["ONE_LOOP"]
            return found

        tiles = self.plan_of_gradients().entry_tiles
        return self._first(backward_entries, tiles, of_tile, self.tables(entry.hooks))

    def queries(self) -> Report:
        return self._backward("queries")

    def keys(self) -> Report:
        return self._backward("keys")

    def one_pass(self) -> Report:
        """All gradients of long rows, by one kernel."""
        from maskalg_kernels.hopper_offline import compile_hopper_gradients

        plan = self.plan_of_gradients()
        constants = one_pass_constants(self.shape() | plan.in_one_pass)
        tile = one_pass_tile(constants["HEAD_PAD"])
        options = hopper_backward_options(tile)
        tables = self.tables(plan.hooks)
        made = compile_hopper_gradients(constants, options, ELEMENTS[self.dtype], tables)
        return self._report("backward, one pass", f"Gluon, blocks of {tile.block}", made)

    def _backward(self, of: Literal["queries", "keys"]) -> Report:
        from maskalg_kernels import backward, hopper_keys, hopper_queries
        from maskalg_kernels.hopper_offline import compile_hopper_backward

        plan = self.plan_of_gradients()
        constants = self.shape() | (plan.of_queries if of == "queries" else plan.of_keys)
        tables = self.tables(plan.hooks)
        tile = plan.hopper_queries if of == "queries" else plan.hopper_keys
        if tile is not None and self.reached:
            constants = hopper_backward_constants(tile, constants | _SOFTMAX, of)
            kernels = {
                "keys": hopper_keys.hopper_backward_keys,
                "queries": hopper_queries.hopper_backward_queries,
            }
            element = ELEMENTS[self.dtype]
            options = hopper_backward_options(tile)
            made = compile_hopper_backward(kernels[of], constants, options, element, tables)
            return self._report(f"backward, {of}", f"Gluon, blocks of {tile.block}", made)
        constants["WEIGHTED"] = False
        tiles = plan.query_tiles if of == "queries" else plan.key_tiles
        return self._plain(getattr(backward, f"backward_{of}"), tiles, constants, tables)

    def _plain(
        self,
        kernel: Any,
        tiles: tuple[Tile, ...],
        constants: dict[str, Any],
        tables: list[str],
    ) -> Report:
        own = constants | self.shape() | {"TMA": has_tma(self.target) and self.described}
        return self._first(kernel, tiles, lambda tile: own | tile_constants(tile), tables)

    def _first(
        self,
        kernel: Any,
        tiles: tuple[Tile, ...],
        constants: Callable[[Tile], dict[str, Any]],
        tables: list[str],
    ) -> Report:
        """The kernel with the tile that serves; with the last, where none has room."""
        from maskalg_kernels.offline import compile_kernel

        element = ELEMENTS[self.dtype]

        def made(tile: Tile) -> tuple[Tile, Any]:
            own = constants(tile)
            options = {name: own.pop(name) for name in ("num_warps", "num_stages")}
            return tile, compile_kernel(kernel, self.target, own, options, element, tables)

        def spilled(found: tuple[Tile, Any]) -> int | None:
            fits = found[1].shared <= _SHARED[self.target]
            return (found[1].stack or 0) if fits else None

        found = first_that_fits(map(made, tiles), spilled)
        assert found is not None  # tables list a tile of everything that is served
        tile, compiled = found
        size = f"{tile.block_q} x {tile.block_kv}, {tile.warps} warps, {tile.stages} stages"
        name = kernel.fn.__name__.replace("backward_", "backward, ")
        return self._report(name, f"plain Triton, {size}", compiled)

    def _report(self, kernel: str, tier: str, made: Any) -> Report:
        return Report(
            kernel,
            tier,
            made.registers,
            made.spills,
            made.shared,
            _SHARED[self.target],
            instructions(made.assembly),
            made.remarks,
            made.stack,
        )


def instructions(assembly: str) -> dict[str, int]:
    """How many instructions an assembly text has: "all", and by kind where there are any."""
    breaks = _PTX_BREAKS if ".version" in assembly else _GCN_BREAKS
    # What is not indented is a label, or data about the kernel.
    lines = breaks.split("\n".join(x for x in assembly.splitlines() if x[:1] in " \t{"))
    opcodes = [found[1] for line in lines if (found := _OPCODE.match(line.strip()))]
    counts = {"all": len(opcodes)}
    for kind, pattern in _KINDS.items():
        number = sum(re.match(pattern, opcode) is not None for opcode in opcodes)
        if number:
            counts[kind] = number
    return counts
