"""For tests of your own compositions: an oracle, assertions, and random masks.

`maskalg.testing.oracle` and its neighbours `oracle_tokens`, `oracle_patterns` and `oracle_biases`
hold every mask and score term once more in plain numpy; `maskalg.testing.assertions`
compares a mask with a matrix, its labels with brute force, and its closed forms with what they
claim; `maskalg.testing.strategies` draws random compositions. Only the last one imports hypothesis,
so the other two serve without it.
"""

from . import assertions, oracle
from .assertions import (
    assert_closed_forms_sound,
    assert_labels_exact,
    assert_same_mask,
    describe,
)

__all__ = [
    "assert_closed_forms_sound",
    "assert_labels_exact",
    "assert_same_mask",
    "assertions",
    "describe",
    "oracle",
]
