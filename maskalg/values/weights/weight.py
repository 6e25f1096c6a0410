"""Weight functions as values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch

from ... import errors
from ...formula.entries import Entries, reals
from ...formula.expression import Expression
from ...formula.parameters import plain_number
from ..algebra import Bias, Score

__all__ = ["Weight"]


@dataclass(frozen=True, eq=False)
class Weight:
    """A weight function: turns a score into a weight.

    The output of a query is the sum of w(s) * v over the kept keys, divided by z when
    `normalised`, where z is the sum of w(s), plus exp(sink) when there is a sink.

    Attributes:
        name: what errors and `explain` call it.
        formula: w as a function of the score; None is exp.
        normalised: whether the output is divided by z; a query whose z is 0 has output 0.
        sink: a logit whose exp is added to z, a number or floating `[heads]`; w must be exp.
    """

    name: str
    formula: Bias | None = None
    normalised: bool = True
    sink: float | torch.Tensor | None = None

    def __post_init__(self) -> None:
        if self.formula is not None and not isinstance(self.formula, Bias):
            raise errors.MaskTypeError(
                f"Weight({self.name!r}, formula): the formula is a bias, a function of the score "
                f"such as ma.score(lambda s, b, h, q, k: s * s), got {type(self.formula).__name__}."
            )
        if self.formula is None and not self.normalised:
            raise errors.MaskValueError(
                f"Weight({self.name!r}, normalised=False) without a formula would be exp of any "
                "score, which overflows. Give a formula, or leave normalised=True."
            )
        if self.formula is not None and self.sink is not None:
            raise errors.MaskValueError(
                f"Weight({self.name!r}, formula, sink=…): a sink is a logit, so it needs w = exp. "
                "Leave the formula out."
            )
        check_logit(self.name, "sink", self.sink)

    def __repr__(self) -> str:
        return self.name

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors of the weight function, by the names `bind` takes."""
        if isinstance(self.sink, torch.Tensor):
            return {"sink": self.sink}
        values = {} if self.formula is None else self.formula.parameters
        return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}

    @property
    def _sharing(self) -> str:
        """As of an expression."""
        return "" if self.formula is None else self.formula._sharing

    def _bound_to(self, tensors: Mapping[str, torch.Tensor]) -> Weight:
        """The same function with other tensors."""
        if self.formula is None:
            return Weight(self.name, None, self.normalised, tensors.get("sink", self.sink))
        return Weight(self.name, self.formula._bound_to(tensors), self.normalised)

    def applied(self, expression: Expression) -> Expression:
        """`expression` with w(bias(s)) as its bias; `expression` itself where w is exp."""
        if self.formula is None:
            return expression
        if torch.compiler.is_compiling():
            return self._applied(self.formula, expression)
        remembered = expression.__dict__.get("_weighted")
        if remembered is not None and remembered[0] is self:
            return cast(Expression, remembered[1])
        result = self._applied(self.formula, expression)
        expression.__dict__["_weighted"] = (self, result)
        return result

    @staticmethod
    def _applied(formula: Bias, expression: Expression) -> Expression:
        scores = Score(expression.mask_node, expression.bias_node, expression.label)
        # As a method: torch.compile does not follow the operator `@` of our classes.
        return formula.__matmul__(scores)


def logit(call: str, name: str, value: float | Entries) -> float | torch.Tensor:
    """A user's logit, checked: a number, a tensor, or its entries."""
    value = plain_number(value)
    listed = not isinstance(value, (int, float, torch.Tensor))
    wanted = "a number, or a floating-point tensor"
    given = reals(call, name, value, wanted) if listed else cast("float | torch.Tensor", value)
    check_logit(call, name, given)
    return given


def check_logit(call: str, name: str, value: object) -> None:
    """Refuse a logit that is neither a number nor a floating tensor `[heads]`."""
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        if value is not None and not torch.compiler.is_compiling() and math.isnan(value):
            raise errors.MaskValueError(f"{call}: {name} must be a number, got nan.")
        return
    if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
        found = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
        raise errors.tensor_dtype(call, name, found, "a floating-point tensor or a number")
    if value.ndim != 1:
        shape = list(value.shape)
        one = f" Write {name}.expand(heads) for one of all heads." if shape in ([], [1]) else ""
        raise errors.MaskValueError(f"{call}: {name} must have shape [heads], got {shape}.{one}")
