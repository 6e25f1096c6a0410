"""Decides claims about terms: by our own prover (`linear`), or else by z3, which also refutes them.

z3 is optional (`pip install "maskalg[verify]"`) and imported with the first claim that our own
prover leaves open; without it such a claim stays open. z3 first gets products, quotients and
remainders of unknowns as uninterpreted functions with a few laws, which proves most claims at once,
and only then the exact operations. Operations on real numbers are uninterpreted functions; so are
tables, whose values lie in the range of their dtype.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, Literal
from weakref import WeakKeyDictionary

from ..errors.kinds import MissingPackageError
from . import linear, terms
from .laws import law_of
from .terms import Table, Term

ANYTHING: Final = "anything"
"""Name of the table whose entries stand for a function's results outside of its domain."""

MILLISECONDS: Final = 10_000
"""Default time limit of a claim."""

OWN: Final = "our own prover, linear"

NEITHER: Final = "our own prover does not decide it, and z3 is not installed"

DECIDED: Final[Counter[str]] = Counter()
"""Number of questions that each prover, "own" or "z3", decided in this process."""

_OF_A_PART: Final = 1000

Outcome = Literal["proved", "refuted", "open"]


@dataclass(frozen=True)
class Model:
    """Numbers that refute a claim: variables by name, entries by table and place.

    Entries that are not listed may be anything.
    """

    values: dict[str, terms.Value]
    entries: dict[tuple[str, int], terms.Value]


@dataclass(frozen=True)
class Verdict:
    """The outcome of a claim, the prover that decided it, its seconds, and a counterexample."""

    outcome: Outcome
    by: str
    seconds: float
    model: Model | None = None


_Answer = tuple[Outcome, str, Model | None]


def solver() -> Any:
    """The module of z3."""
    try:
        import z3
    except ModuleNotFoundError as missing:
        raise MissingPackageError(
            "verifying a kernel needs z3, which is not installed. Write: pip install "
            '"maskalg[verify]"'
        ) from missing
    return z3


def prove(given: Sequence[Term], claim: Term, milliseconds: int = MILLISECONDS) -> Verdict:
    """Whether the assumptions imply the claim."""
    started = time.perf_counter()
    if claim is terms.TRUE:
        return Verdict("proved", "equal as written", 0.0)
    given = needed(given, ~claim)
    denied = [[*premises, ~part] for premises, part in parts_of(claim)]
    found: _Answer = "proved", OWN, None
    decided_by = "own"
    if not linear.is_refuted(given, denied):
        try:
            found, decided_by = _by_z3(given, claim, milliseconds), "z3"
        except MissingPackageError:
            if not linear.is_refuted(given, denied, linear.LONG):
                found = "open", NEITHER, None
    DECIDED[decided_by] += found[0] != "open"
    return Verdict(found[0], found[1], time.perf_counter() - started, found[2])


def by_whom(before: Counter[str]) -> str:
    """The questions that each prover decided since `DECIDED` was `before`, as text; "" for none."""
    count = DECIDED - before
    if not count:
        return ""
    return f" (questions on the way: {count['own']} by our own prover, {count['z3']} by z3)"


def _by_z3(given: Sequence[Term], claim: Term, milliseconds: int) -> _Answer:
    """z3's answer: with uninterpreted products if these suffice, else exact, part by part."""
    started = time.perf_counter()
    denied = ~claim
    nonlinear = any(part.op == "product" or _divides_by_unknown(part)
                    for term in (*given, denied) for part in term.walk())  # fmt: skip
    if not nonlinear:
        return _answer(given, claim, milliseconds)
    # Uninterpreted products prove most claims; otherwise single conditions are easier than all.
    if _Query(False, milliseconds).ask([*given, denied]) == "unsat":
        return "proved", "z3, linear", None
    for part in claim.walk():
        # A counterexample is easier to find where a function is called outside of its domain.
        if part.op == "choice" and _is_anything(part.args[2]):
            there = terms.replaced(claim, {part: part.args[2]}.get)
            found = _answer([*given, ~part.args[0]], there, _OF_A_PART)
            if found[0] == "refuted":
                return found
    for premises, part in parts_of(claim):
        left = milliseconds - int(1000 * (time.perf_counter() - started))
        own = [*given, *premises]
        if _Query(False, max(left, 1)).ask([*own, ~part]) == "unsat":
            continue
        found = _answer(own, part, max(left, 1))
        if found[0] != "proved":
            return found
    return "proved", "z3, integers", None


