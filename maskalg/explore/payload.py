"""What a page is made of: the script of one mask, and the data beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch

from .. import errors
from ..expression import Expression
from ..extents import Dependence, Extents, dependence, resolve
from ..normalform import Bound, Structure, bound, keyed, transposed
from ..parameters import Parameter, Scalar, Slot
from .bias import added_by
from .closed_forms import forms_of, sets_script
from .javascript import JavaScript
from .literals import Literals
from .ranges import truth
from .tables import Record, table_record
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
    _check_widths(structure, tables)
    lines = [
        f"const kept = (q, k) => {kept};",
        f"const over = (q0, q1, k0, k1) => {over};",
        f"const LITERALS = {literals.script()};",
        f"const PAIRS = {[list(pair) for pair in js.pairs]};",
        f"const ROWS = {rows.script};",
        f"const COLUMNS = {columns.script};",
        f"const SETS = {sets_script(js)};",
        f"const ADDED = {added.script};",
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


def _check_widths(structure: Structure, tables: dict[int, Record]) -> None:
    """Bitwise operations of a page work on 32 bits, and its products on 53."""
    skeleton = structure.mask.skeleton + structure.bias.skeleton
    bitwise = any(f"({op} " in skeleton for op in ("bitand", "bitor", "bitxor"))
    for record in tables.values():
        if record["type"] == "float64" and (bitwise or structure.multiplies):
            raise errors.page_integers(str(record["name"]))
