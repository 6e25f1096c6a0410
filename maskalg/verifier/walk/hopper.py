"""The walk of Hopper's kernels: each group of warps goes over the runs of a row, tile by tile.

One group of warps loads, others compute. Each begins with `first_tile`, goes on with `next_tile` of
the same row, and counts tiles in i, which says where in shared memory a tile lies. So the i-th tile
that is loaded is the i-th that is computed. The proofs show that each loop visits every touched
tile once and no other, that i counts tiles, and that tiles in shared memory at the same time do not
overlap. Trusted, because not read: the barriers between groups, the asynchronous copies and the
products.
"""

from __future__ import annotations

import ast
from functools import partial
from itertools import product
from typing import Final, NamedTuple

from .. import terms
from ..given import between
from ..meaning import NotDefined
from ..reading.triton import as_number, kernel_module
from ..reading.values import BOOL, INT32, Number
from ..terms import Term, number
from .loops import Proof, Walker, function_of
from .runs import NO_TILE, TILE, TOUCHED, UNFULL, about_tiles, conditions

LOOPS: Final = (
    ("hopper_common", "_produce_row"), ("hopper_forward", "_consume_row"),
    ("hopper_gradients", "_consume"), ("hopper_keys", "_produce_row"),
    ("hopper_keys", "_consume_row"), ("hopper_queries", "_consume_row"),
    ("hopper_wide_keys", "_make_values"), ("hopper_wide_keys", "_make_keys"),
    ("hopper_sums", "sum_up"),
)  # fmt: skip
MOST_STAGES: Final = 8


class _State(NamedTuple):
    """The state of a walk: its run, i, visits to tile t, and whether one had no mask."""

    tile: Term
    end: Term
    partial: Term
    i: Term
    visits: Term
    bare: Term

    @property
    def run(self) -> tuple[Number, Number, Number]:
        return Number(self.tile, INT32), Number(self.end, INT32), Number(self.partial, BOOL)


class _Walk:
    """Reads the statements of a function that change `run` or i, and skips all others."""

    def __init__(self, walker: Walker) -> None:
        self.walker = about_tiles(walker)
        self.first = self.walker.fresh("i").term

    def unknown(self) -> _State:
        fresh = self.walker.fresh
        counts = [fresh(name).term for name in ("tile", "end", "i", "visits")]
        flags = [fresh(name, BOOL).term for name in ("partial", "bare")]
        return _State(counts[0], counts[1], flags[0], counts[2], counts[3], flags[1])

    def invariant(self, state: _State, turns: Term) -> Term:
        """Touched tiles before the run are visited, what is left is a run, and i counts turns."""
        done = TOUCHED & (state.tile > TILE)
        return terms.both(
            state.tile >= 0,
            *conditions(state.tile, state.run, TOUCHED, UNFULL, TILE).values(),
            terms.equal(state.visits, terms.choice(done, number(1), number(0))),
            ~state.bare | ~UNFULL,
            terms.equal(state.i, self.first + turns),
        )

    def begun(self) -> _State:
        state = self.unknown()._replace(i=self.first, visits=number(0), bare=terms.FALSE)
        self.walker.given += conditions(number(0), state.run, TOUCHED, UNFULL, TILE).values()
        return state

    def after(self, state: _State) -> _State:
        """The state after a tile was visited and `next_tile` (`runs.next_tile`) was called."""
        self.walker.claim("a tile is gone over only if there is one", state.tile < NO_TILE)
        mine = terms.equal(state.tile, TILE)
        new = self.unknown()._replace(
            i=state.i,
            visits=state.visits + terms.choice(mine, number(1), number(0)),
            bare=state.bare | (mine & ~state.partial),
        )
        follows = state.tile + 1
        self.walker.given += conditions(follows, new.run, TOUCHED, UNFULL, TILE).values()
        return new

    def read(self, body: list[ast.stmt], state: _State, options: dict[str, bool]) -> _State:
        """The state after statements."""
        for statement in body:
            text = ast.unparse(statement)
            if isinstance(statement, ast.Assign) and text.startswith("run = next_tile(run, span, "):
                state = self.after(state)
            elif isinstance(statement, ast.AugAssign) and ast.unparse(statement.target) == "i":
                if text != "i += 1":
                    raise NotDefined(f"the step {text!r}")
                state = state._replace(i=state.i + 1)
            elif isinstance(statement, ast.While) and of_run(statement.test):
                state = self.loop(statement, state, options)
            elif isinstance(statement, ast.If) and moves_walk(statement):
                state = self.branch(statement, state, options)
            elif moves_walk(statement):
                raise NotDefined(f"the statement {text.splitlines()[0]!r}")
        return state

    def branch(self, statement: ast.If, state: _State, options: dict[str, bool]) -> _State:
        """The state after the branch of an `if` that `options` chooses (`_loops` tries all)."""
        chosen = options.setdefault(ast.unparse(statement.test), True)
        if of_run(statement.test):
            more = self.holds(statement.test, state)
            self.walker.given.append(more if chosen else ~more)
        return self.read(statement.body if chosen else statement.orelse, state, options)

    def holds(self, test: ast.expr, state: _State) -> Term:
        """A condition on the run."""
        run = kernel_module("runs").find("Run").of(state.run)
        return as_number(self.walker.reader.evaluated(test, {"run": run})).as_condition

    def loop(self, loop: ast.While, state: _State, options: dict[str, bool]) -> _State:
        turns = state.i - self.first
        self.walker.claim("the walk is begun", self.invariant(state, turns))
        known = list(self.walker.given)
        state = self.unknown()
        turns = terms.variable("turns")
        self.walker.given += [*between(0, turns, 2**30), self.invariant(state, turns)]
        more = self.holds(loop.test, state)
        self.walker.given += [*between(0, state.i, 2**30), more]
        new = self.read(loop.body, state, options)
        following = self.invariant(new, turns + 1)
        self.walker.claim("a turn goes on by one tile", following)
        self.walker.claim("the walk ends", new.tile > state.tile)
        self.walker.given = [*known, self.invariant(state, turns), ~more]
        return state


