"""Biases of distances that kernels read from tables, in Triton's interpreter."""

import os

import pytest
import torch

import maskalg as ma
from maskalg import causal
from maskalg.backends.triton import arguments
from maskalg.codegen.hooks import Style, hooks_of
from maskalg.engine.normal_form import bound
from tests.cases.tables import compared, scores
from tests.cases.weights import worst_error

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)

LENGTHS = [(24, 24), (13, 40)]


@pytest.fixture(autouse=True)
def always(monkeypatch):
    monkeypatch.setattr(arguments, "_FEWEST_PAIRS", 0)
    monkeypatch.setattr(arguments, "_FEWEST_QUERIES", 0)


def biases():
    torch.manual_seed(0)
    heads = torch.rand(4) + 0.1
    return {
        "t5": ma.t5(torch.randn(8, 4), max_distance=9),
        "kerple": ma.kerple_log(heads, heads),
        "one for all heads": ma.relative(torch.randn(15)),
        "beside others": ma.relative(torch.randn(4, 15)) + ma.alibi(heads),
        "capped": ma.softcap(2.0) @ ma.t5(torch.randn(8, 4), max_distance=9),
        "only at some": ma.bias(ma.where(ma.q_idx > ma.kv_idx, ma.log(ma.q_idx - ma.kv_idx), 0.0)),
    }


def tabled(score, which="costly"):
    form = bound(score)
    return "zero" in [
        getattr(argument, "number", "")
        for argument in hooks_of(form.structure, Style(tabled=which)).scalars
    ]


def test_explain_counts_them():
    q = torch.randn(1, 4, 24, 16)

    def said(score, query=q):
        return ma.explain(query, q, q, score, backend="triton").bias

    slopes = ma.alibi(torch.rand(4))
    assert said(causal) == "none" and said(slopes) == "computed for each pair"
    assert said(biases()["t5"]) == "computed for each pair; 1 table of distances is read"
    two = biases()["t5"] + biases()["kerple"] * 2 @ slopes
    assert said(two) == "computed for each pair; 2 tables of distances are read"


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("name", biases())
def test_results(name, lengths):
    torch.manual_seed(1)
    q_len, kv_len = lengths
    inputs = [
        torch.randn(2, heads, length, 16, requires_grad=True)
        for heads, length in ((4, q_len), (2, kv_len), (2, kv_len))
    ]
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    score = causal.shift(q=kv_len - q_len if kv_len > q_len else 0) + biases()[name]
    assert tabled(score)
    found = compared(inputs, score, [], "triton")
    assert worst_error(found, compared(wide, score, [], "reference")) < 3e-5


@pytest.mark.parametrize("name", ["distances", "decay", "capped", "two", "one in two places"])
def test_gradients_of_tables(name):
    torch.manual_seed(1)
    inputs = [torch.randn(2, heads, 50, 16, requires_grad=True) for heads in (4, 2, 2)]
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    score, tables = scores()[name]
    found = compared(inputs, score, tables, "triton")
    assert worst_error(found, compared(wide, score, tables, "reference")) < 3e-5


def test_a_table_follows_what_it_is_made_of():
    torch.manual_seed(1)
    inputs = [torch.randn(1, 4, 40, 16) for _ in range(3)]
    learned = torch.randn(8, 4)
    score = causal + ma.t5(learned, max_distance=9)
    before = ma.attention(*inputs, score, backend="triton")
    learned.mul_(-3)
    after = ma.attention(*inputs, score, backend="triton")
    wanted = ma.attention(*[t.double() for t in inputs], score, backend="reference")
    torch.testing.assert_close(after.double(), wanted, rtol=1e-5, atol=1e-5)
    assert (after - before).abs().max() > 0.1


def test_others_are_computed_for_each_pair():
    slopes, table = torch.rand(4), torch.rand(2, 40)
    of_batch = ma.bias(ma.table(table)[ma.batch, ma.maximum(ma.q_idx - ma.kv_idx, 0)])
    of_both = ma.bias(ma.log(ma.q_idx + ma.kv_idx + 1))
    for bias in (ma.alibi(slopes), of_batch, of_both, ma.softcap(3.0), ma.key_bias(table[0])):
        assert not tabled(causal + bias)


def test_formulas_that_read_nothing_may_be_computed():
    rates = torch.rand(4)
    assert tabled(causal + ma.t5(torch.randn(8, 4)), "reads")
    assert not tabled(causal + ma.kerple_log(rates, rates), "reads")


def test_gradients_of_wide_heads_compute_what_reads_nothing():
    style = Style(tabled="costly")
    assert arguments.style_of_gradients(style, 64) == style
    assert arguments.style_of_gradients(style, 128) == Style(tabled="reads")
    assert arguments.style_of_gradients(Style(), 128) == Style()
