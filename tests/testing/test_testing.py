"""The public test tools: they serve without hypothesis, and they do fail."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch

from maskalg import (
    MaskTypeError,
    MaskValueError,
    causal,
    document,
    everything,
    prefix,
    sliding,
    softcap,
)
from maskalg.proof import proof
from maskalg.proof.closed_forms import ClosedForms, Span
from maskalg.schedule.rung import rung_of
from maskalg.testing import (
    assert_attention_close,
    assert_closed_forms_sound,
    assert_labels_exact,
    assert_same_mask,
    describe,
    oracle,
)
from maskalg.testing.case import BATCH, HEADS, Case
from maskalg.testing.catalogue import CATALOGUE


def test_only_strategies_need_hypothesis() -> None:
    lines = [
        "import sys",
        "sys.modules['hypothesis'] = None",
        "from maskalg.testing import oracle, assert_labels_exact",
        "from maskalg.testing.catalogue import CATALOGUE",
        "assert_labels_exact(CATALOGUE['causal'].mask, 8, block=4)",
        "try: import maskalg.testing.score_strategies",
        "except ImportError as error: assert \"pip install 'maskalg[testing]'\" in str(error)",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


def test_describe_shows_values() -> None:
    text = describe(sliding(4) & document(torch.tensor([0, 1])) & prefix(torch.zeros(999).int()))
    assert text.splitlines()[0] == "sliding(4) & document(ids[2]) & prefix(prefix[999])"
    assert "  window = 4" in text
    assert "  ids = [0, 1] torch.int64 [2]" in text
    assert "  prefix = … torch.int32 [999]" in text


def test_same_mask() -> None:
    assert_same_mask(causal, oracle.causal(q_len=4, kv_len=5), 4, 5)
    assert_same_mask(causal, torch.ones(3, 3).tril().bool(), 3)
    assert_same_mask(causal, [[True, False], [True, True]], 2)
    assert_same_mask(causal & sliding(3), sliding(3) & causal, 9)
    with pytest.raises(AssertionError) as caught:
        assert_same_mask(causal, sliding(3), 6)
    for text in ("causal\nand\nsliding(3)\n  window = 3", "q_len=6", "(0, 0, 0, 1)", "drops"):
        assert text in str(caught.value)
    with pytest.raises(AssertionError, match="keeps that pair"):
        assert_same_mask(causal, np.zeros((4, 4), np.bool_), 4)
    with pytest.raises(AssertionError, match="shapes"):
        assert_same_mask(causal, np.ones((1, 1), np.bool_), 4)


def test_same_mask_as_a_function() -> None:
    assert_same_mask(causal, lambda b, h, q, k: q >= k, 9, 7)
    lengths = torch.tensor([2, 5])
    assert_same_mask(prefix(lengths), lambda b, h, q, k: k < lengths[b], 6)
    # A function may tell apart what the mask does not: the first entry would agree.
    assert_same_mask(causal, lambda b, h, q, k: (q >= k) & (b == 0), 4)
    with pytest.raises(AssertionError, match=r"causal and wrong differ .* \(1, 0, 0, 0\)"):

        def wrong(b, h, q, k):
            return (q >= k) & (b == 0)

        assert_same_mask(causal, wrong, 4, batch=2)


def test_what_is_tested_is_a_mask() -> None:
    score = causal + softcap(30)
    for found, says in ((score, "Write score.mask"), (sliding, "write sliding(window)")):
        with pytest.raises(TypeError, match=re.escape(says)):
            assert_same_mask(found, causal, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="close: the tested expression must be a mask, a"):
        assert_attention_close(sliding, 3)  # type: ignore[arg-type]


def test_what_is_no_mask_is_refused() -> None:
    for other, found in ((["a"], "list"), (torch.zeros(4, 4), "float32"), (None, "NoneType")):
        with pytest.raises(TypeError, match=rf"Boolean matrix .* got .*{found}"):
            assert_same_mask(causal, other, 4)
    with pytest.raises(TypeError, match=r"takes \(b, h, q_idx, kv_idx\); <lambda> takes \(q, k\)"):
        assert_same_mask(causal, lambda q, k: k <= q, 4)


@contextmanager
def forged(touched: list[Span], unfull: list[Span]) -> Iterator[None]:
    """The proof of `causal` says something else, and so does the rung that follows from it."""
    right = causal.prove()
    forms = ClosedForms(tuple(touched), tuple(unfull), right.rung, ())
    key = next(key for key, kept in proof._CACHE.items() if kept is right)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(proof._CACHE, key, replace(right, forms=forms))
        rung_of.cache_clear()
        try:
            yield
        finally:
            rung_of.cache_clear()


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(MaskTypeError, match="returns None: a `return` is missing"):
        assert_same_mask(~everything, lambda b, h, q, k: None, 4)
    with pytest.raises(MaskValueError, match="block must be an integer >= 1"):
        assert_closed_forms_sound(causal, 20, 20, 0)
    with pytest.raises(MaskTypeError, match=r"dtype must be one of torch\.float64"):
        assert_attention_close(causal, 5, dtype=torch.int32)


def test_wrong_labels_are_found() -> None:
    assert assert_labels_exact(causal, 8, block=4).counts() == (1, 2, 1)
    (touched,), (unfull,) = causal.prove().forms.touched, causal.prove().forms.unfull
    with forged([touched], []):
        with pytest.raises(AssertionError) as caught:
            assert_labels_exact(causal, 8, block=4)
        for text in ("q_len=8, kv_len=8, block=(4, 4)", "(0, 0, 0, 0) is labelled FULL", "PARTIAL"):
            assert text in str(caught.value)
    with (
        forged([], [unfull]),
        pytest.raises(AssertionError, match="is labelled EMPTY, but is PARTIAL"),
    ):
        assert_labels_exact(causal, 8, block=4)
    every = replace(touched, lows=(), highs=())
    with forged([every], [unfull]), pytest.raises(AssertionError):
        assert_labels_exact(causal, 8, block=4)
    # One that admits it is not exact may leave blocks open.
    with forged([replace(every, exact=False)], [unfull]):
        assert assert_labels_exact(causal, 8, block=4).evaluated == 3


def test_unsound_closed_forms_are_found() -> None:
    assert_closed_forms_sound(causal, 9, 7, 4)
    (touched,), (unfull,) = causal.prove().forms.touched, causal.prove().forms.unfull
    with forged([], [unfull]), pytest.raises(AssertionError, match=r"\(0, 0, 0, 0\) is touched"):
        assert_closed_forms_sound(causal, 8, block_q=4)
    with forged([touched], []), pytest.raises(AssertionError, match=r"\(0, 0, 0, 1\) is not full"):
        assert_closed_forms_sound(causal, 8, block_q=4)
    every = replace(touched, lows=(), highs=())
    with (
        forged([every], [unfull]),
        pytest.raises(AssertionError, match="is not touched, the closed forms say otherwise"),
    ):
        assert_closed_forms_sound(causal, 8, block_q=4)
    with forged([replace(every, exact=False)], [unfull]):
        assert_closed_forms_sound(causal, 8, block_q=4)


def test_cases_compose_like_masks() -> None:
    a, b = CATALOGUE["causal"], CATALOGUE["document"]
    assert (a & b).mask == a.mask & b.mask and (a | b).mask == a.mask | b.mask
    assert (~a).mask == ~a.mask and a.shift(q=2).mask == a.mask.shift(q=2)
    assert (a & b).over_positions and not a.over_positions
    assert (a.dense(3, 3) == np.tril(np.ones((3, 3)))).all()
    assert "causal" in repr(a)


def test_plain_functions_are_called_element_by_element() -> None:
    """`and`, lists and NumPy arrays, which no tensor goes through."""
    ids = [0, 0, 1, 1, 1, 2]
    mask = causal & document(ids)
    for looked_up in (ids, np.array(ids)):

        def expected(b, h, q, k, looked_up=looked_up):
            return k <= q and looked_up[q] == looked_up[k]

        assert_same_mask(mask, expected, 6)
        with pytest.raises(AssertionError, match="drops that pair"):
            assert_same_mask(mask & ~prefix(1), expected, 6)
        whole = Case.of(mask, expected).dense(6, 6)
        assert whole.sum() == mask.to_dense(6).sum() * BATCH * HEADS
    with pytest.raises(AttributeError, match="foo"):
        assert_same_mask(mask, lambda b, h, q, k: q.foo, 6)
