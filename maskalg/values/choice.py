"""A choice by head, batch entry or position: of two masks, two biases or two index expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from ..formula import nodes
from ..formula.expression import Expression
from ..formula.nodes import SCORE, TRUE, chosen
from ..formula.parameters import plain_number
from ..formula.printing import Label, named
from . import messages
from .algebra import Bias, Mask, constant
from .in_torch import as_in_torch
from .index import Index, as_node

if TYPE_CHECKING:
    from .index import Entry

__all__ = ["where", "xor"]


@overload
def where(condition: Mask, then: Entry, otherwise: Entry) -> Entry: ...


@overload
def where(condition: Mask, then: Mask, otherwise: Mask) -> Mask: ...


@overload
def where(condition: Mask, then: Bias, otherwise: Bias | float) -> Bias: ...


@overload
def where(condition: Mask, then: float, otherwise: Bias) -> Bias: ...


@overload
def where(condition: Mask, then: Index | float, otherwise: Index | float) -> Index: ...


@as_in_torch
def where(condition: Mask, then: object, otherwise: object) -> Mask | Bias | Index:
    """`then` where `condition` keeps, else `otherwise`: of masks, biases or index expressions.

    Args:
        condition: a mask: usually a comparison of `head`, `batch`, `q_idx` or `kv_idx`.
        then: a mask, a bias, an index expression or a number. A number beside a bias is added to
            the score.
        otherwise: the same kind as `then`.

    Raises:
        TypeError: a condition that is no mask, or two branches of different kinds. For scores,
            choose the mask and the bias apart: `where(c, a, b) + where(c, f, g)`.

    Examples:
        >>> mask = where(head % 2 == 0, causal & sliding(64), causal)
        >>> mask.blocks(256, block=64, heads=2).labels.sum((2, 3)).tolist()
        [[7, 16]]
        >>> causal + where(head < 4, alibi(slopes), 0)
        causal + where(head < 4, alibi(slopes[2]), 0)
    """
    if not isinstance(condition, Mask):
        raise messages.where_condition(condition)
    then, otherwise = plain_number(then), plain_number(otherwise)
    if isinstance(then, (Index, int, float)) and isinstance(otherwise, (Index, int, float)):
        return Index(nodes.where(condition.mask_node, as_node(then), as_node(otherwise)))
    if isinstance(then, Bias) or isinstance(otherwise, Bias):
        then, otherwise = _as_bias(then), _as_bias(otherwise)
    if isinstance(then, Mask) and isinstance(otherwise, Mask):
        kept = nodes.conjunction(condition.mask_node, then.mask_node)
        rest = nodes.conjunction(nodes.negation(condition.mask_node), otherwise.mask_node)
        return Mask(nodes.disjunction(kept, rest), SCORE, _label(condition, then, otherwise))
    if isinstance(then, Bias) and isinstance(otherwise, Bias):
        node = chosen(condition.mask_node, then.bias_node, otherwise.bias_node)
        return Bias(TRUE, node, _label(condition, then, otherwise))
    raise messages.where_branches(then, otherwise)


def xor(left: Mask, right: Mask) -> Mask:
    """`left ^ right`: the pairs that one of two masks keeps, and not the other."""
    return left ^ right


def _as_bias(branch: object) -> object:
    """A number as the bias that adds it; anything else as it is."""
    if isinstance(branch, bool) or not isinstance(branch, (int, float)):
        return branch
    return constant(branch) if branch else Bias(TRUE, SCORE, named("0"))


def _label(condition: Mask, then: Expression, otherwise: Expression) -> Label:
    return Label("where", ("where", condition.label, then.label, otherwise.label))
