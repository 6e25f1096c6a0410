"""C++ hooks as terms: a reader for the part of the language that hooks use.

A hook visits all pairs of a block in loops. The reader computes its result for one pair, from the
lines before the loops, those for each lane, and those for each pair.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Final, Generic, TypeVar

from .. import terms
from ..meaning import NotDefined, rounded
from ..terms import Table, Term
from .triton import compared, extreme, of_integers
from .values import (
    BOOL,
    FLOAT32,
    INT32,
    INT64,
    TYPES,
    Number,
    Pointer,
    converted,
    integer,
    promoted,
)

_TOKEN: Final = re.compile(
    r"\s*(//[^\n]*|\"[^\"]*\"|0x[0-9a-fA-F.]+p[+-]?\d+|\d+\.?\d*(?:e[+-]?\d+)?[fL]*|"
    r"[A-Za-z_][\w.]*|==|!=|<=|>=|&&|\|\||[-+*/%&|^~!<>?:()\[\],;={}])"
)
_LEVELS: Final = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", "<=", ">", ">="), ("+", "-"),
    ("*", "/", "%"),
)  # fmt: skip
_CASTS: Final = {"I": INT64, "float": FLOAT32, "int32_t": INT32, "bool": BOOL}
_ENTRY_TYPES: Final = {
    "uint8_t": TYPES["uint8"], "int8_t": TYPES["int8"], "int16_t": TYPES["int16"],
    "int32_t": TYPES["int32"], "int64_t": INT64, "float": FLOAT32,
}  # fmt: skip
_NAMES: Final = {
    "exp_of": "exp", "exp2_of": "exp2", "expm1_of": "expm1", "log_of": "log", "log2_of": "log2",
    "log1p_of": "log1p", "sigmoid_of": "sigmoid", "tanh_of": "tanh",
    "__builtin_sqrtf": "sqrt", "__builtin_fabsf": "abs", "__builtin_floorf": "floor",
    "__builtin_ceilf": "ceil", "__builtin_powf": "power", "__builtin_sinf": "sin",
    "__builtin_cosf": "cos", "__builtin_tanf": "tan", "__builtin_erff": "erf",
}  # fmt: skip


T = TypeVar("T")


@dataclass(frozen=True)
class Passed:
    """An entry of the hooks' argument `S`: a number, or the address of a table."""

    number: Term
    table: Table | None = None


class CppHooks:
    """Reads the functions of C++ hooks as terms.

    Args:
        source: the text of the hooks.
        passed: the number or table at each place of `S`.
        entry_types: the type of the entries of each table, by name; addresses have no type.
    """

    def __init__(self, source: str, passed: dict[int, Passed], entry_types: dict[str, str]) -> None:
        self.passed, self.entry_types = passed, entry_types
        self._functions = dict(_functions(source))

    def element(
        self, name: str, lane: str, pair: dict[str, Term], score: Term, before: Term | None = None
    ) -> Number:
        """The result of the hook `name` for a pair. Its lanes are values of the index `lane`.

        `pair` has the terms of q_idx, kv_idx, batch and head. `before` is the number that the hook
        overwrites or multiplies, by default the score.
        """
        other = "kv_idx" if lane == "q_idx" else "q_idx"
        scope: dict[str, Any] = {
            "batch": Number(pair["batch"], INT64),
            "head": Number(pair["head"], INT64),
            # The block starts at the pair, so both of its loop indices are 0.
            "lane0": Number(pair[lane], INT64),
            "other0": Number(pair[other], INT64),
            "lanes": Number(terms.number(16), INT64),
            "others": Number(terms.number(1), INT64),
            "s": {"at": Number(score if before is None else before, FLOAT32)},
            "raw": {"at": Number(score, FLOAT32)},
        }
        statements = _Statements(self, scope)
        statements.run(self._functions[name])
        found = scope["s"]["at"]
        assert isinstance(found, Number)
        return found

    def bounds(self, row: dict[str, Term]) -> dict[int, Term]:
        """Results of the hook `bounds`, by place, for a tile of queries q0..q1."""
        scope: dict[str, Any] = {name: Number(term, INT64) for name, term in row.items()}
        scope["found"] = {}
        _Statements(self, scope).run(self._functions["bounds"])
        return {place: value.term for place, value in scope["found"].items()}


def end_of_block(text: str, begin: int) -> int:
    """The place after the brace that closes a block whose text begins at `begin`."""
    depth, end = 1, begin
    while depth:
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    return end


