"""The runs of one call, compared with the formula for every pair of the call.

Runs that follow from closed forms are proved for every call (`verifier/claims.py`). For other masks
the host labels tiles, by digits of positions or from summaries of tensors, and kernels look up
runs in these labels. They are checked here for one call: the text of the kernels is run on the
labels (`running`), and each tile that it visits, leaves out or does not mask is compared with the
elements of the formula. So are the runs of keys that the CPU loop gets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, cast

import torch

from ...backends.cpu.native import launch as on_cpus
from ...codegen.hooks import Style, hooks_of
from ...engine.evaluate import Environment, evaluate
from ...engine.extents import Extents, Lengths, resolve
from ...engine.normal_form import Bound
from ...errors.kinds import MaskalgError
from ...schedule.intervals.steps import tables_of_slots
from ...schedule.rung import layout_of, marked_runs
from ...schedule.tile_runs import FULL
from ...schedule.tiling import Of
from .. import terms
from ..claims import KERNELS, Claim, Target, subject_of
from ..elements import Bounds, TritonHooks
from ..meaning import Meaning, NotDefined, of_float32
from ..solve import ANYTHING
from .running import NO_TILE, Entries, Integer, functions
from .runs import Sources

_ROWS: Final = 128
_COLUMNS: Final = 64
_HOOKS: Final[tuple[tuple[str, Of], ...]] = (
    ("next_run", "queries"),
    ("next_run_of_keys", "keys"),
    ("next_run_either_way_of_keys", "keys, either way"),
)
_INDICES: Final = ("batch", "head", "q_idx", "kv_idx")
_LENGTH: Final = 512


def extents_of(form: Bound, length: int | None) -> Extents:
    """A call of `length` queries and keys; if None, of as many as the tensors are made for."""
    sizes: dict[str, list[int]] = {"q_idx": [], "kv_idx": [], "batch": [], "head": []}
    for slot, axis, index in form.structure.table_indices:
        if index.op == "index":
            tensor = cast(torch.Tensor, form.values[slot.index])
            sizes[str(index.data)].append(tensor.shape[axis])
    counts = [max(sizes[name], default=2 if form.structure.depends_on(name) else 1)
              for name in ("batch", "head")]  # fmt: skip
    if length is not None:
        return resolve(form, Lengths(length, length, *counts))
    lengths = [min(sizes[name], default=_LENGTH) for name in ("q_idx", "kv_idx")]
    while True:
        try:
            return resolve(form, Lengths(*lengths, *counts))
        except MaskalgError:  # a tensor that is read at another place than a query's or a key's
            if max(lengths) <= 1:
                raise
            lengths = [max(each * 2 // 3, 1) for each in lengths]


def claims_of_call(
    form: Bound,
    length: int | None = None,
    targets: Sequence[Target] = KERNELS,
    *,
    looked_up_only: bool = False,
    sources: Sources | None = None,
) -> Iterator[Claim]:
    """Claims that the runs of a call hold every kept pair once, and FULL runs only kept pairs.

    Args:
        form: an expression with its numbers and tensors.
        length: queries and keys of the call; None for as many as its tensors have.
        targets: the kernels whose runs are checked.
        looked_up_only: leave out runs that are proved for every call.
        sources: texts in place of files of the kernels, by name.
    """
    try:
        call = _Call(form, extents_of(form, length), sources)
        checks = list(call.checks(targets, looked_up_only))
    except (MaskalgError, NotDefined) as problem:
        yield Claim("runs", "runs of a call", "not proved", str(problem), 0.0)
        return
    for name, wrong in checks:
        began = time.perf_counter()
        text = f"{name}, a call of {call.extents.q_len} queries and {call.extents.kv_len} keys"
        try:
            found = wrong()
        except NotDefined as problem:
            found = str(problem)
        outcome, by = ("wrong", found) if found else ("proved", "compared with every pair")
        yield Claim("runs", text, outcome, by, time.perf_counter() - began)  # type: ignore[arg-type]


@dataclass
class _Call:
    """A call: the value of its formula for every pair, and the runs of its kernels."""

    form: Bound
    extents: Extents
    sources: Sources | None = None

    def __post_init__(self) -> None:
        extents, mask = self.extents, self.form.structure.mask
        whole = (extents.batch, extents.heads, extents.q_len, extents.kv_len)
        indices = {
            name: torch.arange(size).view([size if axis == own else 1 for own in range(4)])
            for axis, (name, size) in enumerate(zip(_INDICES, whole, strict=True))
        }
        kept = evaluate(mask, Environment(indices, self.form.values))
        self.kept = torch.as_tensor(kept).cpu().expand(whole)
        self._subject = subject_of(self.form)
        self._runs = functions("runs", self.sources)

    @cached_property
    def _read(self) -> TritonHooks:
        structure = self._subject.structure
        hooks = hooks_of(structure, Style(wide=True, far=True), backward=True)
        return TritonHooks(structure, hooks, Meaning(self._subject.dtypes), wide=True)

    def checks(
        self, targets: Sequence[Target], looked_up_only: bool
    ) -> Iterator[tuple[str, Callable[[], str | None]]]:
        """Names of the hooks that find runs, each with a function for the error in its runs."""
        for name, of in _HOOKS if set(targets) - {"cpu"} else ():
            bounds = self._read.bounds(name)
            if bounds.looked_up or not looked_up_only:
                yield name, partial(self._wrong, bounds, of)
        if "cpu" in targets:
            hooks = self._subject.cpp
            if hooks is None or not hooks.bounded or not looked_up_only:
                yield "runs of keys, CPUs", self._wrong_on_cpus

    def _wrong(self, bounds: Bounds, of: Of) -> str | None:
        kept = self.kept if of == "queries" else self.kept.mT
        rows, columns = kept.shape[2:]
        for from_last in (0, 1) if of == "keys, either way" else (0,):
            runs = self._finder(bounds, of, from_last, columns)
            for batch in range(kept.shape[0]):
                for head in range(kept.shape[1]):
                    for first in range(0, rows, _ROWS):
                        row = kept[batch, head, first : first + _ROWS]
                        labels = _labels(runs(batch, head, first, first + len(row) - 1), columns)
                        if from_last:
                            labels = labels.flip(0)
                        wrong = _differs(labels, row)
                        if wrong is not None:
                            index = "query" if of == "queries" else "key"
                            return f"batch {batch}, head {head}, from {index} {first}: {wrong}"
        return None

    def _finder(
        self, bounds: Bounds, of: Of, from_last: int, columns: int
    ) -> Callable[..., Iterator[tuple[int, int, bool]]]:
        """A function that runs the kernels' text and gives the runs of a row of tiles."""
        layout = layout_of(self.form, self.extents, of)
        marks: Any = None
        if bounds.looked_up:
            table = marked_runs(self.form, self.extents, of, torch.device("cpu"))
            marks = Entries(table.flatten().tolist())
        length = Integer(columns)

        def found(batch: int, head: int, first: int, last: int) -> Iterator[tuple[int, int, bool]]:
            place = {"q0": first, "q1": last, "batch": batch, "head": head, "kv_len": columns}
            spans = [
                tuple([self._runs["tiles"](*self._numbers(each, place), length, _COLUMNS)
                       for each in side])
                for side in (bounds.touched, bounds.unfull)
            ]  # fmt: skip
            at = Integer(batch * layout.of_batch + head * layout.of_head)
            grain = Integer(layout.grain_bits)
            told: tuple[Any, ...] = (Integer(first), Integer(last), marks, at, grain)
            if bounds.function in ("run_of_spans", "run_of_spans_either_way"):
                told = tuple(spans)
            elif bounds.function == "run_of_spans_and_marks":
                told = (*spans, *told)
            if of == "keys, either way":
                told = (Integer(from_last), *told)
            j = Integer(0)
            while j < NO_TILE:
                begin, end, masked = self._runs[bounds.function](j, *told, length, _COLUMNS)
                if begin < NO_TILE:
                    yield int(begin), int(end), bool(masked)
                if end <= j:
                    raise NotDefined(f"a run from tile {j} on that ends before it")
                j = end

        return found

    def _numbers(self, interval: Any, place: dict[str, int]) -> tuple[Any, ...]:
        values: dict[str, Any] = dict(place)
        for slot, value in zip(self.form.structure.slots, self.form.values, strict=True):
            if isinstance(value, torch.Tensor):
                sizes = enumerate(value.shape)
                values |= {f"size{slot.index}_{axis}": size for axis, size in sizes}
            else:
                values[f"n{slot.index}"] = value
        found = [terms.computed(each, values, self._entry, of_float32)
                 for each in (interval.low, interval.high, interval.some)]  # fmt: skip
        # Past the ends of 32 bits is past all keys.
        low, high = (Integer(max(-(2**30), min(2**30, each))) for each in found[:2])
        return low, high, bool(found[2])

    def _entry(self, table: terms.Table, at: int) -> terms.Value:
        if table.name == ANYTHING:
            return 0
        name, _, pair = table.name.partition(" of ")
        slots = [int(each.strip().removeprefix("t")) for each in (pair or name).split(",")]
        if pair:
            both = [self.form.structure.slots[slot] for slot in slots]
            entries = tables_of_slots(both[0], both[1], self.form.values).named(name)
        else:
            entries = cast(torch.Tensor, self.form.values[slots[0]])
        return entries.flatten()[at].item()

    def _wrong_on_cpus(self) -> str | None:
        runs = on_cpus.runs_of(self.form, self.extents)
        tile, width = on_cpus.TILE, on_cpus.RUN_KEYS
        for batch in range(self.kept.shape[0]):
            for head in range(self.kept.shape[1]):
                for number in range(-(-self.kept.shape[2] // tile)):
                    row = self.kept[batch, head, number * tile : (number + 1) * tile]
                    own = runs.row(batch, head, number)
                    told = [(run.first, run.end, run.label != FULL) for run in own]
                    labels = _labels(iter(told), row.shape[1], width)
                    wrong = _differs(labels, row, width, cut=False)
                    if wrong is not None:
                        return f"batch {batch}, head {head}, from query {number * tile}: {wrong}"
        return None


def _labels(
    runs: Iterator[tuple[int, int, bool]], columns: int, width: int = _COLUMNS
) -> torch.Tensor:
    """How often each tile is visited, and how often without its mask, `[tiles, 2]`."""
    found = torch.zeros(-(-columns // width), 2, dtype=torch.int64)
    for begin, end, masked in runs:
        if not 0 <= begin < end <= len(found):
            return torch.full_like(found, -1)
        found[begin:end, 0] += 1
        found[begin:end, 1] += int(not masked)
    return found


def _differs(
    labels: torch.Tensor, row: torch.Tensor, width: int = _COLUMNS, cut: bool = True
) -> str | None:
    """A tile visited twice, left out with a kept pair, or not masked with a dropped pair."""
    missing = -row.shape[1] % width
    kept = torch.nn.functional.pad(row, (0, missing)).unflatten(1, (-1, width))
    some, every = kept.any(-1).any(0), kept.all(-1).all(0)
    if missing and not cut:
        every[-1] = bool(row[:, -(width - missing) :].all())
    for tile, (visits, bare) in enumerate(labels.tolist()):
        if visits not in (0, 1):
            return f"tile {tile} is visited {visits} times"
        if not visits and some[tile]:
            return f"tile {tile} has a kept pair and is not visited"
        if bare and not every[tile]:
            return f"tile {tile} has a pair to drop and is not masked"
    return None
