"""Tables of intervals on which a walk goes wrong, found by running its text on small ones.

The kernels' functions run as Python, from the source that the proofs read. A stand-in for `tl` has
a few functions of integers, which wrap at 32 bits and divide towards zero.
"""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from ...meaning import NotDefined
from ...reading.triton import Module, kernel_source
from ..loops import first_loop, function_of

MOST_STEPS: Final = 400
BLOCK: Final = 16
TRIED: Final = 400
NO_TILE: Final = 2**30


class Integer(int):
    """An integer of 32 bits, with a kernel's arithmetic."""

    def to(self, _of: object) -> Integer:
        return self


def _wrapped(value: Any) -> Any:
    return value if isinstance(value, bool) else Integer((int(value) + 2**31) % 2**32 - 2**31)


def _operation(name: str) -> Callable[..., Any]:
    return lambda self, *others: _wrapped(getattr(int, name)(self, *map(int, others)))


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "neg", "rshift", "rrshift", "lshift",
              "rlshift"):  # fmt: skip
    setattr(Integer, f"__{_name}__", _operation(f"__{_name}__"))


def _towards_zero(x: Any, c: Any) -> Integer:
    whole = abs(int(x)) // abs(int(c))
    return Integer(whole if (x < 0) == (c < 0) else -whole)


setattr(Integer, "__floordiv__", _towards_zero)  # noqa: B010  mypy knows int's signature
setattr(Integer, "__rfloordiv__", lambda self, x: _towards_zero(x, self))  # noqa: B010


@dataclass(frozen=True)
class Entries:
    """A pointer into a table of integers, `at` entries after the first."""

    of: list[int]
    at: int = 0

    def __add__(self, more: int) -> Entries:
        return Entries(self.of, self.at + int(more))


def _load(entry: Entries, mask: bool = True, other: int = 0) -> Integer:
    if mask and not 0 <= entry.at < len(entry.of):
        raise NotDefined(f"entry {entry.at} is read of a table of {len(entry.of)}")
    return Integer(entry.of[entry.at] if mask else other)


_LANGUAGE: Final = SimpleNamespace(
    where=lambda chosen, then, otherwise: _wrapped(then if chosen else otherwise),
    minimum=lambda x, y: _wrapped(min(x, y)),
    maximum=lambda x, y: _wrapped(max(x, y)),
    cast=lambda x, _of: _wrapped(x),
    load=_load,
    zeros=lambda _shape, _of: Integer(0),
    static_range=range,
    constexpr=lambda x: x,
    tensor=None, tuple=None, int32=None, int64=None,
)  # fmt: skip


class Run(NamedTuple):
    """A run that a walk visits: tiles first, first + step, … below end, and whether masked."""

    first: int
    end: int
    step: int
    masked: bool


def functions(
    name: str,
    sources: dict[str, str] | None = None,
    known: dict[str, Any] | None = None,
    only: Sequence[str] = (),
) -> dict[str, Any]:
    """The functions of a file of kernels (or `only` these), run as Python. `known` has further
    names that they use."""
    text = (sources or {}).get(name) or kernel_source(name)
    names: dict[str, Any] = {
        "triton": SimpleNamespace(jit=_itself), "tl": _LANGUAGE, "NamedTuple": NamedTuple,
        **(known or {}),
    }  # fmt: skip
    tree = ast.parse(text)
    tree.body = [part for part in tree.body if not isinstance(part, (ast.Import, ast.ImportFrom))
                 and (not only or getattr(part, "name", None) in only)]  # fmt: skip
    exec(compile(tree, name, "exec"), names)
    return names


def _itself(*args: Any, **named: Any) -> Any:
    return args[0] if args else lambda function: function


class Row(NamedTuple):
    """A row of tiles: intervals low..high of keys to keep, and of keys that some query drops."""

    touched: tuple[tuple[int, int], ...]
    unfull: tuple[tuple[int, int], ...]
    kv_len: int

    def label(self, tile: int) -> int:
        """0 for an empty tile, 1 for one to be masked, 2 for a full one."""
        keys = range(tile * BLOCK, min((tile + 1) * BLOCK, self.kv_len))
        if not _meet(self.touched, keys):
            return 0
        return 1 if len(keys) < BLOCK or _meet(self.unfull, keys) else 2

    def __str__(self) -> str:
        return (
            f"intervals {_shown(self.touched)} to keep and {_shown(self.unfull)} to drop, of "
            f"{self.kv_len} keys in tiles of {BLOCK}"
        )


def _meet(intervals: tuple[tuple[int, int], ...], keys: range) -> bool:
    return any(low <= key <= high for low, high in intervals for key in keys)


def _shown(intervals: tuple[tuple[int, int], ...]) -> str:
    return ", ".join([f"{low}..{high}" for low, high in intervals]) or "none"


def rows(seed: int = 0) -> Iterator[Row]:
    """Small rows, the same ones each time."""
    drawn = random.Random(seed)

    def intervals(least: int, length: int) -> tuple[tuple[int, int], ...]:
        ends = [drawn.choices((drawn.randrange(-20, length + 20), drawn.randrange(9) * BLOCK), k=2)
                for _ in range(drawn.randint(least, 3))]  # fmt: skip
        return tuple([(low, high - drawn.randint(0, 1)) for low, high in ends])

    for _ in range(TRIED):
        kv_len = drawn.choice((drawn.randint(1, 9 * BLOCK), drawn.randint(1, 9) * BLOCK))
        yield Row(intervals(1, kv_len), intervals(0, kv_len), kv_len)


