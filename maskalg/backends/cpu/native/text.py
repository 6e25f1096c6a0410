"""A formula as C++: straight-line code in which each distinct part of the formula has a name.

Integers have 64 bits, real numbers 32. Each step of a real formula rounds as `evaluate` does, so
masks are the same on every backend. Functions of real numbers may differ in their last bits, and
are allowed in biases only (`is_printable`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, cast

from ....engine.widths import limits
from ....formula.functions import function_of
from ....formula.meaning import BITWISE, as_float32
from ....formula.nodes import Node, in_order
from ....formula.parameters import Slot
from ....formula.separation import positions

Stage = str
"""The loop a line stands in: "once", for each "lane", each of the "others", or each "pair"."""

_HEAVY: Final = {"read", "floordiv", "mod", "div", "call", "pow", "trunc"}
_TYPES: Final = {"int": "I", "real": "float", "bool": "bool"}
_EXACT_QUOTIENT: Final = 2**52


def is_printable(node: Node, *, exact: bool) -> bool:
    """Whether a formula can be written as C++; `exact` for a mask, which no rounding may change."""
    for part in node.walk():
        if part.op not in _RULES:
            return False
        if exact and part.op == "pow":
            return False
        if exact and part.op == "call" and not function_of(part).same_everywhere:
            return False
    return True


class Cpp:
    """Prints formulas inside of a loop over lanes within one over others.

    Args:
        lane: the index that changes from lane to lane, "q_idx" or "kv_idx"; None without loops.
        numbers: the place in `S` of each slot's value, or of the address and sizes of its table.
        types: the C++ type of the entries of each table.
    """

    def __init__(self, lane: str | None, numbers: dict[int, int], types: dict[int, str]) -> None:
        self.lane = lane
        self.other = {"q_idx": "kv_idx", "kv_idx": "q_idx"}.get(lane or "")
        self.numbers, self.types = numbers, types
        self.open = (None,) * (
            max(numbers, default=-1) + 1
        )  # numbers and tables, whatever they are
        self.lines: dict[Stage, list[str]] = {"once": [], "lane": [], "others": [], "pair": []}
        self._names: dict[tuple[Stage, Node], str] = {}
        self._count = 0

    def __call__(self, node: Node, stage: Stage | None = None) -> str:
        """The name of a formula's value; a literal is written out."""
        own = self._stage(node)
        if stage is None:
            stage = own
        elif own in ("once", "others"):
            stage = "lane" if stage == "lane" and own == "others" else own
        elif own == "lane" and stage == "pair" and node.ops() & _HEAVY:
            return self._of_lane(node)
        key = (stage, node)
        if key not in self._names:
            text = _RULES[node.op](self, node, stage)
            if node.op in ("const", "index", "score"):
                return text
            self._names[key] = self.named(_TYPES[node.kind], text, stage)
        return self._names[key]

    def named(self, kind: str, text: str, stage: Stage) -> str:
        self._count += 1
        self.lines[stage].append(f"const {kind} t{self._count} = {text};")
        return f"t{self._count}"

    def _stage(self, node: Node) -> Stage:
        if "score" in node.ops():
            return "pair"
        read = positions(node)
        if not read:
            return "once"
        if read == {self.lane}:
            return "lane"
        return "others" if read == {self.other} else "pair"

    def _of_lane(self, node: Node) -> str:
        """A value that changes only from lane to lane, computed before the loop over others."""
        key = ("array", node)
        if key not in self._names:
            name = self(node, "lane")
            kind = "uint8_t" if node.kind == "bool" else _TYPES[node.kind]
            self.lines["once"].append(f"{kind} of_lane_{name}[64];")
            self.lines["lane"].append(f"of_lane_{name}[lane] = {name};")
            text = f"of_lane_{name}[lane]"
            self._names[key] = f"({text} != 0)" if node.kind == "bool" else text
        return self._names[key]

    def real(self, node: Node, stage: Stage) -> str:
        """The value as a real number."""
        name = self(node, stage)
        return name if node.kind == "real" else f"(float)({name})"

    def numbers_of(self, node: Node, stage: Stage) -> list[str]:
        """The arguments in the order in which they are combined, as the node's kind."""
        value = self.real if node.kind == "real" else self
        return [value(arg, stage) for arg in in_order(node)]

    def slot(self, node: Node) -> int:
        return cast(Slot, node.own[0]).index


Rule = Callable[[Cpp, Node, Stage], str]


def _const(cpp: Cpp, node: Node, stage: Stage) -> str:
    if node.kind == "bool":
        return "true" if node.data else "false"
    if node.kind == "int":
        return f"(I){node.data}LL" if cast(int, node.data) >= 0 else f"((I){node.data}LL)"
    value = as_float32(cast(float, node.data))
    if math.isnan(value):
        return '__builtin_nanf("")'
    if math.isinf(value):
        return "__builtin_inff()" if value > 0 else "(-__builtin_inff())"
    return f"((float){float(value).hex()})"