def parts_of(claim: Term) -> list[tuple[list[Term], Term]]:
    """Smaller claims that together are the claim, each with further assumptions it may use.

    For example, `(a & b) <-> (a & c)` gives "a and b imply c" and "a and c imply b".
    """
    if claim.op == "both":
        return [([], part) for part in claim.args]
    if claim.op != "same":
        return [([], claim)]
    sides = [list(side.args) if side.op == "both" else [side] for side in claim.args]
    return [
        (others, part)
        for others, wanted in (sides, sides[::-1])
        for part in wanted
        if part not in others
    ]


def _answer(given: Sequence[Term], claim: Term, milliseconds: int) -> _Answer:
    """z3's answer with exact products. A counterexample is checked in exact arithmetic."""
    query = _Query(True, milliseconds)
    answer = query.ask([*given, ~claim])
    if answer == "unsat":
        return "proved", "z3, linear", None
    if answer != "sat":
        return "open", f"z3 did not decide it in {milliseconds / 1000:g} s", None
    model = query.model()
    if is_wrong_at(given, claim, model):
        return "refuted", "z3", model
    return "open", ("the numbers that z3 finds do not refute it: z3 knows too little about real "
                    "numbers or some functions in it"), None  # fmt: skip


def is_wrong_at(given: Sequence[Term], claim: Term, model: Model) -> bool:
    """Whether a model satisfies all assumptions but not the claim, in exact arithmetic."""

    def entry(table: Table, at: int) -> terms.Value:
        return model.entries.get((table.name, at), False if table.kind == "bool" else table.low)

    def reals(name: str, *args: object) -> object:
        raise _OfReals

    every = terms.both(*given, ~claim)
    values = dict.fromkeys(
        (part.data for part in every.walk() if part.op == "variable" and part.sort == "int"), 0
    )
    try:
        return bool(terms.computed(every, {**values, **model.values}, entry, reals))
    except (_OfReals, KeyError):
        return False


class _OfReals(Exception):
    """Evaluation came to a real number, whose value a model does not give."""


def needed(given: Sequence[Term], claim: Term) -> list[Term]:
    """The assumptions that share an unknown with the claim, directly or through other ones."""

    def unknowns(term: Term) -> frozenset[object]:
        """The variables, single entries, and functions with integer or Boolean results, by name."""
        return frozenset(
            part.serial if part.op == "entry" else part.data for part in term.walk()
            if part.op == "variable" or (part.op == "apply" and part.sort != "real")
            or (part.op == "entry" and terms.is_number(part.args[0]))
        )  # fmt: skip

    known = {term.serial: unknowns(term) for term in given}
    wanted = set(unknowns(claim))
    kept: list[Term] = []
    rest = list(given)
    while True:
        found = [term for term in rest if known[term.serial] & wanted]
        if not found:
            return kept
        kept += found
        rest = [term for term in rest if term not in found]
        for term in found:
            wanted |= known[term.serial]


def _divides_by_unknown(term: Term) -> bool:
    divisor = {"quotient": 1, "remainder": 1, "divides": 0}.get(term.op)
    return divisor is not None and not terms.is_number(term.args[divisor])


@dataclass(frozen=True)
class _Formula:
    """A term as z3's expression, its laws by their z3 id, and the terms that these laws mention."""

    value: Any
    laws: dict[int, Any]
    inner: tuple[Term, ...]


