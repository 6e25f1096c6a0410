"""Calls like one before, launched without finding anything anew, against the float64 reference."""

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from maskalg.backends import triton as backend
from maskalg.backends import triton_tuned

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

LENGTH = 259


@pytest.fixture
def launched(monkeypatch):
    """Counts forward launches for which all was found anew."""
    found, launch = [], backend.launch_forward
    monkeypatch.setattr(backend, "launch_forward", lambda *a: (found.append(a), launch(*a))[1])
    return found


def inputs(dim=64, dtype=torch.bfloat16, length=LENGTH):
    return [torch.randn(2, 4, length, dim, dtype=dtype, device="cuda") for _ in range(3)]


def check(qkv, expression, **options):
    """Output and lse of one call against the reference."""
    poison = [torch.full_like(qkv[0], float("nan")) for _ in range(2)]
    del poison
    found = ma.attention(*qkv, expression, **options)
    wanted = ma.attention(*[t.double() for t in qkv], expression, backend="reference", **options)
    pairs = zip(found, wanted, strict=True) if options.get("return_lse") else [(found, wanted)]
    for one, other in pairs:
        finite = other.isfinite()
        assert torch.equal(finite, one.isfinite())
        error = (one.double() - other)[finite].abs().max() / other[finite].abs().max()
        assert error.item() <= 1.2e-2


# In turn: the warp-specialised kernel (on Hopper), the plain one with a bias, without descriptors.
@pytest.mark.parametrize(
    ("dim", "dtype"), [(128, torch.bfloat16), (64, torch.float32), (20, torch.float16)]
)
def test_the_third_call_finds_nothing_anew(dim, dtype, launched):
    expression = causal & sliding(70) + ma.alibi(torch.rand(4, device="cuda"))
    for _ in range(5):
        check(inputs(dim, dtype), expression)
    assert len(launched) == 2
    check(inputs(dim, dtype), expression, return_lse=True)
    check(inputs(dim, dtype), expression, return_lse=True)
    assert len(launched) == 3


def test_another_kind_of_call_is_another_launch(launched):
    expression = causal & sliding(70)
    q, k, v = inputs()
    kinds = [
        ((q, k, v), {}),
        ((q, k, v), {"scale": 0.3}),
        ((q, k[:, :2].contiguous(), v[:, :2].contiguous()), {}),
        ([t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v)], {}),
        ((q[:, :, :100], k, v), {}),
        ([t.half() for t in (q, k, v)], {}),
        ((q[..., 1:33], k[..., 1:33], v), {}),
    ]
    for _ in range(3):
        for tensors, options in kinds:
            check(tensors, expression, **options)
    # One address of the last is no multiple of 16: all is found at every call.
    assert len(launched) == 1 + len(kinds) + 2


def test_tables_that_change_are_read_again():
    ids = torch.arange(LENGTH, device="cuda") // 40
    bias = torch.randn(4, device="cuda")
    expression = causal & ma.document(ids) + ma.alibi(bias)
    qkv = inputs()
    for turn in range(6):
        check(qkv, expression)
        if turn > 2:
            ids.copy_(torch.arange(LENGTH, device="cuda") // (10 * turn))
            bias.mul_(2)


def test_weights_of_one_mask_are_told_apart():
    qkv = inputs()
    sinks = [ma.softmax_with_sink(torch.randn(4, device="cuda")) for _ in range(2)]
    strided = ma.softmax_with_sink(torch.randn(8, device="cuda")[::2])
    for _ in range(4):
        for weight in (*sinks, ma.softmax, strided, ma.softmax_plus_one, ma.relu):
            check(qkv, causal, weight=weight)
    strided.sink.add_(1)
    check(qkv, causal, weight=strided)


def test_tuned_choices_are_looked_up_again(launched):
    qkv = inputs()
    expression = causal & sliding(33)
    for _ in range(3):
        check(qkv, expression)
    before = len(launched)
    triton_tuned.look_again()
    check(qkv, expression)
    assert len(launched) == before + 1


def test_profilers_hear_of_every_launch():
    triton = pytest.importorskip("triton")
    qkv, heard = inputs(), []
    expression = causal & sliding(34)
    for _ in range(3):
        check(qkv, expression)
    hooks = triton.knobs.runtime.launch_enter_hook
    hooks.add(heard.append)
    try:
        check(qkv, expression)
    finally:
        hooks.remove(heard.append)
    assert heard


def test_gradients_follow_the_same_forward(launched):
    expression = causal & sliding(71)
    for _ in range(4):
        ours = [t.requires_grad_() for t in inputs()]
        theirs = [t.detach().double().requires_grad_() for t in ours]
        ma.attention(*ours, expression).sum().backward()
        ma.attention(*theirs, expression, backend="reference").sum().backward()
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one.grad.double(), other.grad, atol=2e-2, rtol=2e-2)
    assert len(launched) == 2


def test_tables_of_a_graph_are_its_own():
    from maskalg.normalform import bound

    expression = causal & ma.document(torch.arange(LENGTH, device="cuda") // 50)
    qkv = inputs()
    check(qkv, expression)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        ma.attention(*qkv, expression)
    assert not any(bound(expression).remembered.values())
