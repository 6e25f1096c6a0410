"""C++ and JavaScript as Python, for the readers of this folder and for Python itself.

Only what hooks, the C++ loop over blocks of keys and the page of `explore` are written with is
translated. `c ? x : y` becomes `x if c else y`, a cast `(float)x` or a declaration `float f = x`
calls `float(x)`, and an address `(const float*)x` is `address("float", x)`.
`for (I i = 0; i < n; i++)` becomes a `while`, and comments that state an invariant stay above it.
A function that changes a list returns the list, too. A function passed as an argument takes a
`state` and returns the next one.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from ..meaning import NotDefined
from .values import INT64, TYPES

CPP_TYPES: Final = {
    "I": INT64,
    "float": TYPES["float32"],
    "bool": TYPES["int1"],
    **{f"{name}_t": TYPES[name] for name in ("uint8", "int8", "int16", "int32", "int64")},
}
_TOKEN: Final = re.compile(
    r"\s*(//[^\n]*|\"[^\"]*\"|0x[0-9a-fA-F.]+p[+-]?\d+|\d+\.?\d*(?:e[+-]?\d+)?[fL]*|"
    r"[A-Za-z_][\w.]*|==|!=|<=|>=|&&|\|\||\+\+|--|[-+*/%&|^~!<>?:()\[\],;={}])"
)
_LEVELS: Final[tuple[dict[str, ast.boolop | ast.operator | ast.cmpop], ...]] = (
    {"||": ast.Or()}, {"&&": ast.And()}, {"|": ast.BitOr()}, {"^": ast.BitXor()},
    {"&": ast.BitAnd()}, {"==": ast.Eq(), "!=": ast.NotEq()},
    {"<": ast.Lt(), "<=": ast.LtE(), ">": ast.Gt(), ">=": ast.GtE()},
    {"+": ast.Add(), "-": ast.Sub()}, {"*": ast.Mult(), "/": ast.Div()},
)  # fmt: skip
_SIGNS: Final[dict[str, ast.unaryop]] = {"-": ast.USub(), "+": ast.UAdd(), "!": ast.Not()}
_CHANGES: Final = ("|", "&", "+", "-", "*")
_KEPT: Final = ("// invariant: ", "// until: ")


def expression_of(text: str) -> ast.expr:
    """An expression as Python's."""
    tokens = _Tokens(text)
    found = tokens.value()
    if tokens.next():
        raise NotDefined(f"the text {' '.join(tokens.left)!r}")
    return found


def python_of(source: str, names: tuple[str, ...]) -> str:
    """A module of Python with the named functions of a C++ text, and its integer constants."""
    constants = re.findall(r"^static const I (\w+) = (\d+);", source, re.M)
    lines = [f"{name} = {value}" for name, value in constants]
    heads = {name: _head(source, name) for name in names}
    for name in names:
        lines += ["", *_Function(name, heads, [known for known, _ in constants]).lines()]
    return "\n".join([*lines, ""])


class _Tokens:
    """Reads expressions from a text."""

    def __init__(self, text: str) -> None:
        self.left: list[str] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise NotDefined(f"the text {text[at : at + 40]!r}")
            self.left.append(match[1])
            at = match.end()

    def next(self) -> str:
        return self.left[0] if self.left else ""

    def take(self, wanted: str | None = None) -> str:
        token = self.left.pop(0) if self.left else ""
        if wanted is not None and token != wanted:
            raise NotDefined(f"{token!r} where {wanted!r} belongs")
        return token

    def value(self) -> ast.expr:
        chosen = self._level(0)
        if self.next() != "?":
            return chosen
        self.take()
        then = self.value()
        self.take(":")
        return ast.IfExp(chosen, then, self.value())

    def _level(self, level: int) -> ast.expr:
        if level == len(_LEVELS):
            return self._signed()
        found = self._level(level + 1)
        while self.next() in _LEVELS[level]:
            op = _LEVELS[level][self.take()]
            other = self._level(level + 1)
            if isinstance(op, ast.boolop):
                found = ast.BoolOp(op, [found, other])
            elif isinstance(op, ast.cmpop):
                found = ast.Compare(found, [op], [other])
            else:
                found = ast.BinOp(found, op, other)
        return found

    def _signed(self) -> ast.expr:
        if self.next() in _SIGNS:
            return ast.UnaryOp(_SIGNS[self.take()], self._signed())
        if self.next() == "~":  # of a condition, not Python's
            self.take()
            return called("complement", self._signed())
        cast = " ".join(self.left[:5]).removeprefix("( ")
        found = re.match(r"(const )?(\w+) (\* )?\)", cast) if self.next() == "(" else None
        if found is None or found[2] not in CPP_TYPES:
            return self._primary()
        while self.take() != ")":
            pass
        if found[3]:
            return called("address", ast.Constant(found[2]), self._signed())
        return called(found[2], self._signed())

    def _primary(self) -> ast.expr:
        if self.next() == "(":
            return self.within("(", ")")
        token = self.take()
        if token[:1] == '"':
            return ast.Constant(token[1:-1])
        if token[:1].isdigit():
            return _number(token)
        if not re.match(r"[A-Za-z_]", token) or keyword.iskeyword(token):
            raise NotDefined(f"{token!r} where a value belongs")
        if token in ("true", "false"):
            return ast.Constant(token == "true")
        if self.next() == "(":
            return called(token, *self.arguments())
        return self.place(token)

    def place(self, name: str) -> ast.expr:
        """A variable, or an entry of it."""
        first, *parts = name.split(".")
        found: ast.expr = ast.Name(first)
        for part in parts:
            found = ast.Attribute(found, part)
        return ast.Subscript(found, self.within("[", "]")) if self.next() == "[" else found

    def within(self, opening: str, closing: str) -> ast.expr:
        self.take(opening)
        found = self.value()
        self.take(closing)
        return found

    def arguments(self) -> list[ast.expr]:
        self.take("(")
        found: list[ast.expr] = []
        while self.next() != ")":
            if found:
                self.take(",")
            found.append(self.value())
        self.take(")")
        return found


