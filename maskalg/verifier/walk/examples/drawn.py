"""Calls that do not compute each row once, found by running the loops of persistent programs.

A producer and two consumers of each program take turns, in random orders. The kernels' own text
changes barriers, places of rows and the counter. Rows have no tiles here, so warps wait only for a
row's queries or keys: two functions, `produce_row` and `consume_row`, replace the body of a row.
"""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import Any, Final

from ...meaning import NotDefined
from ...reading.triton import kernel_module
from ...terms import number, value_of_number
from ..drawn import draw
from ..loops import function_of
from ..runs import Sources

_CONSUMERS: Final = 2
_MOST_ROWS: Final = 7
_ORDERS: Final = 4
_EVERY: Final = (
    (("hopper_common", "produce_keys"), ("hopper_forward", "_consume"), 1),
    (("hopper_common", "produce_keys"), ("hopper_queries", "_consume_keys"), 2),
    (("hopper_keys", "produce_queries"), ("hopper_keys", "_consume_queries"), 2),
)
"""The loops of a producer and of a consumer, and how many rows memory holds."""
_FUNCTIONS: Final = (
    *product(["hopper_rows"], ["memory_of_rows", "draw_row", "row_drawn"]),
    *product(["hopper_common"], ["barriers", "barriers_of", "stage_of", "begin_filling"]),
    *product(["hopper_common"], ["wait_until_filled", "release"]),
)
_WAITING: Final = {
    "mbarrier.wait", "begin_filling", "wait_until_filled", "row_drawn", "_produce_row",
    "_consume_row",
}  # fmt: skip
Waits = Generator[Callable[[], bool], None, Any]
"""Yields conditions, each to be waited for until it is false, and returns a result."""


def wrong_rows(sources: Sources | None = None) -> str | None:
    """The first call that goes wrong, in words; None if none does, or the text cannot be run."""
    order = random.Random(0)
    sizes = [(count, total) for total in range(1, _MOST_ROWS + 1) for count in range(1, total + 1)]
    for producer, consumer, held in _EVERY:
        try:
            texts = _Texts(producer, consumer, held, sources)
            for count, total in sizes * _ORDERS:
                wrong = _Call(texts, count, total).wrong(order)
                if wrong:
                    return f"{'.'.join(consumer)}, {count} programs and {total} rows: {wrong}"
        except (AttributeError, NameError, NotDefined, TypeError):
            return None
    return None


class _Texts:
    """The functions that programs run; functions that may wait are generators."""

    def __init__(
        self, producer: tuple[str, str], consumer: tuple[str, str], held: int,
        sources: Sources | None,
    ) -> None:  # fmt: skip
        named = [*_FUNCTIONS, producer, consumer]
        trees = [function_of(kernel_module(file, sources), name) for file, name in named]
        body = [ast.fix_missing_locations(_Waits().visit(copy.deepcopy(tree))) for tree in trees]
        self.code = compile(ast.Module(body, []), "rows", "exec")
        self.loops, self.held = [producer[1], *[consumer[1]] * _CONSUMERS], held
        self.rows = kernel_module("hopper_rows", sources)
        self.consume_row = function_of(kernel_module(consumer[0], sources), "_consume_row")


