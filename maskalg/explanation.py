"""`render()` and `explain()`: the source that would run, and what was chosen for a call."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeVar

import torch

from . import errors
from .attention import ARGUMENTS, checked_call
from .backends.call import Call
from .backends.choice import backend_name
from .codegen.arguments import DistanceTable
from .codegen.bounds_text import simplified
from .codegen.hooks import Style, hooks_of
from .codegen.text.integer_sizes import sizes_of
from .engine.float8 import FLOAT8
from .engine.hidden_masks import hidden
from .engine.normal_form import Structure, bound
from .formula.expression import Expression
from .proof.proof import prove_structure
from .schedule.digits.kernel_runs import by_digits
from .schedule.marked_runs import marked
from .schedule.summaries.labels import summarised
from .tiles.backward import HopperBackwardTile
from .tiles.forward import HopperTile, Tile
from .values.algebra import everything
from .values.weights import Weight, softmax

_Tile = TypeVar("_Tile")


def render(score: Expression, *, ptx: bool = False) -> str:
    """The Triton source of the hooks an expression puts into the kernel.

    `masked` drops pairs, `biased` says what a score becomes, `next_run` which tiles of keys a tile
    of queries visits. The skeleton that calls them is `maskalg_kernels/forward.py`.

    Args:
        score: a mask, a bias or both.
        ptx: show the form for NVIDIA, where each element is decided by inline assembly, but for
            what is compared in 64 bits and not for being equal.

    Examples:
        >>> "def masked(" in render(causal & sliding(4))
        True
    """
    if not isinstance(score, Expression):
        raise errors.not_a_score(score)
    form = bound(score)
    style = Style(limbs=sizes_of(form).limbs, ptx=ptx, long=form.long, grain=form.grain())
    return hooks_of(form.structure, style).source


@dataclass(frozen=True)
class Explanation:
    """What a call of `attention` would do; print it: a line for each that is not empty.

    Attributes:
        backend: "triton", "cpu" or "reference".
        tier: the family of kernels within the backend.
        tile: the tile shape, "block_q x block_kv, warps, stages", where the backend has one, and
            "tuned" where `maskalg tune` chose it on this machine.
        gradients: on a GPU, the kernels of the backward pass: one for all gradients, or one of dQ
            and one of dK and dV.
        proof: how the empty and full tiles are known.
        schedule: where the bounds of the visited tiles come from.
        bias: how the bias is computed: for each pair, or read from tables of what it is at each
            distance (`codegen/distance_tables.py`).
        compilations: kernel variants this process compiled or loaded so far.
    """

    backend: str
    tier: str
    tile: str
    gradients: str
    proof: str
    schedule: str
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
    backend: str | None = None,
    **named: NoReturn,
) -> Explanation:
    """What `attention` with these arguments would choose, without computing it.

    Raises what `attention` would raise for inputs that do not fit, for more arguments, and for the
    names that other functions have for them.

    Args:
        query: as `attention` takes it.
        key: likewise.
        value: likewise.
        score: a mask, a bias or both; None keeps everything.
        scale: as `attention` takes it.
        weight: likewise.
        return_lse: likewise.
        dropout_p: likewise.
        descale: likewise.
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
    call = checked_call(query, key, value, expression, scale, return_lse, weight, descale)
    name = backend_name(query.device.type, backend)
    structure = call.form.structure
    proof = prove_structure(structure)
    claim = "exact" if proof.exact else "sound; open tiles are masked element by element"
    tables = 0
    tier, tile, gradients, compilations = "tiles of scaled_dot_product_attention", "", "", 0
    if name == "reference":
        tier = "dense matrix of scores"
    if name == "cpu":
        from .backends.cpu.native.launch import renders

        tier = "one kernel compiled from the expression" if renders(call) else tier
    if name == "triton":
        from .backends.triton import backend as triton

        tier, tile, tables = _of_triton(call)
        gradients = _gradients_of_triton(call)
        compilations = triton.compilations()
    return Explanation(
        backend=name,
        tier=tier,
        tile=tile,
        gradients=gradients,
        proof=f"{proof.rung}, {claim}",
        schedule=_schedule(name, call.form.structure, simplified(proof.forms)),
        bias=_bias(structure, tables) + hidden(call.form),
        compilations=compilations,
    )


