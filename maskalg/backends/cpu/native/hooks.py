"""The hooks of an expression as C++: its mask, its bias and the bounds of its loop.

The loop itself is `skeleton.cpp`, the same for every expression; it calls a hook for a block of
scores at a time. `causal & sliding(512)` is a `mask_q` that compares, and a `bounds` that says
which keys a tile of queries visits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import torch

from ....codegen.derivative import derivative
from ....engine.normal_form import Structure
from ....formula import nodes
from ....formula.nodes import SCORE, Node
from ....formula.parameters import Slot, Table
from ....formula.printing import formula_text
from ....proof.closed_forms import ClosedForms, Span, in_kernels
from ....proof.proof import closed_forms_of
from ....schedule.rung import rung_of
from .text import PRELUDE, Cpp, is_printable

ENTRY_TYPES: Final = {
    torch.bool: "uint8_t",
    torch.uint8: "uint8_t",
    torch.int8: "int8_t",
    torch.int16: "int16_t",
    torch.int32: "int32_t",
    torch.int64: "int64_t",
    torch.float32: "float",
}
"""The C++ type of a table's entries; other real tables are read as float32."""

_ARGUMENTS: Final = (
    "const I* S, I batch, I head, I lane0, I lanes, I other0, I others, float* s, const float* raw"
)
_BOUNDS: Final = "const I* S, I batch, I head, I q0, I q1, I kv_len, I* found"


@dataclass(frozen=True)
class Hooks:
    """C++ of the hooks of one structure, and its arguments.

    Attributes:
        source: the functions `mask_q`, `mask_k` and, if the fields below say so, `bias_…`,
            `slope_…` and `bounds`, extern "C". `_q` has queries as lanes, `_k` keys.
        biased, sloped: whether there is a bias, and whether its slope is not 1.
        touched, unfull: the numbers of intervals of `bounds`; both 0 without it.
        bounded: whether there is `bounds`; else the loop gets runs of blocks of keys.
    """

    source: str
    biased: bool
    sloped: bool
    bounded: bool
    touched: int
    unfull: int


def hooks_of(structure: Structure, dtypes: tuple[torch.dtype, ...]) -> Hooks | None:
    """The hooks of a structure whose tables have these dtypes; None where a part has no C++."""
    mask, bias = structure.mask, structure.bias
    if not is_printable(mask, exact=True) or not is_printable(bias, exact=False):
        return None
    slope = derivative(bias)
    if not is_printable(slope, exact=False):
        return None
    numbers, types = places(structure), dict.fromkeys(step_slots(structure), "int32_t")
    for slot, dtype in zip(structure.tables, dtypes, strict=True):
        types[slot.index] = ENTRY_TYPES[torch.float32 if dtype.is_floating_point else dtype]
    biased, sloped = bias != SCORE, slope.op != "const" or slope.data != 1

    def printer(lane: str | None) -> Cpp:
        return Cpp(lane, numbers, types)

    parts: list[tuple[str, Node, str]] = [("mask", mask, "s[at] = {} ? s[at] : -__builtin_inff();")]
    if biased:
        parts.append(("bias", bias, "s[at] = {};"))
    if sloped:
        parts.append(("slope", slope, "s[at] *= {};"))
    functions = [
        _function(f"{name}_{lane[0]}", formula, write, printer(lane))
        for name, formula, write in parts
        for lane in ("q_idx", "kv_idx")
    ]
    forms = closed_forms_of(structure)
    bounded = _bounded(structure, forms)
    if bounded:
        functions.append(_bounds(forms, printer(None), structure))
    title = f"// mask  {formula_text(mask)}\n// bias  {formula_text(bias)}\n"
    return Hooks(
        source="\n\n".join([title + PRELUDE, *functions]) + "\n",
        biased=biased,
        sloped=sloped,
        bounded=bounded,
        touched=len(forms.touched) if bounded else 0,
        unfull=len(forms.unfull) if bounded else 0,
    )


def places(structure: Structure) -> dict[int, int]:
    """The place in `S` of each slot: a number; or a table's address, the sizes to which its indices
    are clamped, its steps, and its sizes. Tables of documents come after those of the slots."""
    found, place = {}, 0
    for slot in (*structure.slots, *step_slots(structure).values()):
        found[slot.index] = place
        place += 1 + 3 * slot.ndim if slot.is_table else 1
    return found


