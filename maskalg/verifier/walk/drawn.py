"""Rows that persistent programs draw from a counter: one program computes each row, once.

Program p of P computes row p first and draws another row after each one. Draws are atomic, so they
have an order; d counts the draws before one. The text of `kernels/hopper_rows.py` proves: draw d
gives row P + d and leaves the counter at d + 1, the last draw leaves it at 0. So row r is computed
by program r if r < P, and after draw r - P otherwise. This needs one draw after each row, and no
others, which the kernels' loops are checked for. Then there are as many draws as rows, and the
counter ends at 0. Consumers find the row that their producer drew: both count `done` alike.
"""

from __future__ import annotations

import ast
from functools import partial
from typing import Final

from .. import terms
from ..given import between
from ..meaning import NotDefined
from ..reading.library import unwrapped
from ..reading.ptx import Block
from ..reading.triton import Module, as_number
from ..reading.values import INT32, Number
from ..solve import Verdict
from ..terms import Term, number
from .loops import Proof, Step, Walker, function_of

_LOOPS: Final = (
    ("hopper_common", "produce_keys", "draw_row"), ("hopper_keys", "produce_queries", "draw_row"),
    ("hopper_forward", "_consume", "row_drawn"), ("hopper_keys", "_consume_queries", "row_drawn"),
    ("hopper_queries", "_consume_keys", "row_drawn"),
)  # fmt: skip
_ARGS: Final = {"draw_row": "(done, total, program.drawn)", "row_drawn": "(done, program.drawn)"}
_TOTAL: Final = "program.call.rows * program.call.batch_heads"
_TOGETHER: Final = 3  # rows in memory at once


# --- the counter ----------------------------------------------------------------------------------


def _draw(module: Module, counter: Term, total: Term) -> tuple[Term, Term]:
    """The number that a warp's `_drawn` returns, and the counter after it."""
    calls = [part for part in ast.walk(function_of(module, "_drawn")) if isinstance(part, ast.Call)]
    (call,) = (part for part in calls if "inline_asm" in ast.unparse(part.func))
    assembly, constraints, operands = call.args[:3]
    if ast.unparse(constraints) != "'=r,l,r'" or not isinstance(operands, ast.List):
        raise NotDefined("the operands of a draw")
    if ast.unparse(operands.elts[0]) != "counter_ptr.to(gl.int64)":
        raise NotDefined("a draw from another place")
    walker = Walker(module)
    limit = as_number(walker.reader.evaluated(operands.elts[1], {"total": Number(total, INT32)}))
    of = {"$2": terms.replaced(limit.term, unwrapped)}
    # Lanes 0 and 1; further ones do as 1, or nothing.
    lanes = [Block({**of, "%laneid": number(lane)}) for lane in range(2)]
    text = ast.literal_eval(assembly).strip().strip("{}")
    for statement in filter(None, map(str.strip, text.split(";"))):
        counter = _run(statement, lanes, counter)
    drawn = {lane.read("$0") for lane in lanes}
    if len(drawn) != 1:
        raise NotDefined("a draw that lanes are told differently")
    return drawn.pop(), counter


def _run(statement: str, lanes: list[Block], counter: Term) -> Term:
    """The counter after an instruction, which also changes the registers of the lanes."""
    name, _, operands = statement.removeprefix("@p ").partition(" ")
    target, *sources = [part.strip() for part in operands.split(",")]
    if name == "shfl.sync.idx.b32" and sources[1:] in _OF_LANES:
        value = lanes[int(sources[1])].read(sources[0])
        for lane in lanes:
            lane.registers[target] = value
    elif name == "atom.relaxed.gpu.global.inc.u32" and sources[0] == "[$1]":
        for lane in lanes:
            if not statement.startswith("@p ") or lane.read("p") is not terms.FALSE:
                lane.registers[target] = counter
                last = counter >= lane.read(sources[1])
                counter = terms.choice(last, number(0), counter + 1)
    else:
        for lane in lanes:
            lane.run(statement)
    return counter


_OF_LANES: Final = [[lane, "31", "0xffffffff"] for lane in ("0", "1")]


def _body(module: Module, name: str) -> list[str]:
    """The statements of a function after its docstring."""
    return [ast.unparse(part) for part in function_of(module, name).body[1:]]


def _draws(walker: Walker) -> None:
    module = walker.reader.module
    total, programs = (walker.unknown(name, 1, 2**30).term for name in ("total", "programs"))
    d, other, row = (walker.unknown(name, 0, 2**30).term for name in ("d", "another d", "row"))
    walker.given.append(total >= programs)
    statements = _body(module, "draw_row")
    if "row = gl.num_programs(0) + _drawn(drawn.counter_ptr, total)" not in statements:
        raise NotDefined("the row that is drawn")
    drawn, after = _draw(module, d, total)
    last = terms.equal(d, total - 1)
    below = total > d
    walker.claim("draw d gives d", ~below | terms.equal(drawn, d))
    walker.claim(
        "the counter is d + 1, and 0 behind the last draw",
        ~below | terms.equal(after, terms.choice(last, number(0), d + 1)),
    )
    rows = [programs + each for each in (d, other)]
    walker.claim("no two draws give a row", ~terms.equal(*rows) | terms.equal(d, other))
    walker.claim("no draw gives a row that a program begins with", rows[0] >= programs)
    # Rows handed out so far are 0..programs + d - 1; those below `total` have a draw each at most,
    # and one each in the end.
    handed = terms.least(rows[0], total)
    ended = ~terms.equal(d, handed) | terms.equal(d, total)
    walker.claim("as many draws as rows, in the end", ended)
    walker.claim(
        "each row is a program's first one or drawn",
        (row >= total) | (programs > row) | terms.within(number(0), row - programs, total),
    )


