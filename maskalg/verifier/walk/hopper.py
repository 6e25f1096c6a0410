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
from typing import Any, Final

from .. import terms
from ..given import between
from ..meaning import NotDefined
from ..reading.triton import Record, kernel_module
from ..reading.values import INT32, Number
from ..terms import Term, number
from .loops import Proof, Walker, function_of
from .runs import (
    NO_TILE,
    NOTHING,
    OF_TILE,
    about_tiles,
    any_run,
    claim_visited,
    count_visits,
    is_run,
    visit,
)

_LOOPS: Final = (
    ("hopper_common", "_produce_row"), ("hopper_forward", "_consume_row"),
    ("hopper_gradients", "_consume"), ("hopper_keys", "_produce_row"),
    ("hopper_keys", "_consume_row"), ("hopper_queries", "_consume_row"),
    ("hopper_wide_keys", "_make_values"), ("hopper_wide_keys", "_make_keys"),
    ("hopper_sums", "sum_up"),
)  # fmt: skip
_MOST_STAGES: Final = 8


_INVARIANTS: Final = (
    "(0 <= turns(state)) & (turns(state) <= run.tile)", "i == begin + turns(state)",
    "is_run(run.tile, run.end, run.partial)", "visits(state) == (touched & (t < run.tile))",
    "implies(unmasked(state), ~unfull)",
)  # fmt: skip
"""i counts turns, what is left is a run, and touched tiles before it are visited."""


def _moves_of_row(row: list[ast.stmt]) -> list[ast.stmt]:
    """The statements behind `run = first_tile(…)` that change `run` or i; all others are left out.

    `run, state = next_tile(run, state)` counts visits in a state, `decided(text, condition)` stands
    for a condition (None for one that does not read the run), and `turn(i, state)` begins a turn.
    """
    begin, *body = row
    call = begin.value if isinstance(begin, ast.Assign) else None
    if not isinstance(call, ast.Call) or ast.unparse(call.func) != "first_tile":
        raise NotDefined(f"the beginning {ast.unparse(begin)!r}")
    args = ", ".join(map(ast.unparse, call.args))
    read = set().union(*map(_names, call.args))
    parts = [part for statement in body for part in ast.walk(statement)]
    stored = {p.id for p in parts if isinstance(p, ast.Name) and isinstance(p.ctx, ast.Store)}
    if stored & read:
        raise NotDefined(f"others of {sorted(stored & read)} within a row")
    found = _moves_of(body, f"run = next_tile(run, {args})")
    # A condition holds or not throughout a row, but those on the run, each of which stands once.
    texts = [text for text, _ in _tests(found)]
    for text in texts:
        changes = _names(ast.parse(text)) & stored
        if changes - {"run"} or (changes and texts.count(text) > 1):
            raise NotDefined(f"the condition {text!r} on what changes")
    return found


def _moves_of(body: list[ast.stmt], goes_on: str) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    for statement in filter(_moves, body):
        new: ast.stmt = statement
        if isinstance(statement, ast.While):
            (turn,) = ast.parse("turn(i, state)").body
            new = ast.While(statement.test, [turn, *_moves_of(statement.body, goes_on)], [])
        elif isinstance(statement, ast.If):
            (new,) = ast.parse("if decided(None, None): pass").body
            assert isinstance(new, ast.If) and isinstance(new.test, ast.Call)
            test = statement.test
            new.test.args = [ast.Constant(ast.unparse(test)), test if _reads(test) else _NONE]
            new.body = _moves_of(statement.body, goes_on) or new.body
            new.orelse = _moves_of(statement.orelse, goes_on)
        elif ast.unparse(statement) == goes_on:
            (new,) = ast.parse("run, state = next_tile(run, state)").body
        elif _names(statement) - {"run", "i"}:
            raise NotDefined(f"the statement {ast.unparse(statement).splitlines()[0]!r}")
        found.append(ast.fix_missing_locations(ast.copy_location(new, statement)))
    return found


_NONE: Final = ast.Constant(None)


def _tests(body: list[ast.stmt]) -> list[tuple[str, ast.expr]]:
    """The conditions of `_moves_of_row`: the text of each, and what `decided` is told."""
    every = [part for statement in body for part in ast.walk(statement) if isinstance(part, ast.If)]
    told = [part.test.args for part in every if isinstance(part.test, ast.Call)]
    return [(str(text.value), test) for text, test in told if isinstance(text, ast.Constant)]


def _names(of: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(of) if isinstance(part, ast.Name)}


