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
import re
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
    r"[A-Za-z_][\w.]*|==|!=|<=|>=|&&|\|\||[-+*/%&|^~!<>?:()\[\],;={}])"
)
_LEVELS: Final[tuple[dict[str, ast.boolop | ast.operator | ast.cmpop], ...]] = (
    {"||": ast.Or()}, {"&&": ast.And()}, {"|": ast.BitOr()}, {"^": ast.BitXor()},
    {"&": ast.BitAnd()}, {"==": ast.Eq(), "!=": ast.NotEq()},
    {"<": ast.Lt(), "<=": ast.LtE(), ">": ast.Gt(), ">=": ast.GtE()},
    {"+": ast.Add(), "-": ast.Sub()}, {"*": ast.Mult(), "/": ast.Div()},
)  # fmt: skip
_SIGNS: Final[dict[str, ast.unaryop]] = {
    "-": ast.USub(), "+": ast.UAdd(), "!": ast.Not(), "~": ast.Invert(),
}  # fmt: skip
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
        lines += ["", *_Function(name, heads).lines()]
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
            return ast.Constant(_number(token))
        if not re.match(r"[A-Za-z_]", token):
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


def _number(token: str) -> int | float:
    if token.startswith("0x"):
        return float.fromhex(token)
    plain = token.rstrip("fL")
    return int(plain) if plain.isdigit() and "f" not in token else float(plain)


@dataclass(frozen=True)
class _Head:
    """The parameters of a function, which of them it changes, and its body."""

    parameters: list[str]
    changed: list[str]
    body: str


def _head(source: str, name: str) -> _Head:
    found = re.search(rf'^(?:static|extern "C") [\w ]+\b{name}\(([^)]*)\) {{', source, re.M)
    if found is None:
        raise NotDefined(f"the function {name} of C++")
    declared = [part.split() for part in found[1].split(",")]
    changed = [part[-1] for part in declared if len(part) == 2 and part[0].endswith("*")]
    parameters = [part[-1] for part in declared]
    if "Visit" in [part[0] for part in declared]:
        parameters, changed = [*parameters, "state"], [*changed, "state"]
    depth, end = 1, found.end()
    while depth:
        depth += {"{": 1, "}": -1}.get(source[end], 0)
        end += 1
    return _Head(parameters, changed, source[found.end() : end - 1])


class _Function(_Tokens):
    """Translates a function into lines of Python."""

    def __init__(self, name: str, heads: dict[str, _Head]) -> None:
        self._name, self._heads, self._own = name, heads, heads[name]
        super().__init__(self._own.body)
        self.left = [t for t in self.left if not t.startswith("//") or t.startswith(_KEPT)]

    def lines(self) -> list[str]:
        head = f"def {self._name}({', '.join(self._own.parameters)}):"
        body = self._block("")
        if not body or not body[-1].startswith("return"):
            body.append(f"return {', '.join(self._own.changed)}")
        return [head, *_deeper(body)]

    def _block(self, closing: str) -> list[str]:
        found: list[str] = []
        while self.next() != closing:
            if self.next() == "if" and self._continues():
                # `if (c) continue; rest` becomes `if not c: rest`.
                self.take("if")
                condition = ast.UnaryOp(ast.Not(), self.within("(", ")"))
                self.take("continue")
                self.take(";")
                return [*found, f"if {ast.unparse(condition)}:", *_deeper(self._block(closing))]
            found += self._statement()
        return found

    def _continues(self) -> bool:
        return re.match(r"if \([^;{]*\) continue", " ".join(self.left)) is not None

    def _statement(self) -> list[str]:
        comments: list[str] = []
        while self.next().startswith("//"):
            comments.append("#" + self.take()[2:])
        if self.next() == "{":
            self.take()
            found = self._block("}")
            self.take("}")
            return found
        if self.next() == "for":
            return self._loop(comments)
        if self.next() == "if":
            self.take()
            condition = ast.unparse(self.within("(", ")"))
            found = [f"if {condition}:", *_deeper(self._statement())]
            if self.next() == "else":
                self.take()
                found += ["else:", *_deeper(self._statement())]
            return found
        if self.next() == "return":
            self.take()
            found = [f"return {', '.join([ast.unparse(self.value()), *self._own.changed])}"]
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
        return [*first, *comments, f"while {condition}:", *_deeper([*self._statement(), *step])]

    def _simple(self, closing: str) -> list[str]:
        """Declarations, assignments and calls, with commas between them."""
        if self.next() == "const":
            self.take()
        kind = self.take() if self.next() in CPP_TYPES else None
        if self.next() == "*":
            self.take()
            self.take("const")
            kind = None  # of an address, which says its type itself
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
            if name not in self._heads:  # a function that is passed
                return f"state = {name}(state, {', '.join(args)})"
            return f"{', '.join(self._changed_by(name, args))} = {name}({', '.join(args)})"
        target = ast.unparse(self.place(name))
        if kind and self.next() in (",", ";"):
            return f"{name} = array('{kind}')"
        sign = self.take()
        if sign in ("+", "-") and self.next() == sign:
            self.take()
            return f"{target} {sign}= 1"
        if sign != "=":
            if sign not in _CHANGES:
                raise NotDefined(f"the statement {target} {sign}")
            sign += self.take("=")
        function = self._heads.get(self.next())
        if function is not None and function.changed:
            name, args = self.take(), list(map(ast.unparse, self.arguments()))
            targets = ", ".join([target, *self._changed_by(name, args)])
            return f"{targets} {sign} {name}({', '.join(args)})"
        value = self.value()
        return f"{target} {sign} {ast.unparse(called(kind, value) if kind else value)}"

    def _changed_by(self, function: str, args: list[str]) -> list[str]:
        """The arguments of a call that the function changes."""
        of = self._heads[function]
        return [args[of.parameters.index(name)] for name in of.changed]


def _deeper(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]
