"""Arguments of the kernels: numbers and tables of an expression, and limits of descriptors.

Triton compiles a launcher in C for each list of types of a kernel's arguments, which takes 0.3 s.
So all expressions pass as many integers and, but for long lists, as many tables. Numbers past
those integers lie in a table.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

import torch

from ...codegen.arguments import (
    MOST_PASSED,
    BitsNumber,
    BitsTable,
    DistanceNumber,
    DistanceTable,
    DivisorArgument,
    MarksArgument,
    NumbersTable,
    Scalar,
    ScalarArgument,
    TableArgument,
)
from ...codegen.distance_tables import BEYOND
from ...codegen.divisors import factor_and_shift, value_of
from ...codegen.hooks import Hooks, Style
from ...engine.evaluate import Environment, evaluate
from ...engine.extents import Extents
from ...engine.memory import MEMORY, constant, stream_of
from ...engine.normal_form import Bound, Value
from ...errors import BackendError
from ...formula.nodes import Node
from ...schedule.intervals.steps import StepTables, tables_of_slots
from ...schedule.rung import Layout, layout_of, marked_runs
from ...schedule.tile_runs import marks_of
from ...schedule.tiling import Tiling
from ..call import Call
from .kept import KeptBits, bits_layout

_TABLES_TOGETHER: Final = 8
_WITHOUT_PAGES: Final = {"page_count": 0, "most_pages": 0, "table_stride": 0}
_PADDED_BLOCK: Final = 256  # the kernels' PADDED_BLOCK
_INFINITY: Final = 0x7F800000
_MINUS_INFINITY: Final = _INFINITY - 2**31  # the sign is the highest of 32 bits
_CONTIGUOUS_COPY_LIMIT: Final = 1 << 20  # bytes; a larger table is not copied without a word

# Limits of tables of biases by distance (`codegen/distance_tables.py`).
_FEWEST_PAIRS: Final = 1 << 24  # computing fewer takes less than the tables
_FEWEST_QUERIES: Final = 128  # steps of decoding have many distances for their pairs
_MOST_ENTRIES: Final = 1 << 25


class Hooked(NamedTuple):
    """The numbers and tables that an expression's hooks read in a kernel.

    Attributes:
        scalars: the numbers, padded with zeros to the kernels' number of arguments.
        tables: the tensors, padded with empty ones.
    """

    scalars: Sequence[int] = ()
    tables: tuple[torch.Tensor, ...] = ()


def hooked(
    hooks: Hooks,
    call: Call,
    tables: tuple[torch.Tensor, ...] | None = None,
    behind: tuple[torch.Tensor, ...] = (),
) -> Hooked:
    """The numbers and tables of a call.

    Args:
        tables: the result of `tables_of`, if known.
        behind: further tables, which kernels read and hooks do not.
    """
    tables = tables_of(hooks, call) if tables is None else tables
    scalars = scalars_of(hooks, call.form, call.extents)
    return Hooked(scalars, padded(tables + behind, call.query.device))


def inputs_of(call: Call) -> dict[str, Any]:
    """The tensors that forward kernels take, by name."""
    pages = None if call.pages is None else call.pages.tensors
    inputs = {"q": call.query, "k": call.key, "v": call.value}
    return inputs | {"descales": call.descales, "pages": pages}


def numbers_of(call: Call) -> dict[str, float]:
    """The numbers that kernels take, by name; `padded` is `q_len` in whole tiles."""
    extents, (batch, heads, q_len, _) = call.extents, call.query.shape
    numbers: dict[str, float] = {}
    if call.pages is not None:
        table = call.pages.tensors[0]
        numbers = {"page_count": call.key.shape[0], "most_pages": table.shape[1]}
        numbers["table_stride"] = table.stride(0)
    return {
        **_WITHOUT_PAGES,
        **numbers,
        "scale": call.scale,
        "q_len": q_len,
        "kv_len": extents.kv_len,
        "padded": -(-q_len // _PADDED_BLOCK) * _PADDED_BLOCK,
        "heads": heads,
        "kv_heads": call.key.shape[1],
        "group": call.group,
        "batches": extents.batch,
        "batch_heads": batch * heads,
    }


def padded_length(q_len: int) -> int:
    """A length rounded up to whole tiles."""
    return -(-q_len // _PADDED_BLOCK) * _PADDED_BLOCK


def scalars_of(hooks: Hooks, form: Bound, extents: Extents) -> list[int]:
    """The numbers `S` of the hooks as integers, padded with zeros to as many as kernels take."""
    found = _numbers(hooks.scalars[:MOST_PASSED], form, extents)
    return found + [0] * (MOST_PASSED - len(found))


def _numbers(arguments: tuple[Scalar, ...], form: Bound, extents: Extents) -> list[int]:
    found: list[int] = []
    layouts: dict[str, Layout] = {}
    for argument in arguments:
        if isinstance(argument, ScalarArgument):
            found.append(_scalar(argument, form.values))
        elif isinstance(argument, DivisorArgument):
            found.append(_of_divisor(argument, form.values))
        elif isinstance(argument, DistanceNumber):
            found.append(_distance_number(argument, extents))
        elif isinstance(argument, BitsNumber):
            layout = bits_layout(form, extents, argument.rows, tiled=argument.tiled)
            found.append(getattr(layout, argument.number))
        else:
            if argument.of not in layouts:
                layouts[argument.of] = layout_of(form, extents, argument.of)
            found.append(getattr(layouts[argument.of], argument.number))
    return found


def padded(tables: tuple[torch.Tensor, ...], device: torch.device) -> tuple[torch.Tensor, ...]:
    """The tables `T` as passed to kernels: padded with empty ones to a multiple of eight."""
    return tables + (_no_table(device),) * tables_missing(len(tables))


def tables_missing(count: int) -> int:
    """How many empty tables pad `count` tables."""
    return -count % _TABLES_TOGETHER if count else _TABLES_TOGETHER


@lru_cache(maxsize=64)
def _no_table(device: torch.device) -> torch.Tensor:
    return torch.empty(0, dtype=torch.int32, device=device)


def tables_of(
    hooks: Hooks, call: Call, numbers: torch.Tensor | None = None
) -> tuple[torch.Tensor, ...]:
    """The tables `T` of the hooks, contiguous; `numbers` is the table of numbers, if known."""
    steps: dict[tuple[int, int | None], StepTables] = {}
    found = []
    for argument in hooks.tables:
        if isinstance(argument, TableArgument):
            found.append(_table(argument, call.form, steps))
        elif isinstance(argument, DistanceTable):
            found.append(_distance_table(argument.formula, call))
        elif isinstance(argument, BitsTable):
            found.append(bits_of_pairs(argument, call).found)
        elif isinstance(argument, NumbersTable):
            found.append(_numbers_table(hooks, call) if numbers is None else numbers)
        else:
            found.append(_marks(argument, call))
    return tuple(found)


def tables_fit(hooks: Hooks, call: Call) -> bool:
    """Whether memory is allowed for the bits among the tables of the hooks."""
    for table in hooks.tables:
        if isinstance(table, BitsTable) and not bits_of_pairs(table, call).fit:
            return False
    return True


def bits_of_pairs(table: BitsTable, call: Call) -> KeptBits:
    """The bits of the pairs of a call."""
    device = call.query.device
    return KeptBits(table, call.form, call.extents, device, lambda: hooked(table.hooks, call))


def _marks(argument: MarksArgument, call: Call) -> torch.Tensor:
    """The marked runs of tiles, from summaries or digits, or from labels by bits."""
    form, extents, device, of = call.form, call.extents, call.query.device, argument.of
    table = argument.bits
    if table is None:
        return marked_runs(form, extents, of, device)
    grain = 1 << layout_of(form, extents, of).grain_bits
    tiling = Tiling(form, extents, (grain, grain), device)

    def made() -> torch.Tensor:
        return marks_of(bits_of_pairs(table, call).labels(grain), of, tiling)

    key = ("marks of bits", of, tiling.key, stream_of(device))
    return MEMORY.recall(key, (form.structure.mask,), form.values, made)


def numbers_among(hooks: Hooks, tables: tuple[torch.Tensor, ...]) -> torch.Tensor | None:
    """The table of numbers among the tables of the hooks."""
    for argument, table in zip(hooks.tables, tables, strict=True):
        if isinstance(argument, NumbersTable):
            return table
    return None


def _numbers_table(hooks: Hooks, call: Call) -> torch.Tensor:
    """The table of the numbers after `S`: one tensor for the same numbers, for each stream."""
    device = call.query.device
    numbers = _numbers(hooks.scalars[MOST_PASSED:], call.form, call.extents)

    def make() -> tuple[torch.Tensor]:
        # Kernels add the numbers, which are their arguments: a copy from the host would wait, and
        # a graph would read the host's memory again.
        table = torch.zeros(len(numbers), dtype=torch.int32, device=device)
        torch._foreach_add_(table.unbind(), numbers)
        return (table,)

    return constant(("numbers", *numbers), device, make)[0]


def sinks_of(call: Call) -> torch.Tensor | None:
    """The sink logits, `[heads]`, which join the normaliser."""
    sink = call.weight.sink
    if sink is None or isinstance(sink, torch.Tensor):
        return sink if sink is None else sink.contiguous()
    heads, device = call.extents.heads, call.query.device
    # 0.0 and -0.0 are equal.
    key = ("sinks", repr(sink), heads)
    return constant(key, device, lambda: (torch.full((heads,), float(sink), device=device),))[0]


def describable(tensor: torch.Tensor) -> bool:
    """Whether a descriptor can describe it: last stride 1, other strides multiples of 16 bytes."""
    return tensor.data_ptr() % 16 == 0 and _in_units(tensor.stride(), tensor.element_size())


@lru_cache(maxsize=4096)
def _in_units(strides: tuple[int, int, int, int], element_bytes: int) -> bool:
    batch, head, row, last = strides
    units = (batch | head | row) * element_bytes % 16 == 0
    return last == 1 and min(batch, head, row) >= 0 and units


def _bits(value: float) -> int:
    """The bits of a number as float32, as an integer with a sign."""
    try:
        return cast(int, struct.unpack("<i", struct.pack("<f", value))[0])
    except OverflowError:
        return _INFINITY if value > 0 else _MINUS_INFINITY


def _of_divisor(argument: DivisorArgument, values: tuple[Value, ...]) -> int:
    factor, shift = factor_and_shift(value_of(argument.divisor, values))
    if argument.part == "shift":
        return shift
    return factor - 2**32 if factor >= 2**31 else factor  # the same 32 bits, with a sign


def _scalar(argument: ScalarArgument, values: tuple[Value, ...]) -> int:
    value: Any = values[argument.slot]
    if argument.real:
        return _bits(value)
    if argument.axis is None:
        return int(value)
    sizes = value.shape
    if argument.kv_slot is None:
        return int(sizes[argument.axis])
    others = cast(torch.Tensor, values[argument.kv_slot]).shape
    return max(shape[argument.axis] for shape in (sizes, others) if len(shape) == 2)


def _table(
    argument: TableArgument,
    form: Bound,
    steps: dict[tuple[int, int | None], StepTables],
) -> torch.Tensor:
    """A table; `steps` keeps the step tables of each pair of ids, looked up once a call."""
    tensor = cast(torch.Tensor, form.values[argument.slot])
    if argument.step is not None:
        pair = (argument.slot, argument.kv_slot)
        tables = steps.get(pair)
        if tables is None:
            slots = form.structure.slots
            kv_slot = slots[cast(int, argument.kv_slot)]
            tables = steps[pair] = tables_of_slots(slots[argument.slot], kv_slot, form.values)
        return tables.named(argument.step)
    if lies_plainly(tensor):
        return tensor
    if tensor.numel() * tensor.element_size() > _CONTIGUOUS_COPY_LIMIT:
        raise BackendError(
            f"a table of shape {list(tensor.shape)} and stride {list(tensor.stride())} is not "
            "contiguous, and too large to be copied at every call. Build the expression from "
            "`tensor.contiguous()`."
        )
    return tensor.contiguous().resolve_neg()


def lies_plainly(table: torch.Tensor) -> bool:
    """Whether kernels can read a table where it lies; others are copied for each call."""
    return table.is_contiguous() and not table.is_neg()


def tables_are_worth(extents: Extents) -> bool:
    """Whether there are enough more pairs than distances that tables are faster than formulas."""
    pairs = extents.batch * extents.heads * extents.q_len * extents.kv_len
    if pairs < _FEWEST_PAIRS or extents.q_len < _FEWEST_QUERIES:
        return False
    return extents.heads * _distances(extents) <= _MOST_ENTRIES


def style_of_gradients(style: Style, head_pad: int) -> Style:
    """The style of gradients: at 128 dimensions, tables only replace parts that read tensors.

    Measured on an H200: with five products a tile, a read takes longer than a logarithm.
    """
    wide = style.tabled == "costly" and head_pad > 64
    return replace(style, tabled="reads") if wide else style


def _distance_number(argument: DistanceNumber, extents: Extents) -> int:
    """A number of the distance tables of a call."""
    return _distances(extents) if argument.number == "row" else extents.q_len - 1 + BEYOND


def _distance_table(formula: Node, call: Call) -> torch.Tensor:
    """The table of a formula; remembered while the tensors it reads live unchanged."""
    extents, device = call.extents, call.query.device
    lengths = (extents.q_len, extents.kv_len)
    key = ("distances", *lengths, extents.heads, device, stream_of(device))

    def table() -> torch.Tensor:
        zero = extents.q_len - 1 + BEYOND
        distance = torch.arange(_distances(extents), device=device) - zero
        distance = distance.clamp(1 - extents.q_len, extents.kv_len - 1)
        # Any pair at the distance stands for all of them.
        places = {
            "head": torch.arange(extents.heads, device=device)[:, None],
            "q_idx": (-distance).clamp(min=0),
            "kv_idx": distance.clamp(min=0),
        }
        with torch.no_grad():
            found = evaluate(formula, Environment(places, call.form.values))
        return found.to(torch.float32).contiguous()

    return MEMORY.recall(key, (formula,), call.form.values, table)


def _distances(extents: Extents) -> int:
    return extents.q_len + extents.kv_len - 1 + 2 * BEYOND
