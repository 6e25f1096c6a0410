"""Intervals on which the C++ loop over blocks goes wrong, found by running its text on small ones.

The text runs as Python, in the translation that the proofs read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from operator import invert
from typing import Any, Final, NamedTuple

from ...meaning import NotDefined
from ...reading.braces import CPP_TYPES, python_of
from ..blocks import FILE, NAMES, skeleton
from ..runs import Sources
from .intervals import Row, rows, wrong_visits

_TILE: Final = 48
_BLOCK: Final = 16
_MOST_STEPS: Final = 20_000


class _List(list[int]):
    """A list that counts its uses, and raises an error after too many."""

    used = 0

    def __getitem__(self, place: Any) -> Any:
        self._use(place)
        return super().__getitem__(place)

    def __setitem__(self, place: Any, value: Any) -> None:
        self._use(place)
        super().__setitem__(place, value)

    def _use(self, place: int) -> None:
        self.used += 1
        if self.used > _MOST_STEPS:
            raise NotDefined("does not end")
        if not -2 <= place < len(self):  # `&` computes both sides, where C++ stops at the first
            raise NotDefined(f"reads place {place} of a list of {len(self)}")


class _Spans(NamedTuple):
    touched: int
    unfull: int
    at: _List
    masked: _List


def wrong_blocks(sources: Sources | None = None) -> str | None:
    """A row on which the loop goes wrong, and the error."""
    names: dict[str, Any] = {
        **dict.fromkeys(CPP_TYPES, int), "float": float, "bool": bool, "complement": invert,
        "least": min, "most": max, "address": lambda of, place: place,
    }  # fmt: skip
    exec(python_of((sources or {}).get(FILE) or skeleton(), NAMES), names)
    for row in rows():
        for told, check in (("intervals", _of_intervals), ("runs", _of_runs)):
            try:
                found = next(check(names, row), None)
            except NotDefined as problem:
                found = str(problem)
            if found:
                return f"the C++ loop over {told} {found}: {row}"
    return None


def _of_intervals(names: dict[str, Any], row: Row) -> Iterator[str]:
    def list_of(intervals: tuple[tuple[int, int], ...]) -> tuple[_List, int]:
        at = _List([end for pair in intervals for end in pair])
        return names["clip"](at, len(intervals), row.kv_len), len(intervals)

    def holds(intervals: tuple[tuple[int, int], ...], key: int) -> bool:
        return any(low <= key <= high for low, high in intervals)

    of = partial(holds, row.touched), partial(holds, row.unfull)
    yield from _wrong(names, row, (*list_of(row.touched), *list_of(row.unfull)), of)


def _of_runs(names: dict[str, Any], row: Row) -> Iterator[str]:
    """Errors of `listed` on a row in which each tile is a run."""
    labels = [row.label(tile) for tile in range(-(-row.kv_len // _BLOCK))]
    firsts, ends = _List(range(len(labels))), _List(range(1, len(labels) + 1))
    at, masked = (_List([0] * 2 * len(labels)) for _ in range(2))
    names["listed"](firsts, ends, _List(labels), len(labels), _BLOCK, row.kv_len, at, masked)

    def of_label(chosen: tuple[int, ...], key: int) -> bool:
        return labels[key // _BLOCK] in chosen

    of = partial(of_label, (1, 2)), partial(of_label, (1,))
    yield from _wrong(names, row, (at, len(labels), masked, len(labels)), of)


def _wrong(
    names: dict[str, Any],
    row: Row,
    lists: tuple[_List, int, _List, int],
    of: tuple[Callable[[int], bool], Callable[[int], bool]],
) -> Iterator[str]:
    """Errors of the loop on a row; `of` has the tests whether some query keeps or drops a key."""
    kept, dropped = of
    at, touched, masked, unfull = lists
    (touched, at), (unfull, masked) = names["united"](at, touched), names["united"](masked, unfull)
    spans = _Spans(touched, unfull, at, masked)
    seen: defaultdict[int, list[bool]] = defaultdict(list)

    def visit(state: None, first: int, count: int, is_masked: bool) -> None:
        for key in range(first, first + count):
            seen[key].append(is_masked)

    names["over_blocks"](spans, visit, None)

    def label(key: int) -> int:
        return (1 if dropped(key) else 2) if 0 <= key < row.kv_len and kept(key) else 0

    wrong = wrong_visits(seen, label, row.kv_len, "key")
    if wrong:
        yield wrong
    for first in range(0, row.kv_len, _TILE):
        keys = range(first, min(first + _TILE, row.kv_len))
        if not names["meets"](at, touched, first, keys.stop):
            if any(map(kept, keys)):
                yield f"leaves out the tile of keys from {first} on"
        elif not names["may_drop"](spans, first, keys.stop) and not all(
            kept(key) and not dropped(key) for key in keys
        ):
            yield f"does not mask the tile of keys from {first} on"
