"""Gradients of the tables of a bias on the GPU, the same to the bit every time.

Sums of several programs are kept in 64-bit integers, in a unit chosen so that the sum of all parts
fits: additions of integers give the same result in any order.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Final, cast

import torch

from ....codegen.entries import Mode, Reads, entries_of, slot_of
from ....codegen.hooks import Style
from ....codegen.store import load
from ....engine.evaluate import Environment, evaluate
from ....formula.nodes import Node
from ....tiles.shapes import Tile, in_turn
from ...call import Call
from ..arguments import describable, hooked, numbers_of
from ..constants import hook_constants, tile_constants
from ..launching.fitting import that_fits
from ..launching.launch import Launch, compile_together, variant_of
from ..launching.spec import KEYS_AND_VALUES, KernelSpec, Sizes
from .rows import BackwardPass

ENTRIES: Final = KernelSpec("maskalg_kernels.entries.backward_entries", KEYS_AND_VALUES)

_BITS: Final = 61  # of a sum, below the sign
_LARGEST_EXPONENT: Final = 100  # of a unit that float32 holds
_NUMBERS: Final = ("rows", "largest", "products")  # modes that give a number for each query
_WIDENED: Final = 1 << 24  # elements of which float32 copies are made at a time


def table_gradients(
    of: BackwardPass, slots: tuple[int, ...], style: Style
) -> dict[int, torch.Tensor]:
    """The gradients of the tables in `slots`, in their shapes and dtypes."""
    call = of.call
    tables = {i: cast(torch.Tensor, call.form.values[i]) for i in slots}
    sums = {
        i: torch.zeros(t.shape, dtype=torch.float64, device=t.device) for i, t in tables.items()
    }
    if of.grad_out.numel() and call.extents.kv_len:
        found = entries_of(call.form.structure, slots, style)
        rounds = bool(found) and _rounds(of)
        _compile(of, found, rounds=rounds)
        if rounds:
            of = _with_whole_products(of, found[0])
        parts: dict[int, list[_Parts]] = {i: [] for i in tables}
        for reads in found:
            launch, slot = _Launch(of, reads), slot_of(reads.readings[0])
            if reads.mode == "pairs":
                sums[slot] += launch.sums(tuple(tables[slot].shape))
                continue
            for reading, numbers, places in _numbers_of(call, reads, launch):
                parts[slot_of(reading)].append(_placed(numbers, reading, places, call))
        for slot, of_table in parts.items():
            if of_table:
                sums[slot] += _added_up(of_table, tables[slot])
    return {i: sums[i].to(table.dtype) for i, table in tables.items()}


def _compile(of: BackwardPass, found: tuple[Reads, ...], *, rounds: bool) -> None:
    """Compile the kernels of all reads side by side, before the first pass launches them."""
    kernels = (_Launch(of, reads) for reads in found)
    launches = chain.from_iterable(kernel.to_compile(*kernel.modes) for kernel in kernels)
    if rounds:
        launches = chain(_Launch(of, found[0]).to_compile("products"), launches)
    first = next(launches, None)
    if first is not None and variant_of(first) is None:
        compile_together([first, *launches])


def _rounds(of: BackwardPass) -> bool:
    """Whether dO . O is computed from an output that was rounded to 16 bits.

    Weights that are not normalised have none, and an output over further keys is left as it is.
    """
    weight, out = of.call.weight, of.rows.o
    summed = weight.formula is None or weight.normalised
    return summed and not of.call.part and out is not None and out.dtype != torch.float32


def _with_whole_products(of: BackwardPass, reads: Reads) -> BackwardPass:
    """The pass with dO . O computed as if the output had not been rounded, by a kernel of reads.

    The gradient of an entry is a sum over many pairs of weights times (dO . v - dO . O). Its terms
    cancel, while a rounding error of dO . O stays.
    """
    out, rows = of.rows.o, of.rows
    assert out is not None
    batch, heads, q_len, dim = out.shape
    together = max(_WIDENED // max(batch * q_len * dim, 1), 1)
    pairs = zip(of.grad_out.split(together, 1), out.split(together, 1), strict=True)
    rounded = torch.cat([(change.float() * part.float()).sum(-1) for change, part in pairs], 1)
    delta = torch.empty_like(rows.delta).copy_(rows.delta)
    whole = _Launch(of, reads).numbers("products")[0]
    delta.view(batch, heads, -1)[..., :q_len] += whole - rounded
    return replace(of, rows=rows._replace(delta=delta))


def _numbers_of(
    call: Call, reads: Reads, launch: _Launch
) -> Iterator[tuple[Node, torch.Tensor, dict[str, torch.Tensor]]]:
    """The reads, each with its part of the gradient, float64 `[batch, heads, n]`, and the indices
    of the numbers."""
    extents, device = call.extents, call.query.device
    places = {
        "batch": torch.arange(extents.batch, device=device).view(-1, 1, 1),
        "head": torch.arange(extents.heads, device=device).view(1, -1, 1),
    }
    if reads.mode == "rows":
        places["q_idx"] = torch.arange(extents.q_len, device=device)
        for reading, numbers in zip(reads.readings, launch.numbers("rows").double(), strict=True):
            yield reading, numbers, places
        return
    if reads.mode == "columns":
        count = extents.kv_len
        places["kv_idx"] = torch.arange(count, device=device)
    else:
        count = extents.q_len + extents.kv_len - 1
        distance = torch.arange(count, device=device) - (extents.kv_len - 1)
        # Any pair at the distance stands for all of them.
        places |= {"q_idx": distance.clamp(min=0), "kv_idx": (-distance).clamp(min=0)}
    yield reads.readings[0], launch.sums((extents.batch, extents.heads, count)), places


_Parts = tuple[torch.Tensor, torch.Tensor]
"""Numbers, float64 `[n]`, and their places in the flattened table."""


def _placed(
    numbers: torch.Tensor, reading: Node, places: dict[str, torch.Tensor], call: Call
) -> _Parts:
    """The numbers `[batch, heads, n]` of a read, with their places in its table.

    Numbers of all batch entries, heads or positions that share a place are added up first.
    """
    table = cast(torch.Tensor, call.form.values[slot_of(reading)])
    place = torch.zeros((1, 1, 1), dtype=torch.int64, device=table.device)
    environment = Environment(places, call.form.values)
    for axis, index in enumerate(reading.args):
        at = evaluate(index, environment).clamp(0, table.shape[axis] - 1)
        place = place * table.shape[axis] + at
    alike = [axis for axis in range(3) if place.shape[axis] == 1 < numbers.shape[axis]]
    if alike:
        numbers = numbers.sum(alike, keepdim=True)
    return numbers.reshape(-1), place.expand(numbers.shape).reshape(-1)


def _added_up(parts: list[_Parts], table: torch.Tensor) -> torch.Tensor:
    """The sums of numbers by their places, float64 in the table's shape."""
    numbers, places = (torch.cat(each) for each in zip(*parts, strict=True))
    unit = _unit(numbers.abs().amax(), numbers.numel()).double()
    sums = torch.zeros(table.numel(), dtype=torch.int64, device=table.device)
    sums.index_add_(0, places, (numbers * unit).to(torch.int64))
    return (sums.double() / unit).view(table.shape)


