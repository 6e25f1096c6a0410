"""Of the commands and of the pictures they print."""

from __future__ import annotations

from .kinds import MaskTypeError, MaskValueError


def no_such_entry(index: str, given: int, count: int) -> MaskValueError:
    last = f"0 to {count - 1}" if count > 1 else "0"
    return MaskValueError(f"show: {index}={given}, and the mask holds {index} {last}.")


def no_mask_in(expression: object) -> MaskTypeError:
    return MaskTypeError(
        f"{expression} is a bias, which keeps every pair: there is no mask to look at. Write a "
        "mask, or mask + bias."
    )
