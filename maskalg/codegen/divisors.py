"""Division by numbers of a call: a multiplication by a factor that the host computes.

A GPU divides integers in some twenty instructions. Masks of images and blocks divide at each key of
a tile, by numbers that are the same for a whole call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, cast

from ..engine.normal_form import Value
from ..formula.nodes import Node
from ..formula.parameters import Slot

_BITS: Final = 31  # bits of the dividend


def factor_and_shift(divisor: int) -> tuple[int, int]:
    """(m, s) such that `x // divisor == 2 x m >> 32 + s` for 0 <= x < 2**31; 0 <= m < 2**32.

    With 2**s >= divisor, m = ceil(2**(31 + s) / divisor) is too large by less than 1, so the
    product by less than 2**31 <= 2**(31 + s) / divisor, which reaches no next quotient (Granlund
    and Montgomery, "Division by invariant integers using multiplication", 1994).
    """
    if not 0 < divisor < 2**_BITS:
        return 0, 0  # larger than every dividend
    shift = (divisor - 1).bit_length()
    return -(-(2 ** (_BITS + shift)) // divisor), shift


def numeric(node: Node) -> bool:
    """Whether a formula is computed from numbers alone, and is not a number itself."""
    return node.op == "scalar" or (
        node.op in _OPERATIONS and any(map(numeric, node.args)) and all(map(_known, node.args))
    )


def value_of(node: Node, values: tuple[Value, ...]) -> int:
    """The value of a formula of numbers."""
    if node.op == "const":
        return cast(int, node.data)
    if node.op == "scalar":
        return cast(int, values[cast(Slot, node.own[0]).index])
    return _OPERATIONS[node.op]([value_of(arg, values) for arg in node.args])


def _known(node: Node) -> bool:
    return node.op == "const" or numeric(node)


_OPERATIONS: Final[dict[str, Callable[[list[int]], int]]] = {
    "add": sum,
    "mul": math.prod,
    "min": min,
    "max": max,
    "floordiv": lambda args: args[0] // args[1],
    "mod": lambda args: args[0] % args[1],
}
