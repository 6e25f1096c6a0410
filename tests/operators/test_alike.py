"""Calls that are taken for the last one with their expression give what the first one would."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest
import torch

import maskalg as ma
from maskalg import causal
from maskalg.operators import alike

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def inputs(device: str, length: int = 96, dim: int = 64, **more: object) -> list[torch.Tensor]:
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    return [
        torch.randn(2, heads, length, dim, device=device, dtype=dtype, **more)
        for heads in (4, 2, 2)
    ]


def masked(kept: torch.Tensor) -> ma.Mask:
    """A mask that reads a tensor."""
    return causal & ma.padding.from_mask(kept)


def window() -> ma.Mask:
    return causal & ma.sliding(50)


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The calls that were checked, and not taken for the last one."""
    module, found = sys.modules["maskalg.attention"], []  # the function has its name
    check = module.checked_call

    def counting(*arguments: object, **named: object) -> object:
        found.append(arguments)
        return check(*arguments, **named)

    monkeypatch.setattr(module, "checked_call", counting)
    return found


def same(score: object, given: list[torch.Tensor], fresh: object, **options: object) -> None:
    """A call's results are those of an expression that was never called before."""
    found = ma.attention(*given, score, **options)
    wanted = ma.attention(*given, fresh, **options)
    if not isinstance(found, tuple):
        found, wanted = (found,), (wanted,)
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("device", DEVICES)
def test_other_tensors_alone(device: str, checked: list[object]) -> None:
    mask = masked(torch.rand(2, 96, device=device) < 0.7)
    for _ in range(4):
        same(mask, inputs(device), masked(mask.parameters["attention_mask"]))
    assert len(checked) == 1 + 4


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("change", ["entries", "memory", "lengths", "strides", "one tensor"])
def test_changes(change: str, device: str, checked: list[object]) -> None:
    kept = torch.rand(2, 128, device=device) < 0.7
    mask = masked(kept)
    for _ in range(3):
        ma.attention(*inputs(device), mask)
    known, given = len(checked), inputs(device)
    if change == "entries":
        kept.logical_not_()
    elif change == "memory":
        kept.data = torch.rand(2, 128, device=device) < 0.3
    elif change == "lengths":
        given = inputs(device, 100)
    elif change == "strides":
        given = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in given]
    else:
        given = [given[0], given[1], given[1]]
    same(mask, given, masked(kept))
    assert len(checked) == known + 2


@pytest.mark.parametrize("device", DEVICES)
def test_options(device: str) -> None:
    """Each is another call; a fresh expression knows no earlier ones."""
    mask, given = masked(torch.rand(2, 96, device=device) < 0.7), inputs(device)
    every = (
        *({}, {"return_lse": True}, {"scale": 0.5}, {"scale": None}, {"nan_safe": True}),
        *({"weight": ma.softmax_with_sink(x)} for x in (0.5, 3.0)),
        *({"weight": ma.softmax_with_sink(torch.randn(4, device=device))} for _ in range(3)),
        {"weight": ma.relu},
    )
    for _ in range(3):
        for options in every:
            same(mask, given, masked(mask.parameters["attention_mask"]), **options)


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_of_any_strides(device: str) -> None:
    """Without gradients first, whose calls want no lse; then the output's come in other strides."""
    mask = window()
    for _ in range(2):
        ma.attention(*inputs(device), mask)
    given = inputs(device, requires_grad=True)
    for turned in (False, True, False, True):
        found = []
        for score in (mask, window()):
            out = ma.attention(*given, score)
            change = torch.linspace(-1, 1, out.numel(), device=device).to(out.dtype).view(out.shape)
            if turned:
                change = change.transpose(1, 2).contiguous().transpose(1, 2)
            found.append(torch.autograd.grad(out, given, change))
        assert all(map(torch.equal, *found))
    with torch.no_grad():
        same(mask, given, window())


def test_what_is_not_compared() -> None:
    q, k, v = inputs("cpu")
    options = (None, False, False)
    with torch.inference_mode():
        written = masked(torch.ones(2, 96, dtype=torch.bool))
    assert alike.facts_of((q, k, v), written, ma.softmax, options) is None  # writes go uncounted
    assert alike.facts_of((q, k, v), causal, ma.relu, options) is None
    assert alike.facts_of((q, k, v), causal, ma.softmax, (True, False, False)) is None
    assert alike.facts_of((q, k.to_sparse(), v), causal, ma.softmax, options) is None
    assert alike.facts_of((q, k, v), causal, ma.softmax, options) is not None


def test_no_tensor_of_the_caller_is_kept() -> None:
    given, mask = inputs("cpu"), window()
    logits = torch.zeros(4, requires_grad=True)
    weight = ma.softmax_with_sink(logits * 2)
    wanted = ma.attention(*given, mask, weight=weight)
    assert torch.equal(ma.attention(*given, mask, weight=weight), wanted)
    ends = weakref.ref(weight.sink)
    del weight, wanted
    gc.collect()
    assert ends() is None


def test_every_call_past_the_keys_warns() -> None:
    mask, given = causal.shift(q=400), inputs("cpu")
    for _ in range(3):
        with pytest.warns(UserWarning, match="keys"):
            ma.attention(*given, mask)


@pytest.mark.parametrize("device", DEVICES)
def test_negated_views(device: str) -> None:
    parts = torch.randn(3, 2, 4, 96, 64, 2, device=device)
    negated = [torch.view_as_complex(each).conj().imag for each in parts]
    assert all(each.is_neg() for each in negated)
    plain = [each.resolve_neg() for each in negated]
    for _ in range(3):
        assert torch.equal(ma.attention(*negated, causal), ma.attention(*plain, causal))
