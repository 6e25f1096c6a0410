"""`attention` in exported programs: one operator, any length, no process it was built in."""

import io

import pytest
import torch

import maskalg as ma
from maskalg import alibi, causal, document, sliding
from maskalg.engine import normal_form
from maskalg.engine.recent import Recent

from .cases import assert_equal, ids_of, inputs

LENGTH = torch.export.Dim("length", min=2, max=4096)
SIDES = ("query", "key", "value")
SHAPES = ({2: LENGTH}, {2: LENGTH}, {2: LENGTH}, {0: LENGTH})


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(16, 16)
        slopes = torch.nn.Parameter(torch.rand(4))
        self.attention = ma.nn.Attention(causal & sliding(9) + alibi(slopes))

    def forward(self, q, k, v, ids):
        return self.attention(self.project(q), k, v, document(ids))


class Middle(torch.nn.Module):
    """Numbers that follow the lengths: a window and a shift."""

    def forward(self, q, k, v, ids):
        length = q.shape[2]
        mask = sliding(length // 2) & causal.shift(q=length // 3) & document(ids)
        return ma.attention(q, k, v, mask)


def example(length, document=20):
    torch.manual_seed(length)
    return *[tensor.detach() for tensor in inputs(length)], ids_of(2 * length, document)


@pytest.mark.parametrize("strict", [False, True])
def test_any_length(strict):
    model = Model()
    exported = torch.export.export(
        model, example(70), dynamic_shapes=(*SHAPES[:3], {0: 2 * LENGTH}), strict=strict
    )
    operators = [n for n in exported.graph.nodes if "maskalg" in str(n.target)]
    assert [n.target for n in operators] == [torch.ops.maskalg.attention_forward.default]
    for length in (70, 101, 12):
        arguments = example(length, 7)
        assert_equal([exported.module()(*arguments)], [model(*arguments)])


@pytest.mark.parametrize("strict", [False, True])
def test_numbers_that_follow_lengths(strict):
    exported = torch.export.export(
        Middle(), example(70), dynamic_shapes=(*SHAPES[:3], {0: 2 * LENGTH}), strict=strict
    )
    for length in (70, 101, 12):
        arguments = example(length, 7)
        assert_equal([exported.module()(*arguments)], [Middle()(*arguments)])


KINDS = torch.arange(16) % 3
BOUNDED = {
    "t5": lambda: causal + ma.t5(torch.rand(32, 4), bidirectional=False),
    "relative": lambda: ma.sliding(40) + ma.relative(torch.rand(4, 9)),
    "minimum": lambda: causal & (ma.table(torch.arange(9) % 3)[ma.minimum(ma.kv_idx, 8)] < 2),
    "remainder": lambda: causal & (ma.table(torch.arange(100) % 3)[ma.kv_idx % 100] < 2),
    "quotient": lambda: causal & (ma.table(torch.arange(110) % 3)[ma.kv_idx // 40] < 2),
    "low bits": lambda: causal & ma.mask(lambda b, h, q, k: KINDS[k & 15] < 2),
}
"""Scores whose tables have fewer entries than there are positions."""


@pytest.mark.parametrize("name", list(BOUNDED))
def test_bounded_positions_give_no_limits_to_lengths(name):
    torch.manual_seed(0)
    layer = ma.nn.Attention(BOUNDED[name]())
    exported = torch.export.export(
        layer, example(70)[:3], dynamic_shapes={name: {2: LENGTH} for name in SIDES}, strict=True
    )
    for length in (300, 70, 5):
        arguments = example(length)[:3]
        assert_equal([exported.module()(*arguments)], [layer(*arguments)])


def test_saved_and_loaded_where_the_structure_is_new(monkeypatch):
    model = Model()
    file = io.BytesIO()
    torch.export.save(torch.export.export(model, example(70)), file)
    wanted = model(*example(70))
    monkeypatch.setattr(normal_form, "_STRUCTURES", Recent(64))
    file.seek(0)
    assert_equal([torch.export.load(file).module()(*example(70))], [wanted])


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_a_trace_of_torch_jit(backend):
    """It is one graph for training and inference, at any length and with any documents."""
    model = Model()
    model.attention._backend = backend
    traced = torch.jit.trace(model, example(70))
    assert "maskalg::attention_forward" in str(traced.inlined_graph)
    for length in (70, 101, 12):
        arguments = example(length, 7)
        assert_equal([traced(*arguments)], [model(*arguments)])
    wanted = torch.autograd.grad(model(*arguments).sum(), model.parameters())
    assert_equal(torch.autograd.grad(traced(*arguments).sum(), model.parameters()), wanted)


def test_a_buffer_that_may_be_too_short_is_named():
    """The length's range must keep to what the tensor has."""

    class Fixed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = ma.nn.Attention(document(ids_of(512)))

        def forward(self, q, k, v):
            return self.attention(q, k, v)

    with pytest.raises(Exception, match="512"):
        torch.export.export(Fixed(), example(70)[:3], dynamic_shapes=SHAPES[:3])
    short = torch.export.Dim("length", min=2, max=512)
    shapes = ({2: short},) * 3
    exported = torch.export.export(Fixed(), example(70)[:3], dynamic_shapes=shapes)
    assert_equal([exported.module()(*example(512)[:3])], [Fixed()(*example(512)[:3])])


def test_an_exported_graph_is_trained():
    model = Model()
    module = torch.export.export(model, example(70)).module()
    arguments = example(70)
    names = [name for name, _ in model.named_parameters()]
    wanted = torch.autograd.grad(model(*arguments).sin().sum(), list(model.parameters()))
    found = dict(module.named_parameters())
    found = torch.autograd.grad(module(*arguments).sin().sum(), [found[name] for name in names])
    assert_equal(found, wanted)
