"""Masks, biases and scores are values, not numbers: what is refused of them, with what to write."""

import copy
import pickle
from collections.abc import Iterable

import pytest
import torch

import maskalg as ma
from maskalg import alibi, causal, q_idx, sliding, softcap


def test_values_never_change() -> None:
    window = causal & sliding(4)
    with pytest.raises(ma.MaskAttributeError, match=r"`other = this.bind\(window=…\)`"):
        window.window = 9
    for value, name in (
        (window, "mask_node"),
        (causal, "label"),
        (softcap(3), "cap_"),
        (q_idx, "node"),
    ):
        before = repr(value)
        with pytest.raises(ma.MaskAttributeError, match="never changes"):
            setattr(value, name, None)
        with pytest.raises(ma.MaskAttributeError, match="never changes"):
            delattr(value, name)
        assert repr(value) == before
    for value in (window, q_idx + 1):
        for copied in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
            assert repr(copied) == repr(value)


def test_masks_and_scores_are_no_numbers() -> None:
    score = causal & sliding(4) + softcap(3)
    for value in (causal, score):
        for made in (
            lambda value=value: value * 2,
            lambda value=value: 2 * value,
            lambda value=value: value / 2,
            lambda value=value: -value,
        ):
            with pytest.raises(ma.MaskTypeError, match="a mask is no number"):
                made()
        for left, right in ((value, causal), (softcap(3), causal)):
            with pytest.raises(ma.MaskTypeError, match="`@` applies a bias"):
                left @ right
        for sum_of in (lambda value=value: value + 3.0, lambda value=value: value - 3):
            with pytest.raises(ma.MaskTypeError, match=r"Write `ma\.bias\(3"):
                sum_of()
    slopes = alibi(torch.tensor([2.0]))
    assert repr(slopes / 4) == "0.25 * alibi(slopes[1])"
    with pytest.raises(ma.MaskValueError, match="/ 0`: a bias is divided by a number"):
        slopes / 0


def test_values_are_no_collections() -> None:
    """Where a function takes one mask or several, `Iterable` tells them apart."""
    assert not any(isinstance(value, Iterable) for value in (causal, causal + softcap(9), q_idx))
