"""Rows of tiles on which a walk of Hopper's kernels goes wrong, found by running its statements.

Only the statements that change `run` or i are run, as Python, with every choice of the kernel's
options.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any, Final

from ...reading.triton import kernel_module
from ..hopper import LOOPS, MOST_STAGES, moves, row_of, tests_of
from ..loops import function_of
from ..runs import Sources
from .intervals import (
    BLOCK,
    MOST_STEPS,
    NO_TILE,
    Endless,
    Row,
    finder_of,
    functions,
    rows,
    wrong_visits,
)

_FIRST: Final = 5  # i at a row's first tile: rows before it had tiles, too


def wrong_walk_of_hopper(sources: Sources | None = None) -> str | None:
    """The first error of a walk of Hopper's kernels, in words; None if no example shows one."""
    told = (*_of_rings(sources), *_of_order(sources))
    return next(iter(told), None) or next(_of_loops(sources), None)


# --- loops ----------------------------------------------------------------------------------------


def _of_loops(sources: Sources | None) -> Iterator[str]:
    runs = functions("runs", sources)
    for file, name in LOOPS:
        module = kernel_module(file, sources)
        body = moves(row_of(function_of(module, name)))
        walk = compile(ast.Module(body, []), file, "exec")
        options = [text for text, of_run in tests_of(body).items() if not of_run]
        for row in rows():
            for choice in product((True, False), repeat=len(options)):
                chosen = dict(zip(options, choice, strict=True))
                try:
                    wrong = _wrong(walk, runs, row, chosen)
                except Endless:
                    wrong = "does not end"
                if wrong:
                    yield f"{file}.{name} {wrong}: {row}"
                    return


def _wrong(walk: Any, runs: dict[str, Any], row: Row, options: dict[str, bool]) -> str | None:
    find = finder_of(runs, row)
    numbers: list[tuple[int, int]] = []

    def turn(i: int, state: list[Any]) -> None:
        numbers.append((i - _FIRST, len(state)))
        if len(numbers) > MOST_STEPS:
            raise Endless

    names = {
        "i": _FIRST, "NO_TILE": NO_TILE, "state": [], "turn": turn,
        "run": runs["first_tile"]((), find, BLOCK),
        "next_tile": lambda run, state: (
            runs["next_tile"](run, (), find, BLOCK), [*state, run]
        ),
        "decided": lambda text, condition: options.get(text, condition),
    }  # fmt: skip
    exec(walk, {}, names)
    turn(names["i"], names["state"])
    for number, count in numbers:
        if number != count:
            return f"counts {number} tiles after {count}"
    masked: dict[int, list[bool]] = {}
    for run in names["state"]:
        masked.setdefault(int(run.tile), []).append(bool(run.partial))
    return wrong_visits(masked, row.label, row.kv_len // BLOCK)


# --- rings, and the order of tiles ----------------------------------------------------------------


def _run(file: str, name: str, sources: Sources | None) -> Any:
    """A function of the kernels, as Python."""
    known = {"gluon": SimpleNamespace(jit=lambda of: of), "gl": SimpleNamespace(constexpr=int)}
    return functions(file, sources, known, [name])[name]


def _of_rings(sources: Sources | None) -> Iterator[str]:
    stage_of = _run("hopper_common", "stage_of", sources)
    for stages in range(1, MOST_STAGES + 1):
        ring = SimpleNamespace(ready=SimpleNamespace(shape=(stages, 1)))
        for i in range(3 * stages):
            if stage_of(ring, i) != (i % stages, i // stages % 2):
                yield (
                    f"of a ring of {stages} stages, tile {i} lies in stage and phase "
                    f"{stage_of(ring, i)}, not {(i % stages, i // stages % 2)}"
                )
    names = ("key_of_tile", "value_of_tile")
    key, value = (_run("hopper_common", name, sources) for name in names)
    one = SimpleNamespace(ONE_RING=True)
    for i in range(4):
        if (key(i, one), value(i, one)) != (2 * i, 2 * i + 1):
            yield f"keys and values of tile {i} are {key(i, one)} and {value(i, one)} of one ring"


def _of_order(sources: Sources | None) -> Iterator[str]:
    tile = _run("hopper_order", "tile_in_order", sources)
    for length, from_last in product(range(1, 400, 3), (0, 1)):
        count = -(-length // 64)
        found = sorted(tile(j, from_last, length, 64) for j in range(count))
        if found != [*range(count)]:
            yield f"visits the tiles {found} of {length} queries in tiles of 64"
