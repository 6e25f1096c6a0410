"""Loops proved by their invariants, which stand beside them in the source.

    # invariant: (j >= 0) & (visits(state) == (touched & (t < j)))
    while j < NO_TILE:

The invariant is proved to hold before the loop, and to hold after a turn if it held before. So
after the loop it holds, and the loop's condition is false. The body is read from the kernel's
source, so a changed body needs a new proof. A `while` states an integer, `# until: NO_TILE - j`,
which is proved to be at least 0 before each turn and to shrink. So the loop ends.
"""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from .. import terms
from ..given import between
from ..meaning import NotDefined
from ..reading.library import unwrapped
from ..reading.triton import Function, Module, Reader, as_number
from ..reading.values import BOOL, INT32, Indexed, Number, Type
from ..solve import Verdict, prove, settled
from ..terms import Term
from .lists import Facts, Intervals, unknown

_INVARIANT: Final = "# invariant: "
_MEASURE: Final = "# until: "


@dataclass(frozen=True)
class Table(Indexed):
    """A list of any number of intervals [first, end) of tiles.

    `within(table, i, t)`, in an invariant, says that tile t lies in one of the first i intervals.
    """

    name: str
    count: Term

    def at(self, index: Term) -> tuple[Number, Number]:
        """The interval at a place."""
        entries = [terms.Table(f"{self.name} {end}", "int", 0, 2**30) for end in ("first", "end")]
        first, end = (Number(terms.entry(entry, index), INT32) for entry in entries)
        return first, end


@dataclass(frozen=True)
class Step:
    """A step of a proof, and whether it was proved."""

    text: str
    verdict: Verdict


Proof = tuple[str, str, Callable[[Any], None]]
"""The file and name of a kernel's function; a claim about it; and the proof, run with a walker."""


