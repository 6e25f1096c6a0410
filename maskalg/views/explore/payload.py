"""The parts of a page: the script of one mask, and the data beside it.

A bias is stored as a script for its value at an element, and as the formula to show. A mask is
stored as its literals, each with its text, and how `&`, `|` and `~` join them. Tensors are stored
as runs of equal entries, or as compressed entries: documents, lengths and flags shrink to nearly
nothing, random entries do not. A page that would outgrow its limit is refused.

For masks by digits, as on images, closed forms are wide intervals, and kernels visit tiles by boxes
of digits. The page does not compute boxes: it gets the segments for the bound numbers, for tiles of
one side, and joins them to larger tiles.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, cast

import numpy as np
import torch

from ...engine.extents import (
    Dependence,
    Extents,
    Lengths,
    dependence,
    is_bounded,
    is_kept_from_zero,
    resolve,
)
from ...engine.normal_form import Bound, Structure, bound, keyed, transposed
from ...errors import MaskValueError
from ...formula import nodes
from ...formula.expression import Expression
from ...formula.nodes import Node, is_additive
from ...formula.parameters import Parameter, Scalar, Slot
from ...schedule.rung import rung_of
from ...schedule.tiling import Tiling
from .closed_forms import forms_of, sets_script, template
from .integers import EXACT, Integers
from .javascript import JavaScript, text
from .ranges import truth, values


@dataclass(frozen=True)
class Added:
    """The bias of a page.

    Attributes:
        script: a JavaScript expression: `at` is the value at an element, `values` are the leaves
            of the formula there; `null` for a mask.
        shown: the text about it on the page, as JSON. With `adds`, the value is added to a score;
            without, it is the result for a score of 1. `alone`: no pair is dropped.
    """

    script: str
    shown: dict[str, object] | None


def added_by(mask: Node, bias: Node, js: JavaScript) -> Added:
    """The bias of an expression; a mask has none."""
    if bias.op == "score":
        return Added("null", None)
    adds, written = is_additive(bias), template(bias, js)
    value, parts = js.number(shown_bias(bias)), ", ".join(written.values)
    script = f"{{at: (q, k) => {value}, values: (q, k) => [{parts}]}}"
    return Added(script, {"adds": adds, "alone": mask == nodes.TRUE, **written.shown()})


def shown_bias(bias: Node) -> Node:
    """The formula that the page shows for a bias: its term, or its value at score 1."""
    score = nodes.const(0.0 if is_additive(bias) else 1.0)
    return nodes.substitute(bias, lambda node: score if node.op == "score" else None)


@dataclass
class Literals:
    """The literals met so far, as JavaScript and as text for readers."""

    js: JavaScript
    scripts: list[str] = field(default_factory=list)
    shown: list[dict[str, object]] = field(default_factory=list)
    known: dict[Node, int] = field(default_factory=dict)

    def tree(self, node: Node) -> object:
        """The formula as `["and", …]`, `["or", …]`, `["not", x]`, with numbers of literals."""
        if node.op in ("and", "or", "not"):
            return [node.op, *map(self.tree, node.args)]
        if node not in self.known:
            self.known[node] = len(self.scripts)
            written = template(node, self.js)
            self.shown.append(written.shown())
            self.scripts.append(
                f"{{at: (q, k) => {self.js(node)}, "
                f"over: (q0, q1, k0, k1) => {truth(node, self.js)}, "
                f"values: (q, k) => [{', '.join(written.values)}]}}"
            )
        return self.known[node]

    def script(self) -> str:
        return f"[{', '.join(self.scripts)}]"


Record = dict[str, object]

_RUNS_PAY: Final = 4  # entries a run must stand for, on average


def table_record(name: str, tensor: torch.Tensor) -> Record:
    """A tensor in the form from which the page rebuilds it: shape, type, coding, and base64 text.

    Codings: "runs", the lengths of runs and then their differences, as int32 (`length` of each);
    "bits", eight Boolean entries a byte; "plain", differences of int32, or float32 entries, or
    float64 ones for integers beyond 32 bits.

    Raises:
        MaskValueError: the page cannot compute with the entries as torch does.
    """
    if tensor.is_floating_point() and tensor.dtype != torch.float32:
        raise MaskValueError(
            f"The page computes real numbers in float32, and {name} is {tensor.dtype}: pass "
            f"{name}.float()."
        )
    array = tensor.detach().cpu().contiguous().flatten()
    if array.dtype == torch.int64 and bool(((array > EXACT) | (array < -EXACT)).any()):
        raise MaskValueError(
            f"The page computes with integers of 53 bits, bitwise with 32, and {name} needs more. "
            "Where equality is all that counts, number the entries anew: "
            f"{name}.unique(return_inverse=True)[1]."
        )
    record: Record = {"name": name, "shape": list(tensor.shape), "type": _type(array)}
    if record["type"] in ("float32", "float64"):
        wide = torch.float32 if record["type"] == "float32" else torch.float64
        return {**record, "coding": "plain", "data": _packed(array.to(wide).numpy())}
    entries = array.to(torch.uint8 if record["type"] == "bool" else torch.int64).numpy()
    changes = np.flatnonzero(entries[1:] != entries[:-1]) + 1
    starts = np.concatenate([np.zeros(min(len(entries), 1), dtype=np.int64), changes])
    if len(starts) * _RUNS_PAY <= len(entries):
        lengths = np.diff(starts, append=len(entries))
        both = np.concatenate([lengths, _differences(entries[starts])])
        return {**record, "coding": "runs", "data": _packed(both.astype("<i4"))}
    if record["type"] == "bool":
        bits = np.packbits(entries, bitorder="little")
        return {**record, "coding": "bits", "data": _packed(bits)}
    return {**record, "coding": "plain", "data": _packed(_differences(entries))}


def _type(array: torch.Tensor) -> str:
    if array.dtype == torch.bool:
        return "bool"
    if array.dtype.is_floating_point:
        return "float32"
    limits = (int(array.min()), int(array.max())) if array.numel() else (0, 0)
    return "int32" if limits[0] >= -(2**31) and limits[1] < 2**31 else "float64"


def _differences(entries: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """Each entry less the one before, wrapped to 32 bits; adding them up restores the entries."""
    return np.diff(entries.astype(np.int64), prepend=0).astype(np.uint32).view("<i4")


def _packed(array: np.ndarray) -> str:  # type: ignore[type-arg]
    """The bytes of an array, those of one place together, so that small numbers shrink.

    At zlib's usual level: its last one takes thirty times the time on differences without order,
    for two per cent.
    """
    size = array.itemsize
    planes = array.reshape(-1).view(np.uint8).reshape(-1, size).T
    return base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode()


_FINE, _COARSE = 32, 128
_FINELY_UPTO = 1 << 16
_MOST_TILES = 1 << 17


def visits(form: Bound, extents: Extents) -> dict[str, object] | None:
    """Segments of tiles of rows and of columns; None if the closed forms give them.

    `block` is the side of the tiles. `rows` (tiles of queries) and `columns` (tiles of keys) each
    have a `shape` (batch, heads, tiles), the number of segments of each tile (`count`), and for
    each segment its first tile, its length, and whether it is full.
    """
    exchanged = Bound(transposed(form.structure), form.values)
    turned = Extents(extents.kv_len, extents.q_len, extents.batch, extents.heads)
    block = _FINE if max(extents.q_len, extents.kv_len) <= _FINELY_UPTO else _COARSE
    tiles = max(extents.q_len, extents.kv_len) // block
    if rung_of(form.structure).on_host == "digits" and tiles > _MOST_TILES:
        raise MaskValueError(
            "explore: a page of an image or a video holds the tiles that each row visits, up to "
            f"{_MOST_TILES * block:,} positions. Give a smaller canvas; `show` takes any length."
        )
    sides = {"rows": (form, extents), "columns": (exchanged, turned)}
    found = {name: _segments(*side, block) for name, side in sides.items()}
    return {"block": block, **found} if any(found.values()) else None


def _segments(form: Bound, extents: Extents, block: int) -> dict[str, object] | None:
    rung = rung_of(form.structure)
    if rung.on_host != "digits":
        return None
    runs = rung.runs(Tiling(form, extents, (block, block)))
    tables: dict[str, torch.Tensor] = {
        "count": runs.row_start.diff(),
        "first": runs.first,
        "length": runs.end - runs.first,
        "label": runs.label,
    }
    records: dict[str, Record] = {name: table_record(name, t) for name, t in tables.items()}
    return {"shape": list(runs.shape), **records}


@dataclass(frozen=True)
class Payload:
    """An expression for a page.

    Attributes:
        title: the expression.
        script: JavaScript: the formula, its literals, the closed forms of both directions, the
            bias.
        data: texts, numbers and tensors, as JSON.
        sizes: the characters of each tensor, by name.
    """

    title: str
    script: str
    data: dict[str, object]
    sizes: dict[str, int]


def payload(expression: Expression, lengths: Lengths) -> Payload:
    """The payload of an expression for one call."""
    expression = expression.to("cpu")
    form = bound(expression)
    extents = resolve(form, lengths)
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
    integers = Integers(form, extents)
    integers.check()
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
        "integers": integers.rows(),
    }
    sizes = {cast(str, r["name"]): len(cast(str, r["data"])) for r in tables.values()}
    return Payload(str(expression), "\n".join(lines), data, sizes)


def _computed_reads(structure: Structure, extents: Extents) -> Iterator[str]:
    """The tables read at computed positions, each with the range of these positions."""
    if not extents.q_len or not extents.kv_len:
        return
    js = JavaScript()
    for slot, axis, index in structure.table_indices:
        if is_bounded(index):
            least = "-Infinity" if is_kept_from_zero(structure, slot, index) else "0"
            place = f"name: {text(slot.name)}, slot: {slot.index}, axis: {axis}, least: {least}"
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
    places: dict[Parameter, Parameter] = {}
    for slot, parameter in enumerate(keyed(expression)[1]):
        if isinstance(parameter, Scalar):
            places[parameter] = Slot(slot, f"⟦{slot}⟧", parameter)
    return str(expression.label.replace(places))


def _scalar(form: Bound, slot: Slot) -> dict[str, object]:
    return {
        "slot": slot.index,
        "name": slot.name,
        "kind": slot.kind,
        "low": slot.low,
        "value": form.values[slot.index],
    }