def of_run(test: ast.expr) -> bool:
    """Whether a condition reads the run."""
    return any(isinstance(part, ast.Name) and part.id == "run" for part in ast.walk(test))


def moves_walk(statement: ast.stmt) -> bool:
    """Whether a statement changes the run or i, or leaves the loop."""
    return any(
        (isinstance(part, ast.Name) and part.id in ("run", "i") and isinstance(part.ctx, ast.Store))
        or isinstance(part, (ast.Return, ast.Break, ast.Continue))
        for part in ast.walk(statement)
    )


def _loops(name: str, walker: Walker) -> None:
    body = row_of(function_of(walker.reader.module, name))
    tests: dict[str, bool] = {}
    seen: list[dict[str, bool]] = []
    # Every choice of options, and of whether a row has a tile at all.
    while True:
        for choice in product((True, False), repeat=len(tests)):
            options = dict(zip(tests, choice, strict=True))
            if options in seen:
                continue
            seen.append(dict(options))
            walk = _Walk(walker.again())
            state = walk.read(body[1:], walk.begun(), options)
            done = terms.choice(TOUCHED, number(1), number(0))
            walk.walker.claim("every touched tile once", terms.equal(state.visits, done))
            bare = ~state.bare | ~UNFULL
            walk.walker.claim("none without a mask that needs it", bare)
            if set(options) != set(tests):
                tests = options
                break
        else:
            return


def row_of(tree: ast.FunctionDef) -> list[ast.stmt]:
    """The statements about one row of tiles: from `run = first_tile(…)` on."""
    for part in ast.walk(tree):
        body = getattr(part, "body", None)
        for place, statement in enumerate(body if isinstance(body, list) else []):
            if ast.unparse(statement).startswith("run = first_tile(span, "):
                behind: list[ast.stmt] = body[place:]  # type: ignore[index]
                ends = [n for n, each in enumerate(behind) if isinstance(each, ast.Return)]
                return behind[: ends[0]] if ends else behind
    raise NotDefined(f"a walk in {tree.name}")


class _Shaped(NamedTuple):
    shape: tuple[int, ...]


class _RingOf(NamedTuple):
    ready: _Shaped


class _Options(NamedTuple):
    ONE_RING: bool


def _ring(walker: Walker) -> None:
    i = walker.unknown("i", 0, 2**29).term

    def at(place: Term, stages: int) -> tuple[Term, Term]:
        ring = _RingOf(_Shaped((stages, 1)))
        stage, phase = walker.call("stage_of", ring, Number(place, INT32))
        return stage.term, phase.term

    for stages in range(1, MOST_STAGES + 1):
        stage, phase = at(i, stages)
        walker.claim("a stage is one of the ring's", terms.both(*between(0, stage, stages - 1)))
        for more in range(1, stages):
            other, _ = at(i + more, stages)
            walker.claim("tiles lie apart", ~terms.equal(stage, other))
        again, turned = at(i + stages, stages)
        walker.claim("a stage returns", terms.equal(stage, again))
        walker.claim("its phase turns", terms.equal(phase + turned, number(1)))
    one = _Options(True)
    key, value = (
        [walker.call(f"{name}_of_tile", Number(i + more, INT32), one).term for more in (0, 1)]
        for name in ("key", "value")
    )
    walker.claim("values follow their keys", terms.equal(value[0], key[0] + 1))
    walker.claim("keys follow values", terms.equal(key[1], value[0] + 1))


def _order(walker: Walker) -> None:
    j, length = walker.unknown("j", 0, 2**28), walker.unknown("q_len", 1, 2**30)
    for block in (64, 128):
        for from_last in (0, 1):
            end = Number(number(from_last), INT32)
            found = walker.call("tile_in_order", j, end, length, block).term
            last = (length.term - 1) // block
            wanted = last - j.term if from_last else j.term
            walker.claim("the tile", terms.equal(found, wanted))


LEMMAS: Final[tuple[Proof, ...]] = (
    *((f"{file}.{name}", "each touched tile is visited once, no other is, and i counts them",
       partial(_loops, name)) for file, name in LOOPS),
    ("hopper_common.stage_of",
     "tiles in memory together lie in different stages, which are reused in turn", _ring),
    ("hopper_order.tile_in_order", "gives the j-th tile from the first, or from the last", _order),
)  # fmt: skip
