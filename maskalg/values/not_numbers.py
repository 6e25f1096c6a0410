"""Arithmetic that masks and scores refuse: they say what is kept, and are no numbers."""

from __future__ import annotations

from typing import NoReturn

from . import messages


class NotNumbers:
    """Base of masks and scores, for error messages."""

    def __mul__(self, other: NoReturn) -> NoReturn:
        raise messages.times_mask(self, "*", other)

    def __rmul__(self, other: NoReturn) -> NoReturn:
        raise messages.times_mask(other, "*", self)

    def __truediv__(self, other: NoReturn) -> NoReturn:
        raise messages.times_mask(self, "/", other)

    def __neg__(self) -> NoReturn:
        raise messages.minus_of_mask(self)

    def __matmul__(self, other: NoReturn) -> NoReturn:
        raise messages.nested_mask(self, other)

    def __rmatmul__(self, other: NoReturn) -> NoReturn:
        raise messages.nested_mask(other, self)
