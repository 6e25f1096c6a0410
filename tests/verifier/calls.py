"""Calls of an expression: numbers, entries of tables, and the formula's answer for a pair."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import torch

from maskalg.engine.normal_form import Structure
from maskalg.formula.meaning import ends_of_entries
from maskalg.verifier import terms
from maskalg.verifier.meaning import Meaning, NotDefined, step_table
from maskalg.verifier.solve import ANYTHING
from maskalg.verifier.terms import Term

PAD = 4096
"""Entries on each side of a table, for texts that read past its ends."""


class Numbers:
    """A call: numbers and sizes by name, entries by table and place. Unlisted ones are 0.

    Args:
        structure: the expression's structure.
        dtypes: dtypes of its tables, by slot.
        values: values of variables, by name.
        entries: entries of tables, by the table's name and the place.
    """

    def __init__(
        self,
        structure: Structure,
        dtypes: dict[int, torch.dtype],
        values: Mapping[str, Any],
        entries: Mapping[tuple[str, int], Any],
    ) -> None:
        self.structure, self.dtypes, self.values = structure, dtypes, dict(values)
        self.meaning, self.entries = Meaning(dtypes), dict(entries)
        self._known = {f"t{slot.index}" for slot in structure.tables} | {t for t, _ in self.entries}

    def value(self, term: Term, more: Mapping[str, Any] | None = None) -> Any:
        """The value of a term in this call; `more` has further variables.

        Raises:
            NotDefined: an operation on real numbers, or a table that the call does not have.
        """
        every = {part.data: 0 for part in term.walk() if part.op == "variable"}
        values = {**every, **self.values, **(more or {})}
        return terms.computed(term, values, self._entry, _of_reals)

    def _entry(self, table: terms.Table, at: int) -> Any:
        if table.name == ANYTHING:  # a formula uses none of these
            return 0
        if table.name not in self._known:
            raise NotDefined(f"an entry of {table.name[:40]}")
        return self.entries.get((table.name, at), 0)

    def wanted(self, q: int, k: int, **member: int) -> bool:
        """Whether key k exists and the mask keeps the pair, in the batch entry and head of the call
        or of `member`."""
        pair = {"q_idx": q, "kv_idx": k, **member}
        return k < self.values["kv_len"] and bool(
            self.value(self.meaning(self.structure.mask), pair)
        )

    @cached_property
    def tables(self) -> dict[Any, torch.Tensor]:
        return {}

    def table(self, name: str, dtype: torch.dtype, size: int) -> torch.Tensor:
        """The entries of a table, which begin behind `PAD` others."""
        if name not in self.tables:
            if size > 2**31:
                raise MemoryError(f"a table of {size} entries")
            # NumPy's zeros take no memory before they are written.
            of = np.dtype(str(dtype).removeprefix("torch."))
            found = torch.from_numpy(np.zeros(size + 2 * PAD, of))
            for (table, at), entry in self.entries.items():
                if table == name and -PAD <= at < size + PAD:
                    found[at + PAD] = entry
            self.tables[name] = found[PAD:]
        return self.tables[name]

    def of_slot(self, index: int) -> torch.Tensor:
        slot = self.structure.slots[index]
        sizes = [self.values.get(f"size{index}_{axis}", 1) for axis in range(slot.ndim)]
        return self.table(f"t{index}", self.dtypes[index], prod(sizes))

    def of_step(self, name: str, q_slot: Any, kv_slot: Any) -> torch.Tensor:
        sizes = [self.values.get(f"size{s.index}_{axis}", 1)
                 for s in (q_slot, kv_slot) for axis in range(s.ndim)]  # fmt: skip
        return self.table(step_table(name, q_slot, kv_slot).name, torch.int32, prod(sizes) + 1)


def _of_reals(name: str, *args: object) -> Any:
    raise NotDefined(f"{name} of real numbers")


def small_calls(
    structure: Structure, dtypes: dict[int, torch.dtype], known: Sequence[Term], count: int
) -> Iterator[Numbers]:
    """Calls of few positions in which all of `known` holds. Numbers and entries are small, or at
    the ends of their range."""
    drawn, every = random.Random(1), terms.both(*known)
    for _ in range(20 * count):
        values = {"kv_len": drawn.randint(1, 8), "q_len": drawn.randint(1, 7)}
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
            values |= {f"size{slot.index}_{axis}": size for axis, size in enumerate(sizes)}
            dtype = dtypes[slot.index]
            if dtype.is_floating_point:
                continue
            ends = ends_of_entries(dtype)
            for place in range(prod(sizes)):
                near = drawn.randint(*(ends if dtype == torch.bool else (-2, 9)))
                entry = near if drawn.random() < 0.8 else drawn.choice(ends)
                entries[f"t{slot.index}", place] = entry
        call = Numbers(structure, dtypes, values, entries)
        if call.value(every, {"q_idx": 0, "kv_idx": 0}):
            count -= 1
            yield call
            if not count:
                return
