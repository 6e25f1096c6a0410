"""What a page is made of: the script of one mask, and the data beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch

from .. import errors
from ..algebra import Mask
from ..extents import Extents, dependence, resolve
from ..normalform import Bound, Structure, bound, keyed, transposed
from ..parameters import Parameter, Scalar, Slot
from .closed_forms import forms_of, sets_script
from .javascript import JavaScript
from .literals import Literals
from .ranges import truth
from .tables import Record, table_record


@dataclass(frozen=True)
class Payload:
    """A mask for a page.

    Attributes:
        title: the expression.
        script: JavaScript: the formula, its literals, the closed forms of both directions.
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


def payload(mask: Mask, call: Call) -> Payload:
    """The payload of a mask for one call."""
    mask = mask.to("cpu")
    form = bound(mask)
    extents = resolve(form, call.q_len, call.kv_len, call.batch, call.heads)
    structure = form.structure
    js = JavaScript()
    literals = Literals(js)
    tree = literals.tree(structure.mask)
    kept, over = js(structure.mask), truth(structure.mask, js)
    rows = forms_of(structure, js)
    js.lengths = {"q_idx": "KV_LEN", "kv_idx": "Q_LEN"}
    columns = forms_of(transposed(structure), js)
    used = {p.index: p for p in structure.mask.params if isinstance(p, Slot)}
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
    ]
    data = {
        **_sizes(form, extents),
        "title": _title(mask),
        "scalars": [_scalar(form, slot) for slot in used.values() if not slot.is_table],
        "tables": [{"slot": i, **record} for i, record in tables.items()],
        "tree": tree,
        "literals": literals.shown,
        "rows": rows.shown,
    }
    sizes = {cast(str, r["name"]): len(cast(str, r["data"])) for r in tables.values()}
    return Payload(str(mask), "\n".join(lines), data, sizes)


def _sizes(form: Bound, extents: Extents) -> dict[str, object]:
    told = dependence(form.structure.mask, form, extents)
    return {
        "q_len": extents.q_len,
        "kv_len": extents.kv_len,
        "batch": told.batch,
        "heads": told.heads,
    }


def _tensor(form: Bound, slot: Slot) -> torch.Tensor:
    return cast(torch.Tensor, form.values[slot.index])


def _title(mask: Mask) -> str:
    """The expression with a place `⟦slot⟧` for each number, which sliders change."""
    places: dict[int, Parameter] = {}
    for slot, parameter in enumerate(keyed(mask)[1]):
        if isinstance(parameter, Scalar):
            places[id(parameter)] = Slot(slot, f"⟦{slot}⟧", parameter)
    return str(mask.label.replace(places))


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
    skeleton = structure.mask.skeleton
    bitwise = any(f"({op} " in skeleton for op in ("bitand", "bitor", "bitxor"))
    for record in tables.values():
        if record["type"] == "float64" and (bitwise or structure.multiplies):
            raise errors.page_integers(str(record["name"]))