def _functions(source: str) -> list[tuple[str, str]]:
    """The names and bodies of the extern functions."""
    found = []
    for match in re.finditer(r'extern "C" void (\w+)\([^)]*\) \{', source):
        end = end_of_block(source, match.end())
        found.append((match[1], source[match.end() : end - 1]))
    return found


class _Statements:
    """Runs statements in order; a loop takes one turn."""

    def __init__(self, hooks: CppHooks, scope: dict[str, Any]) -> None:
        self._hooks, self._scope = hooks, scope

    def run(self, body: str) -> None:
        rest = body.strip()
        while rest:
            if rest.startswith("for"):
                rest = self._loop(rest)
                continue
            if rest.startswith("//"):
                rest = rest.partition("\n")[2].strip()
                continue
            statement, _, rest = rest.partition(";")
            self._statement(statement.strip())
            rest = rest.strip()

    def _loop(self, text: str) -> str:
        """Runs one turn of a loop `for (I name = 0; name < count; name++) { … }`."""
        head = re.match(r"for \(I (\w+) = 0; \1 < (lanes|others); \1\+\+\) \{", text)
        if head is None:
            raise NotDefined(f"the loop {text.splitlines()[0]!r}")
        end = end_of_block(text, head.end())
        self._scope[head[1]] = Number(terms.number(0), INT64)
        self.run(text[head.end() : end - 1])
        return text[end:].strip()

    def _statement(self, text: str) -> None:
        if text == "lanes &= ~(I)15":
            return  # lanes are a multiple of 16
        declared = re.fullmatch(r"const (\w+)(\* const)? (\w+) = (.*)", text, re.DOTALL)
        if declared is not None:
            names = re.findall(r"(\w+) = ", text) if declared[1] == "I" else []
            if declared[1] == "I" and not declared[2] and len(names) > 1 and "at = " in text:
                # const I q_idx = q0 + lane, at = other * lanes + lane
                first, at = declared[4].split(", at = ")
                self._declare("I", declared[3], first)
                if at != "other * lanes + lane":
                    raise NotDefined(f"the place {at!r} of a score")
                return
            if declared[2]:
                self._address(declared[1], declared[3], declared[4])
                return
            self._declare(declared[1], declared[3], declared[4])
            return
        if re.fullmatch(r"(\w+) of_lane_(\w+)\[64\]", text):
            return
        stored = re.fullmatch(r"of_lane_(\w+)\[lane\] = (\w+)", text)
        if stored is not None:
            self._scope[f"of_lane_{stored[1]}"] = {"lane": self._value(stored[2])}
            return
        written = re.fullmatch(r"s\[at\] (\*?)= (.*)", text, re.DOTALL)
        if written is not None:
            value = converted(self._value(written[2]), FLOAT32)
            if written[1]:
                before = self._scope["s"]["at"]
                value = Number(terms.apply("multiply", before.term, value.term), FLOAT32)
            self._scope["s"]["at"] = value
            return
        found = re.fullmatch(r"found\[(\d+)\] = (.*)", text, re.DOTALL)
        if found is not None:
            self._scope["found"][int(found[1])] = converted(self._value(found[2]), INT64)
            return
        raise NotDefined(f"the statement {text!r}")

    def _declare(self, kind: str, name: str, text: str) -> None:
        if kind not in _CASTS:
            raise NotDefined(f"the type {kind}")
        self._scope[name] = converted(self._value(text), _CASTS[kind])

    def _address(self, kind: str, name: str, text: str) -> None:
        found = re.fullmatch(rf"\(const {kind}\*\)S\[(\d+)\]", text)
        passed = self._hooks.passed.get(int(found[1])) if found else None
        if passed is None or passed.table is None:
            raise NotDefined(f"the address {text!r}")
        if self._hooks.entry_types[passed.table.name] != kind:
            raise NotDefined(f"entries of {passed.table.name} as {kind}")
        self._scope[name] = Pointer(passed.table, _ENTRY_TYPES[kind], terms.number(0))

    def _value(self, text: str) -> Number:
        return _Expression(text, self._hooks, self._scope).whole()


