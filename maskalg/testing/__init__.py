"""For tests of your own masks, scores and kernels: assertions, oracles, random compositions.

`assert_same_mask` compares a mask with a function, a matrix or another mask, `assert_labels_exact`
its labels with brute force, `assert_closed_forms_sound` its closed forms with brute force, and
`assert_attention_close` attention and gradients with the float64 reference. `oracle` has a second
definition of every mask, score term and weight in plain numpy.

`maskalg.testing.strategies` and `maskalg.testing.score_strategies` draw random compositions for
hypothesis; only they import it (`pip install 'maskalg[testing]'`). `pytest --maskalg-pictures`
shows a picture of the smallest failing one. docs/property_testing.md is the guide.
"""

from . import assertions, oracle
from .assertions import (
    assert_closed_forms_sound,
    assert_labels_exact,
    assert_same_mask,
    describe,
)
from .attention_assertions import assert_attention_close
from .case import BATCH, HEADS, Case
from .mismatch import MaskMismatch

__all__ = [
    "BATCH",
    "HEADS",
    "Case",
    "MaskMismatch",
    "assert_attention_close",
    "assert_closed_forms_sound",
    "assert_labels_exact",
    "assert_same_mask",
    "assertions",
    "describe",
    "oracle",
]
