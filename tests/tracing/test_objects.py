"""Attributes, methods and submodules of the objects a function captures."""

import argparse
import dataclasses
import types

import pytest
import torch
from torch import nn

import maskalg as ma

N, H = 12, 2
Q, K = torch.arange(N)[:, None], torch.arange(N)[None, :]
HEADS = torch.arange(H)[:, None, None]


class Step(nn.Module):
    """Learns one number a head."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(H, dtype=torch.float64))

    def forward(self, h, distance):
        return self.weight[h] * distance


class Learned(nn.Module):
    def __init__(self):
        super().__init__()
        self.slopes = nn.Parameter(torch.rand(H, dtype=torch.float64))
        self.rel = nn.Embedding(2 * N, H, dtype=torch.float64)
        self.steps = nn.ModuleList([Step(), Step()])
        self.named = nn.ModuleDict({"far": Step()})
        self.listed = nn.ParameterList([torch.rand(H, dtype=torch.float64) for _ in range(2)])
        self.register_buffer("ids", torch.arange(N) // 5)
        self.window = 7

    def near(self, i, j):
        return (i - j).abs() < self.window

    def slope(self, h):
        return self.slopes[h]


FUNCTIONS = {
    "parameter": lambda self: lambda s, b, h, i, j: s + self.slopes[h] * (i - j),
    "submodule": lambda self: lambda s, b, h, i, j: s + self.rel.weight[i - j + N, h],
    "called": lambda self: lambda s, b, h, i, j: s + self.rel(i - j + N)[..., h],
    "module list": lambda self: lambda s, b, h, i, j: s + self.steps[1].weight[h] * i,
    "loop": lambda self: lambda s, b, h, i, j: s + sum(m.weight[h] * j for m in self.steps),
    "module dict": lambda self: lambda s, b, h, i, j: s + self.named["far"](h, i - j),
    "parameter list": lambda self: lambda s, b, h, i, j: s + self.listed[-1][h] * j,
    "method": lambda self: lambda s, b, h, i, j: s + self.slope(h) * j,
    "kept": lambda self: (
        lambda s, b, h, i, j: torch.where(
            (self.ids[i] == self.ids[j]) & self.near(i, j), s + self.slopes[h] * j, -float("inf")
        )
    ),
}


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_a_module_in_a_closure(name):
    """Values and gradients against the dense formula in float64, traced in `forward`."""
    module = Learned()
    score_mod = FUNCTIONS[name](module)
    q, k, v = (torch.randn(1, H, N, 8, dtype=torch.float64) for _ in range(3))
    got = ma.attention(q, k, v, ma.score(score_mod), backend="reference")
    if name == "called":  # an index for each dimension, as single indices have
        dense = q @ k.mT / 8**0.5 + module.rel(Q - K + N).permute(2, 0, 1)
    else:
        dense = score_mod(q @ k.mT / 8**0.5, 0, HEADS, Q, K)
    want = dense.softmax(-1) @ v
    torch.testing.assert_close(got, want)
    weights = list(module.parameters())
    found = torch.autograd.grad(got.square().sum(), weights, allow_unused=True)
    wanted = torch.autograd.grad(want.square().sum(), weights, allow_unused=True)
    assert [g is None for g in found] == [g is None for g in wanted]
    for one, other in zip(found, wanted, strict=True):
        if one is not None:
            torch.testing.assert_close(one, other)
    assert any(g is not None and g.abs().sum() > 0 for g in found)


def test_a_module_is_left_as_it_was():
    module = Learned()
    before = dict(vars(module))
    score = ma.score(FUNCTIONS["kept"](module))
    assert score.parameters["slopes"] is module.slopes
    assert set(score.parameters) == {"ids", "window", "slopes"}
    assert vars(module) == before and type(module) is Learned
    nested = ma.score(FUNCTIONS["loop"](module))
    assert set(nested.parameters) == {"steps_0_weight", "steps_1_weight"}


@dataclasses.dataclass(frozen=True)
class Frozen:
    window: int = 3


@dataclasses.dataclass
class Slotted:
    __slots__ = ("window",)
    window: int


class Computed:
    def __init__(self):
        self.half = 2
        self.own = self

    @property
    def window(self):
        return self.own.half + 1

    def __call__(self, distance):
        return distance < self.window


OBJECTS = (
    Frozen(),
    Slotted(3),
    Computed(),
    types.SimpleNamespace(window=3),
    argparse.Namespace(window=3),
)


@pytest.mark.parametrize("config", OBJECTS, ids=lambda config: type(config).__name__)
def test_numbers_of_objects_are_parameters(config):
    mask = ma.mask(lambda b, h, i, j: (i >= j) & (i - j < config.window))
    (name,) = mask.parameters
    assert torch.equal(mask.to_dense(N)[0, 0], (Q >= K) & (Q - K < 3))
    wider = mask.bind(**{name: mask.parameters[name] + 2})
    assert torch.equal(wider.to_dense(N)[0, 0], (Q >= K) & (Q - K < 5))


def test_objects_are_called():
    near = Computed()
    mask = ma.mask(lambda b, h, i, j: near.own(i - j))
    assert torch.equal(mask.to_dense(N)[0, 0], Q - K < 3) and mask.parameters == {"half": 2}


def test_numbers_of_objects_that_python_needs_are_constants():
    config = Frozen()
    mask = ma.mask(lambda b, h, i, j: i - j < config.window if config.window > 2 else i == j)
    assert not mask.parameters and torch.equal(mask.to_dense(N)[0, 0], Q - K < 3)


def test_an_attribute_that_is_missing():
    module = Learned()
    with pytest.raises(ma.MaskTypeError, match="no attribute 'slope_of'"):
        ma.score(lambda s, b, h, i, j: s + module.slope_of[h])


def test_an_embedding_with_padding_has_no_formula():
    module = nn.Embedding(4, H, padding_idx=0)
    with pytest.raises(ma.MaskTypeError, match="padding_idx"):
        ma.score(lambda s, b, h, i, j: s + module(j)[h])