_FORMULAS: Final[dict[bool, WeakKeyDictionary[Term, _Formula]]] = {
    exact: WeakKeyDictionary() for exact in (False, True)
}
"""Translated terms, with exact products or not; most terms occur in many questions."""


class _Query:
    """A question to z3. Products are exact if `exact`, else uninterpreted functions."""

    def __init__(self, exact: bool, milliseconds: int) -> None:
        z3 = self._z3 = solver()
        self._exact = exact
        self._solver = z3.Solver()
        self._solver.set("timeout", milliseconds)
        self._real = z3.DeclareSort("Real32")
        self._known: dict[int, Any] = {}
        self._facts: dict[int, Any] = {}
        self._laws: list[Any] = []
        self._inner: list[Term] = []
        self._entries: list[tuple[Table, Any, Any]] = []
        self._variables: dict[str, Any] = {}

    def ask(self, all_of: Sequence[Term]) -> str:
        self._solver.add(*map(self.of, all_of))
        self._solver.add(*self._facts.values())
        return str(self._solver.check())

    def of(self, term: Term) -> Any:
        for part in term.walk(self._known):
            if part.serial not in self._known:
                self._formula(part)
        return self._known[term.serial]

    def _formula(self, part: Term) -> None:
        args = [self._known[arg.serial] for arg in part.args]
        found = _FORMULAS[self._exact].get(part)
        if found is None:
            outside, self._laws, self._inner = (self._laws, self._inner), [], []
            value = self._known[part.serial] = self._translated(part, args)
            if not self._is_computed(part):
                self._laws.append(self._within(law_of(part)))
            laws = {law.get_id(): law for law in self._laws}
            found = _Formula(value, laws, tuple(self._inner))
            self._laws, self._inner = outside
            _FORMULAS[self._exact][part] = found
        self._facts |= found.laws
        if part.op == "variable":
            self._variables[part.data] = found.value
        if part.op == "entry":
            self._entries.append((part.data, args[0], found.value))
        self._known[part.serial] = found.value
        for inner in found.inner:
            self.of(inner)

    def _within(self, part: Term) -> Any:
        """The formula of a term that occurs in the laws of another term."""
        self._inner.append(part)
        return self.of(part)

    def model(self) -> Model:
        found = self._solver.model()
        values: dict[str, terms.Value] = {}
        for name, unknown in self._variables.items():
            if unknown.sort() == self._real:
                continue
            values[name] = self._plain(found.eval(unknown, model_completion=True))
        entries: dict[tuple[str, int], terms.Value] = {}
        for table, at, value in self._entries:
            if table.kind != "real":
                place = self._plain(found.eval(at, model_completion=True))
                entry = self._plain(found.eval(value, model_completion=True))
                entries[table.name, int(place)] = entry
        return Model(values, entries)

    def _plain(self, value: Any) -> int | bool:
        z3 = self._z3
        return bool(z3.is_true(value)) if z3.is_bool(value) else int(value.as_long())

    def _sort(self, sort: terms.Sort) -> Any:
        z3 = self._z3
        return {"int": z3.IntSort(), "bool": z3.BoolSort(), "real": self._real}[sort]

    def _function(self, name: str, args: Sequence[Any], sort: terms.Sort) -> Any:
        sorts = [arg.sort() for arg in args]
        label = f"{name} {' '.join(map(str, sorts))}"
        return self._z3.Function(label, *sorts, self._sort(sort))(*args)

    def _translated(self, term: Term, args: list[Any]) -> Any:
        z3, op = self._z3, term.op
        if op == "sum":
            constant, coefficients = term.data
            rows = [c * arg for c, arg in zip(coefficients, args, strict=True)]
            return z3.Sum([z3.IntVal(constant), *rows]) if rows else z3.IntVal(constant)
        if op == "variable":
            return z3.Const(term.data, self._sort(term.sort))
        if op == "real":
            return z3.Const(f"real {float(term.data).hex()}", self._real)
        if op == "entry":
            return self._function(term.data.name, args, term.sort)
        if op == "product":
            name = f"product of {len(args)}"
            return z3.Product(args) if self._exact else self._function(name, args, "int")
        if op in ("quotient", "remainder"):
            return self._division(term, args)
        if op == "divides":
            c, x = term.args
            found = self._within(x % c) == 0
            # c divides x if and only if it divides -x, which the claim's other side may have.
            turned = self._function("remainder", [-args[1], args[0]], "int") == 0
            self._laws.append(z3.Implies(args[0] >= 1, found == turned))
            return found
        if op == "wrapped":
            bits, signed = term.data
            low, high = terms.ends_of_bits(bits, signed)
            # How many times 2**bits is added, mostly 0.
            turns = z3.Int(f"turns {term.serial}")
            found = args[0] + turns * (1 << bits)
            self._laws += [low <= found, found <= high]
            return found
        if op == "apply":
            found = self._function(term.data, args, term.sort)
            if term.data in terms.COMMUTE:
                # Arguments are sorted by serial number: equal ones may be in another order.
                self._laws.append(found == self._function(term.data, args[::-1], term.sort))
            return found
        if op in ("whole", "real_of", "of_bits") or op.startswith("bit"):
            return self._function(op, args, term.sort)
        return _PLAINLY[op](z3, *args)

    def _is_computed(self, part: Term) -> bool:
        """Whether z3 has the operation, so that it needs no laws."""
        if part.op in ("quotient", "remainder"):
            return not _divides_by_unknown(part)
        return part.op == "product" and self._exact

    def _division(self, term: Term, args: list[Any]) -> Any:
        z3 = self._z3
        c = term.args[1]
        if terms.is_number(c) and terms.value_of_number(c) >= 1:
            by = terms.value_of_number(c)
            return args[0] / by if term.op == "quotient" else args[0] % by
        # The claim's other side may have -1 - x, whose quotient is -1 less the quotient of x.
        turned = [-1 - args[0], args[1]]
        found, other = (self._function(term.op, of, "int") for of in (args, turned))
        most = -1 if term.op == "quotient" else args[1] - 1
        self._laws.append(z3.Implies(args[1] >= 1, found == most - other))
        return found


