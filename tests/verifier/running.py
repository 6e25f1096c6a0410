"""Rendered hooks run at numbers: Triton's in its interpreter, C++ compiled, PTX by instruction.

Nothing here is shared with the readers of `maskalg/verifier`: a counterexample that the verifier
finds counts only if the text, run, gives another answer than the formula.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from maskalg.codegen import store
from maskalg.codegen.arguments import (
    MOST_PASSED,
    BitsNumber,
    BitsTable,
    DivisorArgument,
    LayoutArgument,
    NumbersTable,
    ScalarArgument,
    TableArgument,
)
from maskalg.codegen.divisors import factor_and_shift
from maskalg.codegen.hooks import Hooks
from maskalg.verifier.claims import Subject, _passed
from maskalg.verifier.reading.cpp import Array

from .calls import PAD, Numbers

_MOST_WORDS = 1 << 16
_LAYOUT = {"of_batch": 39, "of_head": 13, "grain_bits": 6}
"""Numbers of the layout of labels, each another one, in calls that do not say them."""

# --- Triton --------------------------------------------------------------------------------------

_PROBES = """

@triton.jit
def probe(q, k, place, out, kv_len, S, T, P: tl.constexpr):
    at = tl.arange(0, P)
    q_idx, kv_idx = tl.load(q + at), tl.load(k + at)
    batch, head = tl.load(place), tl.load(place + 1)
    held, scale = hold(batch, head, q_idx, kv_len, 1.0, S, T)
    score = tl.zeros([P], tl.float32) + 5.0
    tl.store(out + at, masked(score, batch, head, q_idx, kv_idx, kv_len, S, held))


@triton.jit
def probe_of_keys(q, k, place, out, kv_len, S, T, P: tl.constexpr):
    at = tl.arange(0, P)
    q_idx, kv_idx = tl.load(q + at), tl.load(k + at)
    batch, head = tl.load(place), tl.load(place + 1)
    held, scale = hold_of_keys(batch, head, kv_idx, kv_len, 1.0, S, T)
    score = tl.zeros([P], tl.float32) + 5.0
    tl.store(out + at, masked_of_keys(score, batch, head, q_idx, kv_idx, kv_len, S, held))


@triton.jit
def probe_next_run(q, place, kv_len, S, T):
    next_run(5, tl.load(q), tl.load(q + 1), tl.load(place), tl.load(place + 1), kv_len, S, T, 64)


@triton.jit
def probe_next_run_of_keys(q, place, kv_len, S, T):
    next_run_of_keys(5, tl.load(q), tl.load(q + 1), tl.load(place), tl.load(place + 1), kv_len, S, T, 64)


@triton.jit
def probe_next_run_either_way_of_keys(q, place, kv_len, S, T):
    next_run_either_way_of_keys(5, 3, tl.load(q), tl.load(q + 1), tl.load(place), tl.load(place + 1), kv_len, S, T, 64)
