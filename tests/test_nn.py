"""`ma.nn.Attention`: the tensors of an expression as parameters and buffers of a module."""

import copy
import pickle

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import maskalg as ma
from maskalg import alibi, causal, document, relative, sliding

LENGTH = 40
IDS = torch.arange(LENGTH) // 9


@pytest.fixture
def layer():
    torch.manual_seed(0)
    slopes = torch.nn.Parameter(torch.rand(4))
    return ma.nn.Attention(causal & sliding(7) & document(IDS) + alibi(slopes))


def inputs(dtype=torch.float32):
    torch.manual_seed(1)
    return [torch.randn(2, heads, LENGTH, 8, dtype=dtype) for heads in (4, 2, 2)]


def expected(layer, tensors, ids=IDS):
    score = causal & sliding(7) & document(ids) + alibi(layer.slopes)
    return ma.attention(*tensors, score)


def test_computes_what_attention_does(layer):
    assert torch.equal(layer(*inputs()), expected(layer, inputs()))
    everything = ma.nn.Attention(scale=0.5, backend="reference")
    wanted = ma.attention(*inputs(), scale=0.5, backend="reference")
    assert torch.equal(everything(*inputs()), wanted)


def test_parameters_and_buffers(layer):
    assert [name for name, _ in layer.named_parameters()] == ["slopes"]
    assert [name for name, _ in layer.named_buffers()] == ["ids"]
    assert set(layer.state_dict()) == {"slopes", "ids"}
    assert repr(layer) == "Attention(causal & sliding(7) & document(ids[40]) + alibi(slopes[4]))"
    other = ma.nn.Attention(causal, scale=0.5, weight=ma.relu, nan_safe=True, backend="reference")
    options = "scale=0.5, weight=relu, nan_safe=True, backend='reference'"
    assert repr(other) == f"Attention(causal, {options})"