def _extreme(z3: Any, less: bool, args: Sequence[Any]) -> Any:
    return reduce(lambda x, y: z3.If(y < x if less else y > x, y, x), args)


_PLAINLY: Final[dict[str, Callable[..., Any]]] = {
    "least": lambda z3, *args: _extreme(z3, True, args),
    "most": lambda z3, *args: _extreme(z3, False, args),
    "sign": lambda z3, x: z3.If(x < 0, z3.IntVal(-1), z3.IntVal(0)),
    "true": lambda z3: z3.BoolVal(True),
    "false": lambda z3: z3.BoolVal(False),
    "at_least": lambda z3, x: x >= 0,
    "zero": lambda z3, x: x == 0,
    "no": lambda z3, x: z3.Not(x),
    "both": lambda z3, *args: z3.And(*args),
    "either": lambda z3, *args: z3.Or(*args),
    "same": lambda z3, x, y: x == y,
    "choice": lambda z3, *args: z3.If(*args),
}


def settled(
    given: Sequence[Term], of: Sequence[Term], milliseconds: int = MILLISECONDS
) -> list[Term]:
    """The terms without wrapping, and without results outside of a function's domain, where it is
    proved that neither occurs: `int32(x + 1)` becomes `x + 1` if x + 1 fits 32 bits.

    All are proved together, by induction from the inside: each number fits if its parts fit. If
    that fails, each is tried alone, and numbers that may not fit keep their wrapping.
    """
    of = _with_divisors(given, of)
    known = dict.fromkeys(part for term in of for part in term.walk() if _claims(part) is not None)
    if not known:
        return list(of)

    def plain(part: Term) -> Term | None:
        return _hoped(part) if _claims(part) is not None else None

    def claimed(part: Term) -> Term:
        inner = terms.rebuilt(part, tuple([terms.replaced(arg, plain) for arg in part.args]))
        condition = _claims(inner)
        return terms.TRUE if condition is None else condition

    if prove(given, terms.both(*map(claimed, known)), milliseconds).outcome == "proved":
        return [terms.replaced(term, plain) for term in of]

    def replace(part: Term) -> Term | None:
        claim = _claims(part)
        if claim is None or prove(given, claim, min(milliseconds, _OF_A_PART)).outcome != "proved":
            return None
        return plain(part)

    return [terms.replaced(term, replace) for term in of]