def _reads(test: ast.expr) -> bool:
    return "run" in _names(test)


def _moves(statement: ast.stmt) -> bool:
    """Whether a statement changes the run or i, or leaves the loop."""
    return any(
        (isinstance(part, ast.Name) and part.id in ("run", "i") and isinstance(part.ctx, ast.Store))
        or isinstance(part, (ast.Return, ast.Break, ast.Continue))
        for part in ast.walk(statement)
    )


def _loops(name: str, walker: Walker) -> None:
    body = _moves_of_row(_row_of(function_of(walker.reader.module, name)))
    # Every choice of options, and of whether a row has a tile at all.
    texts = sorted({text for text, _ in _tests(body)})
    for choice in product((True, False), repeat=len(texts)):
        _walk(body, dict(zip(texts, choice, strict=True)), walker.again())


def _walk(body: list[ast.stmt], options: dict[str, bool], walker: Walker) -> None:
    """Proof steps for a row, if its conditions hold as in `options`."""
    run_of = kernel_module("runs").find("Run").of
    count_visits(about_tiles(walker))
    walker.names |= OF_TILE

    def decided(text: str, condition: Number | None) -> bool:
        if condition is not None:
            holds = condition.as_condition
            walker.given.append(holds if options[text] else ~holds)
        return options[text]

    def next_tile(run: Any, state: Any) -> Any:
        walker.claim("a tile is gone over only if there is one", run.tile.term < NO_TILE)
        after = Number(run.tile.term + 1, INT32)
        state = visit(state, None, None, run.tile, after, None, None, run.partial)
        *counts, turns = state
        return run_of(any_run(walker, after.term)), (*counts, Number(turns.term + 1, INT32))

    walker.words |= {
        "decided": decided, "next_tile": next_tile, "turns": lambda state: state[2],
        "is_run": is_run(),
    }  # fmt: skip
    walker.stated = _INVARIANTS, ("NO_TILE - run.tile",)
    begin = walker.unknown("i", 0, 2**29)
    walker.names["begin"] = begin
    state = (*NOTHING, Number(number(0), INT32))
    scope = {"run": run_of(any_run(walker, number(0))), "i": begin, "state": state}
    walker.reader.run_through(body, scope, "a row")
    claim_visited(walker, scope["state"])
    turns = scope["state"][2].term
    walker.claim("i counts tiles", terms.equal(scope["i"].term, begin.term + turns))


def _row_of(tree: ast.FunctionDef) -> list[ast.stmt]:
    """The statements about one row of tiles: from `run = first_tile(…)` on."""
    for part in ast.walk(tree):
        body = getattr(part, "body", None)
        for place, statement in enumerate(body if isinstance(body, list) else []):
            if ast.unparse(statement).startswith("run = first_tile(span, "):
                behind: list[ast.stmt] = body[place:]  # type: ignore[index]
                ends = [n for n, each in enumerate(behind) if isinstance(each, ast.Return)]
                return behind[: ends[0]] if ends else behind
    raise NotDefined(f"a walk in {tree.name}")


def _ring(walker: Walker) -> None:
    i = walker.unknown("i", 0, 2**29).term

    def at(place: Term, stages: int) -> tuple[Term, Term]:
        ring = Record.made(ready=Record.made(shape=(stages, 1)))
        stage, phase = walker.call("stage_of", ring, Number(place, INT32))
        return stage.term, phase.term

    for stages in range(1, _MOST_STAGES + 1):
        stage, phase = at(i, stages)
        walker.claim("a stage is one of the ring's", terms.both(*between(0, stage, stages - 1)))
        for more in range(1, stages):
            other, _ = at(i + more, stages)
            walker.claim("tiles lie apart", ~terms.equal(stage, other))
        again, turned = at(i + stages, stages)
        walker.claim("a stage returns", terms.equal(stage, again))
        walker.claim("its phase turns", terms.equal(phase + turned, number(1)))
    one = Record.made(ONE_RING=True)
    key, value = (
        [walker.call(f"{name}_of_tile", Number(i + more, INT32), one).term for more in (0, 1)]
        for name in ("key", "value")
    )
    walker.claim("keys follow their values", terms.equal(key[0], value[0] + 1))
    walker.claim("values follow keys", terms.equal(value[1], key[0] + 1))


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
       partial(_loops, name)) for file, name in _LOOPS),
    ("hopper_common.stage_of",
     "tiles in memory together lie in different stages, which are reused in turn", _ring),
    ("hopper_order.tile_in_order", "gives the j-th tile from the first, or from the last", _order),
)  # fmt: skip
