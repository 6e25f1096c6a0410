"""Calls of the compiled kernels: which calls they can compute, and their arguments."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
import warnings
from array import array
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, cast

import torch

from ....codegen import store
from ....codegen.spans import packed_ids
from ....engine.extents import Extents, dependence
from ....engine.memory import MEMORY, of_mask, state_of
from ....engine.normal_form import Bound, Structure
from ....engine.widths import Known, bits_of, known_of
from ....formula.meaning import as_float32
from ....formula.nodes import Node
from ....proof.proof import closed_forms_of
from ....schedule.intervals.steps import tables_of, tables_of_slots
from ....schedule.rung import rung_of
from ....schedule.tile_runs import PARTIAL, TileRuns
from ....schedule.tiling import Tiling
from ...call import Call
from ...results import empty_gradients, empty_result
from .compile import CompileError, compiler, library
from .hooks import ENTRY_TYPES, Hooks, hooks_of, step_slots, steps

_DTYPES: Final = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
TILE: Final = 48  # queries, as in skeleton.cpp
RUN_KEYS: Final = 16
_FEWEST_PRODUCTS: Final = 1 << 19  # of weights and values; fewer take less time than their runs
_MOST_BITS: Final = 62
_ZEROS: Final = torch.zeros(1, dtype=torch.int64, device="cpu")
_NO_MEMORY: Final = (
    "the machine gave the kernel no memory for a tile of each thread and, in the backward "
    "pass, for the runs of keys that each tile of queries sees. Use smaller heads, fewer "
    "separate runs a row or torch.set_num_threads, or set MASKALG_NATIVE=0."
)


@dataclass(frozen=True, eq=False)
class Kernel:
    """The compiled hooks of one structure whose tables have certain dtypes.

    Attributes:
        hooks: the compiled hooks.
        addresses: of `mask_q, mask_k, bias_q, bias_k, slope_q, slope_k`, 0 where there is none.
        bounds: the address of `bounds`, or 0.
        library: the library of these addresses.
    """

    hooks: Hooks
    addresses: list[int]
    bounds: int
    library: ctypes.CDLL


def kernel_for(call: Call, *, tables: bool = False) -> Kernel | None:
    """The kernel that computes a call, compiled if it is new; None if torch's operations do.

    Args:
        tables: whether tables of the bias need a gradient.
    """
    form, structure = call.form, call.form.structure
    if tables or not _may_serve(call):
        return None
    dtypes = _dtypes_of(form)
    key = ("native", dtypes)
    try:
        kernel = structure.remembered[key]
    except KeyError:
        kernel = structure.remembered[key] = _compiled(structure, dtypes)
    if kernel is None or not _fits(form):
        return None
    return cast(Kernel, kernel)


def renders(call: Call) -> bool:
    """Whether a kernel would compute a call, if it compiles; nothing is compiled."""
    if not _may_serve(call) or compiler() is None:
        return False
    dtypes = _dtypes_of(call.form)
    known = all(d.is_floating_point or d in ENTRY_TYPES for d in dtypes)
    return known and hooks_of(call.form.structure, dtypes) is not None and _fits(call.form)


def _may_serve(call: Call) -> bool:
    """Whether kernels accept these inputs and weights, for any expression."""
    if call.query.dtype not in _DTYPES or call.weight.formula is not None:
        return False
    if 0 in call.query.shape or 0 in call.value.shape:
        return False
    if os.environ.get("MASKALG_NATIVE") == "0":
        return False
    return all(map(in_memory, (call.query, call.key, call.value, *call.form.tables)))


def in_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor's address holds its numbers as they are.

    Exceptions: subclasses that keep their numbers elsewhere, freed storage, zeros that were never
    written, and tensors with a lazy negation.
    """
    return (
        type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not tensor.is_neg()
        and (tensor.data_ptr() != 0 or tensor.numel() == 0)
    )


def _dtypes_of(form: Bound) -> tuple[torch.dtype, ...]:
    return tuple([cast(torch.Tensor, form.values[s.index]).dtype for s in form.structure.tables])


def _compiled(structure: Structure, dtypes: tuple[torch.dtype, ...]) -> Kernel | None:
    if not all(d.is_floating_point or d in ENTRY_TYPES for d in dtypes):
        return None
    if _loop.cache_info().currsize and _loop() is None:
        return None
    hooks = hooks_of(structure, dtypes)
    if hooks is None:
        return None
    store.count(structure)
    # If both are new, both are compiled at once.
    loop = threading.Thread(target=_loop)
    loop.start()
    try:
        made = library(hooks.source)
    except CompileError as problem:
        _warn(problem)
        return None
    finally:
        loop.join()
    if _loop() is None:
        return None
    names = ["mask", *["bias"] * hooks.biased, *["slope"] * hooks.sloped]
    known = {f"{name}_{lane}" for name in names for lane in "qk"}
    wanted = ("mask_q", "mask_k", "bias_q", "bias_k", "slope_q", "slope_k")
    addresses = [_address(made, name) if name in known else 0 for name in wanted]
    return Kernel(hooks, addresses, _address(made, "bounds") if hooks.bounded else 0, made)