def _function(name: str, formula: Node, write: str, cpp: Cpp) -> str:
    """A hook that visits all pairs of a block of scores."""
    assert cpp.lane is not None and cpp.other is not None
    result = (cpp.real if formula.kind == "real" else cpp)(formula, "pair")
    once, of_lane, others, pair = [
        "".join(f"\n{indent}{line}" for line in cpp.lines[stage])
        for stage, indent in (
            ("once", "  "),
            ("lane", "    "),
            ("others", "    "),
            ("pair", "      "),
        )
    ]
    score = ""
    if "score" in formula.ops():
        score = f"\n      const float score = {'raw' if name.startswith('slope') else 's'}[at];"
    prepared = ""
    if of_lane:
        prepared = (
            f"\n  for (I lane = 0; lane < lanes; lane++) {{\n    const I {cpp.lane} = lane0 + lane;"
            f"{of_lane}\n  }}"
        )
    # The inner loop over lanes is vectorised: lanes are a multiple of 16.
    return f"""extern "C" void {name}({_ARGUMENTS}) {{{once}{prepared}
  lanes &= ~(I)15;
  for (I other = 0; other < others; other++) {{
    const I {cpp.other} = other0 + other;{others}
    for (I lane = 0; lane < lanes; lane++) {{
      const I {cpp.lane} = lane0 + lane, at = other * lanes + lane;{score}{pair}
      {write.format(result)}
    }}
  }}
}}"""


def _bounded(structure: Structure, forms: ClosedForms) -> bool:
    """Whether the loop computes its bounds itself."""
    if rung_of(structure).on_host != "spans" or forms.simplified:
        return False
    bounds = forms.bounds
    return all(in_kernels(b) and is_printable(_read(b, structure), exact=True) for b in bounds)


@lru_cache(maxsize=4096)
def steps(structure: Structure) -> tuple[Node, ...]:
    """A read of each table of documents in the bounds."""
    found: dict[object, Node] = {}
    for formula in closed_forms_of(structure).bounds:
        for part in formula.walk():
            if part.op == "step" and in_kernels(part):
                found.setdefault(_table_of(part), part)
    return tuple(found.values())


@lru_cache(maxsize=4096)
def step_slots(structure: Structure) -> dict[int, Slot]:
    """Slots of these tables, by number, after those of the structure."""
    first = len(structure.slots)
    empty = [torch.empty([0] * len(step.args), dtype=torch.int32) for step in steps(structure)]
    tables = [Table("steps", tensor) for tensor in empty]
    return {first + i: Slot(first + i, table.name, table) for i, table in enumerate(tables)}


def _table_of(step: Node) -> object:
    return step.data, step.own, len(step.args)


def _read(formula: Node, structure: Structure) -> Node:
    """The formula with reads of document tables as reads of tensors."""
    slots = dict(zip(map(_table_of, steps(structure)), step_slots(structure).values(), strict=True))

    def replaced(node: Node) -> Node | None:
        slot = slots.get(_table_of(node)) if node.op == "step" else None
        return None if slot is None else nodes.read(slot, *node.args)

    return nodes.substitute(formula, replaced)


def _bounds(forms: ClosedForms, cpp: Cpp, structure: Structure) -> str:
    lines: list[str] = []
    for number, span in enumerate(forms.spans):
        lines += _interval(2 * number, span, lambda bound: cpp(_read(bound, structure)))
    body = "\n".join(f"  {line}" for line in [*cpp.lines["once"], *lines])
    return f'extern "C" void bounds({_BOUNDS}) {{\n{body}\n}}'


def _interval(place: int, span: Span, cpp: Callable[[Node], str]) -> list[str]:
    low, high = "(I)0", "kv_len - 1"
    for bound in span.lows:
        low = f"most({low}, {cpp(bound)})"
    for bound in span.highs:
        high = f"least({high}, {cpp(bound)})"
    guards = " & ".join(f"({cpp(guard)} >= 0)" for guard in span.guards)
    if guards:
        high = f"({guards}) ? {high} : (I)-1"
    return [f"found[{place}] = {low};", f"found[{place + 1}] = {high};"]
