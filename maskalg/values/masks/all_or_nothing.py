"""The masks that keep every pair, and none."""

from __future__ import annotations

import numpy as np

from ..algebra import everything, nothing
from ..by_hand import Bools, MaskRows

__all__ = ["everything", "nothing"]


# The second definition, and the rows of the catalogue.


def everything_by_hand(*, q_len: int, kv_len: int, q_shift: int = 0, kv_shift: int = 0) -> Bools:
    """Keeps all."""
    return np.ones((1, 1, q_len, kv_len), np.bool_)


def nothing_by_hand(*, q_len: int, kv_len: int, q_shift: int = 0, kv_shift: int = 0) -> Bools:
    """Keeps none."""
    return np.zeros((1, 1, q_len, kv_len), np.bool_)


def rows() -> MaskRows:
    return {
        "everything": (everything, everything_by_hand),
        "nothing": (nothing, nothing_by_hand),
    }
