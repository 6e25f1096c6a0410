"""The hooks of an expression, which the kernel skeleton calls, as one small source file."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ..engine.normal_form import Structure, bound, transposed
from ..formula.expression import Expression
from ..formula.nodes import TRUE, Node
from ..formula.printing import formula_text
from ..formula.separation import Index
from ..proof.proof import closed_forms_of
from ..schedule.rung import rung_of
from ..schedule.tiling import Of
from . import bits
from .ahead import LINE, Ahead, is_ahead
from .arguments import Arguments, BitsTable, LayoutArgument, MarksArgument
from .arguments import Hooks as Hooks
from .bits import kept_by_bits, looks_up
from .bounds_text import bounds_text
from .derivative import derivative
from .distance_tables import with_distance_tables
from .held import Held
from .spans import contiguous, equal_ids
from .style import Style as Style
from .text import long_integers
from .text.integer_sizes import sizes_of
from .text.predicate_ptx import Unrenderable, equal_ptx, masked_ptx, passed_on
from .text.reals import added, additive
from .text.triton import TritonText

HookText = tuple[str, str, tuple[str, ...]]  # name, parameters, body
Result = Node | tuple[Node, ...] | Callable[[TritonText], tuple[str, ...]]
"""What a hook returns: a formula, one or several; or its body."""
Formula = tuple[str, Result]  # with the name of the hook

_PLACE = "batch, head, q_idx, kv_idx, kv_len, S, T"
_MASKED = f"score, {_PLACE}"
_OF_PRODUCT = f"product, {_PLACE}"
_ROW = "j, q0, q1, batch, head, kv_len, S, T, BLOCK: tl.constexpr"
_ROW_EITHER_WAY = _ROW.replace("j", "j, from_last", 1)

_ORIGIN = "S[-1]"  # where tiles that begin with documents are counted from

# Functions of kernels/reals.py that have another form for NVIDIA.
_OWN_PTX = ("fma", "sigmoid", "tanh", "times")

_HEADER = '''"""Rendered by maskalg for