def wrong_walk(sources: dict[str, str] | None = None) -> str | None:
    """A row on which some walk of the kernels goes wrong, and the error."""
    runs, decode = functions("runs", sources), _decoding(sources)
    for row in rows():
        for told, parts in _walks(runs, decode, row):
            visited: defaultdict[int, list[bool]] = defaultdict(list)
            try:
                for part in parts():
                    for run in part:
                        for tile in range(run.first, min(run.end, MOST_STEPS), run.step):
                            visited[tile].append(run.masked)
            except Endless:
                return f"{told} does not end: {row}"
            wrong = wrong_visits(visited, row.label, row.kv_len // BLOCK)
            if wrong:
                return f"{told} {wrong}: {row}"
    return None


def wrong_visits(
    visits: Mapping[int, Sequence[bool]], label: Callable[[int], int], last: int, of: str = "tile"
) -> str | None:
    """The error of a walk: a tile visited too often or not at all, or not masked.

    Args:
        visits: for each visited tile, whether each visit was masked.
        label: 0 for an empty tile, 1 for one to be masked, 2 for a full one.
        last: the last tile that may have to be visited.
        of: what is visited.
    """
    for at in range(min([*visits, 0]), max([*visits, last]) + 1):
        seen, wanted = visits.get(at, ()), label(at)
        if len(seen) != min(wanted, 1):
            return f"visits {of} {at} {len(seen)} times, not {'once' if wanted else 'never'}"
        if wanted == 1 and not seen[0]:
            return f"does not mask {of} {at}"
    return None


class Endless(Exception):
    """A loop that takes more steps than there are tiles."""


def finder_of(runs: dict[str, Any], row: Row, from_last: int = 0) -> Callable[..., Any]:
    """The hook NEXT_RUN for a row of tiles, counted from the last one if `from_last`."""
    left, kv_len = [MOST_STEPS], Integer(row.kv_len)
    touched, unfull = (
        tuple([runs["tiles"](Integer(low), Integer(high), True, kv_len, BLOCK)
               for low, high in table])
        for table in row[:2]
    )  # fmt: skip

    def next_run(j: Any, *rest: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise Endless
        if not from_last:
            return runs["run_of_spans"](j, touched, unfull, kv_len, BLOCK)
        return runs["run_of_spans_either_way"](j, Integer(1), touched, unfull, kv_len, BLOCK)

    return next_run


def _walks(
    runs: dict[str, Any], decode: Any, row: Row
) -> Iterator[tuple[str, Callable[[], list[list[Run]]]]]:
    """All walks of a row: the name of each, and the runs that each of its programs visits."""
    finder = partial(finder_of, runs, row)

    def visit(state: Any, of: Any, place: Any, first: Any, end: Any, hooks: Any, tile: Any,
              partial: Any, ragged: Any) -> Any:  # fmt: skip
        masked = bool(partial) and bool(ragged)
        found = Run(int(first), int(end), int(getattr(of, "step", 1)), masked)
        return (*state[:-1], [*state[-1], found])

    tile = SimpleNamespace(BLOCK=BLOCK)
    for one_loop in (False, True):

        def over(one_loop: bool = one_loop) -> list[list[Run]]:
            hooks = SimpleNamespace(NEXT_RUN=finder())
            state = runs["over_runs"](visit, ([],), None, None, (), hooks, tile, one_loop)
            return [state[-1]]

        yield f"over_runs in {'one loop' if one_loop else 'two loops'}", over
    for from_last in (0, 1):

        def by_tile(from_last: int = from_last) -> list[list[Run]]:
            return [_tile_by_tile(runs, finder(from_last), row, from_last)]

        yield f"a walk by next_tile, from the {'last' if from_last else 'first'} tile,", by_tile
    for pages in (0, 1):
        for splits in (1, 3):

            def parts(pages: int = pages, splits: int = splits) -> list[list[Run]]:
                found = []
                for split in range(splits):
                    names: dict[str, Any] = defaultdict(lambda: lambda *args: None)
                    names |= {
                        "j": None, "split": Integer(split), "splits": Integer(splits),
                        "PAGE": pages, "NEXT_RUN": finder(), "visit": visit, "acc": 0, "m": 0,
                        "l": [], "tl": _LANGUAGE, "NO_TILE": NO_TILE, "q0": 0, "q1": 0, "zero": 0,
                        "Queries": lambda *args: SimpleNamespace(step=args[-1]),
                        "_next_of_split": decode[1],
                    }  # fmt: skip
                    exec(decode[0], {}, names)
                    found.append(names["l"])
                return found

            yield f"decoding in {splits} parts{' from pages' if pages else ''}", parts


def _tile_by_tile(
    runs: dict[str, Any], next_run: Callable[..., Any], row: Row, from_last: int
) -> list[Run]:
    found = []
    run = runs["first_tile"]((), next_run, BLOCK)
    while run.tile < NO_TILE:
        count = -(-row.kv_len // BLOCK)
        at = count - 1 - run.tile if from_last else run.tile
        found.append(Run(int(at), int(at) + 1, 1, bool(run.partial)))
        run = runs["next_tile"](run, (), next_run, BLOCK)
        if len(found) > MOST_STEPS:
            raise Endless
    return found


def _decoding(sources: dict[str, str] | None) -> tuple[Any, Any]:
    """The loop over a part's tiles, compiled, and the function that finds its next tile."""
    module = Module((sources or {}).get("decode") or kernel_source("decode"), "decode")
    pair = list(first_loop(function_of(module, "sums_of_share")))
    of_part = "_next_of_split"
    found = functions("decode", sources, only=[of_part])[of_part]
    return compile(ast.Module(pair, []), "decode", "exec"), found
