"""The biases, functions of the score: a file for each or for a family."""

from ..discovery import public

_FOUND = public(__name__)
globals().update(_FOUND)
__all__ = list(_FOUND)
