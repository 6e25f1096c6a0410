"""FlexAttention's functions as masks and biases: traced into formulas, or taken as they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from .. import errors
from ..engine.normal_form import of_form
from ..formula import nodes
from ..formula.expression import Expression
from ..formula.nodes import SCORE, TRUE, Node
from ..formula.parameters import Table
from ..formula.printing import Label
from ..values.algebra import Bias, Mask, Score, formula
from . import messages
from .pointwise import is_block_mask, of_block_mask

# torch.fx is imported where a function is traced, not with the package.


def mask(mask_mod: Callable[..., Any], *, opaque: bool = False) -> Mask:
    """The mask of a FlexAttention function, traced into a formula that proofs reason about.

    `ma.mask(lambda b, h, q_idx, kv_idx: q_idx - kv_idx <= window)` is `q_idx - kv_idx <= window`
    with a parameter `window`. Numbers and tensors the function captures (from closures, globals,
    defaults, `functools.partial`, attributes of objects and of `nn.Module`s) become parameters:
    other values, given to `bind` or traced again, share the proof and the kernel.
    `self.rel.weight` is named `rel_weight`. Some numbers become constants of the formula: those in
    Python modules, named tuples, enumerations and lists of more than 16 entries; those that Python
    itself needs, in a loop or an `if`; exponents of integers; and the lengths of rows such as
    `table[q_idx]` that the function sums or compares.

    Args:
        mask_mod: `mask_mod(b, h, q_idx, kv_idx)` that returns a truth value for single indices; or
            a `BlockMask`: full blocks are kept as listed, and its function decides inside partial
            ones. If `create_block_mask` made it, pass its `mask_mod` instead: that can be proved.
        opaque: take the function as it is, where it has no formula. `blocks()`, the CPU and the
            reference call it, block by block; GPU kernels do not, so write
            `ma.dense(mask.to_dense(q_len, kv_len))` there. Nothing is proved, captured values do
            not become parameters, and each function object is a structure of its own: make the
            mask once, not in every step.

    Raises:
        TypeError: control flow on indices, an operation without a formula, or no Boolean result.
        ValueError: a divisor that is not positive, an entry that is no place of the tensor that is
            read there, or float64 entries that float32 rounds.

    Source: `torch.nn.attention.flex_attention`.

    Examples:
        >>> reach = 64
        >>> near = mask(lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) & (q_idx - kv_idx < reach))
        >>> near.parameters, equivalent(near, causal & sliding(64))
        ({'reach': 64}, True)
    """
    if is_block_mask(mask_mod):
        return of_block_mask(mask_mod, partial(mask, opaque=opaque))
    if opaque:
        return formula(_taken("mask", mask_mod))
    known = traced_before(mask_mod)
    if known is not None:
        return known
    from .trace import trace

    node = trace(mask_mod, scored=False)
    if node.kind != "bool":
        raise errors.MaskTypeError(
            f"ma.mask: the function returns a value of kind {node.kind}, expected a truth value. "
            "Write `x != 0` for a truth value, torch.where(condition, 1.0, 0.0) for a number."
        )
    return formula(node)


def traced_before(mask_mod: Callable[..., Any]) -> Mask | None:
    """The mask of a function with the same code as one traced before; None if there is none, or if
    the function's other values could make another formula."""
    from .memory import recalled, signature_of

    found = recalled(signature_of(mask_mod), scored=False)
    if found is None or found.kind != "bool":
        return None

    def formulas() -> tuple[Node, Node, Label]:
        node = found.node()
        return node, SCORE, Label("formula", (node,))

    return of_form(Mask, found.form(), formulas)


def score(score_mod: Callable[..., Any], *, opaque: bool = False) -> Bias | Score:
    """The bias of a FlexAttention function of the score, traced into a formula.

    `torch.where(kept, x, -inf)` makes a `Score`: the condition is its mask, which is proved like
    any other, and `x` its bias. The `where` may stand inside sums with finite terms, other choices,
    minima, and products by positive constants. With -1e9, or the least number of a dtype, in place
    of -inf it stays a bias: every pair is computed, and `explain` says so. Captured values and
    errors are as for `ma.mask`.

    Args:
        score_mod: `score_mod(score, b, h, q_idx, kv_idx)` that returns the new score.
        opaque: take the function as it is, as in `ma.mask`. Gradients reach the score only:
            captured tensors that require one are refused. GPU kernels refuse the function.

    Examples:
        >>> capped = score(lambda s, b, h, q_idx, kv_idx: 30.0 * torch.tanh(s / 30.0))
        >>> out = attention(q, k, v, causal + capped)
    """
    if opaque:
        taken = _taken("score", score_mod)
        return Bias(TRUE, taken, Label("formula", (taken,)))
    from .bounds import rounds_on_host
    from .captures import name_of
    from .meanings.minus_infinity import split
    from .trace import trace

    try:
        node = trace(score_mod, scored=True)
    except errors.MaskalgError as error:
        raise messages.of_score(error)  # noqa: B904
    if node.kind == "bool":
        raise errors.MaskTypeError(
            f"ma.score: {name_of(score_mod)} returns a truth value, expected a real number. It is "
            "a mask_mod, with a score it does not need: give ma.mask a function of (b, h, q_idx, "
            "kv_idx), or return torch.where(kept, score, -float('inf'))."
        )
    kept, bias = split(node)
    for table in kept.params:
        if isinstance(table, Table) and rounds_on_host(table.tensor):
            raise messages.traced_float64(table.name)
    bias = bias if bias.op == "score" else nodes.call("float", bias)
    label = Label("formula", (bias,))
    if kept is TRUE:
        return Bias(TRUE, bias, label)
    return Score(kept, bias, Label("+", (formula(kept).label, label)))


def _taken(call: str, function: Callable[..., Any]) -> Node:
    """A function as a node that calls it."""
    from .captures import name_of
    from .pointwise import Opaque, requires_gradient

    if isinstance(function, Expression) or not callable(function):
        raise messages.not_a_function(call, function)
    indices = (nodes.BATCH, nodes.HEAD, nodes.Q, nodes.K)
    if call == "mask":
        return nodes.opaque(Opaque(function, flags=True), "bool", *indices)
    if requires_gradient(function):
        raise errors.MaskValueError(
            f"ma.score({name_of(function)}, opaque=True): a tensor that {name_of(function)} "
            "captures requires a gradient, which opaque=True would not give it. Write it as a "
            "formula, without opaque=True, or capture tensor.detach()."
        )
    return nodes.opaque(Opaque(function, flags=False), "real", SCORE, *indices)
