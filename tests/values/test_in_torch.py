"""Functions of torch called with expressions, against torch itself on tensors."""

import operator

import numpy as np
import pytest
import torch

import maskalg as ma
from maskalg import alibi, causal, kv_idx, q_idx
from maskalg.values.in_torch import _SAME

LENGTHS = 5, 7
Q, K = (axis.double() for axis in torch.meshgrid(*map(torch.arange, LENGTHS), indexing="ij"))
LOGICAL = ("logical_and", "logical_or", "logical_xor", "logical_not")
BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not")


def values(expression):
    """The entries of a mask or of an index expression."""
    if isinstance(expression, ma.Mask):
        return expression.to_dense(*LENGTHS)[0, 0]
    return (ma.everything + ma.bias(expression)).to_dense(*LENGTHS)[0, 0]


@pytest.mark.parametrize("function", _SAME, ids=lambda function: function.__name__)
def test_the_function_of_torch_is_the_one_here(function):
    name = function.__name__
    if name in (*LOGICAL, *BITWISE):
        given, on_tensors = (causal, q_idx - kv_idx < 2), (Q >= K, Q - K < 2)
    elif name == "where":
        given, on_tensors = (causal, q_idx, kv_idx), (Q >= K, Q, K)
    else:
        given, on_tensors = (q_idx + 1, ma.maximum(kv_idx, 2)), (Q + 1, K.clamp(min=2))
    try:
        wanted = function(*on_tensors)
    except TypeError:  # of one argument
        given, wanted = given[:1], function(on_tensors[0])
    found = values(function(*given))
    torch.testing.assert_close(found, wanted.to(found.dtype))


def test_masks_and_biases_in_torch():
    bias = alibi(torch.tensor([0.5, 0.25]))
    assert torch.logical_and(causal, ma.nothing) == causal & ma.nothing
    assert torch.add(causal, bias) == causal + bias and torch.mul(bias, 2) == bias * 2
    assert torch.where(causal, bias, 0) == ma.where(causal, bias, 0)


def test_operators_between_tensors_and_expressions_are_those_here():
    for sign in (operator.add, operator.mul, operator.and_, operator.lt):
        for expression in (causal, q_idx):
            with pytest.raises(ma.MaskTypeError) as caught:
                sign(torch.ones(2, 2), expression)
            assert "torch's" not in str(caught.value)
    assert not (causal == torch.ones(2))  # noqa: SIM201


def test_operators_between_numbers_of_numpy_and_expressions():
    two = np.int64(2)
    assert (two <= q_idx) == (q_idx >= 2) and (two > q_idx) == (q_idx < 2)
    assert repr(two * q_idx - two) == repr(2 * q_idx - 2)
    assert repr(np.float32(2) - q_idx) == repr(2.0 - q_idx)
    assert not (np.ones(2) == causal)  # noqa: SIM201
    assert np.ones(2) != causal


def test_functions_of_torch_in_a_compiled_function():
    def attend(x):
        mask = torch.logical_or(causal, torch.maximum(q_idx, kv_idx) < 3)
        return ma.attention(x, x, x, mask + ma.bias(-torch.log(1 + torch.abs(q_idx - kv_idx))))

    x = torch.randn(1, 2, 9, 8)
    torch._dynamo.reset()
    found = torch.compile(attend, fullgraph=True, backend="aot_eager")(x)
    torch.testing.assert_close(found, attend(x), rtol=0, atol=0)
    formula = (causal | (ma.maximum(q_idx, kv_idx) < 3)) + ma.bias(-ma.log(1 + abs(q_idx - kv_idx)))
    torch.testing.assert_close(found, ma.attention(x, x, x, formula), rtol=0, atol=0)
