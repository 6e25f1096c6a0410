"""Gradients of the tables of a bias on the GPU, the same to the bit every time.

What programs add up together is kept in 64-bit integers, in a unit chosen so that the sum of all
parts fits: additions of integers give the same result in any order.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Final, cast

import torch
from maskalg_kernels.entries import backward_entries

from ....codegen.entries import Entry, entries_of
from ....codegen.hooks import Style
from ....codegen.store import load
from ....engine.evaluate import Environment, evaluate
from ....tiles.forward import Tile
from ...call import Call
from ..arguments import describable, padded, scalars_of, tables_of
from ..constants import count_constants, tile_constants
from ..launching.descriptors import Descriptor, blocks_of_keys
from ..launching.fitting import that_fits, with_last_resort
from ..launching.launch import Launch, Sizes, sized_now
from .rows import Rows, padded_length

_BITS: Final = 61  # of a sum, below the sign
_LARGEST_EXPONENT: Final = 100  # of a unit that float32 holds


def table_gradients(
    call: Call,
    slots: tuple[int, ...],
    shape: dict[str, Any],
    tiles: tuple[Tile, ...],
    how: tuple[Style, bool],
    of_rows: Rows,
    grad_out: torch.Tensor,
) -> dict[int, torch.Tensor]:
    """The gradients of the tables in `slots`, in their shapes and dtypes.

    Args:
        call: the inputs, without gradients.
        shape: the kernel's constants that follow from shapes.
        tiles: to try, in this order.
        how: how formulas are written, and whether tiles are read by descriptor.
        of_rows: what is known of each query.
        grad_out: of the output.
    """
    style, tma = how
    tables = {i: cast(torch.Tensor, call.form.values[i]) for i in slots}
    sums = {
        i: torch.zeros(t.shape, dtype=torch.float64, device=t.device) for i, t in tables.items()
    }
    if grad_out.numel() and call.extents.kv_len:
        for entry in entries_of(call.form.structure, slots, style):
            launch = _Launch(call, entry, shape, tiles, tma, of_rows, grad_out)
            sums[entry.slot.index] += _of_reading(call, entry, launch)
    return {i: sums[i].to(table.dtype) for i, table in tables.items()}


def _of_reading(call: Call, entry: Entry, launch: _Launch) -> torch.Tensor:
    """The part of one reading in the gradient of its table, float64 in the table's shape."""
    table = cast(torch.Tensor, call.form.values[entry.slot.index])
    extents = call.extents
    places = {
        "batch": torch.arange(extents.batch, device=table.device).view(-1, 1, 1),
        "head": torch.arange(extents.heads, device=table.device).view(1, -1, 1),
    }
    if entry.mode == "rows":
        parts = launch.numbers("rows").double()
        places["q_idx"] = torch.arange(extents.q_len, device=table.device)
    elif entry.mode == "pairs":
        return launch.sums(tuple(table.shape))
    elif entry.mode == "columns":
        parts = launch.sums((extents.batch, extents.heads, extents.kv_len))
        places["kv_idx"] = torch.arange(extents.kv_len, device=table.device)
    else:
        distances = extents.q_len + extents.kv_len - 1
        parts = launch.sums((extents.batch, extents.heads, distances))
        distance = torch.arange(distances, device=table.device) - (extents.kv_len - 1)
        # Any pair at the distance stands for all of them.
        places |= {"q_idx": distance.clamp(min=0), "kv_idx": (-distance).clamp(min=0)}
    return _gathered(parts, entry, places, call, table)


def _gathered(
    parts: torch.Tensor,
    entry: Entry,
    places: dict[str, torch.Tensor],
    call: Call,
    table: torch.Tensor,
) -> torch.Tensor:
    """`parts` `[batch, heads, n]` added up by the entry of the table they belong to."""
    place = torch.zeros((), dtype=torch.int64, device=table.device)
    environment = Environment(places, call.form.values)
    for axis, index in enumerate(entry.reading.args):
        at = evaluate(index, environment).clamp(0, table.shape[axis] - 1)
        place = place * table.shape[axis] + at
    unit = _unit(parts.abs().amax(), parts.numel())
    whole = (parts * unit.double()).to(torch.int64).view(-1)
    sums = torch.zeros(table.numel(), dtype=torch.int64, device=table.device)
    sums.index_add_(0, place.expand(parts.shape).reshape(-1), whole)
    return (sums.double() / unit.double()).view(table.shape)


def _unit(largest: torch.Tensor, count: int) -> torch.Tensor:
    """The power of two by which numbers become integers of which `count` can be added up."""
    bits = _BITS - math.ceil(math.log2(max(count, 1)))
    exponent = bits - torch.ceil(torch.log2(largest.float().clamp(min=1e-37)))
    return torch.exp2(exponent.clamp(max=_LARGEST_EXPONENT))