def called(name: str, *args: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name), list(args), [])


def _number(token: str) -> ast.expr:
    """A literal; `5LL` and `0.5f` are converted to the types they have."""
    if token.startswith("0x"):
        return ast.Constant(float.fromhex(token))
    plain = token.rstrip("fL")
    kind = {"": None, "f": "float", "L": "I", "LL": "I"}.get(token[len(plain) :], "")
    whole = plain.isdigit()
    if kind == "" or re.match(r"0\d", plain) or (kind and whole != (kind == "I")):
        raise NotDefined(f"the number {token}")
    value = ast.Constant(int(plain) if whole else float(plain))
    return called(kind, value) if kind else value


@dataclass(frozen=True)
class _Head:
    """The parameters of a function with their types, which of them it changes, the type of its
    result, and its body."""

    parameters: dict[str, str]
    changed: list[str]
    result: str
    body: str


def _head(source: str, name: str) -> _Head:
    # Braces and functions in comments are none.
    plain = re.sub(r"//[^\n]*", lambda comment: " " * len(comment[0]), source)
    pattern = rf'^(?:static|extern "C") (?:inline )?(\w+) {name}\(([^)]*)\) {{'
    every = list(re.finditer(pattern, plain, re.M))
    if len(every) != 1 or every[0][1] not in (*CPP_TYPES, "void"):
        raise NotDefined(f"the function {name} of C++")
    (found,) = every
    declared = [part.removeprefix("const ") for part in re.split(r",\s*", found[2])]
    parameters = {part.split()[-1]: part.rpartition(" ")[0] for part in declared}
    written = [part for part in re.split(r",\s*", found[2]) if re.match(r"\w+\* ", part)]
    changed = [part.split()[-1] for part in written]
    if "Visit" in parameters.values():
        parameters, changed = {**parameters, "state": "Visit"}, [*changed, "state"]
    depth, end = 1, found.end()
    while depth:
        if end == len(plain):
            raise NotDefined(f"the function {name}, which does not end")
        depth += {"{": 1, "}": -1}.get(plain[end], 0)
        end += 1
    return _Head(parameters, changed, found[1], source[found.end() : end - 1])