class _Waits(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        return ast.YieldFrom(node) if ast.unparse(node.func) in _WAITING else node


class _Wrong(Exception):
    """An error, in words."""


@dataclass
class _Place:
    """A place of memory: a number, or a barrier that completes with each `count` arrivals."""

    value: Any = None
    count: int = 1
    arrived: int = 0

    def store(self, value: Any) -> None:
        self.value = value

    def load(self, _layout: object) -> Any:
        return self.value

    def init(self, count: int) -> None:
        self.count = count

    def arrive(self, count: int) -> None:
        self.arrived += count

    def wait(self, phase: int) -> Waits:
        yield lambda: self.arrived // self.count % 2 == phase


class _Memory:
    """A block of shared memory."""

    def __init__(self, _of: object, shape: list[int], _layout: object) -> None:
        self.shape = shape
        self._places = [_Place() for _ in range(shape[0])]

    def index(self, place: int) -> _Place:
        if not 0 <= place < len(self._places):
            raise _Wrong(f"place {place} of {len(self._places)} is used")
        return self._places[place]


class _Names(SimpleNamespace):
    """A module of Gluon; functions that do not matter for rows return None."""

    def __getattr__(self, _name: str) -> Any:
        return lambda *args, **named: None


class _Call:
    """A launch of `count` programs: the counter, and the rows that each consumer computed."""

    def __init__(self, texts: _Texts, count: int, total: int) -> None:
        self.texts, self.count, self.total = texts, count, total
        self._counter = _Place(0)
        self._computed: list[list[int]] = [[] for _ in range(_CONSUMERS)]

    def wrong(self, order: random.Random) -> str | None:
        """The error if warps take turns in a given order; None if there is none."""
        warps: list[tuple[Waits, Callable[[], bool]]]
        warps = [(warp, bool) for at in range(self.count) for warp in self._warps(at)]
        while warps:
            ready = [at for at, (_, waits) in enumerate(warps) if not waits()]
            if not ready:
                return f"{len(warps)} warps wait for ever"
            warp, _ = warps.pop(order.choice(ready))
            try:
                warps.append((warp, next(warp)))
            except StopIteration:
                continue
            except _Wrong as found:
                return str(found)
        for rows in self._computed:
            if sorted(rows) != list(range(self.total)):
                return f"a consumer computes rows {sorted(rows)}"
        return f"the counter is left at {self._counter.value}" if self._counter.value else None

    def _warps(self, at: int) -> Iterator[Waits]:
        """The producer and the consumers of a program."""
        names: dict[str, Any] = {
            "gl": _Names(
                program_id=lambda _axis: at, num_programs=lambda _axis: self.count, to_tensor=int,
                static_range=range, allocate_shared_memory=_Memory,
                full=lambda _shape, value, *_rest: value, max=lambda value, _axis: value,
            ),
            "mbarrier": _Names(init=_Place.init, arrive=_Place.arrive, wait=_Place.wait),
            "gluon": _Names(jit=lambda function: function), "tma": _Names(),
            "barrier_to_arrive": lambda: None, "_lane": None, "_thread": None,
            "Drawn": lambda *of: SimpleNamespace(counter_ptr=of[0], rows=of[1], ready=of[2]),
            "_PLACES": self.texts.rows.find("_PLACES"), "_drawn": self._drawn,
        }  # fmt: skip
        exec(self.texts.code, names)
        ready, free = names["barriers_of"](self.texts.held, _CONSUMERS)
        held = SimpleNamespace(ready=ready, free=free)
        loaded = _Memory(None, [self.texts.held], None)

        def produce_row(w: int, i: int, done: int, *_: Any) -> Waits:
            place, ready = yield from names["begin_filling"](held, done, 0)
            loaded.index(place).store(w)
            ready.arrive(1)
            return i

        arguments = [arg.arg for arg in self.texts.consume_row.args.args]

        def consume_row(*args: Any) -> Waits:
            of = dict(zip(arguments, args, strict=True))
            place = yield from names["wait_until_filled"](held, of["done"])
            row, computed = of["w"], self._computed[of["C"]]
            if row in computed:
                raise _Wrong(f"row {row} is computed twice")
            if loaded.index(place).value != row:
                raise _Wrong(f"row {row} is computed from row {loaded.index(place).value}")
            computed.append(row)
            names["release"](held.free.index(place))
            result = self.texts.consume_row.body[-1]
            return eval(ast.unparse(result).removeprefix("return "), {}, of)

        names |= {"_produce_row": produce_row, "_consume_row": consume_row}
        call = SimpleNamespace(rows=self.total, batch_heads=1)
        program = SimpleNamespace(call=call, drawn=names["memory_of_rows"](self._counter))
        for number_of, name in enumerate(self.texts.loops):
            consumer = [number_of - 1] if number_of else []
            yield names[name](*consumer, program, SimpleNamespace(PERSISTENT=True))

    def _drawn(self, counter: _Place, total: int) -> int:
        found, after = draw(self.texts.rows, number(counter.value), number(total))
        counter.value = value_of_number(after)
        return value_of_number(found)
