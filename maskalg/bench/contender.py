"""One way to compute a case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Run = Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Contender:
    """A contender: a function that computes the output of a case, and its inputs.

    Attributes:
        run: gives the output `[batch, heads, length, dim]`.
        inputs: query, key and value that `run` reads, `[batch, heads, length, dim]` in its layout.
    """

    run: Run
    inputs: tuple[torch.Tensor, ...]

    def backward(self) -> Callable[[], Any]:
        """The backward pass alone, from a fixed gradient of the output."""
        return backward_of(self.run, self.inputs)


def backward_of(run: Run, inputs: tuple[torch.Tensor, ...]) -> Callable[[], Any]:
    """The backward pass of a function of `inputs`, from a fixed gradient of its output."""
    out = run()
    torch.manual_seed(1)
    values = torch.randn(out.shape, device=out.device).to(out.dtype)
    # In the layout of the output: another one would be copied at each call.
    gradient = torch.empty_like(out).copy_(values)
    return lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True)