mask  {mask}
bias  {bias}
"""

'''

_IMPORTS = """import triton
import triton.language as tl
from maskalg_kernels.integers import count, floor_div, floor_mod, inside, saturated, widened
from maskalg_kernels.integers import quotient, quotient_of_any, remainder, remainder_of_any
from maskalg_kernels.reals import expm1, {fma}, log1p, power, {sigmoid}, tan, {tanh}, {times}, whole
from maskalg_kernels.runs import run_of_marks, run_of_spans, run_of_spans_and_marks
from maskalg_kernels.runs import run_of_marks_either_way, run_of_spans_either_way, tiles
"""


_NATURAL = Style()


@functools.lru_cache(maxsize=4096)
def hooks_of(structure: Structure, style: Style = _NATURAL, *, backward: bool = False) -> Hooks:
    """The hooks of a structure.

    Args:
        structure: of the expression.
        style: how they are written.
        backward: add `slope`, the derivative of a bias that is not additive, and the hooks of loops
            over queries, which hold a tile of keys. Their names end with `_of_keys`:
            `next_run_of_keys` finds the tiles of queries that visit a tile of keys, and
            `next_run_either_way_of_keys` finds them from the first tile or from the last.
    """
    if not backward:
        return rendered(structure, style, Arguments())
    arguments = Arguments()
    slope = derivative(structure.bias)
    sloped = slope.op != "const" or slope.data != 1
    more: list[Formula] = [("slope", slope)] if sloped else []
    elements = _elements(structure, style, arguments, "q_idx", more)
    # The same text with the roles exchanged: q0..q1 are keys, kv_len is the number of queries.
    queries = transposed(structure)
    runs = [
        ("next_run", _ROW, _runs(queries, style, arguments, "keys")),
        (
            "next_run_either_way",
            _ROW_EITHER_WAY,
            _runs(queries, style, arguments, "keys, either way"),
        ),
    ]
    of_keys = [
        (f"{name}_of_keys", parameters, body) for name, parameters, body in (*elements, *runs)
    ]
    hooks = rendered(structure, style, arguments, more, of_keys)
    return replace(hooks, sloped=sloped)


def source_of(expression: Expression, *, ptx: bool, backward: bool = False) -> str:
    """The source of the hooks of an expression, for NVIDIA or for other GPUs."""
    form = bound(expression)
    style = Style(limbs=sizes_of(form).limbs, ptx=ptx, long=form.long, grain=form.grain())
    return hooks_of(form.structure, style, backward=backward).source


def rendered(
    structure: Structure,
    style: Style,
    arguments: Arguments,
    formulas: Sequence[Formula] = (),
    more: Sequence[HookText] = (),
) -> Hooks:
    """The hooks of loops over keys, with one for each of `formulas`, and `more` of other loops."""
    elements = _elements(structure, style, arguments, "kv_idx", formulas)
    runs = ("next_run", _ROW, _runs(structure, style, arguments, "queries"))
    functions = [_function(*part) for part in (*elements, runs, *more)]
    header = _HEADER.format(mask=formula_text(structure.mask), bias=formula_text(structure.bias))
    source = header + imports(style) + "\n\n" + "\n\n\n".join(functions) + "\n"
    return Hooks(
        source=source,
        digest=hashlib.sha256(source.encode()).hexdigest()[:24],
        biased=structure.bias.op != "score",
        sloped=False,
        additive=structure.bias.op == "score" or additive(structure.bias),
        ahead=_reads_ahead(structure, style),
        scalars=tuple(arguments.scalars),
        tables=tuple(arguments.tables),
    )


def imports(style: Style = _NATURAL) -> str:
    """The import lines that formulas of a style need."""
    own = {name: f"{name}_ptx as {name}" if style.ptx else name for name in _OWN_PTX}
    more = long_integers.IMPORTS if style.limbs > 1 else ""
    return _IMPORTS.format(**own) + more + (bits.IMPORT if style.bits else "")


def _elements(
    structure: Structure,
    style: Style,
    arguments: Arguments,
    moving: Index,
    formulas: Sequence[Formula],
) -> list[HookText]:
    """The hooks of a loop over the index `moving`: those for elements, after `hold`."""
    near = not style.wide and not style.far
    held = Held(moving, _printer(arguments, style), near)

    def text(early: Ahead | None = None) -> TritonText:
        return _printer(arguments, style, held, early)

    def tabled(formula: Node) -> Node:
        if style.tabled == "nothing":
            return formula
        return with_distance_tables(formula, style.tabled)

    def body(formula: Result) -> tuple[str, ...]:
        if isinstance(formula, Node):
            return value_text(tabled(formula), text())
        if isinstance(formula, tuple):
            return _values_text(map(tabled, formula), text())
        return formula(text())

    bias = tabled(structure.bias)
    parts = [("masked", _MASKED, _masked(structure, arguments, held.exactly(), style))]
    if bias.op != "score":
        parts.append(("biased", _OF_PRODUCT, _biased(bias, text())))
    if _reads_ahead(structure, style):
        early = Ahead()
        parts.append(("biased_ahead", _OF_PRODUCT, _biased(bias, text(early))))
        parts.append(("ahead", _PLACE, early.body()))
    for name, formula in formulas:
        parts.append((name, _OF_PRODUCT, body(formula)))
    unit = "scale" if bias.op == "score" or additive(bias) else "1.0"
    stands = "q_idx" if moving == "kv_idx" else "kv_idx"
    hold = ("hold", f"batch, head, {stands}, kv_len, scale, S, T", held.body(unit))
    return [hold, *parts]


def _printer(
    arguments: Arguments, style: Style, held: Held | None = None, ahead: Ahead | None = None
) -> TritonText:
    wide, limbs, grain = style.wide, style.limbs, 1 if held is None else style.grain
    return TritonText(arguments, wide=wide, limbs=limbs, held=held, grain=grain, ahead=ahead)


def _reads_ahead(structure: Structure, style: Style) -> bool:
    return style.grain == LINE and any(map(is_ahead, structure.bias.walk()))


def _biased(bias: Node, text: TritonText) -> tuple[str, ...]:
    """The body of `biased`: a score with its bias, in units of the scale if that is additive."""
    if not additive(bias):
        return value_text(bias, text)
    sum_of_terms = added(text, bias)
    return (*text.lines, f"return {sum_of_terms}")


def _runs(
    structure: Structure,
    style: Style,
    arguments: Arguments,
    of: Of,
) -> tuple[str, ...]:
    way, at = ("_either_way", "j, from_last") if of == "keys, either way" else ("", "j")
    # Real bounds round as `masked` does, and as every other kernel that walks these runs.
    text = _printer(arguments, style).exactly()
    forms = closed_forms_of(structure)
    if style.aligned:
        found = f"run_of_spans{way}({at}, touched, unfull, kv_len - {_ORIGIN}, BLOCK)"
        return bounds_text(forms, text, found, _ORIGIN)
    found = f"run_of_spans{way}({at}, touched, unfull, kv_len, BLOCK)"
    source = rung_of(structure).in_kernel
    if style.few_tiles and source == "summaries":
        return bounds_text(forms, text, found)
    # Token sets and tile predicates decide tiles on the host only; in a kernel, spans are inexact.
    encloses = source == "summaries" or (source == "spans" and forms.rung != "closed form")
    told = encloses and looks_up(structure, style, "kv_idx" if of == "queries" else "q_idx")
    if source != "spans" or told:
        grain, of_batch, of_head = [
            text.number(LayoutArgument(of, name)) for name in ("grain_bits", "of_batch", "of_head")
        ]
        row = f"batch * {of_batch} + head * {of_head}"
        # The bits that this loop's `masked` looks up; of one over queries, the roles are exchanged.
        own: tuple[Structure, Index] = (structure, "kv_idx")
        if of != "queries":
            own = transposed(structure), "q_idx"
        marks = MarksArgument(of, bits_table(own[0], style, own[1]) if told else None)
        given = f"q0, q1, {arguments.table(marks)}, {row}, {grain}"
        if source == "digits" or way:  # no span tells more; or little more
            return (f"return run_of_marks{way}({at}, {given}, kv_len, BLOCK)",)
        found = f"run_of_spans_and_marks(j, touched, unfull, {given}, kv_len, BLOCK)"
    return bounds_text(forms, text, found)


def value_text(node: Node, text: TritonText) -> tuple[str, ...]:
    """The body of a hook that returns a formula."""
    result = text(node)
    if "score" not in node.ops():
        # The kernel needs a whole tile, even if the formula depends on less.
        every = "tl.where(product == product, value, value)"
        return (*text.lines, f"value = {result}", f"return {every}")
    return (*text.lines, f"return {result}")


def _values_text(nodes: Iterable[Node], text: TritonText) -> tuple[str, ...]:
    """The body of a hook that returns formulas in a tuple, each in a shape that broadcasts."""
    results = [text(node) for node in nodes]
    return (*text.lines, f"return ({', '.join(results)},)")


def _masked(
    structure: Structure, arguments: Arguments, held: Held, style: Style
) -> tuple[str, ...]:
    """The body of `masked`: a score where the mask keeps the pair, else -inf."""
    mask = structure.mask
    text = _printer(arguments, style, held).exactly()
    # Loops over queries have few registers for the bounds of a row.
    if looks_up(structure, style, held.moving):
        table = bits_table(structure, style, held.moving)
        return kept_by_bits(table, text, held.moving, ptx=style.ptx)
    interval = None if style.wide else contiguous(mask, held.moving)
    bounded, flags = (mask, ()) if interval is None else interval
    if flags and not style.ptx:
        bounded, flags = mask, ()
    by_bounds = _decided(bounded, text, held, style)
    if not flags:
        return (*by_bounds, "return result")
    # What is read in the rare branch shares no name with the rest, and takes no register from the
    # loop.
    rare = TritonText(arguments, wide=False, limbs=style.limbs, names="u", exact=True)
    equal = equal_ids(mask, held.moving)
    if equal:
        unknown = " | ".join(f"({held.keep(held.text(flag))} == 0)" for flag in flags)
        by_ids = equal_ptx(equal, rare, long=style.long)
        return (*by_bounds, f"if {unknown}:", *[f"    {line}" for line in by_ids], "return result")
    known = " & ".join(f"({held.keep(held.text(flag))} != 0)" for flag in flags)
    by_ids = _decided(mask, rare, held, style)
    return (
        *passed_on("score"),
        f"if {known}:",
        *[f"    {line}" for line in by_bounds],
        "else:",
        *[f"    {line}" for line in by_ids],
        "return result",
    )


def bits_table(structure: Structure, style: Style, moving: Index) -> BitsTable:
    """The table of bits for a loop over an index, and the hook that computes them."""
    of_keys, tiled = moving == "q_idx", style.bits == "tiles"
    made = hooks_of(structure, replace(style, bits="", scattered=False), backward=of_keys)
    if of_keys:
        return BitsTable(made, "_of_keys", "keys", tiled)
    return BitsTable(made, "", "queries", tiled)


def _decided(mask: Node, text: TritonText, held: Held, style: Style) -> tuple[str, ...]:
    """Lines that set `result`."""
    if style.ptx and not style.wide:
        try:
            return masked_ptx(mask, text, held, long=style.long)
        except Unrenderable:
            pass
    result = "kv_idx < kv_len" if mask == TRUE else f"(kv_idx < kv_len) & {text(mask)}"
    return (*text.lines, f'result = tl.where({result}, score, float("-inf"))')


def _function(name: str, parameters: str, body: tuple[str, ...]) -> str:
    lines = [f"@triton.jit\ndef {name}({parameters}):", *(f"    {line}" for line in body)]
    return "\n".join(lines)
