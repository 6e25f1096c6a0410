"""C++ functions of integers, translated to Python for the reader of Triton and for Python itself.

Only the kinds of statements in the C++ loop over blocks of keys are translated.
`for (I i = 0; i < n; i++)` becomes a `while`, and comments that state an invariant stay above it.
A declared integer becomes `I(…)`, a declared bool `boolean(…)`. A function that changes a list
returns the list, too. A function passed as an argument takes a `state` and returns the next one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ..meaning import NotDefined
from .cpp import Expressions, end_of_block

_TYPES: Final = {"I": "I", "bool": "boolean"}
_PYTHON: Final = {"||": "|", "&&": "&"}
_CHANGES: Final = ("|", "+", "-")
_KEPT: Final = ("// invariant: ", "// until: ")


def python_of(source: str, names: tuple[str, ...]) -> str:
    """A module of Python with the named functions of a C++ text, and its integer constants."""
    constants = re.findall(r"^static const I (\w+) = (\d+);", source, re.M)
    lines = [f"{name} = {value}" for name, value in constants]
    heads = {name: _head(source, name) for name in names}
    for name in names:
        lines += ["", *_Function(name, heads).lines()]
    return "\n".join([*lines, ""])


@dataclass(frozen=True)
class _Head:
    """The parameters of a function, which of them it changes, and its body."""

    parameters: list[str]
    changed: list[str]
    body: str


def _head(source: str, name: str) -> _Head:
    found = re.search(rf"^static [\w ]+\b{name}\(([^)]*)\) {{", source, re.M)
    if found is None:
        raise NotDefined(f"the function {name} of C++")
    declared = [part.split() for part in found[1].split(",")]
    changed = [part[-1] for part in declared if part[:-1] == ["I*"]]
    parameters = [part[-1] for part in declared]
    if "Visit" in [part[0] for part in declared]:
        parameters, changed = [*parameters, "state"], [*changed, "state"]
    end = end_of_block(source, found.end())
    return _Head(parameters, changed, source[found.end() : end - 1])


class _Function(Expressions[str]):
    """Translates a function into lines of Python."""

    def __init__(self, name: str, heads: dict[str, _Head]) -> None:
        self._name, self._heads, self._own = name, heads, heads[name]
        super().__init__(self._own.body)
        kept = [t for t in self._tokens if not t.startswith("//") or t.startswith(_KEPT)]
        self._tokens = kept

    def lines(self) -> list[str]:
        head = f"def {self._name}({', '.join(self._own.parameters)}):"
        body = self._block("")
        if not body[-1].startswith("return"):
            body.append(f"return {', '.join(self._own.changed)}")
        return [head, *_deeper(body)]

    # --- statements ------------------------------------------------------------------------------

    def _block(self, closing: str) -> list[str]:
        found: list[str] = []
        while self._next() != closing:
            if self._next() == "if" and self._continues():
                # `if (c) continue; rest` becomes `if no(c): rest`.
                self._take("if")
                condition = self._within("(", ")")
                self._take("continue")
                self._take(";")
                return [*found, f"if no({condition}):", *_deeper(self._block(closing))]
            found += self._statement()
        return found

    def _continues(self) -> bool:
        text = " ".join(self._tokens)
        return "continue" in text and re.match(r"if \([^;{]*\) continue", text) is not None

    def _statement(self) -> list[str]:
        comments: list[str] = []
        while self._next().startswith("//"):
            comments.append("#" + self._take()[2:])
        if self._next() == "{":
            self._take()
            found = self._block("}")
            self._take("}")
            return found
        if self._next() == "for":
            return self._loop(comments)
        if self._next() == "if":
            self._take()
            found = [f"if {self._within('(', ')')}:", *_deeper(self._statement())]
            if self._next() == "else":
                self._take()
                found += ["else:", *_deeper(self._statement())]
            return found
        if self._next() == "return":
            self._take()
            found = [f"return {', '.join([self._value(), *self._own.changed])}"]
            self._take(";")
            return found
        return self._simple(";")

    def _loop(self, comments: list[str]) -> list[str]:
        self._take("for")
        self._take("(")
        first = self._simple(";")
        condition = self._value()
        self._take(";")
        step = self._simple(")")
        return [*first, *comments, f"while {condition}:", *_deeper([*self._statement(), *step])]

    def _simple(self, closing: str) -> list[str]:
        """Declarations, assignments and calls, with commas between them."""
        kind = self._take() if self._next() in _TYPES else None
        found: list[str] = []
        while True:
            found.append(self._part(kind))
            if self._take() == closing:
                return found

    def _part(self, kind: str | None) -> str:
        name = self._take()
        if self._next() == "(":
            args = self._arguments()
            if name not in self._heads:  # a function that is passed
                return f"state = {name}(state, {', '.join(args)})"
            return f"{', '.join(self._changed_by(name, args))} = {name}({', '.join(args)})"
        target = self._indexed(name) if self._next() == "[" else name
        sign = self._take()
        if sign in "+-" and self._next() == sign:
            self._take()
            return f"{target} {sign}= 1"
        if sign != "=":
            if sign not in _CHANGES:
                raise NotDefined(f"the statement {target} {sign}")
            sign += self._take("=")
        called = self._heads.get(self._next())
        if called is not None and called.changed:
            function, args = self._take(), self._arguments()
            targets = ", ".join([target, *self._changed_by(function, args)])
            return f"{targets} {sign} {function}({', '.join(args)})"
        value = self._value()
        return f"{target} {sign} {_TYPES[kind]}({value})" if kind else f"{target} {sign} {value}"

    def _changed_by(self, function: str, args: list[str]) -> list[str]:
        """The arguments of a call that the function changes."""
        of = self._heads[function]
        return [args[of.parameters.index(name)] for name in of.changed]

    # --- values ----------------------------------------------------------------------------------

    def _named(self, name: str) -> str:
        return name

    def _literal(self, token: str) -> str:
        if not token.isdigit():
            raise NotDefined(f"the number {token}")
        return token

    def _truth(self, holds: bool) -> str:
        return str(holds)

    def _negative(self, value: str) -> str:
        return f"(-{value})"

    def _no(self, value: str) -> str:
        return f"no({value})"

    def _operated(self, sign: str, left: str, right: str) -> str:
        if sign in ("/", "%", "|", "^", "&"):
            raise NotDefined(f"{left} {sign} {right}")
        return f"({left} {_PYTHON.get(sign, sign)} {right})"

    def _chosen(self, condition: str, then: str, otherwise: str) -> str:
        return f"where({condition}, {then}, {otherwise})"

    def _called(self, name: str, args: list[str]) -> str:
        return f"{name}({', '.join(args)})"

    def _indexed(self, name: str) -> str:
        return f"{name}[{self._within('[', ']')}]"


def _deeper(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]
