"""Biases: what a score becomes, a formula each."""

from .alibi import alibi
from .decay import decay
from .fire import FireParameters, fire
from .graphormer import graphormer
from .kerple import kerple_log, kerple_power
from .pointwise import dense_bias, key_bias
from .relative import relative
from .relative_2d import decomposed, relative_2d
from .sandwich import sandwich
from .shaw import shaw
from .softcap import softcap
from .t5 import t5

__all__ = [
    "FireParameters",
    "alibi",
    "decay",
    "decomposed",
    "dense_bias",
    "fire",
    "graphormer",
    "kerple_log",
    "kerple_power",
    "key_bias",
    "relative",
    "relative_2d",
    "sandwich",
    "shaw",
    "softcap",
    "t5",
]