def _with_divisors(given: Sequence[Term], of: Sequence[Term]) -> list[Term]:
    """The terms with n in place of max(n, 1) where n >= 1 is proved; divisors are written so."""
    one = terms.number(1)
    plain: dict[Term, Term] = {}
    for part in dict.fromkeys(part for term in of for part in term.walk()):
        if part.op == "most" and len(part.args) == 2 and one in part.args:
            (other,) = (arg for arg in part.args if arg is not one)
            if other.op == "variable":
                known = prove(given, other >= one, _OF_A_PART)
                if known.outcome == "proved":
                    plain[part] = other
    return [terms.replaced(term, plain.get) for term in of] if plain else list(of)


def _claims(part: Term) -> Term | None:
    """The condition under which a part equals `_hoped(part)`; None if nothing simpler is tried."""
    if part.op == "wrapped":
        return terms.stays(part.args[0], *part.data)
    if _is_distance(part):
        return (_distance(part) > -_FARTHEST) & (_distance(part) < _FARTHEST)
    if part.op == "choice" and (_is_anything(part.args[2]) or part.data == terms.NATURAL):
        return part.args[0]
    return None


def _hoped(part: Term) -> Term:
    """The simpler term that a part equals if its condition holds."""
    if _is_distance(part):
        # 1.5 * 2**23 + d has the bits 0x4B400000 + d, and all of these sums are exact.
        more = int(_BASE - part.args[1].data)
        return terms.real_of(_distance(part) + more)
    return part.args[0] if part.op == "wrapped" else part.args[1]


def _is_distance(part: Term) -> bool:
    """Whether a part converts an integer to float32 by its bits: of_bits(x) less a constant."""
    if part.op != "apply" or part.data != "subtract" or part.args[0].op != "of_bits":
        return False
    base = part.args[1]
    return base.op == "real" and base.data == int(base.data) and abs(_BASE - base.data) <= _FARTHEST


def _distance(part: Term) -> Term:
    return part.args[0].args[0] - _BITS


_BITS: Final = 0x4B400000
_BASE: Final = 3.0 * 2**22
_FARTHEST: Final = 2**22


def _is_anything(term: Term) -> bool:
    """Whether a term uses the result of a function outside of its domain."""
    return any(part.op == "entry" and part.data.name == ANYTHING for part in term.walk())


def aligned(term: Term, other: Term) -> Term:
    """The term with its quotients rewritten by the remainders in the other term.

    If the other term has r = e mod c, then e = c floor(e / c) + r, so
    floor((x - e) / c) = floor((x - r) / c) - floor(e / c).
    """
    parts = [part.args for part in other.walk() if part.op == "remainder"]

    def replace(part: Term) -> Term | None:
        if part.op not in ("quotient", "remainder"):
            return None
        x, by = part.args
        for e, c in parts:
            times = terms.polynomial(x).get((e,), 0)
            if c is by and times and x is not e:
                rest = e % c - e
                moved = x + times * rest
                if part.op == "remainder":
                    return moved % c
                whole = times * (e // c)
                return whole + moved // c
        return None

    return terms.replaced(term, replace)
