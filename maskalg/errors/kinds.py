"""The kinds of error, for `except`."""

from __future__ import annotations

__all__ = [
    "BackendError",
    "MaskAttributeError",
    "MaskTypeError",
    "MaskValueError",
    "MaskalgError",
    "MissingPackageError",
    "RecompilationWarning",
]


class MaskalgError(Exception):
    """Base of all errors of maskalg, for `except`."""


class MaskTypeError(MaskalgError, TypeError):
    """An operand or argument of the wrong type."""


class MaskValueError(MaskalgError, ValueError):
    """An argument of the right type with an impossible value or shape."""


class MaskAttributeError(MaskalgError, AttributeError):
    """An attribute that a mask, a bias or a score does not have."""


class BackendError(MaskalgError, RuntimeError):
    """A backend that cannot serve this call; the message names what would."""


class MissingPackageError(MaskalgError, ImportError):
    """An optional package that is not installed; the message says what to install."""


class RecompilationWarning(UserWarning):
    """A constant of a formula changes between calls, so a kernel is compiled for each value."""