class Expressions(Generic[T]):
    """Parses expressions; subclasses say what a sum, a call or a comparison becomes."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise NotDefined(f"the text {text[at : at + 40]!r}")
            self._tokens.append(match[1])
            at = match.end()

    def whole(self) -> T:
        """The whole text as one expression."""
        found = self._value()
        if self._tokens:
            raise NotDefined(f"the text {' '.join(self._tokens)!r}")
        return found

    def _named(self, name: str) -> T:
        raise NotImplementedError

    def _literal(self, token: str) -> T:
        raise NotImplementedError

    def _truth(self, holds: bool) -> T:
        raise NotImplementedError

    def _negative(self, value: T) -> T:
        raise NotImplementedError

    def _no(self, value: T) -> T:
        raise NotImplementedError

    def _operated(self, sign: str, left: T, right: T) -> T:
        raise NotImplementedError

    def _chosen(self, condition: T, then: T, otherwise: T) -> T:
        raise NotImplementedError

    def _called(self, name: str, args: list[T]) -> T:
        raise NotImplementedError

    def _indexed(self, name: str) -> T:
        raise NotDefined(f"an entry of {name}")

    def _next(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def _take(self, wanted: str | None = None) -> str:
        token = self._tokens.pop(0) if self._tokens else ""
        if wanted is not None and token != wanted:
            raise NotDefined(f"{token!r} where {wanted!r} belongs")
        return token

    def _value(self) -> T:
        chosen = self._level(0)
        if self._next() != "?":
            return chosen
        self._take()
        then = self._value()
        self._take(":")
        return self._chosen(chosen, then, self._value())

    def _level(self, level: int) -> T:
        if level == len(_LEVELS):
            return self._unary()
        found = self._level(level + 1)
        while self._next() in _LEVELS[level]:
            found = self._operated(self._take(), found, self._level(level + 1))
        return found

    def _unary(self) -> T:
        if self._next() == "-":
            self._take()
            return self._negative(self._unary())
        if self._next() == "!":
            self._take()
            return self._no(self._unary())
        return self._primary()

    def _primary(self) -> T:
        if self._next() == "(":
            return self._within("(", ")")
        token = self._take()
        if not token[:1].isalnum() and token[:1] != "_":
            raise NotDefined(f"{token!r} where a value belongs")
        if token[0].isdigit():
            return self._literal(token)
        if token in ("true", "false"):
            return self._truth(token == "true")
        if self._next() == "(":
            return self._call(token)
        return self._indexed(token) if self._next() == "[" else self._named(token)

    def _within(self, opening: str, closing: str) -> T:
        self._take(opening)
        found = self._value()
        self._take(closing)
        return found

    def _call(self, name: str) -> T:
        return self._called(name, self._arguments())

    def _arguments(self) -> list[T]:
        self._take("(")
        found: list[T] = []
        if self._next() == '""':
            self._take()
        while self._next() != ")":
            found.append(self._value())
            if self._next() == ",":
                self._take()
        self._take(")")
        return found


class Numbers(Expressions[Number]):
    """Expressions as terms with their types."""

    def _truth(self, holds: bool) -> Number:
        return Number(terms.truth(holds), BOOL)

    def _no(self, value: Number) -> Number:
        return Number(~value.as_condition, BOOL)

    def _chosen(self, condition: Number, then: Number, otherwise: Number) -> Number:
        to = promoted(then.type, otherwise.type)
        x, y = converted(then, to), converted(otherwise, to)
        return Number(terms.choice(condition.as_condition, x.term, y.term), to)


class _Expression(Numbers):
    def __init__(self, text: str, hooks: CppHooks, scope: dict[str, Any]) -> None:
        super().__init__(text)
        self._hooks, self._scope = hooks, scope

    def _named(self, name: str) -> Number:
        known = self._scope.get(name)
        if not isinstance(known, Number):
            raise NotDefined(f"the name {name}")
        return known

    def _negative(self, value: Number) -> Number:
        if value.type.kind == "float":
            if value.term.op == "real":
                return Number(terms.real(-value.term.data), FLOAT32)
            return Number(terms.apply("negative", value.term), FLOAT32)
        return integer(-value.term, INT64)

    def _unary(self) -> Number:
        if self._next() == "(" and self._tokens[1] in _CASTS and self._tokens[2] == ")":
            _, kind, _ = (self._take() for _ in range(3))
            return converted(self._unary(), _CASTS[kind])
        return super()._unary()

    def _operated(self, sign: str, left: Number, right: Number) -> Number:
        return operation(sign, left, right)

    def _literal(self, token: str) -> Number:
        if token.startswith("0x"):
            return Number(terms.real(rounded(float.fromhex(token))), FLOAT32)
        plain = token.rstrip("L")
        if plain.endswith("f") or "." in plain:
            return Number(terms.real(rounded(float(plain.rstrip("f")))), FLOAT32)
        return Number(terms.number(int(plain)), INT64)

    def _indexed(self, name: str) -> Number:
        known = self._scope.get(name)
        if name == "S" or isinstance(known, dict):
            _, key, _ = self._take("["), self._take(), self._take("]")
            if not isinstance(known, dict):
                return Number(self._hooks.passed[int(key)].number, INT64)
            if key not in known:
                raise NotDefined(f"{name}[{key}], which nothing was written to")
            found = known[key]
            assert isinstance(found, Number)
            return found
        if not isinstance(known, Pointer):
            raise NotDefined(f"the table {name}")
        at = terms.unwrapped_ring(self._within("[", "]").term, 64)
        entry = terms.entry(known.table, at)
        if known.table.kind == "bool":
            return Number(entry, BOOL)
        return Number(entry, FLOAT32 if known.table.kind == "real" else known.entries)

    def _called(self, name: str, args: list[Number]) -> Number:
        if name in ("least", "most"):
            to = FLOAT32 if "float" in [arg.type.kind for arg in args] else INT64
            word = "minimum" if name == "least" else "maximum"
            return reduce(partial(extreme, word), [converted(arg, to) for arg in args])
        if name in _DIVISIONS:
            x, c = [converted(arg, INT64).term for arg in args]
            return Number(_DIVISIONS[name](x, terms.most(c, terms.number(1))), INT64)
        if name == "whole":
            return Number(terms.whole_part(args[0].term), INT64)
        if name == "real_of":
            return Number(terms.of_bits(args[0].term), FLOAT32)
        if name == "__builtin_inff":
            return Number(terms.real(float("inf")), FLOAT32)
        if name == "__builtin_nanf":
            return Number(terms.real(float("nan")), FLOAT32)
        if name in _NAMES:
            reals = [converted(arg, FLOAT32).term for arg in args]
            return Number(terms.apply(_NAMES[name], *reals), FLOAT32)
        raise NotDefined(f"the function {name}")


# A divisor below 1 counts as 1. Short divisions use doubles, so dividends must be below 2**52.
_DIVISIONS: Final[dict[str, Callable[[Term, Term], Term]]] = {
    "quotient": terms.quotient, "remainder": terms.remainder,
    "quotient_of_short": lambda x, c: _of_short(x // c, x),
    "remainder_of_short": lambda x, c: _of_short(x % c, x),
}  # fmt: skip
_ANYTHING: Final = Table("anything", "int", -(2**63), 2**63 - 1)


def _of_short(found: Term, x: Term) -> Term:
    near = (x < 2**52) & (x > -(2**52))
    return terms.choice(near, found, terms.entry(_ANYTHING, x))


_REAL: Final = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}
_INTEGER: Final[dict[str, ast.operator]] = {
    "+": ast.Add(), "-": ast.Sub(), "*": ast.Mult(), "&": ast.BitAnd(), "|": ast.BitOr(),
    "^": ast.BitXor(),
}  # fmt: skip
_COMPARED: Final[dict[str, ast.cmpop]] = {
    ">=": ast.GtE(), ">": ast.Gt(), "<=": ast.LtE(), "<": ast.Lt(), "==": ast.Eq(),
    "!=": ast.NotEq(),
}  # fmt: skip


def operation(sign: str, left: Number, right: Number) -> Number:
    """An operation of C++ on numbers and conditions."""
    if sign in ("&", "|") and left.type == right.type == BOOL:
        return Number((terms.both if sign == "&" else terms.either)(left.term, right.term), BOOL)
    if sign in ("&&", "||"):
        joined = terms.both if sign == "&&" else terms.either
        return Number(joined(left.as_condition, right.as_condition), BOOL)
    to = FLOAT32 if "float" in (left.type.kind, right.type.kind) else INT64
    if sign in _COMPARED:
        found = compared(_COMPARED[sign], converted(left, to), converted(right, to))
        assert isinstance(found, Number)
        return found
    if to == INT64 and max(left.type.bits, right.type.bits) <= 32:
        raise NotDefined(f"{sign} of integers of 32 bits")
    if sign not in (_REAL if to == FLOAT32 else _INTEGER):
        raise NotDefined(f"{sign} of {left.type} and {right.type}")
    x, y = converted(left, to), converted(right, to)
    if to == FLOAT32:
        return Number(terms.apply(_REAL[sign], x.term, y.term), FLOAT32)
    return of_integers(_INTEGER[sign], x, y)