def _unit(largest: torch.Tensor, count: int) -> torch.Tensor:
    """The power of two that scales numbers to integers of which `count` can be added up."""
    bits = _BITS - math.ceil(math.log2(max(count, 1)))
    exponent = bits - torch.ceil(torch.log2(largest.float().clamp(min=1e-37)))
    return torch.exp2(exponent.clamp(max=_LARGEST_EXPONENT))


def entry_constants(reads: Reads, mode: str) -> dict[str, Any]:
    """The constants of the kernel for reads in a mode, without those of the tile."""
    module = load(reads.hooks.source, reads.hooks.digest)
    return hook_constants(reads.hooks) | {
        "ENTRY": None if reads.constant else module.entry,
        "PLACE": module.place if reads.mode == "pairs" else None,
        "MODE": mode,
        "READS": len(reads.readings) if mode == "rows" else 1,
    }


def held_by(mode: Mode) -> dict[str, torch.dtype]:
    """Dtypes of the kernel's tensors that are absent, or hold float32, in mode `rows`."""
    return {} if mode == "rows" else {"sums": torch.int64, "unit": torch.float32}


class _Launch:
    """The kernel for reads, complete except for the mode."""

    def __init__(self, of: BackwardPass, reads: Reads) -> None:
        self.of, self.call, self.reads = of, of.call, reads
        self.tma = of.tma and describable(of.call.key) and describable(of.call.value)
        self.weighted = of.call.weight.formula is not None

    def numbers(self, mode: str) -> torch.Tensor:
        """A number for each query, float32 `[reads, batch, heads, q_len]`: in mode rows for each
        read, else one."""
        extents = self.call.extents
        count = len(self.reads.readings) if mode == "rows" else 1
        shape = (count, extents.batch, extents.heads, extents.q_len)
        found = self.of.rows.statistic.new_empty(shape)
        self._run(mode, found, None)
        return found

    def sums(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Sums over the pairs, by the mode of the entry, float64."""
        largest, count = self._largest()
        unit = _unit(largest, count)
        found = torch.zeros(shape, dtype=torch.int64, device=self.call.query.device)
        self._run(self.reads.mode, found, unit)
        sums = found.double() / unit.double()
        # Gradients that are not finite have no unit; they are not finite here either.
        return torch.where(largest.isfinite(), sums, float("nan"))

    @property
    def modes(self) -> tuple[str, ...]:
        """The modes in which the gradients are computed."""
        mode = self.reads.mode
        return (mode, "largest") if mode != "rows" and self._is_measured else (mode,)

    def to_compile(self, *modes: str) -> Iterator[Launch]:
        """Launches of these modes with their first tiles, of tensors that stand for the sums."""
        device = self.call.query.device
        number = torch.empty(1, dtype=torch.float32, device=device)
        whole = torch.empty(1, dtype=torch.int64, device=device)
        for mode in modes:
            given = (number, None) if mode in _NUMBERS else (whole, number)
            yield next(self._with_tiles(mode, *given))

    @property
    def _is_measured(self) -> bool:
        """Whether a kernel measures how large parts of the sums are."""
        return not self.reads.constant or self.weighted

    def _largest(self) -> tuple[torch.Tensor, int]:
        """An upper limit of the parts, and of how many of that size are added up."""
        extents = self.call.extents
        rows = extents.batch * extents.heads * extents.q_len
        if self._is_measured:
            return self.numbers("largest").amax(), rows * extents.kv_len
        # |dO . v - delta| <= |dO| |v| + |delta|, and the weights of a query sum up to 1.
        norms = [
            torch.linalg.vector_norm(t, dim=-1, dtype=torch.float32).amax()
            for t in (self.call.value, self.of.grad_out)
        ]
        return norms[0] * norms[1] + self.of.rows.delta.abs().amax(), rows

    def _run(self, mode: str, sums: torch.Tensor, unit: torch.Tensor | None) -> None:
        launch = that_fits(("entries", *self._of(mode)), self._with_tiles(mode, sums, unit))
        assert launch is not None  # tables have a tile of each kind
        launch.run()

    def _of(self, mode: str) -> tuple[Hashable, ...]:
        shape, device = self.of.plan.shape.values(), self.call.query.device
        return (self.reads, mode, *shape, self.tma, self.weighted, device)

    def _with_tiles(
        self, mode: str, sums: torch.Tensor, unit: torch.Tensor | None
    ) -> Iterator[Launch]:
        """The launches of a mode, by tiles in the order to try."""
        fixed = self.of.plan.shape | entry_constants(self.reads, mode)
        fixed["WEIGHTED"] = self.weighted
        given = self.of.tensors | {"sums": sums, "unit": unit}
        values = hooked(self.reads.hooks, self.call)

        def with_tile(tile: Tile) -> Launch:
            return Launch(
                ENTRIES,
                self._of(mode),
                self.call,
                given,
                partial(_sizes, tile),
                lambda: fixed | tile_constants(tile),
                values,
                self.tma,
                tile=tile,
            )

        return map(with_tile, in_turn(self.of.plan.entry_tiles))


def _sizes(tile: Tile, call: Call) -> Sizes:
    extents = call.extents
    rows = -(-extents.q_len // tile.block_q)
    return Sizes(rows * extents.batch * extents.heads, {**numbers_of(call), "rows": rows})