"""  # noqa: E501


def kept_by_triton(
    text: str,
    hooks: Hooks,
    numbers: Numbers,
    pairs: list[tuple[int, int]],
    of_keys: bool,
    wide: bool,
) -> list[bool]:
    """Which pairs a text of `hooks` keeps, in a loop over keys or (`of_keys`) over queries."""
    module = _module(text)
    count = 1 << (len(pairs) - 1).bit_length()
    padded = torch.tensor([*pairs, *pairs[-1:] * (count - len(pairs))])
    q, k = padded.to(torch.int64 if wide else torch.int32).T.contiguous()
    out = torch.full((count,), float("nan"))
    passed, tables = _arguments(hooks, numbers)
    probe = module.probe_of_keys if of_keys else module.probe
    probe[(1,)](q, k, _place(numbers), out, numbers.values["kv_len"], passed, tables, count)
    found = out[: len(pairs)].tolist()
    return [value == 5.0 if value == 5.0 or value == -float("inf") else None for value in found]  # type: ignore[misc]


def intervals_by_triton(
    text: str, hooks: Hooks, numbers: Numbers, name: str, row: tuple[int, int], wide: bool
) -> tuple[list[tuple[int, int]], list[tuple[int, int]], list[int]]:
    """Intervals of keys that a hook of runs gives a tile, touched and not full, and all else that
    it asks for: the row of labels."""
    module = _module(text)
    passed, tables = _arguments(hooks, numbers)
    q = torch.tensor(row, dtype=torch.int64 if wide else torch.int32)
    recorded.clear()
    getattr(module, f"probe_{name}")[(1,)](
        q, _place(numbers), numbers.values["kv_len"], passed, tables
    )
    return recorded[0]


recorded: list[Any] = []


def tiles(low: Any, high: Any, some: Any, kv_len: Any, block: Any) -> Any:
    """In place of `maskalg_kernels.runs.tiles`: the interval as it is."""
    low, high, some = (int(_plain(part)) for part in (low, high, some))
    return (low, high) if some else (0, -1)


def run_of_spans(j: Any, touched: Any, unfull: Any, *rest: Any) -> Any:
    place = [*map(_plain, (j, *rest))]
    recorded.append(([*map(_pair, touched)], [*map(_pair, unfull)], place))


def run_of_spans_either_way(j: Any, from_last: Any, touched: Any, unfull: Any, *rest: Any) -> Any:
    run_of_spans(j, touched, unfull, from_last, *rest)


run_of_spans_and_marks = run_of_spans


def run_of_marks(*args: Any) -> Any:
    recorded.append(([], [], [*map(_plain, args)]))


run_of_marks_either_way = run_of_marks


def bits_of(table: Any, row: Any, index: Any) -> Any:
    """In place of `maskalg_kernels.kept_bits.bits_of`, which takes whole tiles: word and bit."""
    import triton.language as tl

    word = tl.load(table + row + index // 32)
    return word, 1 << index % 32


def bits_of_tiles(table: Any, member: Any, step: Any, row: Any, index: Any) -> Any:
    """In place of `maskalg_kernels.kept_bits.bits_of_tiles`, of a table of whole rows."""
    return bits_of(table, member + row * step, index)


def _pair(interval: Any) -> tuple[int, int]:
    low, high = (int(_plain(part)) for part in interval)
    return low, high


def _plain(value: Any) -> Any:
    value = getattr(value, "value", value)
    return value.handle.data.item() if hasattr(value, "handle") else value


def _module(text: str) -> Any:
    """The module of a text, with probes; in place of what the interpreter cannot run stands what
    is written here."""
    text = text.replace("tl.inline_asm_elementwise(", "run_ptx(")
    own = "from tests.verifier.running import "
    text = text.replace("from maskalg_kernels.runs import ", own)
    text = text.replace("from maskalg_kernels.kept_bits import ", own)
    text = text.replace("import triton\n", f"import triton\n{own}run_ptx\n", 1) + _PROBES
    return store.load(text, f"mutant_{hash(text) & (1 << 60) - 1}")


def _place(numbers: Numbers) -> torch.Tensor:
    return torch.tensor([numbers.values.get(n, 0) for n in ("batch", "head")], dtype=torch.int32)


def _arguments(hooks: Hooks, numbers: Numbers) -> tuple[tuple[int, ...], tuple[torch.Tensor, ...]]:
    passed = [_scalar(argument, numbers) for argument in hooks.scalars]
    slots = {slot.index: slot for slot in numbers.structure.slots}
    tables = []
    for table in hooks.tables:
        if isinstance(table, NumbersTable):
            tables.append(torch.tensor(passed[MOST_PASSED:] or [0], dtype=torch.int32))
        elif isinstance(table, TableArgument) and table.step is None:
            tables.append(numbers.of_slot(table.slot))
        elif isinstance(table, TableArgument):
            own = slots[table.slot], slots[table.kv_slot or 0]
            tables.append(numbers.of_step(table.step or "", *own))
        elif isinstance(table, BitsTable):
            tables.append(_bits_table(numbers, table.rows))
        else:
            tables.append(
                numbers.tables.setdefault(repr(table), torch.zeros(PAD, dtype=torch.int32))
            )
    return tuple(passed[:MOST_PASSED]), tuple(tables)


def _scalar(argument: Any, numbers: Numbers) -> int:
    values = numbers.values
    if isinstance(argument, ScalarArgument):
        if argument.axis is None:
            return values.get(f"n{argument.slot}", 0)
        of = [argument.slot, *([] if argument.kv_slot is None else [argument.kv_slot])]
        return max(values.get(f"size{slot}_{argument.axis}", 1) for slot in of)
    if isinstance(argument, DivisorArgument):
        pair = factor_and_shift(numbers.value(numbers.meaning(argument.divisor)))
        found = pair[argument.part == "shift"]
        return found - 2**32 if found >= 2**31 else found
    if isinstance(argument, BitsNumber):
        return _layout_of_bits(numbers, argument.rows)[argument.number]
    if isinstance(argument, LayoutArgument):
        index = argument.number.removeprefix("of_")
        told = index == argument.number or index in numbers.structure.mask.indices()
        plain = _LAYOUT[argument.number] if told else 0
        return values.get(f"{argument.number} of {argument.of}", plain)
    return 0


def _layout_of_bits(numbers: Numbers, rows: str) -> dict[str, int]:
    """The strides, in words, of a table with one bit a pair in whole rows, as the host passes them.
    In addition: bits of a row, heads, and words of one head ("member") and of the table ("all").

    It also stands for the layout of bits in tiles, whose inner places the hooks do not see.
    """
    lengths = [numbers.values[name] for name in ("q_len", "kv_len")]
    along, across = lengths if rows == "queries" else lengths[::-1]
    words = -(-across // 256) * 8
    own = numbers.structure.mask.indices()
    batches, heads = (
        numbers.values.get(count, 1) if index in own else 1
        for index, count in (("batch", "batches"), ("head", "heads"))
    )
    member = along * words
    if heads * batches * member > _MOST_WORDS:  # one row is shared by all
        heads, batches, words, member = 1, 1, 0, 0
    of = {"step": words, "of_head": member if heads > 1 else 0}
    of["of_batch"] = member * heads if batches > 1 else 0
    return of | {
        "across": across,
        "heads": heads,
        "member": member,
        "all": batches * heads * member,
    }


def _word_of_bits(numbers: Numbers, at: int, rows: str) -> int:
    """The unsigned 32-bit word at a place of a table of bits, computed from the mask."""
    of = _layout_of_bits(numbers, rows)
    member, at = divmod(at, of["member"])
    (row, word), (batch, head) = divmod(at, of["step"]), divmod(member, of["heads"])
    found = 0
    for column in range(32 * word, min(32 * word + 32, of["across"])):
        pair = (row, column) if rows == "queries" else (column, row)
        found |= numbers.wanted(*pair, batch=batch, head=head) << column - 32 * word
    return found


def _bits_table(numbers: Numbers, rows: str) -> torch.Tensor:
    """The bits of a mask for each batch entry and head, by the formula; other bits are those of
    the number `outside`, or 0."""
    of = _layout_of_bits(numbers, rows)
    if not of["step"]:
        pair = [numbers.values.get(name, 0) for name in ("q_idx", "kv_idx")]
        column = pair[rows == "queries"]
        found = torch.from_numpy(np.zeros(of["across"] // 32 + 2 * PAD, np.int32))
        found[PAD + column // 32] = _signed(int(numbers.wanted(*pair)) << column % 32)
        return found[PAD:]
    size = of["all"]
    found = torch.full((size + 2 * PAD,), numbers.values.get("outside", 0), dtype=torch.int32)
    for at in range(size):
        if at % of["step"] < -(-of["across"] // 32):
            found[PAD + at] = _signed(_word_of_bits(numbers, at, rows))
    return found[PAD:]


def _signed(word: int) -> int:
    return word - (word >> 31 << 32)


# --- PTX -----------------------------------------------------------------------------------------

_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip


def run_ptx(
    assembly: str, constraints: str, operands: Any, dtype: Any, is_pure: Any, pack: Any
) -> Any:
    """In place of `tl.inline_asm_elementwise`: each instruction on registers of bits."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    score = next(iter(operands))
    shape = score.handle.data.shape
    registers: dict[str, Any] = {}
    for at, operand in enumerate(operands, 1):
        data = np.asarray(operand.handle.data if hasattr(operand, "handle") else _plain(operand))
        registers[f"${at}"] = np.broadcast_to(data, shape)
    for statement in filter(None, map(str.strip, str(_plain(assembly)).strip("{} ").split(";"))):
        if not statement.startswith(".reg"):
            name, rest = statement.split(None, 1)
            target, *sources = (part.strip() for part in rest.split(","))
            values = [_register(registers, source) for source in sources]
            registers[target] = np.broadcast_to(_instruction(name, values), shape)
    handle = TensorHandle(registers["$0"].astype(np.float32), tl.float32)
    return tl.tensor(handle, score.type)