def _index(cpp: Cpp, node: Node, stage: Stage) -> str:
    return str(node.data)


def _scalar(cpp: Cpp, node: Node, stage: Stage) -> str:
    place = cpp.numbers[cpp.slot(node)]
    return f"S[{place}]" if node.kind == "int" else f"real_of(S[{place}])"


def _read(cpp: Cpp, node: Node, stage: Stage) -> str:
    slot = cpp.slot(node)
    place, rank = cpp.numbers[slot], len(node.args)
    table = cpp.named(f"{cpp.types[slot]}* const", f"(const {cpp.types[slot]}*)S[{place}]", "once")
    steps = []
    for axis, arg in enumerate(node.args):
        last = cpp.named("I", f"S[{place + 1 + axis}] - 1", "once")
        step = cpp.named("I", f"S[{place + 1 + rank + axis}]", "once")
        steps.append(f"least(most({cpp(arg, stage)}, 0), {last}) * {step}")
    entry = f"{table}[{' + '.join(steps) or '0'}]"
    return f"{entry} != 0" if node.kind == "bool" else f"({_TYPES[node.kind]}){entry}"


def _extent(cpp: Cpp, node: Node, stage: Stage) -> str:
    # After the address: for reads, an empty axis counts as one entry; its extent is 0.
    place = cpp.numbers[cpp.slot(node)]
    rank = cast(Slot, node.own[0]).ndim
    return f"S[{place + 1 + 2 * rank + cast(int, node.data)}]"


def _folded(pattern: str) -> Rule:
    def rule(cpp: Cpp, node: Node, stage: Stage) -> str:
        first, *rest = cpp.numbers_of(node, stage)
        for part in rest:
            first = pattern.format(first, part)
        return first

    return rule


def _extremum(cpp: Cpp, node: Node, stage: Stage) -> str:
    name = {"min": "least", "max": "most"}[node.op]
    return _folded(f"{name}({{}}, {{}})")(cpp, node, stage)


def _compared(sign: str) -> Rule:
    def rule(cpp: Cpp, node: Node, stage: Stage) -> str:
        real = "real" in (node.args[0].kind, node.args[1].kind)
        left, right = [(cpp.real if real else cpp)(arg, stage) for arg in node.args]
        return f"({left} {sign} {right})"

    return rule


def _floored(cpp: Cpp, node: Node, stage: Stage) -> str:
    """A quotient rounded down; divisors are at least 1, except in branches not taken."""
    x, c = node.args
    # A quotient of doubles is a vector instruction.
    short = stage == "pair" and all(abs(end) < _EXACT_QUOTIENT for end in limits(x, cpp.open))
    name = {"floordiv": "quotient", "mod": "remainder"}[node.op]
    return f"{name}{'_of_short' if short else ''}({cpp(x, stage)}, {cpp(c, stage)})"


def _where(cpp: Cpp, node: Node, stage: Stage) -> str:
    value = cpp.real if node.kind == "real" else cpp
    chosen, then, otherwise = node.args
    return f"({cpp(chosen, stage)} ? {value(then, stage)} : {value(otherwise, stage)})"


def _call(cpp: Cpp, node: Node, stage: Stage) -> str:
    return function_of(node).cpp.format(cpp.real(node.args[0], stage))


_RULES: Final[dict[str, Rule]] = {
    "const": _const,
    "index": _index,
    "scalar": _scalar,
    "read": _read,
    "extent": _extent,
    "score": lambda cpp, node, stage: "score",
    "add": _folded("({} + {})"),
    "mul": _folded("({} * {})"),
    "and": _folded("({} & {})"),
    "or": _folded("({} | {})"),
    **{name: _folded(f"({{}} {row.sign} {{}})") for name, row in BITWISE.items()},
    "min": _extremum,
    "max": _extremum,
    "floordiv": _floored,
    "mod": _floored,
    "div": lambda cpp, node, stage: " / ".join(cpp.real(arg, stage) for arg in node.args),
    "ge": _compared(">="),
    "gt": _compared(">"),
    "eq": _compared("=="),
    "not": lambda cpp, node, stage: f"!{cpp(node.args[0], stage)}",
    "where": _where,
    "call": _call,
    "pow": lambda cpp, node, stage: (
        f"__builtin_powf({', '.join(cpp.real(arg, stage) for arg in node.args)})"
    ),
    "trunc": lambda cpp, node, stage: f"whole({cpp.real(node.args[0], stage)})",
}