def test_a_second_tensor_of_a_name_has_a_number():
    layer = ma.nn.Attention(document(IDS) & document(IDS // 2))
    assert set(layer.state_dict()) == {"ids", "ids_2"}


def test_learns(layer):
    before = layer(*inputs()).sum()
    before.backward()
    wanted = torch.autograd.grad(expected(layer, inputs()).sum(), layer.slopes)
    assert torch.equal(layer.slopes.grad, *wanted)
    torch.optim.SGD(layer.parameters(), lr=1.0).step()
    assert torch.equal(layer(*inputs()), expected(layer, inputs()))
    assert not torch.equal(layer(*inputs()).sum(), before)


def test_what_is_loaded_is_computed_with(layer):
    saved = layer.state_dict()
    other = ma.nn.Attention(
        causal & sliding(7) & document(IDS * 0) + alibi(torch.nn.Parameter(torch.zeros(4)))
    )
    other(*inputs())
    other.load_state_dict(saved)
    assert torch.equal(other(*inputs()), layer(*inputs()))
    layer.ids = IDS * 0
    assert torch.equal(layer(*inputs()), expected(layer, inputs(), IDS * 0))
    layer.load_state_dict({"slopes": torch.ones(4), "ids": IDS}, assign=True)
    assert torch.equal(layer(*inputs()), expected(layer, inputs()))


def test_to(layer):
    layer(*inputs())
    old = layer.ids
    layer.double()
    assert layer.slopes.dtype == torch.float64 and layer.ids.dtype == torch.int64
    doubles = inputs(torch.float64)
    assert torch.equal(layer(*doubles), expected(layer, doubles))
    layer.to("meta")
    assert layer.score.parameters["ids"] is layer.ids is not old
    assert layer.score.parameters["slopes"] is layer.slopes
    with pytest.raises(ma.MaskValueError, match="lives on meta"):
        layer(*doubles)


def test_a_parameter_that_is_moved_in_place():
    """Its tensor stays the same object, and calls it fitted before are checked again."""
    slopes = torch.nn.Parameter(torch.rand(4))
    layer = ma.nn.Attention(causal + alibi(slopes))
    layer(*inputs())
    torch.utils.swap_tensors(slopes, torch.nn.Parameter(torch.rand(4, device="meta")))
    with pytest.raises(ma.MaskValueError, match="slopes lives on meta"):
        layer(*inputs())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_whole(layer, copied):
    other = copied(layer)
    with torch.no_grad():
        layer.slopes.zero_()
    assert torch.equal(other(*inputs()), expected(other, inputs()))
    assert other.score.parameters["slopes"] is other.slopes


def test_functional_call(layer):
    def loss(slopes):
        return torch.func.functional_call(layer, {"slopes": slopes}, tuple(inputs())).sum()

    found = torch.func.grad(loss)(torch.ones(4))
    slopes = torch.ones(4, requires_grad=True)
    score = causal & sliding(7) & document(IDS) + alibi(slopes)
    wanted = torch.autograd.grad(ma.attention(*inputs(), score).sum(), slopes)
    torch.testing.assert_close([found], list(wanted))
    assert torch.equal(layer(*inputs()), expected(layer, inputs()))


def test_a_mask_of_one_call():
    ids = torch.arange(LENGTH) // 5
    table = torch.rand(4, 9)
    for score in (causal, relative(table), causal + relative(table)):
        layer = ma.nn.Attention(score)
        whole = document(ids) + score if isinstance(score, ma.Bias) else score & document(ids)
        wanted = ma.attention(*inputs(), whole)
        assert torch.equal(layer(*inputs(), document(ids)), wanted)


def test_a_bias_of_one_call():
    slopes, table = torch.rand(4), torch.rand(4, 9)
    for score in (causal, relative(table), causal + relative(table)):
        layer = ma.nn.Attention(score)
        for more in (alibi(slopes), document(IDS) + alibi(slopes)):
            whole = ma.everything + score if isinstance(score, ma.Bias) else score
            kept = whole + more if isinstance(more, ma.Bias) else whole & more
            wanted = ma.attention(*inputs(), kept, return_lse=True)
            found = layer(*inputs(), more, return_lse=True)
            torch.testing.assert_close(found, wanted)


def test_compiled_and_exported(layer):
    torch._dynamo.reset()
    wanted = layer(*inputs())
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*inputs()), wanted)
    with torch.no_grad():
        layer.slopes.zero_()
    assert torch.equal(compiled(*inputs()), layer(*inputs()))
    exported = torch.export.export(layer, tuple(inputs()))
    assert torch.equal(exported.module()(*inputs()), layer(*inputs()))


@pytest.mark.parametrize("weight", [ma.softmax_with_sink, ma.sigmoid])
def test_a_learned_weight(weight):
    logits = torch.nn.Parameter(torch.randn(4))
    layer = ma.nn.Attention(causal & document(IDS), weight=weight(logits))
    (name,) = [name for name, _ in layer.named_parameters()]
    assert name == ("bias" if weight is ma.sigmoid else "sink")
    layer(*inputs()).sum().backward()
    wanted = ma.attention(*inputs(), causal & document(IDS), weight=weight(logits))
    assert torch.equal(logits.grad, *torch.autograd.grad(wanted.sum(), logits))
    layer.load_state_dict({name: torch.ones(4), "ids": IDS}, assign=True)
    wanted = ma.attention(*inputs(), causal & document(IDS), weight=weight(torch.ones(4)))
    assert torch.equal(layer(*inputs()), wanted)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*inputs()), wanted)


