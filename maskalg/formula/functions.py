"""The functions of real numbers that formulas call: one row for each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

from . import nodes
from .nodes import Node


@dataclass(frozen=True)
class Function:
    """One function of a real number, in every language it is written in.

    Texts hold `{}` in place of the argument.

    Attributes:
        evaluated: the function in torch, of a floating tensor.
        derivative: the derivative of y = f(x), as a formula of y and x.
        latex: text in LaTeX.
        triton: text in hooks of kernels: a function of Triton, or of `kernels/reals.py` where
            Triton lacks it or has it only for some GPUs.
        cpp: text in the kernel of the CPU backend.
        javascript: text in the page of `explore`, in float32; None if the page lacks it.
        rounded: text in hooks of masks, where `triton` is not rounded to the nearest number.
        same_everywhere: whether all of these give the same bits, so that a mask may call it on a
            CPU too.
        finite: whether it is finite for every finite number.
    """

    evaluated: Callable[[torch.Tensor], torch.Tensor]
    derivative: Callable[[Node, Node], Node]
    latex: str
    triton: str
    cpp: str
    javascript: str | None
    rounded: str | None = None
    same_everywhere: bool = False
    finite: bool = False


def _square_root(x: torch.Tensor) -> torch.Tensor:
    """The number that is nearest to the root, as kernels compute it.

    MKL, by which torch computes roots on a CPU, is off by the last bit on some machines; a mask
    that compares roots would keep other pairs there.
    """
    by_mkl = x.dtype == torch.float32 and not x.is_cuda
    return x.double().sqrt().float() if by_mkl else x.sqrt()


def _constant(number: float) -> Callable[[Node, Node], Node]:
    return lambda y, x: nodes.const(number)


def _reciprocal(factor: float) -> Callable[[Node, Node], Node]:
    return lambda y, x: nodes.divide(nodes.const(factor), x)


def _bell(y: Node, x: Node) -> Node:
    """2 / sqrt(pi) exp(-x x)."""
    bell = nodes.call("exp", nodes.negate(nodes.mul(x, x)))
    return nodes.mul(nodes.const(2.0 / math.sqrt(math.pi)), bell)


def _sign(y: Node, x: Node) -> Node:
    """1 or -1, and 0 at 0, as in torch."""
    of_negative = nodes.where(nodes.gt(_ZERO, x), nodes.const(-1.0), _ZERO)
    return nodes.where(nodes.gt(x, _ZERO), _ONE, of_negative)


_ZERO: Final = nodes.const(0.0)
_ONE: Final = nodes.const(1.0)

FUNCTIONS: Final = {
    "exp": Function(
        torch.exp, lambda y, x: y,
        r"\exp\left({}\right)", "tl.exp({})", "exp_of({})", "f(Math.exp({}))",
    ),
    "exp2": Function(
        torch.exp2, lambda y, x: nodes.mul(nodes.const(math.log(2.0)), y),
        "2^{{{}}}", "tl.exp2({})", "exp2_of({})", "f(exp2({}))",
    ),
    "expm1": Function(
        torch.expm1, lambda y, x: nodes.call("exp", x),
        r"\left(\exp\left({}\right) - 1\right)", "expm1({})", "expm1_of({})", "f(Math.expm1({}))",
    ),
    "log": Function(
        torch.log, _reciprocal(1.0),
        r"\ln\left({}\right)", "tl.log({})", "log_of({})", "f(Math.log({}))",
    ),
    "log2": Function(
        torch.log2, _reciprocal(1.0 / math.log(2.0)),
        r"\log_2\left({}\right)", "tl.log2({})", "log2_of({})", "f(Math.log2({}))",
    ),
    "log1p": Function(
        torch.log1p, lambda y, x: nodes.divide(_ONE, nodes.add(_ONE, x)),
        r"\ln\left(1 + {}\right)", "log1p({})", "log1p_of({})", "f(Math.log1p({}))",
    ),
    "sqrt": Function(
        _square_root, lambda y, x: nodes.divide(nodes.const(0.5), y),
        r"\sqrt{{{}}}", "tl.sqrt({})", "__builtin_sqrtf({})", "f(Math.sqrt({}))",
        rounded="tl.sqrt_rn({})", same_everywhere=True,
    ),
    "sin": Function(
        torch.sin, lambda y, x: nodes.call("cos", x),
        r"\sin\left({}\right)", "tl.sin({})", "__builtin_sinf({})", "f(Math.sin({}))", finite=True,
    ),
    "cos": Function(
        torch.cos, lambda y, x: nodes.negate(nodes.call("sin", x)),
        r"\cos\left({}\right)", "tl.cos({})", "__builtin_cosf({})", "f(Math.cos({}))", finite=True,
    ),
    "tan": Function(
        torch.tan, lambda y, x: nodes.add(_ONE, nodes.mul(y, y)),
        r"\tan\left({}\right)", "tan({})", "__builtin_tanf({})", "f(Math.tan({}))",
    ),
    "tanh": Function(
        torch.tanh, lambda y, x: nodes.subtract(_ONE, nodes.mul(y, y)),
        r"\tanh\left({}\right)", "tanh({})", "tanh_of({})", "f(Math.tanh({}))", finite=True,
    ),
    "sigmoid": Function(
        torch.sigmoid, lambda y, x: nodes.mul(y, nodes.subtract(_ONE, y)),
        r"\sigma\left({}\right)", "sigmoid({})", "sigmoid_of({})", "f(sigmoid({}))", finite=True,
    ),
    "erf": Function(
        torch.erf, _bell,
        r"\operatorname{{erf}}\left({}\right)", "tl.erf({})", "__builtin_erff({})", None,
        finite=True,
    ),
    "abs": Function(
        torch.abs, _sign,
        r"\left\lvert {} \right\rvert", "tl.abs({})", "__builtin_fabsf({})", "f(Math.abs({}))",
        same_everywhere=True, finite=True,
    ),
    "floor": Function(
        torch.floor, _constant(0.0),
        r"\left\lfloor {} \right\rfloor", "tl.floor({})", "__builtin_floorf({})",
        "f(Math.floor({}))", same_everywhere=True, finite=True,
    ),
    "ceil": Function(
        torch.ceil, _constant(0.0),
        r"\left\lceil {} \right\rceil", "tl.ceil({})", "__builtin_ceilf({})", "f(Math.ceil({}))",
        same_everywhere=True, finite=True,
    ),
    # Converts an integer to a real number. Its text is empty: each printer of calls converts.
    "float": Function(
        lambda x: x, _constant(1.0), "{}", "{}", "{}", "{}", same_everywhere=True, finite=True,
    ),
}  # fmt: skip


def function_of(node: Node) -> Function:
    """The function that a `call` node calls."""
    return FUNCTIONS[str(node.data)]