PRELUDE: Final = """#include <stdint.h>
typedef int64_t I;

static inline I least(I a, I b) { return a < b ? a : b; }
static inline I most(I a, I b) { return a > b ? a : b; }
static inline float least(float a, float b) { return a < b || a != a ? a : b; }
static inline float most(float a, float b) { return a > b || a != a ? a : b; }
static inline float bits(int32_t x) { union { int32_t i; float f; } u; u.i = x; return u.f; }
static inline int32_t bits(float x) { union { int32_t i; float f; } u; u.f = x; return u.i; }
static inline float real_of(I x) { return bits((int32_t)x); }
static inline I quotient(I x, I c) {
  c = most(c, 1);
  I q = x / c;
  return q - (x - q * c < 0);
}
static inline I remainder(I x, I c) { return x - quotient(x, c) * most(c, 1); }
static inline I quotient_of_short(I x, I c) {
  return (I)__builtin_floor((double)x / (double)most(c, 1));
}
static inline I remainder_of_short(I x, I c) { return x - quotient_of_short(x, c) * most(c, 1); }
static inline I whole(float x) {
  x = x < -2147483520.f ? -2147483520.f : x;
  x = x > 2147483520.f ? 2147483520.f : x;
  return x == x ? (I)(int32_t)x : 0;
}
static inline float exp2_of(float x) {
  float y = x < -126.f ? -126.f : x;
  y = y > 129.f ? 129.f : y;
  float r = y + 12582912.f, f = y - (r - 12582912.f);
  float p = 1.54035304e-4f;
  p = p * f + 1.33335581e-3f;
  p = p * f + 9.61812911e-3f;
  p = p * f + 5.55041087e-2f;
  p = p * f + 2.40226507e-1f;
  p = p * f + 6.93147181e-1f;
  p = p * f + 1.f;
  int32_t n = bits(r) - 0x4b400000, half = n >> 1;  // 2 to the power of 128 is no number
  float found = p * bits((half + 127) << 23) * bits((n - half + 127) << 23);
  return x < -126.f ? 0.f : x == x ? found : x;
}
static inline float exp_of(float x) {
  // log2(e) in two parts: the rounding of a large product would be one of the result.
  float y = x * 1.44269504f, r = (y + 12582912.f) - 12582912.f;
  r = r < -126.f ? -126.f : r > 127.f ? 127.f : r;
  float f = (x - r * 0.693145752f) - r * 1.42860677e-6f, e = exp2_of(f * 1.44269504f);
  float power = bits(((int32_t)r + 127) << 23);
  return x > 88.72284f ? __builtin_inff() : x < -87.33655f ? 0.f : x == x ? e * power : x;
}
static inline float expm1_of(float x) {
  float near = x * (1.f + x * (0.5f + x * (1.f / 6 + x * (1.f / 24 + x * (1.f / 120)))));
  return __builtin_fabsf(x) < 0.25f ? near : exp_of(x) - 1.f;
}
static inline float log2_of(float x) {
  bool small = x < 1.17549435e-38f;
  float y = small ? x * 8388608.f : x;
  int32_t b = bits(y), e = ((b - 0x3f3504f3) >> 23);
  float m = bits(b - (int32_t)((uint32_t)e << 23)) - 1.f, s = m / (2.f + m), z = s * s;
  float p = z * (0.66666667f + z * (0.4f + z * (0.28571429f + z * 0.22222222f)));
  float natural = m - s * (m - p);
  float found = natural * 1.44269504f + (float)(e - (small ? 23 : 0));
  found = x == __builtin_inff() ? x : found;
  return x > 0.f ? found : x == 0.f ? -__builtin_inff() : __builtin_nanf("");
}
static inline float log_of(float x) {
  bool small = x < 1.17549435e-38f;
  float y = small ? x * 8388608.f : x;
  int32_t b = bits(y), e = ((b - 0x3f3504f3) >> 23);
  float m = bits(b - (int32_t)((uint32_t)e << 23)) - 1.f, s = m / (2.f + m), z = s * s;
  float p = z * (0.66666667f + z * (0.4f + z * (0.28571429f + z * 0.22222222f)));
  float n = (float)(e - (small ? 23 : 0));
  float found = n * 0.693145752f + (n * 1.42860677e-6f + (m - s * (m - p)));
  found = x == __builtin_inff() ? x : found;
  return x > 0.f ? found : x == 0.f ? -__builtin_inff() : __builtin_nanf("");
}
static inline float log1p_of(float x) {
  float u = 1.f + x, found = log_of(u) - ((u - 1.f) - x) / u;
  return u == 1.f ? x : u == __builtin_inff() || u == 0.f ? log_of(u) : found;
}
static inline float sigmoid_of(float x) { return 1.f / (1.f + exp_of(-x)); }
static inline float tanh_of(float x) {
  float a = __builtin_fabsf(x), z = x * x;
  float near = x + x * z * (-0.333333333f + z * (0.133333333f + z * (-0.0539682540f
             + z * (0.0218694885f + z * -0.00886323553f))));
  float far = 1.f - 2.f / (exp_of(2.f * a) + 1.f);
  return a < 0.25f ? near : x < 0.f ? -far : far;
}
"""