def test_a_buffer_that_is_not_saved():
    ids = torch.nn.Buffer(torch.arange(6) // 2, persistent=False)
    layer = ma.nn.Attention(causal & document(ids))
    assert not layer.state_dict() and layer.ids is ids


def test_the_table_of_a_window_is_learned():
    table = torch.nn.Parameter(torch.zeros(35, 2))
    layer = ma.nn.Attention(ma.relative_2d(table, (3, 4)))
    assert list(layer.parameters()) == [table] and layer.state_dict()["table"].shape == (35, 2)
    layer.load_state_dict({"table": torch.randn(35, 2)})
    q = torch.randn(1, 2, 12, 8)
    wanted = ma.attention(q, q, q, ma.relative_2d(table, (3, 4)))
    for each in (layer, copy.deepcopy(layer)):
        torch.testing.assert_close(each(q, q, q), wanted)


def test_tensors_computed_from_parameters_are_refused():
    slopes, sink = torch.nn.Parameter(torch.rand(2)), torch.nn.Parameter(torch.zeros(()))
    with pytest.raises(ma.MaskValueError, match=r"slopes is computed .* `layer\(q, k, v, bias\)`"):
        ma.nn.Attention(ma.causal + ma.alibi(slopes * 2))
    with pytest.raises(ma.MaskValueError, match="sink is computed from"):
        ma.nn.Attention(ma.causal, weight=ma.softmax_with_sink(sink.expand(2)))
    ma.nn.Attention(ma.causal + ma.alibi(slopes.detach() * 2))


def test_tables_computed_from_numbers_are_not_saved():
    table, q = torch.randn(32, 2), torch.randn(1, 2, 40, 8)
    encoder, decoder = (
        ma.nn.Attention(ma.t5(torch.nn.Parameter(torch.zeros(32, 2)), bidirectional=both))
        for both in (True, False)
    )
    for layer in (encoder, decoder):
        layer.load_state_dict({"table": table})
    encoder.load_state_dict(decoder.state_dict())
    wanted = ma.attention(q, q, q, ma.t5(table))
    torch.testing.assert_close(encoder(q, q, q), wanted)
    sandwich = ma.nn.Attention(ma.sandwich(torch.ones(2), 40).to("cpu"))
    assert list(sandwich.state_dict()) == ["factors"]
    with torch.device("meta"):
        later = ma.nn.Attention(ma.t5(torch.nn.Parameter(torch.empty(32, 2))))
    later.load_state_dict(encoder.state_dict(), assign=True)
    torch.testing.assert_close(later(q, q, q), wanted)
    later = torch.nn.Sequential(later.to("meta")).to_empty(device="cpu")
    later.load_state_dict({"0.table": table})
    torch.testing.assert_close(later[0](q, q, q), wanted)


def test_other_arguments_of_a_call_are_refused():
    layer, query = ma.nn.Attention(causal), torch.zeros(1, 1, 4, 8)
    with pytest.raises(TypeError, match=r"no argument attn_mask: the fourth argument is ma\.dense"):
        layer(query, query, query, attn_mask=torch.ones(4, 4, dtype=torch.bool))
    with pytest.raises(
        TypeError, match=r"is_causal=True: write layer\(query, key, value, causal\)"
    ):
        layer(query, query, query, is_causal=True)
    with pytest.raises(TypeError, match=r"scale: write ma\.nn\.Attention\(score, scale=…\)"):
        layer(query, query, query, scale=0.1)
    with pytest.raises(TypeError, match=r"1 more were given.*belong to the module"):
        layer(query, query, query, causal, 0.1)


def test_other_arguments_are_refused():
    with pytest.raises(ma.MaskTypeError, match="weight must be a weight function"):
        ma.nn.Attention(weight="sigmoid")
    with pytest.raises(ma.MaskTypeError, match="score must be a mask"):
        ma.nn.Attention(torch.ones(3, 3))
    with pytest.raises(ma.MaskTypeError, match=r"got Tensor.*ma\.dense\(tensor\)"):
        ma.nn.Attention(causal)(*inputs(), torch.ones(LENGTH, LENGTH, dtype=torch.bool))


@pytest.mark.parametrize("name", ["score", "forward", "training", "_score", "weight"])
def test_names_the_module_has_for_itself(name):
    learned = torch.nn.Parameter(torch.rand(4))
    score = causal + ma.bias(ma.table(learned, name)[ma.head])
    layer = ma.nn.Attention(score)
    assert list(layer.state_dict()) == [name if name == "weight" else f"{name}_"]
    wanted = ma.attention(*inputs(), score)
    assert torch.equal(layer(*inputs()), wanted)
    with torch.no_grad():
        learned.mul_(2)
    assert layer.score.parameters[name] is learned
    assert torch.equal(copy.deepcopy(layer)(*inputs()), ma.attention(*inputs(), score))


def test_built_inside_a_compiled_function():
    @torch.compile(fullgraph=True, backend="aot_eager")
    def attend(q, k, v, slopes):
        return ma.nn.Attention(causal + alibi(slopes))(q, k, v)

    torch._dynamo.reset()
    slopes = torch.rand(4)
    wanted = ma.attention(*inputs(), causal + alibi(slopes))
    assert torch.equal(attend(*inputs(), slopes), wanted)


def of_pattern(pattern):
    """A layer that reads one parameter where letters are the same."""
    held = {name: torch.nn.Parameter(torch.rand(4)) for name in set(pattern)}
    a, b, c = (alibi(held[name]) for name in pattern)
    return ma.nn.Attention(causal + a + b.shift(q=1) @ c)


def test_layers_of_one_structure_are_one_graph():
    """Compiled one by one; which places hold one parameter is part of the structure."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    call = torch.compile(lambda layer, *rest: layer(*rest), fullgraph=True, backend=counter)
    for count, pattern in ((1, "ABB"), (2, "AAB"), (3, "ABA"), (4, "AAA"), (4, "ABB"), (4, "ABA")):
        for _ in range(3):
            layer = of_pattern(pattern)
            assert torch.allclose(call(layer, *inputs()), layer(*inputs()), atol=1e-6)
            assert counter.frame_count == count
    assert of_pattern("ABB").score._sharing == of_pattern("BAA").score._sharing


def test_derived_tables_follow_the_tensors_of_the_module():
    from torch.func import functional_call

    old, new = torch.tensor([[-1, 0, 0, -1, 1, 1]]), torch.tensor([[0, 0, -1, 1, 1, 1]])
    q = torch.randn(1, 1, 6, 16)
    wanted = ma.attention(q, q, q, causal | ma.spans(new))
    module = ma.nn.Attention(causal | ma.spans(old.clone()))
    assert list(module.state_dict()) == ["ids"]
    torch.testing.assert_close(functional_call(module, {"ids": new}, (q, q, q)), wanted)
    module.load_state_dict({"ids": new}, assign=True)
    torch.testing.assert_close(module(q, q, q), wanted)
    copied = copy.deepcopy(ma.nn.Attention(causal | ma.spans(old.clone())))
    copied.ids.copy_(new)
    torch.testing.assert_close(copied(q, q, q), wanted)


def test_copies_after_calls_with_other_tensors():
    """The tensors of a call may be of torch.func, or made anew for each call."""
    layer = ma.nn.Attention(causal + ma.alibi(torch.nn.Parameter(torch.ones(4))))
    tensors = tuple(inputs())

    def loss(parameters):
        return torch.func.functional_call(layer, parameters, tensors).sum()

    torch.func.grad(loss)(dict(layer.named_parameters()))
    assert torch.equal(copy.deepcopy(layer)(*tensors), layer(*tensors))

    class Halved(torch.nn.Module):
        def forward(self, slopes):
            return slopes / 2

    torch.nn.utils.parametrize.register_parametrization(layer, "slopes", Halved())
    layer(*tensors).sum().backward()
    copied = copy.deepcopy(layer)
    assert torch.equal(copied(*tensors), layer(*tensors))
    copied.parametrizations.slopes.original.data.fill_(3.0)
    assert not torch.equal(copied(*tensors), layer(*tensors))


@pytest.mark.parametrize("absent", ["deleted", "None"])
def test_a_tensor_that_is_gone(absent):
    layer = ma.nn.Attention(causal + ma.alibi(torch.nn.Parameter(torch.ones(4))))
    if absent == "deleted":
        del layer.slopes
    else:
        layer.slopes = None
    with pytest.raises(TypeError, match="attribute slopes is None or was deleted"):
        layer(*inputs())
