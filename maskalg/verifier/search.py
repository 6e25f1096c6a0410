"""Search for counterexamples: small calls on which kernel text and formula differ.

Both are evaluated at numbers: PTX instruction by instruction, functions of the kernels from their
source. What a host passes besides (factors of divisors, bits of pairs and their layout) is computed
for the call.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import torch

from ..engine.normal_form import Structure
from ..formula.meaning import ends_of_entries
from . import terms
from .meaning import Meaning, NotDefined
from .solve import ANYTHING, Model
from .terms import Term

SECONDS: Final = 1.5
"""Time limit of the search for a claim."""

_CALLS: Final = 12
_MOST_WORDS: Final = 1 << 16

Made = Callable[["Call", int], int]


class Outside(Exception):
    """A read outside of a table made by the host, where memory may hold anything."""


@dataclass(frozen=True)
class Interval:
    """An interval of keys low..high of a kernel's loop; empty unless `some`."""

    low: Term
    high: Term
    some: Term

    def holds(self, key: Term) -> Term:
        """Whether it holds a key."""
        return self.some & (key >= self.low) & (key <= self.high)


class Call:
    """A call: numbers and sizes by name, entries by table and place. Unlisted ones are 0.

    Args:
        structure: the expression's structure.
        dtypes: dtypes of its tables, by slot.
        values: values of variables, by name.
        entries: entries of tables, by the table's name and the place.
        made: functions that compute entries of the tables that the host makes, by table name.
    """

    def __init__(
        self,
        structure: Structure,
        dtypes: dict[int, torch.dtype],
        values: Mapping[str, Any],
        entries: Mapping[tuple[str, int], Any],
        made: Mapping[str, Made] | None = None,
    ) -> None:
        self.structure, self.dtypes, self.values = structure, dtypes, dict(values)
        self.meaning, self.entries = Meaning(dtypes), dict(entries)
        self._made = made or {}
        self._known = {f"t{slot.index}" for slot in structure.tables} | {t for t, _ in self.entries}

    def value(self, term: Term, more: Mapping[str, Any] | None = None) -> Any:
        """The value of a term in this call; `more` has further variables.

        Raises:
            NotDefined: an operation on real numbers, or a table that the call does not have.
        """
        every = {part.data: 0 for part in term.walk() if part.op == "variable"}
        return terms.computed(
            term, {**every, **self.values, **(more or {})}, self._entry, _power_of_two
        )

    def _entry(self, table: terms.Table, at: int) -> Any:
        if table.name == ANYTHING:  # correct text uses none of these
            return 0
        if table.name in self._made:
            return self._made[table.name](self, at)
        if table.name not in self._known:
            raise NotDefined(f"an entry of {table.name[:40]}")
        return self.entries.get((table.name, at), 0)

    def wanted(self, q: int, k: int) -> bool:
        """Whether the mask keeps a pair and key k exists."""
        pair = {"q_idx": q, "kv_idx": k}
        return k < self.values["kv_len"] and bool(
            self.value(self.meaning(self.structure.mask), pair)
        )

    def at(self, **values: int) -> Call:
        """The call with other numbers."""
        return Call(
            self.structure, self.dtypes, {**self.values, **values}, self.entries, self._made
        )

    def model(self, **values: int) -> Model:
        """The call as a counterexample, at these indices."""
        return Model({**self.values, **values}, self.entries)


def tells_apart(structure: Structure, index: str) -> bool:
    """Whether a mask depends on the index "batch" or "head". If not, a table computed from the mask
    has one row for all batch entries or heads (`schedule.rung.Layout`, `kept.BitsLayout`)."""
    return index in structure.mask.indices()


def _power_of_two(name: str, *args: Any) -> int:
    if name != "power of two" or args[0] < 0:
        raise NotDefined(f"{name} of real numbers")
    return int(1 << min(args[0], 128))  # shifts by 128 and by more leave nothing