def _register(registers: dict[str, Any], name: str) -> Any:
    if name.startswith("0f"):
        return np.float32(struct.unpack(">f", bytes.fromhex(name[2:]))[0])
    return registers[name] if name in registers else np.int64(int(name))


def _instruction(name: str, values: list[Any]) -> Any:
    head, *rest = name.split(".")
    if head == "setp":
        to = np.dtype(f"{'u' if rest[-1][0] == 'u' else ''}int{rest[-1][1:]}")
        found = _SIGNS[rest[0]](*[value.astype(np.int64).astype(to) for value in values[:2]])
        if len(rest) == 2:
            return found
        return found & values[2] if rest[1] == "and" else found | values[2]
    if head in ("add", "sub"):
        left, right = (value.astype(np.int64) for value in values)
        return (left + right if head == "add" else left - right).astype(np.int32)
    if name == "and.b32":
        return values[0].astype(np.int64) & values[1].astype(np.int64)
    if head == "selp":
        return np.where(values[2], values[0], values[1])
    joined = {"and.pred": np.logical_and, "or.pred": np.logical_or, "xor.pred": np.logical_xor,
              "not.pred": np.logical_not, "mov.b32": lambda x: x}  # fmt: skip
    return joined[name](*values)


# --- C++ -----------------------------------------------------------------------------------------