def _of_triton(call: Call) -> tuple[str, str, int]:
    """The family of kernels on a GPU, the tile, and the tables of distances that are read."""
    from .backends.triton import plan as triton_plan
    from .backends.triton.families import decode
    from .backends.triton.families import hopper as triton_hopper

    plan = triton_plan.plan_of(call)
    wide = ", 64-bit indices" if plan.style.wide else ""
    tables = sum(isinstance(table, DistanceTable) for table in plan.hooks.tables)
    few = decode.shared(call, plan)
    if few is not None:
        best, failed = _serving(("decode", plan), few.tiles)
        _, splits = few.counts(call.extents, best)
        sharing = f"{splits} programs share the keys of a row of tiles{failed}"
        return f"plain Triton, few queries{wide}", f"{_plain(best)}; {sharing}", tables
    hopper = triton_hopper.serving(plan.hopper, call)
    first = () if hopper is None else (hopper,)
    best, failed = _serving(("forward", plan), (*first, *plan.candidates))
    if isinstance(best, HopperTile):
        tier = "Gluon on Hopper, forward"
        tile = (
            f"{best.consumers} x 64 x {best.block_kv}, {4 * best.consumers} + 1 warps, "
            f"{best.stages} stages"
        )
    else:
        tier, tile = f"plain Triton, forward{wide}", _plain(best)
    tile += failed
    tier += _of_unknown_triton()
    table = triton_plan.plan_of(call, tuned=False)
    if (plan.hopper, plan.candidates) != (table.hopper, table.candidates):
        tile += ", tuned"
    return tier, tile, tables


def _serving(plan: Hashable, tiles: Sequence[_Tile]) -> tuple[_Tile, str]:
    """The first tile that no trial for a plan ruled out so far, and why others gave way."""
    from .backends.triton.launching.fitting import why_not

    failed = [why for tile in tiles if (why := why_not(plan, tile)) is not None]
    serving = next((tile for tile in tiles if why_not(plan, tile) is None), tiles[-1])
    return serving, "".join(f"; another tile gave way: {why}" for why in failed)


def _of_unknown_triton() -> str:
    """What was decided of the Gluon kernels, where this Triton was not tested."""
    from .backends.triton import trust, versions

    if versions.is_tested():
        return ""
    return f" (Triton {versions.version()}: {trust.verdict().why})"


def _gradients_of_triton(call: Call) -> str:
    """The kernels of the backward pass; empty for inputs of float8, which have no gradients."""
    from .backends.triton import plan as triton_plan
    from .backends.triton.arguments import describable
    from .backends.triton.families import hopper_backward, one_pass
    from .backends.triton.launching.fitting import failed

    if call.query.dtype == FLOAT8:
        return ""
    steps, shape = triton_plan.steps_of(call, triton_plan.plan_of(call))
    inputs = (call.query, call.key, call.value)
    hopper = hopper_backward.serves(call, shape) and all(map(describable, inputs))
    if (
        hopper
        and one_pass.tiles_in_turn(call, steps.one_pass_from, shape) is not None
        and not failed(("one pass", steps))
    ):
        block = one_pass.one_pass_tile(shape["HEAD_PAD"]).block
        return f"one kernel, Gluon on Hopper, {block} queries at a time"

    def told(of: str, first: HopperBackwardTile | None, plain: tuple[Tile, ...]) -> str:
        tiles: tuple[Tile | HopperBackwardTile, ...] = plain
        if first is not None and hopper:
            tiles = (first, *plain)
        tile, why = _serving((of, steps), tiles)
        if isinstance(tile, Tile):
            return f"plain Triton, {_plain(tile)}{why}"
        return f"Gluon on Hopper, {64 * tile.consumers} x {tile.block}, {tile.stages} stages{why}"

    of_queries = told("queries", steps.hopper_queries, steps.query_tiles)
    return f"dQ: {of_queries}; dK and dV: {told('keys', steps.hopper_keys, steps.key_tiles)}"


def _plain(tile: Tile) -> str:
    return f"{tile.block_q} x {tile.block_kv}, {tile.warps} warps, {tile.stages} stages"


def _bias(structure: Structure, tables: int) -> str:
    if structure.bias.op == "score":
        return "none"
    read = {0: "", 1: "; 1 table of distances is read"}
    return "computed for each pair" + read.get(tables, f"; {tables} tables of distances are read")


def _schedule(backend: str, structure: Structure, wider: bool) -> str:
    if backend == "reference":
        return "none: every pair is computed"
    if backend == "triton" and by_digits(structure):
        return "runs of tiles that digits leave, found once for these lengths"
    if marked(structure) if backend == "triton" else summarised(structure):
        return "runs of tiles that summaries of the tensors leave, found once for these tensors"
    if wider:
        return "every tile: the closed forms have too many intervals for the kernel"
    where = "in the kernel" if backend == "triton" else "once a call"
    if structure.mask_tables:
        return f"runs of tiles, computed {where} from the bound tensors"
    return f"runs of tiles, computed {where} from closed forms; no metadata"
