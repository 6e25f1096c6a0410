"""`render()` and `explain()`: the source that would run, and the choices for a call."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NoReturn, cast

import torch

from . import errors
from .attention import ARGUMENTS, checked_call
from .backends.choice import backend_name, backend_of
from .backends.traits import Bounds
from .codegen.hooks import source_of
from .engine.normal_form import Bound, Structure
from .engine.pages import Pages
from .formula.expression import Expression
from .formula.nodes import Node
from .formula.parameters import Slot
from .proof.proof import prove_structure
from .schedule.rung import rung_of
from .values.algebra import everything
from .values.weights import Weight, softmax

# The largest number that is written for -inf; others are the least float16, -1e9, and so on.
_LEAST: Final = -1e4


def hidden(form: Bound) -> str:
    """A remark of `explain` where a bias is -inf, or nearly so, under a condition."""
    found = min(_amounts(form), default=0.0)
    if found > _LEAST:
        return ""
    amount = "-inf" if found == -math.inf else f"{found:.4g}"
    return f"; it holds {amount} under a condition, which skips no tile: write mask + bias"


def _amounts(form: Bound) -> Iterator[float]:
    """Numbers that a choice adds, or that a truth value or an entry is multiplied by."""
    for node in form.structure.bias.walk():
        if node.op in ("where", "mul"):
            product = node.op == "mul"
            for part in node.args if product else node.args[1:]:
                # (1 - x) * -1e9 is -1e9 + 1e9 * x here.
                yield from (-abs(n) if product else n for n in _number(part, form))


def _number(node: Node, form: Bound) -> Iterator[float]:
    if node.op == "const":
        yield float(cast(float, node.data))
    if node.op == "scalar":
        slot = node.own[0]
        assert isinstance(slot, Slot)
        yield float(cast(float, form.values[slot.index]))


def render(score: Expression, *, ptx: bool = False) -> str:
    """The Triton source of the hooks an expression puts into the kernel.

    `masked` drops pairs, `biased` returns the biased score, `next_run` the tiles of keys that a
    tile of queries visits. The kernel that calls them is `maskalg_kernels/forward.py`.

    Args:
        score: a mask, a bias or both.
        ptx: show the form for NVIDIA: inline assembly for each element, except for comparisons in
            64 bits other than equality.

    Examples:
        >>> "def masked(" in render(causal & sliding(4))
        True
    """
    if not isinstance(score, Expression):
        raise errors.not_a_score(score)
    return source_of(score, ptx=ptx)


@dataclass(frozen=True)
class Explanation:
    """The choices of a call of `attention`; printed, a line for each that is not empty.

    Attributes:
        backend: the name of the backend.
        tier: the family of kernels within the backend.
        tile: the tile shape, "block_q x block_kv, warps, stages", where the backend has one, and
            "tuned" where `maskalg tune` chose it on this machine.
        gradients: on a GPU, the kernels of the backward pass: one for all gradients, or one of dQ
            and one of dK and dV.
        proof: how the empty and full tiles are known.
        schedule: where the bounds of the visited tiles come from.
        elements: on a GPU, the table in which the mask of partial tiles is looked up, if it is not
            computed, and its memory, or that the table would take too much of it.
        bias: how the bias is computed: for each pair, or read from tables with an entry for each
            distance (`codegen/distance_tables.py`).
        compilations: kernel variants this process compiled or loaded so far.
    """

    backend: str
    tier: str
    tile: str
    gradients: str
    proof: str
    schedule: str
    elements: str
    bias: str
    compilations: int

    def __str__(self) -> str:
        rows = [(name, getattr(self, name)) for name in self.__dataclass_fields__]
        return "\n".join(f"{name:<13} {value}" for name, value in rows if value != "")


def explain(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score: Expression | None = None,
    *more: NoReturn,
    scale: float | None = None,
    weight: Weight = softmax,
    return_lse: bool = False,
    dropout_p: float = 0.0,
    descale: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None,
    pages: Pages | None = None,
    nan_safe: bool = False,
    backend: str | None = None,
    **named: NoReturn,
) -> Explanation:
    """The choices of `attention` with these arguments, without computing it.

    Raises what `attention` would raise for inputs that do not fit, for more arguments, and for the
    names that other functions have for them.

    Args:
        query: as in `attention`.
        key: likewise.
        value: likewise.
        score: a mask, a bias or both; None keeps everything.
        scale: as in `attention`.
        weight: likewise.
        return_lse: likewise.
        dropout_p: likewise.
        descale: likewise.
        pages: likewise.
        nan_safe: likewise.
        backend: likewise.

    Examples:
        >>> explain(q, k, v, causal & sliding(4)).proof
        'closed form, exact'
    """
    if more or named:
        raise errors.other_arguments(more, named, ARGUMENTS, "explain")
    if dropout_p != 0:
        raise errors.no_dropout(dropout_p)
    expression = everything if score is None else score
    call = checked_call(
        query, key, value, expression, scale, return_lse, weight, descale, pages, nan_safe
    )
    name = backend_name(query.device.type, backend)
    structure = call.form.structure
    proof = prove_structure(structure)
    claim = "exact" if proof.exact else "sound; open tiles are masked element by element"
    found = backend_of(name).explain(call)
    return Explanation(
        backend=name,
        tier=found.tier,
        tile=found.tile,
        gradients=found.gradients,
        proof=f"{proof.rung}, {claim}",
        schedule=_schedule(found.bounds, structure, proof.forms.simplified),
        elements=found.elements,
        bias=_bias(structure, found.tables) + hidden(call.form),
        compilations=found.compilations,
    )


def _bias(structure: Structure, tables: int) -> str:
    if structure.bias.op == "score":
        return "none"
    read = {0: "", 1: "; 1 table of distances is read"}
    return "computed for each pair" + read.get(tables, f"; {tables} tables of distances are read")


def _schedule(bounds: Bounds, structure: Structure, wider: bool) -> str:
    rung = rung_of(structure)
    if bounds == "none":
        return "none: every pair is computed"
    if bounds == "spans":
        return "runs of tiles that intervals leave, computed in the kernel: too few to label them"
    source = rung.in_kernel if bounds == "kernel" else rung.on_host
    if bounds == "kernel" and source == "digits":
        return "runs of tiles that digits leave, found once for these lengths"
    if bounds == "bits":
        return "runs of tiles that keep a pair by the bits of pairs, found once with these"
    if source == "summaries":
        return "runs of tiles that summaries of the tensors leave, found once for these tensors"
    if wider:
        return "every tile: the closed forms have too many intervals for the kernel"
    where = "in the kernel" if bounds == "kernel" else "once a call"
    if structure.mask_tables:
        return f"runs of tiles, computed {where} from the bound tensors"
    return f"runs of tiles, computed {where} from closed forms; no metadata"
