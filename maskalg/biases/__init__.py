"""Biases: what a score becomes, a formula each."""

from .alibi import alibi
from .decay import decay
from .relative import relative
from .softcap import softcap

__all__ = ["alibi", "decay", "relative", "softcap"]
