"""When two results are the same but for roundings."""

import pytest
import torch

from maskalg.bench.agreement import TOLERANCE, distance

NAN, INF = float("nan"), float("inf")


def outputs(dtype):
    """Averages of ever more values, as a causal mask gives, and another order of their sums."""
    torch.manual_seed(0)
    values = torch.randn(2, 3, 512, 64, dtype=torch.float64).cumsum(2)
    exact = values / torch.arange(1, 513)[:, None]
    return exact.to(dtype), (exact * (1 + 1e-9) + 1e-9).to(dtype)


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
def test_roundings_agree(dtype):
    one, other = outputs(dtype)
    step = torch.finfo(dtype).eps * one.abs()
    for found in (other, one + step.to(dtype)):
        assert distance((found,), (one,)) <= TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
def test_one_wrong_row_of_thousands_is_seen(dtype):
    one, found = outputs(dtype)
    found = found.clone()
    found[1, 2, 500] = found[1, 2, 100]
    assert distance((found,), (one,)) > 0.5


def test_what_is_not_finite():
    lse = torch.tensor([[[-INF, 0.0, 9.0]]])
    assert distance((lse,), (lse.clone(),)) == 0
    for other in (NAN, INF, 0.0):
        assert distance((torch.tensor([[[other, 0.0, 9.0]]]),), (lse,)) == INF
    assert distance((torch.tensor([[[-INF, 0.0, NAN]]]),), (lse,)) == INF


def test_nothing_at_all():
    zeros = torch.zeros(1, 1, 4, 4)
    assert distance((zeros,), (zeros,)) == 0 and distance((zeros + 1,), (zeros,)) > 1