class Unproved(Exception):
    """A step was not proved: the last of `steps`."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        super().__init__(steps[-1].text)
        self.steps = steps


class Walker:
    """Reads a function, and proves the invariants of its loops on the way.

    Args:
        module: the function's module.
        milliseconds: time limit of a step.
    """

    language: type[Reader] = Reader

    def __init__(self, module: Module, milliseconds: int = 10_000) -> None:
        self.given: list[Term] = []
        self.steps: list[Step] = []
        self.names: dict[str, Any] = {}
        self._milliseconds = milliseconds
        self._orders: list[tuple[Term, Term]] = []
        self._meanings: dict[str, Callable[..., Term]] = {}
        self.facts: dict[str, Callable[..., list[Term]]] = {}
        self._facts = Facts()
        self._fresh = 0
        self.stated: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self.words: dict[str, Callable[..., Any]] = {
            "within": self.within,
            "implies": _implies,
            "len": _length,
            "zeros": _zero,
        }
        self.reader = self.language(module, self.words, self._loop, self._branch)

    def again(self) -> Walker:
        """A walker of the same module for another proof, whose steps follow these."""
        found = Walker(self.reader.module, self._milliseconds)
        found.steps = self.steps
        return found

    def fresh(self, name: str, of: Type = INT32) -> Number:
        if of.kind == "int":
            return self.unknown(name, *of.ends, of)
        self._fresh += 1
        return Number(terms.variable(f"{name} {self._fresh}", "bool"), of)

    def unknown(self, name: str, low: int, high: int = 2**31 - 1, of: Type = INT32) -> Number:
        """An unknown integer between two limits."""
        self._fresh += 1
        found = terms.variable(f"{name} {self._fresh}")
        self.given += between(low, found, high)
        return Number(found, of)

    def run_loop(self, function: str, scope: dict[str, Any]) -> None:
        """Read a function's first loop and the statement before it, with the names in `scope`.

        Other names in the loop are unknown numbers.
        """
        pair = _first_loop(function_of(self.reader.module, function))
        for part in ast.walk(pair[1]):
            if isinstance(part, ast.Name) and not (
                part.id in scope or part.id in self.reader.module or part.id in self.words
            ):
                scope[part.id] = self.fresh(part.id)
        self.reader.run_through(pair, scope, function)

    def run_stores(self, function: str, scope: dict[str, Any], begin: str = "for ") -> None:
        """Read a function from its first statement that starts with `begin`, with the names in
        `scope`. Its stores change the name `stored`."""
        body = function_of(self.reader.module, function).body
        found = [ast.unparse(part).startswith(begin) for part in body]
        if True not in found:
            raise NotDefined(f"a statement {begin!r} in {function}")
        rest = [_Stores().visit(copy.deepcopy(part)) for part in body[found.index(True) :]]
        self.reader.run_through(rest, scope, function)

    def lanes(self, of: dict[int, Term], down: Term, across: Term) -> None:
        """Define blocks by one element: `of` has the lanes of blocks of some lengths.

        With an axis added, the first lane is that of a row (`down`) or of a column (`across`).
        """
        lane = next(iter(of.values()))

        def arange(first: int, end: int) -> Number:
            if first or end not in of:
                raise NotDefined(f"numbers {first}..{end}")
            return Number(of[end], INT32)

        def with_axis(value: Number, added: str) -> Number:
            own = {":, None": down, "None, :": across}[added.strip("()")]
            return Number(terms.replaced(value.term, {lane: own}.get), value.type)

        self.words["arange"] = arange
        self.words["[]"] = with_axis

    def mean(self, name: str, meaning: Callable[..., Term]) -> Callable[..., Number]:
        """A condition with a name, for invariants: true if and only if `meaning` is.

        The meaning may be recursive: it may use the name with smaller numbers.
        """
        self._meanings[name] = meaning

        def word(*args: Any) -> Number:
            return Number(
                terms.apply(name, *[as_number(arg).term for arg in args], sort="bool"), BOOL
            )

        self.words[name] = word
        return word

    def ordered_by(self, times: Term, whole: Term) -> None:
        """Add the law that n * times and whole * times are in the order of n and whole, wherever
        such products occur."""
        self._orders.append((times, whole))

    def claim(self, text: str, claim: Term) -> None:
        """Prove a claim from the assumptions so far."""
        for part in claim.args if claim.op == "both" else (claim,):
            given = [*self.given, *self._laws(part)]
            (plain,) = settled(given, [part], self._milliseconds)
            if plain is not part:
                given = [*self.given, *self._laws(plain)]
            verdict = prove(given, plain, self._milliseconds)
            self.steps.append(Step(text, verdict))
            if verdict.outcome != "proved":
                raise Unproved(tuple(self.steps))

    def show(self, text: str, claim: Term) -> None:
        """Prove a claim, and add it to the assumptions."""
        self.claim(text, claim)
        self.given.append(claim)

    def call(self, name: str, *args: Any) -> Any:
        return self.reader.call(name, *args)

    # --- words of invariants --------------------------------------------------------------------

    def within(self, table: Table | Intervals | tuple[Any, ...], count: Any, tile: Any) -> Number:
        """Whether a tile lies in one of the first `count` intervals of a table."""
        at = as_number(tile).term
        if isinstance(table, Intervals):
            return Number(self._facts.within(table, as_number(count).term, at), BOOL)
        if isinstance(table, tuple):
            return Number(terms.either(*[inside(pair, at) for pair in table[:count]]), BOOL)

        def meaning(count: Term, tile: Term) -> Term:
            """A tile is within the first i + 1 if it is within the first i, or in interval i."""
            if terms.is_number(count) and terms.value_of_number(count) <= 0:
                return terms.FALSE
            before = count - 1
            return word(before, tile) | inside(table.at(before), tile)

        name = f"within {table.name}"
        self._meanings[name] = meaning

        def word(count: Term, tile: Term) -> Term:
            return terms.apply(name, count, tile, sort="bool")

        return Number(word(as_number(count).term, at), BOOL)

    def _laws(self, claim: Term) -> list[Term]:
        """The meanings of the named conditions that occur, and the order of products."""
        laws: dict[Term, None] = {}
        for term in [*self.given, claim]:
            for part in term.walk():
                for times, whole in self._orders:
                    if part.op == "quotient" and part.args[1] is times and part is not whole:
                        for one in (part, -part):
                            laws.update(dict.fromkeys(ordered(one, whole, times)))
                meaning = self._meanings.get(part.data) if part.op == "apply" else None
                if meaning is not None:
                    laws[terms.same(part, meaning(*part.args))] = None
                if part.op == "apply" and part.data in self.facts:
                    laws.update(dict.fromkeys(self.facts[part.data](*part.args)))
        return [*laws, *self._facts.laws(self.given, claim)]

    # --- branches and loops ---------------------------------------------------------------------

    @contextmanager
    def _branch(self, holds: Term) -> Iterator[None]:
        known = holds in self.given
        self.given.append(holds)
        yield
        if not known:
            self.given = [term for term in self.given if term is not holds]

    def _loop(self, reader: Reader, loop: ast.For | ast.While, scope: dict[str, Any]) -> None:
        name = ast.unparse(loop).splitlines()[0]
        invariants, measures = (
            _comments(reader.module, loop, kind) or list(stated)
            for kind, stated in zip((_INVARIANT, _MEASURE), self.stated, strict=True)
        )
        if not invariants:
            raise NotDefined(f"the loop {name!r}, which states no invariant")
        counter, ends = _range_of(reader, loop, scope)
        if counter is not None:
            scope[counter] = ends[0]
        self._claim_all(reader, invariants, scope, f"{name} holds at the start")
        changed = [part for part in _assigned(loop) if part in scope]
        for each in changed:
            scope[each] = self._unknown(each, scope[each])
        if counter is not None:
            # A range goes up from its start; in steps of 1 it does not pass its end.
            start, end, step = (as_number(each).term for each in ends)
            self.given.append(scope[counter].term >= start)
            if step is terms.number(1):
                most = terms.most(start, end)
                self.given.append(most >= scope[counter].term)
        known = list(self.given)

        def condition(scope: dict[str, Any]) -> Term:
            if counter is None:
                assert isinstance(loop, ast.While)
                return as_number(reader.evaluated(loop.test, scope)).as_condition
            return terms.at_least(as_number(ends[1]).term - scope[counter].term - 1)

        before = [self._stated(reader, each, scope) for each in invariants]
        # A turn.
        turn = dict(scope)
        self.given = [*known, *before, condition(turn)]
        reader.run_through(loop.body, turn, f"the loop {name!r}")
        if counter is not None:
            step = as_number(ends[2]).term
            self.claim(f"{name} goes on", step > 0)
            turn[counter] = Number(scope[counter].term + step, scope[counter].type)
        self._claim_all(reader, invariants, turn, f"{name} is kept by a turn")
        for measure in measures:
            left, rest = (
                self._stated(reader, measure, each, number=True) for each in (scope, turn)
            )
            self.claim(f"{name} ends", (left > rest) & (left >= 0))
        if counter is None and not measures:
            raise NotDefined(f"the loop {name!r}, which states no end")
        # After the loop.
        self.given = [*known, *before, ~condition(scope)]

    def _claim_all(
        self, reader: Reader, invariants: list[str], scope: dict[str, Any], text: str
    ) -> None:
        for each in invariants:
            self.claim(f"{text}: {each}", self._stated(reader, each, scope))

    def _stated(
        self, reader: Reader, text: str, scope: dict[str, Any], number: bool = False
    ) -> Term:
        """The formula of an invariant, over integers that do not wrap."""
        stands: dict[Term, Term] = {}

        def placed(value: Any) -> Any:
            if isinstance(value, Number):
                hidden = terms.variable(f"value {value.term.serial}", value.term.sort)
                stands[hidden] = value.term
                return Number(hidden, value.type)
            if isinstance(value, tuple):
                parts = [placed(part) for part in value]
                return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
            return value

        hidden = {name: placed(value) for name, value in (self.names | scope).items()}
        found = reader.evaluated(ast.parse(text, mode="eval").body, hidden)
        term = as_number(found).term if number else as_number(found).as_condition
        return terms.replaced(terms.replaced(term, unwrapped), stands.get)

    def _unknown(self, name: str, value: Any) -> Any:
        if isinstance(value, Number):
            return self.fresh(name, value.type)
        if isinstance(value, tuple):
            parts = [self._unknown(name, part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        if isinstance(value, (bool, int)):
            return self.fresh(name, as_number(value).type)
        return value.unknown() if isinstance(value, Intervals) else value

    def intervals(self, name: str, count: Term) -> Intervals:
        """A list of intervals, of which the function read may change the first `count`."""

        def put_in(place: Term, value: Number) -> Term:
            within = terms.within(terms.number(0), place, count)
            self.claim(f"{name} is changed where it may be", within)
            (plain,) = settled(self.given, [value.term], self._milliseconds)
            if any(part.op == "wrapped" for part in plain.walk()):
                raise NotDefined(f"a number in {name} that may leave its width")
            return plain

        return unknown(name, put_in)


def inside(interval: tuple[Any, Any], tile: Term) -> Term:
    """Whether first <= tile < end."""
    first, end = (as_number(part).term for part in interval)
    return terms.within(first, tile, end)


def ordered(x: Term, y: Term, times: Term) -> list[Term]:
    """Products keep the order of integers: x < y gives x * times + times <= y * times."""
    products = [each * times for each in (x, y)]
    found = []
    for (one, other), (low, high) in (((x, y), products), ((y, x), products[::-1])):
        less = other > one
        found.append(~less | (high >= low + times))
    return found


class _Stores(ast.NodeTransformer):
    """`tl.store(…)` as `stored = tl.store(stored, …)`."""

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        call = node.value
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "tl.store":
            return node
        call.args.insert(0, ast.Name("stored", ast.Load()))
        assigned = ast.Assign([ast.Name("stored", ast.Store())], call)
        return ast.fix_missing_locations(ast.copy_location(assigned, node))


def _implies(premise: Any, conclusion: Any) -> Number:
    first, second = (as_number(part).as_condition for part in (premise, conclusion))
    return Number(~first | second, BOOL)


def _zero(shape: tuple[int, ...], of: Type) -> Number:
    if shape:
        raise NotDefined("zeros that are more than one")
    return Number(terms.number(0), of)


def _length(of: Any) -> Any:
    return Number(of.count, INT32) if isinstance(of, Table) else len(of)


def _comments(module: Module, loop: ast.stmt, kind: str) -> list[str]:
    """The comments above a statement that start with `kind`."""
    found: list[str] = []
    line = loop.lineno - 2
    while line >= 0 and module.lines[line].strip().startswith("#"):
        text = module.lines[line].strip()
        if text.startswith(kind):
            found.insert(0, text.removeprefix(kind))
        line -= 1
    return found


def _assigned(loop: ast.For | ast.While) -> list[str]:
    """The names that a loop changes, with its counter."""
    found: dict[str, None] = {}
    for part in ast.walk(loop):
        changed = part.value if isinstance(part, ast.Subscript) else part
        if isinstance(changed, ast.Name) and isinstance(part.ctx, ast.Store):  # type: ignore[attr-defined]
            found[changed.id] = None
    return list(found)


def _range_of(
    reader: Reader, loop: ast.For | ast.While, scope: dict[str, Any]
) -> tuple[str | None, tuple[Any, Any, Any]]:
    """The counter of a loop, and its first value, end and step."""
    if isinstance(loop, ast.While):
        return None, (None, None, None)
    ranged = loop.iter
    if not isinstance(ranged, ast.Call) or not ast.unparse(ranged.func).endswith("range"):
        raise NotDefined(f"a loop over {ast.unparse(ranged)}")
    values = [as_number(reader.evaluated(arg, scope)) for arg in ranged.args]
    ends = [as_number(0), *values] if len(values) == 1 else values
    first, end, step = [*ends, as_number(1)][:3]
    return ast.unparse(loop.target), (first, end, step)


def _first_loop(tree: ast.FunctionDef) -> tuple[ast.stmt, ast.While]:
    """The first `while` of a function, and the statement before it."""
    for part in ast.walk(tree):
        for name in ("body", "orelse"):
            body = getattr(part, name, None)
            for before, loop in itertools.pairwise(body if isinstance(body, list) else []):
                if isinstance(loop, ast.While):
                    return before, loop
    raise NotDefined(f"a loop in {tree.name}")


def function_of(module: Module, name: str) -> ast.FunctionDef:
    found = module.find(name)
    if not isinstance(found, Function):
        raise NotDefined(f"a function {name}")
    return found.tree
