"""Masks and biases written out in functions that `torch.compile` compiles."""

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from tests.cases.compositions import BATCH, HEADS, composition


@pytest.fixture(autouse=True)
def afresh():
    torch._dynamo.reset()


@pytest.mark.parametrize("seed", range(11))
def test_compositions_are_written_out_in_one_graph(seed):
    expression = composition(seed, 40, 56)

    def written(q_len):
        return expression.to_dense(q_len, 56, batch=BATCH, heads=HEADS)

    compiled = torch.compile(written, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(40), written(40))


def test_lengths_and_windows_are_symbols_of_one_graph():
    counter = torch._dynamo.testing.CompileCounter()

    @torch.compile(fullgraph=True, dynamic=True, backend=counter)
    def written(q_len, window):
        return (causal & sliding(window)).to_dense(q_len)

    for q_len, window in ((17, 3), (40, 5), (9, 9)):
        wanted = (causal & sliding(window)).to_dense(q_len)
        assert torch.equal(written(q_len, window), wanted)
    assert counter.frame_count == 1


def test_gradients_of_a_learned_bias_pass_through_the_graph():
    table = torch.randn(4, 31, requires_grad=True)

    def loss(table):
        bias = (causal + ma.relative(table)).to_dense(16)
        return bias.softmax(-1).square().sum()

    (wanted,) = torch.autograd.grad(loss(table), table)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    (found,) = torch.autograd.grad(compiled(table), table)
    torch.testing.assert_close(found, wanted)


def test_errors_are_those_of_uncompiled_functions():
    compiled = torch.compile(lambda n: (causal + ma.softcap(3.0)).to_dense(n), backend="eager")
    with pytest.raises(ma.errors.MaskValueError, match="does more to a score than adding"):
        compiled(4)
