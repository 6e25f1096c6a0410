"""Limits of the integers in a formula, from its numbers and the dtypes of its tensors.

Integers of a formula may have any size. A formula is computed in 64 bits if none of its parts can
leave them, which is decided here without reading entries.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, cast

import torch

from .. import errors
from ..formula.meaning import BITWISE, RULES, Interval, ends_of_entries
from ..formula.nodes import Node
from ..formula.parameters import Slot
from ..formula.printing import formula_text
from .long_integers import MOST_BITS, limbs_for
from .normal_form import Value

MOST_POSITIONS: Final = 2**40  # more than the positions, batch entries or heads of any call
LEAST_64, MOST_64 = -(2**63), 2**63 - 1

LEAVES: Final = ("index", "const", "scalar", "read", "extent", "step", "member", "trunc", "opaque")
"""Operations whose size follows from the operation, not from its arguments."""

Measure = tuple[Interval, int]  # limits, and the most bits of all integers in a formula
Known = int | torch.dtype | Interval | None
"""A number, the dtype of a table or the limits of its entries; None for a symbolic number."""
Told = Value | Known


def outgrows(node: Node, values: tuple[Told, ...], positions: int = MOST_POSITIONS) -> bool:
    """Whether an integer formula, or one of its direct operands, may leave 64 bits."""
    if node.op in LEAVES and node.op != "const":
        return False
    if not node.grows and not _reads_long(node, values):
        # For example a sum of integers of 32 bits.
        return False
    parts = (node, *[arg for arg in node.args if arg.kind == "int"])
    return not all(inside(limits(part, values, positions)) for part in parts)


def fits_64(node: Node, values: tuple[Value, ...]) -> bool:
    """Whether the value of an integer formula fits 64 bits, so that `evaluate` is exact."""
    return inside(limits(node, values))


def compares_in_64(node: Node, values: tuple[Told, ...], positions: int = MOST_POSITIONS) -> bool:
    """Whether a comparison of its sides, each clamped to 64 bits, gives the exact result.

    One side within 64 bits is enough, if it cannot equal the smallest or largest such integer.
    """
    if not any(outgrows(side, values, positions) for side in node.args):
        return True
    return any(inside(limits(side, values, positions), margin=1) for side in node.args)


def inside(limits: Interval, margin: int = 0) -> bool:
    """Whether both limits fit 64 bits, and are at least `margin` from the ends of that range."""
    return LEAST_64 + margin <= limits[0] and limits[1] <= MOST_64 - margin


def limits(node: Node, values: tuple[Told, ...], positions: int = MOST_POSITIONS) -> Interval:
    """The smallest and largest value of an integer formula, at indices up to `positions`."""
    return _measured(node, values, positions)[0]


def bits_of(node: Node, values: tuple[Told, ...], positions: int = MOST_POSITIONS) -> int:
    """The bits, without the sign, of the largest integer computed in an integer formula.

    `values` may hold the limits of a table's entries in place of the table, everywhere here.
    """
    return _measured(node, values, positions)[1]


def limbs(node: Node, values: tuple[Told, ...], positions: int = MOST_POSITIONS) -> int:
    """How many limbs of `long_integers` hold an integer formula and all its parts.

    Raises:
        MaskValueError: integers of more than `MOST_BITS` bits.
    """
    bits = bits_of(node, values, positions)
    if bits > MOST_BITS:
        raise errors.integer_too_long(formula_text(node), bits, MOST_BITS)
    return limbs_for(bits)


def known_of(values: tuple[Value, ...]) -> tuple[Known, ...]:
    """What sizes depend on, for each value: the dtype of a table, and for a number the limits of
    its bit length, so that a number which changes at each call mostly gives the same."""
    return tuple(
        [_limits_of(known) if type(known) is int else known for known in map(_known, values)]
    )


def _limits_of(number: int) -> Interval:
    most = (1 << abs(number).bit_length()) - 1
    return (0, most) if number >= 0 else (-most, 0)


def _measured(node: Node, values: tuple[Told, ...], positions: int) -> Measure:
    return _measure(
        node, tuple([_known(values[cast(Slot, p).index]) for p in node.params]), positions
    )


def _known(value: Told) -> Known:
    if isinstance(value, torch.Tensor):
        return value.dtype
    if isinstance(value, (tuple, torch.dtype)):
        return value
    # Reading a number that torch.compile makes symbolic would turn it into a constant.
    return value if type(value) is int and not torch.compiler.is_dynamo_compiling() else None


def _measure(node: Node, known: tuple[Known, ...], positions: int) -> Measure:
    if torch.compiler.is_dynamo_compiling():
        return _measure_anew(node, known, positions)
    return _remembered(node, known, positions)


def _measure_anew(node: Node, known: tuple[Known, ...], positions: int) -> Measure:
    own = len(node.own)
    if node.op in LEAVES or node.kind != "int":
        found, bits = _of_leaf(node, known[0] if own else None, positions), 0
    else:
        parts: list[Measure] = []
        place = own
        for arg in node.args:
            count = len(arg.params)
            parts.append(_measure(arg, known[place : place + count], positions))
            place += count
        found = _of_parts(node, [part[0] for part in parts])
        bits = max(part[1] for part in parts)
    return found, max(bits, abs(found[0]).bit_length(), abs(found[1]).bit_length())


_remembered = lru_cache(maxsize=16384)(_measure_anew)


def _of_leaf(node: Node, known: Known, positions: int) -> Interval:
    if node.kind != "int":
        return 0, 1  # a condition, or a real number, which is no integer's limit
    if node.op == "const":
        return cast(int, node.data), cast(int, node.data)
    if isinstance(known, tuple) and node.op != "extent":
        return known
    if node.op == "scalar" and isinstance(known, int):
        return known, known
    if node.op in ("scalar", "trunc"):
        return -(2**31), 2**31
    if node.op in ("read", "opaque"):
        dtype = known if isinstance(known, torch.dtype) and node.op == "read" else torch.int64
        return ends_of_entries(dtype)
    return -positions, positions


def _of_parts(node: Node, parts: list[Interval]) -> Interval:
    if node.op == "where":
        (a, b), (c, d) = parts[1:]
        return min(a, c), max(b, d)
    if node.op in BITWISE:
        bits = max(max(~low if low < 0 else low, ~high if high < 0 else high).bit_length()
                   for low, high in parts)  # fmt: skip
        return -(1 << bits), (1 << bits) - 1
    if node.op in ("floordiv", "mod"):
        # Divisors are at least 1, except in a branch that is not taken.
        low, high = parts[1]
        parts = [parts[0], (max(low, 1), max(high, 1))]
    found = RULES[node.op](parts)
    assert found is not None, node.op
    return found


def _reads_long(node: Node, values: tuple[Told, ...]) -> bool:
    for parameter in node.params:
        if isinstance(parameter, Slot) and parameter.is_table:
            value = values[parameter.index]
            if isinstance(value, tuple):  # of entries of 64 bits
                return True
            if isinstance(value, torch.Tensor) and value.dtype == torch.int64:
                return True
    return False
