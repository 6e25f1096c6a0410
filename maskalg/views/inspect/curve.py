"""A bias that reads no position, as the curve of what it makes of a score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from ...engine.evaluate import Environment, evaluate
from ...engine.normal_form import bound
from ...formula.expression import Expression
from .palette import LIGHT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS: Final = 201


def draw_curve(bias: Expression, ax: Axes) -> None:
    """The score after the bias over the score before, for the first batch entry and head.

    Scores run from minus to plus three times the largest number bound to the bias.
    """
    numbers = [abs(value) for value in bias.parameters.values() if isinstance(value, (int, float))]
    reach = 3.0 * max(numbers, default=0.0) or 5.0
    scores = torch.linspace(-reach, reach, _POINTS, dtype=torch.float64)
    form = bound(bias.to("cpu"))
    nowhere = {name: torch.tensor(0) for name in ("batch", "head", "q_idx", "kv_idx")}
    values = evaluate(form.structure.bias, Environment(nowhere, form.values, scores))
    ax.plot(scores.numpy(), scores.numpy(), color="#aab4c0", linewidth=0.8, linestyle="dashed")
    ax.plot(scores.numpy(), values.detach().expand(_POINTS).numpy(), color=LIGHT[2])
    ax.set_xlabel("score", size="small")
    ax.set_ylabel("score with the bias", size="small")
    ax.set_box_aspect(1)
    ax.tick_params(labelsize="small")
