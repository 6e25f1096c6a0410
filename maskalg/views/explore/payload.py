"""The parts of a page: the script of one mask, and the data beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import torch

from ...engine.extents import Dependence, Extents, dependence, is_bounded, resolve
from ...engine.normal_form import Bound, Structure, Value, bound, keyed, transposed
from ...engine.widths import BITWISE, bits_of
from ...formula.expression import Expression
from ...formula.integer_ranges import Interval
from ...formula.parameters import Parameter, Scalar, Slot
from ...formula.printing import formula_text
from ...proof.proof import prove_structure
from .. import messages
from .bias import added_by
from .closed_forms import forms_of, sets_script
from .javascript import JavaScript, text
from .literals import Literals
from .ranges import truth, values
from .tables import table_record
from .visits import visits


@dataclass(frozen=True)
class Payload:
    """An expression for a page.

    Attributes:
        title: the expression.
        script: JavaScript: the formula, its literals, the closed forms of both directions, the
            bias.
        data: what is shown, the numbers and the tensors; JSON.
        sizes: characters that each tensor takes, by name.
    """

    title: str
    script: str
    data: dict[str, object]
    sizes: dict[str, int]


@dataclass(frozen=True)
class Call:
    """Lengths of the matrix; None as in `Mask.blocks`."""

    q_len: int
    kv_len: int | None = None
    batch: int | None = None
    heads: int | None = None


def payload(expression: Expression, call: Call) -> Payload:
    """The payload of an expression for one call."""
    expression = expression.to("cpu")
    form = bound(expression)
    extents = resolve(form, call.q_len, call.kv_len, call.batch, call.heads)
    structure = form.structure
    js = JavaScript()
    literals = Literals(js)
    tree = literals.tree(structure.mask)
    kept, over = js(structure.mask), truth(structure.mask, js)
    rows = forms_of(structure, js)
    js.lengths = {"q_idx": "KV_LEN", "kv_idx": "Q_LEN"}
    columns = forms_of(transposed(structure), js)
    added = added_by(structure.mask, structure.bias, js)
    read = (*structure.mask.params, *structure.bias.params)
    used = {p.index: p for p in read if isinstance(p, Slot)}
    tables = {i: table_record(s.name, _tensor(form, s)) for i, s in used.items() if s.is_table}
    _check_integers(form, extents)
    lines = [
        f"const kept = (q, k) => {kept};",
        f"const over = (q0, q1, k0, k1) => {over};",
        f"const LITERALS = {literals.script()};",
        f"const PAIRS = {[list(pair) for pair in js.pairs]};",
        f"const ROWS = {rows.script};",
        f"const COLUMNS = {columns.script};",
        f"const SETS = {sets_script(js)};",
        f"const ADDED = {added.script};",
        f"const READS = [{', '.join(_computed_reads(structure, extents))}];",
    ]
    data = {
        **_sizes(form, extents),
        "title": _title(expression),
        "scalars": [_scalar(form, slot) for slot in used.values() if not slot.is_table],
        "tables": [{"slot": i, **record} for i, record in tables.items()],
        "tree": tree,
        "literals": literals.shown,
        "rows": rows.shown,
        "bias": added.shown,
        "visits": visits(form, extents),
    }
    sizes = {cast(str, r["name"]): len(cast(str, r["data"])) for r in tables.values()}
    return Payload(str(expression), "\n".join(lines), data, sizes)


def _computed_reads(structure: Structure, extents: Extents) -> Iterator[str]:
    """The tables read at positions that are computed, and the range of what they are read at."""
    if not extents.q_len or not extents.kv_len:
        return
    js = JavaScript()
    for slot, axis, index in structure.table_indices:
        if is_bounded(index):
            place = f"name: {text(slot.name)}, slot: {slot.index}, axis: {axis}"
            yield f"{{{place}, range: (q0, q1, k0, k1) => {values(index, js)}}}"


def _sizes(form: Bound, extents: Extents) -> dict[str, object]:
    formulas = (form.structure.mask, form.structure.bias)
    told: list[Dependence] = [dependence(formula, form, extents) for formula in formulas]
    return {
        "q_len": extents.q_len,
        "kv_len": extents.kv_len,
        "batch": max(each.batch for each in told),
        "heads": max(each.heads for each in told),
    }


def _tensor(form: Bound, slot: Slot) -> torch.Tensor:
    return cast(torch.Tensor, form.values[slot.index])


def _title(expression: Expression) -> str:
    """The expression with a place `⟦slot⟧` for each number, which sliders change."""
    places: dict[int, Parameter] = {}
    for slot, parameter in enumerate(keyed(expression)[1]):
        if isinstance(parameter, Scalar):
            places[id(parameter)] = Slot(slot, f"⟦{slot}⟧", parameter)
    return str(expression.label.replace(places))


def _scalar(form: Bound, slot: Slot) -> dict[str, object]:
    return {
        "slot": slot.index,
        "name": slot.name,
        "kind": slot.kind,
        "low": slot.low,
        "value": form.values[slot.index],
    }


def _check_integers(form: Bound, extents: Extents) -> None:
    """Integers of a page are doubles, of 53 bits, and its bitwise operations have 32.

    Raises:
        MaskValueError: the formulas, or the closed forms of their schedules, may need more.
    """
    structure = form.structure
    told = tuple([_told(value) for value in form.values])
    longest = max(extents.q_len, extents.kv_len, extents.batch, extents.heads, 1)
    forms = [prove_structure(one).forms for one in (structure, transposed(structure))]
    spans = [span for one in forms for span in (*one.touched, *one.unfull)]
    bounds = [bound for span in spans for bound in (*span.lows, *span.highs, *span.guards)]
    for formula in (structure.mask, structure.bias, *bounds):
        for part in formula.walk():
            if part.kind != "int" or not part.args:
                continue
            most = 31 if part.op in BITWISE else 53
            if part.op not in ("read", "step", "member") and bits_of(part, told, longest) > most:
                raise messages.page_formula(formula_text(part))


def _told(value: Value) -> Value | Interval:
    """A value, or the limits of the entries of a table of integers."""
    if not isinstance(value, torch.Tensor) or value.is_floating_point() or not value.numel():
        return value
    return int(value.min()), int(value.max())