def _address(made: ctypes.CDLL, name: str) -> int:
    return cast(int, ctypes.cast(getattr(made, name), ctypes.c_void_p).value)


@lru_cache(maxsize=1)
def _loop() -> ctypes.CDLL | None:
    """The library of the loop; None if it cannot be compiled."""
    source = Path(__file__).with_name("skeleton.cpp").read_text(encoding="utf-8")
    try:
        return library(source, fused=True)
    except CompileError as problem:
        _warn(problem)
        return None


def _warn(problem: CompileError) -> None:
    """Warn of a compiler that fails; a machine without one needs no warning."""
    cxx = compiler()
    if cxx is not None:
        last = (str(problem).splitlines() or ["it says nothing"])[-1]
        warnings.warn(
            f"{cxx} could not compile an attention kernel for this CPU ({last}). torch's "
            "operations serve, which are slower: set CXX to a compiler that works, or "
            "MASKALG_NATIVE=0.",
            UserWarning,
            stacklevel=2,
        )


def forward(call: Call, kernel: Kernel, lse_wanted: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Output in the dtype of the query, and lse in float32; unwritten where it is not wanted."""
    shape = call.query.shape
    out = empty_result(call.query, call.value.shape[-1])
    lse = torch.empty(shape[:3] if lse_wanted else (0,), dtype=torch.float32, device="cpu")
    arguments, _held = _arguments(call, kernel, out, lse if lse_wanted else None)
    packed = array("q", arguments)
    if cast(ctypes.CDLL, _loop()).maskalg_forward(_address_of(packed)):
        raise MemoryError(_NO_MEMORY)
    return out, lse


def backward(
    call: Call,
    kernel: Kernel,
    saved: tuple[torch.Tensor, torch.Tensor],
    change: tuple[torch.Tensor, torch.Tensor | None],
) -> list[torch.Tensor]:
    """Gradients of query, key and value, in their dtypes and as `empty_gradients` lie."""
    out, lse = saved
    found = empty_gradients(call.query, call.key, call.value)
    stats = torch.empty((3, *lse.shape), dtype=torch.float32, device="cpu")
    gradient = change[0].to(out.dtype)
    of_lse = None if change[1] is None else change[1].to(torch.float32).contiguous()
    arguments, _held = _arguments(call, kernel, out, lse.contiguous())
    for tensor in (gradient, *found):
        arguments += [tensor.data_ptr(), *tensor.stride()]
    arguments += [0 if of_lse is None else of_lse.data_ptr(), stats.data_ptr(), call.part]
    packed = array("q", arguments)
    if cast(ctypes.CDLL, _loop()).maskalg_backward(_address_of(packed)):
        raise MemoryError(_NO_MEMORY)
    return found


def _address_of(numbers: array[int]) -> ctypes.c_void_p:
    return ctypes.c_void_p(numbers.buffer_info()[0])


def _arguments(
    call: Call, kernel: Kernel, out: torch.Tensor, lse: torch.Tensor | None
) -> tuple[list[int], list[object]]:
    """`Call` of skeleton.cpp without the backward pass, and objects that must outlive the call."""
    query, key, value, extents = call.query, call.key, call.value, call.extents
    numbers, held = _numbers(call.form, bounded=bool(kernel.bounds))
    packed = array("q", numbers)
    sizes = dependence(call.form.structure.mask, call.form, extents)
    arguments = [
        *(_DTYPES[query.dtype], extents.batch, extents.heads, key.shape[1]),
        *(extents.q_len, extents.kv_len, query.shape[3], value.shape[3]),
        *(torch.get_num_threads(), struct.unpack("q", struct.pack("d", call.scale))[0]),
    ]
    for tensor in (query, key, value, out):
        arguments += [tensor.data_ptr(), *tensor.stride()]
    arguments += [
        *(0 if lse is None else lse.data_ptr(), _address_of(packed).value or 0, kernel.bounds),
        *(kernel.hooks.touched, kernel.hooks.unfull, sizes.batch, sizes.heads),
        *kernel.addresses,
    ]
    held += [packed, lse]
    if kernel.bounds:
        first = first_queries(call.form, extents)
        held.append(first)
        tiles = (0, 0) if first is None else (first.data_ptr(), len(first) - 1)
        return [*arguments, 0, 0, 0, 0, 0, 0, 0, *tiles], held
    products = out.numel() * extents.kv_len
    # Blocks of keys begin where runs begin, so other runs may give other bits.
    few = extents.q_len <= TILE and products <= _FEWEST_PRODUCTS and not call.alone
    runs = _every_key(-(-extents.kv_len // RUN_KEYS)) if few else runs_of(call.form, extents)
    parts = [runs.row_start, runs.first, runs.end, runs.label]
    held += parts
    most = int(runs.row_start.diff().max())
    arguments += [*[part.data_ptr() for part in parts], runs.shape[2], most, RUN_KEYS, 0, 0]
    arguments[_PLACE_OF_SIZES : _PLACE_OF_SIZES + 2] = runs.shape[:2]
    return arguments, held


_PLACE_OF_SIZES: Final = 10 + 4 * 5 + 5


def first_queries(form: Bound, extents: Extents) -> torch.Tensor | None:
    """The first queries of tiles, and at last the number of queries, int32 `[tiles + 1]`, if every
    pair lies in a document with contiguous ids (as declared): then no tile holds two documents, and
    each document's results depend on it alone. None if tiles simply follow one another."""
    slot = packed_ids(form.structure.mask)
    if slot is None:
        return None
    starts = tables_of_slots(slot, slot, form.values).named("start")

    def made() -> torch.Tensor:
        places = torch.arange(extents.q_len, dtype=torch.int32)
        first = places[(places - starts[: extents.q_len]) % TILE == 0]
        return torch.cat([first, torch.tensor([extents.q_len], dtype=torch.int32)])

    return MEMORY.of_tensors(("tiles of documents", extents.q_len), (starts,), made)


def _numbers(form: Bound, *, bounded: bool) -> tuple[list[int], list[object]]:
    """The numbers of `S` (see `places`), and the tables whose addresses stand there."""
    numbers: list[int] = []
    held: list[object] = []
    slots, values = form.structure.slots, form.values
    if bounded:
        slots += tuple(step_slots(form.structure).values())
        of_documents = [(tables_of(step, values), step.data) for step in steps(form.structure)]
        values += tuple([tables.named(cast(str, name)) for tables, name in of_documents])
    for slot, value in zip(slots, values, strict=True):
        if isinstance(value, torch.Tensor):
            table = value.detach()
            if table.is_floating_point() and table.dtype != torch.float32:
                table = table.to(torch.float32)
            held.append(table)
            sizes = table.shape
            if table.numel():
                numbers += [table.data_ptr(), *sizes, *table.stride(), *sizes]
            else:
                numbers += [_ZEROS.data_ptr(), *[1] * len(sizes), *[0] * len(sizes), *sizes]
        elif slot.kind == "int":
            numbers.append(int(value))
        else:
            numbers.append(struct.unpack("i", struct.pack("f", as_float32(value)))[0])
    return numbers, held


@lru_cache(maxsize=256)
def _every_key(blocks: int) -> TileRuns:
    """One run of all blocks of keys, each to be masked, for one tile of queries."""
    first, end, label = (torch.tensor([number]) for number in (0, blocks, PARTIAL))
    return TileRuns.of(torch.zeros(1, dtype=torch.int64), first, end, label, (1, 1, 1))


@of_mask
def runs_of(form: Bound, extents: Extents) -> TileRuns:
    """The runs of blocks of RUN_KEYS keys, of each tile of TILE queries."""
    tiling = Tiling(form, extents, (min(TILE, extents.q_len), RUN_KEYS))
    return rung_of(form.structure).runs(tiling)


def _fits(form: Bound) -> bool:
    """Whether 64 bits hold all integers of the formulas; entries of int64 tables are read."""
    structure, values = form.structure, form.values
    plain = structure.remembered.get("native plain")
    if plain is None:
        plain = not any(f.grows for f in _formulas(structure))
        structure.remembered["native plain"] = plain
    if not form.long:
        return plain or _known_to_fit(structure, known_of(values))
    long = [table for table in form.tables if table.dtype == torch.int64]
    # Writes to tensors of inference mode are not counted.
    counted = not any(table.is_inference() for table in long)
    states = [state_of(table) for table in long] if counted else []
    before = form.remembered.get("native fits")
    if counted and before is not None and before[0] == states:
        return cast(bool, before[1])
    known = list(known_of(values))
    for place, value in enumerate(values):
        if isinstance(value, torch.Tensor) and value.dtype == torch.int64 and value.numel():
            least, most = [int(end) for end in value.aminmax()]
            bits = max(abs(least), abs(most)).bit_length()
            known[place] = (-(1 << bits), 1 << bits)
    fits = _known_to_fit(structure, tuple(known))
    if counted:
        form.remembered["native fits"] = (states, fits)
    return fits


@lru_cache(maxsize=4096)
def _known_to_fit(structure: Structure, known: tuple[Known, ...]) -> bool:
    integers = [n for formula in _formulas(structure) for n in formula.walk() if n.kind == "int"]
    return all(bits_of(node, known) <= _MOST_BITS for node in integers)


def _formulas(structure: Structure) -> list[Node]:
    return [structure.mask, structure.bias, *closed_forms_of(structure).bounds]
