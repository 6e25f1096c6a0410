"""Integers of any size as tuples of 64-bit tensors, for formulas whose results exceed 64 bits.

A number is the sum of `limbs[i] * 2**(64 * i)`, where only the last limb has a sign. All numbers of
one computation have the same number of limbs, which `limbs_for` finds so that results are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final

import torch

from ..formula.meaning import BITWISE
from ..formula.nodes import COMMUTATIVE

MOST_BITS: Final = 900
"""The most bits of a number: quotients are estimated by doubles, which reach 2**1023."""

_LEAST_64: Final = -(2**63)
_LOW_32: Final = 2**32 - 1
_BITS_OF_A_STEP: Final = 50  # bits of a quotient that one double estimates

Long = tuple[torch.Tensor, ...]
Operation = Callable[[Long, Long], Long]


def limbs_for(bits: int) -> int:
    """How many limbs hold numbers of `bits` bits; an estimated quotient may take one bit more."""
    return max(2, -(-(bits + 2) // 64))


def is_tensor(index: object) -> bool:
    """Whether an exported function is called with a tensor, and not traced by `maskalg.mask`."""
    return isinstance(index, torch.Tensor)


def index(position: Any) -> Any:
    """A position given by FlexAttention or a user, in 64 bits if it is a tensor."""
    return position.long() if isinstance(position, torch.Tensor) else position


def of(number: torch.Tensor, limbs: int) -> Long:
    """An integer of at most 64 bits, or a Boolean."""
    number = number.to(torch.int64)
    return (number, *[number >> 63] * (limbs - 1))


def of_number(number: int, limbs: int, device: torch.device) -> Long:
    """An integer of Python."""
    parts = [number >> 64 * place & (2**64 - 1) for place in range(limbs)]
    signed = [part - 2**64 if part >= 2**63 else part for part in parts]
    # Filled on the device: a copy from here would wait for it.
    return tuple([torch.full((), part, dtype=torch.int64, device=device) for part in signed])


def add(a: Long, b: Long) -> Long:
    total = [a[0] + b[0]]
    for x, y, before, below in zip(a[1:], b[1:], a[:-1], b[:-1], strict=True):
        # The limb below carried if both top bits were set, or one was and that of the sum is not.
        carry = ((before & below) | ((before | below) & ~total[-1])) < 0
        total.append(x + y + carry)
    return tuple(total)


def negate(a: Long) -> Long:
    return add(tuple([~x for x in a]), of(torch.ones_like(a[0]), len(a)))


def multiply(a: Long, b: Long) -> Long:
    total = of(torch.zeros_like(a[0]), len(a))
    for i, x in enumerate(a):
        for j, y in enumerate(b[: len(a) - i]):
            low = x * y
            none = torch.zeros_like(low)
            parts = [*[none] * (i + j), low, _upper_product(x, y), *[none] * len(a)]
            total = add(total, tuple(parts[: len(a)]))
    return total


def divide(a: Long, c: Long) -> tuple[Long, Long]:
    """The quotient and the remainder for c >= 1, rounded down.

    Each step subtracts a quotient estimated in doubles; after the last, the result is off by 1 at
    most.
    """
    quotient, rest = of(torch.zeros_like(a[0]), len(a)), a
    for _ in range(64 * len(a) // _BITS_OF_A_STEP + 1):
        step = _of_real(real(rest) / real(c), len(a))
        quotient = add(quotient, step)
        rest = add(rest, negate(multiply(step, c)))
    below = of(rest[-1] < 0, len(a))
    quotient, rest = add(quotient, negate(below)), add(rest, multiply(below, c))
    above = of(at_least(rest, c), len(a))
    return add(quotient, above), add(rest, negate(multiply(above, c)))


def at_least(a: Long, b: Long) -> torch.Tensor:
    """a >= b."""
    result = a[0] ^ _LEAST_64 >= b[0] ^ _LEAST_64
    for x, y in zip(a[1:-1], b[1:-1], strict=True):
        result = (x ^ _LEAST_64 > y ^ _LEAST_64) | ((x == y) & result)
    return (a[-1] > b[-1]) | ((a[-1] == b[-1]) & result)


def above(a: Long, b: Long) -> torch.Tensor:
    """a > b."""
    return ~at_least(b, a)


def equal(a: Long, b: Long) -> torch.Tensor:
    return reduce(torch.logical_and, [x == y for x, y in zip(a, b, strict=True)])


def where(condition: torch.Tensor, a: Long, b: Long) -> Long:
    return tuple([torch.where(condition, x, y) for x, y in zip(a, b, strict=True)])


def minimum(a: Long, b: Long) -> Long:
    return where(at_least(b, a), a, b)


def maximum(a: Long, b: Long) -> Long:
    return where(at_least(a, b), a, b)


def bitwise(operation: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Operation:
    """A bitwise operation, limb by limb."""
    return lambda a, b: tuple([operation(x, y) for x, y in zip(a, b, strict=True)])


def computed(op: str, parts: list[Long]) -> Long:
    """The result of an operation of formulas; divisors below 1 count as 1."""
    if op in COMMUTATIVE:
        # Small operands first: vectors combine before they meet a matrix.
        parts = sorted(parts, key=lambda part: part[0].numel())
    return reduce(_OPERATIONS[op], parts)


def clamped(a: Long) -> torch.Tensor:
    """The number, clamped to 64 bits."""
    return torch.where(_in_64(a), a[0], (a[-1] >> 63) ^ (2**63 - 1))


def real(a: Long) -> torch.Tensor:
    """The number as a double."""
    # Converts the magnitude: a sum of the limbs of a small negative number would round it away.
    total = torch.zeros_like(a[0], dtype=torch.float64)
    for place, limb in enumerate(where(a[-1] < 0, negate(a), a)):
        part = limb.to(torch.float64)
        total = total + torch.where(limb < 0, part + 2.0**64, part) * 2.0 ** (64 * place)
    return torch.where(a[-1] < 0, -total, total)


def _positive(divisor: Long) -> Long:
    return maximum(divisor, of(torch.ones_like(divisor[0]), len(divisor)))


def _of_real(number: torch.Tensor, limbs: int) -> Long:
    """The integer part of a double, rounded towards zero."""
    rest, parts = number.abs().trunc(), []
    for place in reversed(range(limbs)):
        unit = 2.0 ** (64 * place)
        part = (rest / unit).floor()
        rest = rest - part * unit
        parts.append(torch.where(part >= 2.0**63, part - 2.0**64, part).to(torch.int64))
    size = tuple(reversed(parts))
    return where(number < 0, negate(size), size)


def _in_64(a: Long) -> torch.Tensor:
    sign = a[0] >> 63
    return reduce(torch.logical_and, [limb == sign for limb in a[1:]])


def _upper_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The upper half of the product of two unsigned limbs."""
    a0, a1 = a & _LOW_32, _upper(a)
    b0, b1 = b & _LOW_32, _upper(b)
    middle = a1 * b0 + _upper(a0 * b0)
    other = a0 * b1 + (middle & _LOW_32)
    return a1 * b1 + _upper(middle) + _upper(other)


def _upper(a: torch.Tensor) -> torch.Tensor:
    """The upper 32 bits of an unsigned limb."""
    return (a >> 32) & _LOW_32


COMPARISONS: Final[dict[str, Callable[[Long, Long], torch.Tensor]]] = {
    "ge": at_least,
    "gt": above,
    "eq": equal,
}

_OPERATIONS: Final[dict[str, Operation]] = {
    "add": add,
    "mul": multiply,
    "floordiv": lambda x, c: divide(x, _positive(c))[0],
    "mod": lambda x, c: divide(x, _positive(c))[1],
    "min": minimum,
    "max": maximum,
    **{name: bitwise(row.evaluated) for name, row in BITWISE.items() if row.evaluated},
}