def layout_of_bits(call: Call, rows: str) -> dict[str, int]:
    """The strides, in words, of a table with one bit a pair in whole rows, as the host passes them.
    In addition: bits of a row, heads, and words of one head ("member") and of the table ("all").

    It also stands for the layout of bits in tiles, whose inner places the hooks do not see.
    """
    lengths = [call.values[name] for name in ("q_len", "kv_len")]
    along, across = lengths if rows == "queries" else lengths[::-1]
    words = -(-across // 256) * 8
    batches, heads = (
        call.values.get(count, 1) if tells_apart(call.structure, index) else 1
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


def word_of_bits(call: Call, at: int, rows: str) -> int:
    """The unsigned 32-bit word at a place of a table of bits, computed from the mask."""
    of = layout_of_bits(call, rows)
    if not 0 <= at < of["all"]:
        raise Outside
    member, at = divmod(at, of["member"])
    (row, word), (batch, head) = divmod(at, of["step"]), divmod(member, of["heads"])
    own, found = call.at(batch=batch, head=head), 0
    for column in range(32 * word, min(32 * word + 32, of["across"])):
        pair = (row, column) if rows == "queries" else (column, row)
        found |= own.wanted(*pair) << column - 32 * word
    return found


def small_calls(
    structure: Structure,
    dtypes: dict[int, torch.dtype],
    known: Sequence[Term],
    count: int = _CALLS,
    made: Mapping[str, Made] | None = None,
    grain: int = 1,
) -> Iterator[Call]:
    """Calls of few positions in which all of `known` holds. Numbers and entries are small, or at
    the ends of their range. If tables are read key by key, `grain` divides the number of keys and
    the length of the tables' rows."""
    drawn, every = random.Random(1), terms.both(*known)
    rows = structure.rows_of_keys
    for _ in range(20 * count):
        keys = drawn.randint(1, 8)
        values = {"q_len": drawn.randint(1, 7), "kv_len": _up(keys, grain) if rows else keys}
        values |= {"batches": 2, "heads": 3}
        values |= {"batch": drawn.randrange(2), "head": drawn.randrange(3)}
        for slot in structure.scalars:
            low = -5 if slot.low is None else slot.low
            some = [low, low + 1, low + 2, 3, 4, 5, 9, 2**31 - 1]
            values[f"n{slot.index}"] = drawn.choice(some)
        entries = {}
        for slot in structure.tables:
            at = [index.data for of, _, index in structure.table_indices if of == slot]
            sizes = [{"batch": 2, "head": 3}.get(str(name), 12) for name in at[: slot.ndim]]
            if slot.index in rows:
                sizes[-1] = _up(sizes[-1], grain)
            values |= {f"size{slot.index}_{axis}": size for axis, size in enumerate(sizes)}
            dtype = dtypes[slot.index]
            if dtype.is_floating_point:
                continue
            ends = ends_of_entries(dtype)
            for place in range(prod(sizes)):
                near = drawn.randint(*(ends if dtype == torch.bool else (-2, 9)))
                entry = near if drawn.random() < 0.8 else drawn.choice(ends)
                entries[f"t{slot.index}", place] = entry
        call = Call(structure, dtypes, values, entries, made)
        if call.value(every, {"q_idx": 0, "kv_idx": 0}):
            count -= 1
            yield call
            if not count:
                return


def _up(number: int, grain: int) -> int:
    """The number rounded up to a multiple of `grain`."""
    return -(-number // grain) * grain


def wrong_pair(
    calls: Iterator[Call],
    host: Callable[[Call], Mapping[str, int]],
    found: Sequence[Term],
    known: Sequence[Term],
    past: int,
) -> Model | None:
    """A call and a pair on which hook and formula differ, or for which the hook reads outside of a
    table; None if none is found in time.

    Args:
        calls: calls to try.
        host: gives the other arguments that the host passes in a call.
        found: terms that must each equal whether the mask keeps the pair.
        known: conditions on pairs of the call.
        past: number of places past the last key to try, too.
    """
    ends = time.perf_counter() + SECONDS
    every = terms.both(*known)
    outside: Model | None = None
    for plain in calls:
        call = plain.at(**host(plain))
        for q in range(call.values["q_len"]):
            for k in range(call.values["kv_len"] + past):
                pair = {"q_idx": q, "kv_idx": k}
                if not call.value(every, pair):
                    continue
                try:
                    kept = {bool(call.value(one, pair)) for one in found}
                except Outside:
                    outside = outside or call.model(**pair)
                    continue
                if kept != {call.wanted(q, k)}:
                    return call.model(**pair)
                if time.perf_counter() > ends:
                    return outside
    return outside


def wrong_bound(
    calls: Iterator[Call],
    host: Callable[[Call], Mapping[str, int]],
    touched: Sequence[Interval],
    unfull: Sequence[Interval],
    asked: Sequence[tuple[Term, Term]],
) -> Model | None:
    """A call and a tile of queries q0..q1 for which intervals leave out a key, or for which the
    hook asks for another row than its own.

    Args:
        calls: calls to try.
        host: gives the other arguments that the host passes in a call.
        touched: intervals that must hold each key that some query keeps.
        unfull: intervals that must hold each visited key that some query drops.
        asked: arguments the hook passes to find its row, each beside the right one.
    """
    ends = time.perf_counter() + SECONDS
    for plain in calls:
        call = plain.at(**host(plain))
        length = call.values["q_len"]
        for q0, q1 in [(a, b) for a in range(length) for b in range(a, length)]:
            tile = {"q0": q0, "q1": q1}
            if any(call.value(one, tile) != call.value(other, tile) for one, other in asked):
                return call.model(**tile, kv_idx=0)
            for k in range(call.values["kv_len"]) if touched else ():
                kept = {call.wanted(q, k) for q in range(q0, q1 + 1)}
                seen, masked = (
                    any(call.value(each.holds(terms.number(k)), tile) for each in intervals)
                    for intervals in (touched, unfull)
                )
                if (True in kept and not seen) or (seen and False in kept and not masked):
                    return call.model(**tile, kv_idx=k)
                if time.perf_counter() > ends:
                    return None
    return None