def entry_constants(entry: Entry) -> dict[str, Any]:
    """The constants of the kernel that follow from a reading."""
    module = load(entry.hooks.source, entry.hooks.digest)
    return {
        "HOLD": module.hold,
        "MASKED": module.masked,
        "BIASED": module.biased if entry.hooks.biased else None,
        "NEXT_RUN": module.next_run,
        **count_constants(entry.hooks),
        "ENTRY": None if entry.constant else module.entry,
        "PLACE": module.place if entry.mode == "pairs" else None,
    }


class _Launch:
    """The kernel for one reading, ready but for the mode."""

    def __init__(
        self,
        call: Call,
        entry: Entry,
        shape: dict[str, Any],
        tiles: tuple[Tile, ...],
        tma: bool,
        of_rows: Rows,
        grad_out: torch.Tensor,
    ) -> None:
        self.call, self.entry, self.tiles, self.of_rows = call, entry, tiles, of_rows
        self.shape = shape
        self.tensors = (call.query, call.key, call.value, grad_out)
        self.tma = tma and describable(call.key) and describable(call.value)
        own = {"WEIGHTED": call.weight.formula is not None, "TMA": self.tma}
        self.constants = shape | entry_constants(entry) | own

    def numbers(self, mode: str) -> torch.Tensor:
        """A number for each query, float32 `[batch, heads, q_len]`."""
        extents = self.call.extents
        shape = (extents.batch, extents.heads, extents.q_len)
        found = self.of_rows.statistic.new_empty(shape)
        self._run(mode, found, None)
        return found

    def sums(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Sums over the pairs, by the mode of the entry, float64."""
        largest, count = self._largest()
        unit = _unit(largest, count)
        found = torch.zeros(shape, dtype=torch.int64, device=self.call.query.device)
        self._run(self.entry.mode, found, unit)
        sums = found.double() / unit.double()
        # Gradients that are not finite have no unit; they are not finite here either.
        return torch.where(largest.isfinite(), sums, float("nan"))

    def _largest(self) -> tuple[torch.Tensor, int]:
        """A bound of the parts, and how many of that size can come together."""
        extents = self.call.extents
        rows = extents.batch * extents.heads * extents.q_len
        if not self.entry.constant or self.call.weight.formula is not None:
            return self.numbers("largest").amax(), rows * extents.kv_len
        # |dO . v - delta| <= |dO| |v| + |delta|, and the weights of a query sum up to 1.
        _, _, value, grad_out = self.tensors
        norms = [
            torch.linalg.vector_norm(t, dim=-1, dtype=torch.float32).amax()
            for t in (value, grad_out)
        ]
        return norms[0] * norms[1] + self.of_rows.delta.abs().amax(), rows

    def _run(self, mode: str, sums: torch.Tensor, unit: torch.Tensor | None) -> None:
        call = self.call
        query, key, value, grad_out = self.tensors
        scalars = scalars_of(self.entry.hooks, call.form, call.extents)
        tables = padded(tables_of(self.entry.hooks, call), query.device)
        known = (self.of_rows.statistic, self.of_rows.delta, sums, unit)
        fixed = self.constants | {"MODE": mode}
        sources = (Descriptor(key), Descriptor(value)) if self.tma else (key, value)
        of = (self.entry, mode, *self.shape.values(), self.tma, fixed["WEIGHTED"], query.device)

        def with_tile(tile: Tile) -> Launch:
            sized = partial(_sizes, tile)

            def constants() -> dict[str, Any]:
                own = fixed | tile_constants(tile)
                del own["ONE_LOOP"]
                return own

            return Launch(
                backward_entries,
                ("entries", *of, tile),
                [query, *sources, grad_out, *known, tables],
                sized_now(sized, call, self.tensors),
                constants,
                sized,
                scalars,
                self.tensors,
                lambda: blocks_of_keys(key, value, tile.block_kv, fixed),
                tile=tile,
            )

        launch = that_fits(("entries", *of), map(with_tile, with_last_resort(self.tiles)))
        assert launch is not None  # tables have a tile of each kind
        launch.run()


def _sizes(tile: Tile, call: Call, strides: list[int]) -> Sizes:
    extents = call.extents
    rows, batch_heads = -(-extents.q_len // tile.block_q), extents.batch * extents.heads
    specialised = (extents.heads, call.group, *strides)
    lengths = (extents.q_len, extents.kv_len, padded_length(extents.q_len), rows, batch_heads)
    return Sizes(rows * batch_heads, (call.scale, *lengths, *specialised), specialised)