def _places(walker: Walker) -> None:
    module, done = walker.reader.module, walker.unknown("done", 0, 2**30).term
    put, taken = _body(module, "draw_row"), _body(module, "row_drawn")
    if put[1:] != [
        "place = done % _PLACES",
        "drawn.rows.index(place).store(gl.full([1], row, gl.int32, _lane))",
        "mbarrier.arrive(drawn.ready.index(place), count=1)", "return row",
    ]:  # fmt: skip
        raise NotDefined("how a drawn row is handed over")
    wait = "mbarrier.wait(drawn.ready.index(place), "
    if taken[0] != put[1] or not taken[1].startswith(wait) or taken[2:] != [
        "return gl.max(drawn.rows.index(place).load(_thread), 0)"
    ]:  # fmt: skip
        raise NotDefined("how a drawn row is taken")

    places = module.find("_PLACES")

    def evaluated(text: str, at: Term) -> Term:
        scope = {"done": Number(at, INT32)}
        return as_number(walker.reader.evaluated(ast.parse(text, mode="eval").body, scope)).term

    place, phase = "done % _PLACES", taken[1].removeprefix(wait)[:-1]
    walker.claim("places for rows that are in memory together", terms.truth(places >= _TOGETHER))
    walker.claim(
        "a place is one of them", terms.both(*between(0, evaluated(place, done), places - 1))
    )
    for more in range(1, places):
        apart = terms.equal(evaluated(place, done), evaluated(place, done + more))
        walker.claim("rows that are in memory together lie apart", ~apart)
    again = done + places
    walker.claim("a place returns", terms.equal(evaluated(place, done), evaluated(place, again)))
    turned = evaluated(phase, done) + evaluated(phase, again)
    walker.claim("its phase turns", terms.equal(turned, number(1)))
    zero = evaluated(phase, number(0))
    walker.claim("at first a barrier is in phase 0", terms.equal(zero, number(0)))


# --- loops ----------------------------------------------------------------------------------------


def _loop(name: str, takes: str, walker: Walker) -> None:
    """Checks a loop over rows by statements: w is the row, done the number of rows before."""
    tree = function_of(walker.reader.module, name)
    every = [ast.unparse(part) for part in ast.walk(tree) if isinstance(part, ast.stmt)]
    loops = [part for part in ast.walk(tree) if isinstance(part, ast.While)]
    if len(loops) != 1 or len(loops[0].body) != 3:
        raise NotDefined("a loop over rows of another form")
    test, (row, taken, counted) = ast.unparse(loops[0].test), loops[0].body
    total = _TOTAL if f"total = {_TOTAL}" not in every else "total"
    wanted = {
        "the first row": "w = gl.program_id(0)" in every,
        "it has none before it": "done = gl.to_tensor(0)" in every,
        "as long as there is a row": test == f"w < {total}",
        "one further row": ast.unparse(taken) == f"w = {takes}{_ARGS[takes]}",
        "rows are counted": ast.unparse(counted) == "done += 1",
        "the row is computed": _computes(row),
        "nothing else is taken": sum(takes in text for text in map(ast.unparse, _calls(tree))) == 1,
    }
    wrong = [text for text, right in wanted.items() if not right]
    if wrong:
        raise NotDefined(f"a loop over rows of another form: {wrong[0]}")
    walker.steps += [Step(text, Verdict("proved", "as written", 0.0)) for text in wanted]


def _calls(tree: ast.AST) -> list[ast.expr]:
    return [part.func for part in ast.walk(tree) if isinstance(part, ast.Call)]


def _computes(statement: ast.stmt) -> bool:
    """Whether a statement calls a function of one row with w and done, and changes neither."""
    call = statement.value if isinstance(statement, ast.Assign) else None
    if not isinstance(call, ast.Call) or not ast.unparse(call.func).endswith("_row"):
        return False
    args = [ast.unparse(arg) for arg in call.args]
    changed = {part.id for part in ast.walk(statement)
               if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}  # fmt: skip
    return "w" in args and "done" in args and not changed & {"w", "done"}


LEMMAS: Final[tuple[Proof, ...]] = (
    ("hopper_rows.draw_row",
     "draw d gives row programs + d; each row is computed once, and the counter ends at 0", _draws),
    ("hopper_rows.row_drawn",
     "a consumer finds the row its producer drew, and no row is overwritten before it is read",
     _places),
    *((f"{file}.{name}",
       "it begins with the program's own row, and takes one further row after each",
       partial(_loop, name, takes)) for file, name, takes in _LOOPS),
)  # fmt: skip