def kept_by_cpp(
    text: str, numbers: Numbers, pairs: list[tuple[int, int]], of_keys: bool
) -> list[bool]:
    """Which pairs a text of C++ hooks keeps."""
    name = "mask_q" if of_keys else "mask_k"
    library = _library(text)
    passed = _addresses(numbers)
    found = []
    place = numbers.values.get("batch", 0), numbers.values.get("head", 0)
    for q, k in pairs:
        scores = (ctypes.c_float * 16)(*[5.0] * 16)
        lane, other = (q, k) if of_keys else (k, q)
        long = ctypes.c_int64
        getattr(library, name)(passed, *map(long, (*place, lane, 16, other, 1)), scores, scores)
        found.append(scores[0] == 5.0)
    return found


def intervals_by_cpp(
    text: str, numbers: Numbers, row: tuple[int, int], touched: int, every: int
) -> Any:
    """Intervals of keys that the hook `bounds` gives a tile: touched, and not full."""
    found = (ctypes.c_int64 * (2 * every))()
    place = numbers.values.get("batch", 0), numbers.values.get("head", 0)
    _library(text).bounds(
        _addresses(numbers), *map(ctypes.c_int64, (*place, *row, numbers.values["kv_len"])), found
    )
    pairs = [(found[2 * i], found[2 * i + 1]) for i in range(every)]
    return pairs[:touched], pairs[touched:], []


def _library(text: str) -> ctypes.CDLL:
    folder = tempfile.mkdtemp(prefix="mutant")
    source, target = Path(folder, "hooks.cpp"), Path(folder, "hooks.so")
    source.write_text(text)
    flags = ["-std=c++17", "-O0", "-fPIC", "-shared", "-fwrapv", "-w"]
    subprocess.run(["c++", *flags, "-o", str(target), str(source)], check=True, capture_output=True)
    return ctypes.CDLL(str(target))


def _addresses(numbers: Numbers) -> Any:
    dtypes = numbers.meaning.dtypes
    passed = _passed(Subject(numbers.structure, dtypes), numbers.meaning)
    row = (ctypes.c_int64 * (max(passed, default=0) + 1))()
    for place, entry in passed.items():
        if isinstance(entry, Array):
            of = re.fullmatch(r"t(\d+)", entry.table.name)
            assert of is not None, "tables of documents"
            row[place] = numbers.of_slot(int(of[1])).data_ptr()
        else:
            row[place] = numbers.value(entry.term)
    return row


# --- apart ---------------------------------------------------------------------------------------


def apart(run: Callable[[], str]) -> str:
    """What a function returns in a process of its own, or "crashed": wrong texts read anywhere."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = run()
        except Exception as problem:
            answer = f"raised {type(problem).__name__}: {problem}"[:300]
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer or "crashed"


assert sys.byteorder == "little"