class _Function(_Tokens):
    """Translates a function into lines of Python."""

    def __init__(self, name: str, heads: dict[str, _Head], constants: list[str]) -> None:
        self._name, self._heads, self._own = name, heads, heads[name]
        self._kinds = {**dict.fromkeys([*constants, *heads], ""), **self._own.parameters}
        """The types of the names in scope; "" of those outside."""
        super().__init__(self._own.body)
        if any(token.endswith("\\") for token in self.left):
            raise NotDefined("a comment that goes on in the next line")
        self.left = [t for t in self.left if not t.startswith("//") or t.startswith(_KEPT)]

    def lines(self) -> list[str]:
        head = f"def {self._name}({', '.join(self._own.parameters)}):"
        body = [*self._converted(), *self._block("")]
        if not body or not body[-1].startswith("return"):
            if self._own.result != "void":
                raise NotDefined(f"{self._name}, which may return nothing")
            body.append(f"return {', '.join(self._own.changed)}")
        return [head, *_deeper(body)]

    def _converted(self) -> list[str]:
        """Arguments are converted to the types of their parameters."""
        found = []
        for name, kind in self._own.parameters.items():
            if kind in CPP_TYPES:
                found.append(f"{name} = {kind}({name})")
            elif kind.endswith("*") and kind[:-1] in CPP_TYPES:
                found.append(f"{name} = address('{kind[:-1]}', {name})")
            elif kind not in ("Spans&", "Visit"):
                raise NotDefined(f"a parameter of type {kind}")
        return found

    @contextmanager
    def _scope(self) -> Iterator[None]:
        """Names declared within end with it; none hides another one."""
        outer = dict(self._kinds)
        yield
        self._kinds = outer

    def _declare(self, name: str, kind: str) -> None:
        if name in self._kinds:
            raise NotDefined(f"another {name}")
        self._kinds[name] = kind

    def _block(self, closing: str, of_loop: bool = False) -> list[str]:
        found: list[str] = []
        while self.next() != closing:
            if of_loop and self.next() == "if" and self._continues():
                # `if (c) continue; rest` becomes `if not c: rest`.
                self.take("if")
                condition = ast.UnaryOp(ast.Not(), self.within("(", ")"))
                self.take("continue")
                self.take(";")
                rest = self._block(closing, of_loop)
                return [*found, f"if {ast.unparse(condition)}:", *_deeper(rest)]
            found += self._statement()
        return found

    def _continues(self) -> bool:
        return re.match(r"if \([^;{]*\) continue", " ".join(self.left)) is not None

    def _inner(self, of_loop: bool = False) -> list[str]:
        with self._scope():
            return self._statement(of_loop)

    def _statement(self, of_loop: bool = False) -> list[str]:
        comments: list[str] = []
        while self.next().startswith("//"):
            comments.append("#" + self.take()[2:])
        if self.next() == "{":
            self.take()
            with self._scope():
                found = self._block("}", of_loop)
            self.take("}")
            return found
        if self.next() == "for":
            with self._scope():
                return self._loop(comments)
        if self.next() == "if":
            self.take()
            condition = ast.unparse(self.within("(", ")"))
            found = [f"if {condition}:", *_deeper(self._inner())]
            if self.next() == "else":
                self.take()
                found += ["else:", *_deeper(self._inner())]
            return found
        if self.next() == "return":
            self.take()
            if self._own.result == "void":
                raise NotDefined(f"a result of {self._name}")
            value = ast.unparse(called(self._own.result, self.value()))
            found = [f"return {', '.join([value, *self._own.changed])}"]
            self.take(";")
            return found
        return self._simple(";")

    def _loop(self, comments: list[str]) -> list[str]:
        self.take("for")
        self.take("(")
        first = self._simple(";")
        condition = ast.unparse(self.value())
        self.take(";")
        step = self._simple(")")
        body = [*self._inner(of_loop=True), *step]
        return [*first, *comments, f"while {condition}:", *_deeper(body)]

    def _simple(self, closing: str) -> list[str]:
        """Declarations, assignments and calls, with commas between them."""
        if self.next() == "const":
            self.take()
        kind = self.take() if self.next() in CPP_TYPES else None
        if kind and self.next() == "*":
            kind += self.take()
            self.take("const")
        found: list[str] = []
        while True:
            found.append(self._part(kind))
            if self.next() != closing:
                self.take(",")
                continue
            self.take()
            return found

    def _part(self, kind: str | None) -> str:
        name = self.take()
        if self.next() == "(":
            args = list(map(ast.unparse, self.arguments()))
            if self._kinds.get(name) == "Visit":  # a function that is passed
                return f"state = {name}(state, {', '.join(args)})"
            if kind or name not in self._heads:
                raise NotDefined(f"a call of {name}")
            return f"{', '.join(self._changed_by(name, args))} = {name}({', '.join(args)})"
        place = self.place(name)
        target = ast.unparse(place)
        if kind:
            self._declare(name, kind)
            if isinstance(place, ast.Subscript) and self.next() in (",", ";"):
                return f"{name} = array('{kind}', {ast.unparse(place.slice)})"
        sign = self.take()
        if sign in ("++", "--"):
            return f"{target} {sign[0]}= 1"
        if sign != "=":
            if sign not in _CHANGES:
                raise NotDefined(f"the statement {target} {sign}")
            sign += self.take("=")
        if isinstance(place, ast.Name):
            kind = self._kinds.get(name) or ""
            if not kind or (kind[:-1] if kind.endswith("*") else kind) not in CPP_TYPES:
                raise NotDefined(f"an assignment to {name}")
        function = self._heads.get(self.next())
        if function is not None and function.changed:
            name, args = self.take(), list(map(ast.unparse, self.arguments()))
            if function.result != kind or sign != "=":
                raise NotDefined(f"a result of {name} of another type")
            targets = ", ".join([target, *self._changed_by(name, args)])
            return f"{targets} = {name}({', '.join(args)})"
        value = self.value()
        if kind and kind.endswith("*"):
            value = called("address", ast.Constant(kind[:-1]), value)
        elif kind and sign == "=":
            value = called(kind, value)
        return f"{target} {sign} {ast.unparse(value)}"

    def _changed_by(self, function: str, args: list[str]) -> list[str]:
        """The arguments of a call that the function changes."""
        of = self._heads[function]
        places = list(of.parameters)
        return [args[places.index(name)] for name in of.changed]


def _deeper(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]
