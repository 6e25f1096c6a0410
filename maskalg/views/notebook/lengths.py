"""How many queries and keys to show of an expression when nobody said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ... import errors
from ...engine.extents import resolve
from ...engine.normal_form import bound
from ...formula.expression import Expression
from ...formula.parameters import Scalar
from ..inspect.choice import Choice, of_one

# What fits more positions than this has no limit.
_LIMIT: Final = 1 << 28
_SHORTEST: Final = 256
_LONGEST: Final = 1 << 20
# Where positions are digits, numbers multiply: a canvas of 16 x 16 has 256 positions.
_LONGEST_SQUARE: Final = 1024


def lengths_to_show(expression: Expression, choice: Choice) -> tuple[int, int] | None:
    """Queries and keys: as many as the bound tensors hold, else four of the largest numbers.

    None where no length fits the tensors, as for an empty one.
    """
    narrowed, batches, heads = of_one(expression, choice)
    form = bound(narrowed)

    def fits(q_len: int, kv_len: int) -> bool:
        try:
            resolve(form, q_len, kv_len, batches, heads)
        except errors.MaskValueError:
            return False
        return True

    if not fits(1, 1):
        return None
    q_len = _largest(lambda length: fits(length, 1))
    kv_len = _largest(lambda length: fits(1, length))
    q_len, kv_len = q_len or kv_len, kv_len or q_len
    if q_len is None or kv_len is None:
        q_len = kv_len = _of_numbers(expression)
    if fits(q_len, kv_len):
        return q_len, kv_len
    # A table read at both indices together, such as one of distances.
    both = _largest(lambda length: fits(min(length, q_len), min(length, kv_len)))
    return None if both is None else (min(both, q_len), min(both, kv_len))


def _largest(fits: Callable[[int], bool]) -> int | None:
    """The largest length that fits, given that 1 does; None where there is no limit in sight."""
    if fits(_LIMIT):
        return None
    low, high = 1, _LIMIT
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _of_numbers(expression: Expression) -> int:
    """A power of two that is four times as long as the largest number of the formula."""
    numbers = [abs(int(p.value)) for p in expression.mask_node.params + expression.bias_node.params
               if isinstance(p, Scalar) and p.kind == "int"]  # fmt: skip
    largest = max(numbers, default=0)
    wanted = max(_SHORTEST, 4 * largest)
    if any(node.op in ("floordiv", "mod") for node in expression.mask_node.walk()):
        wanted = max(wanted, min(largest**2, _LONGEST_SQUARE))
    length = _SHORTEST
    while length < min(wanted, _LONGEST):
        length *= 2
    return length
