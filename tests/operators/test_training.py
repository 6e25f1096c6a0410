"""What training wraps around `attention`: checkpoints, autocast, modes that watch operators."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import maskalg as ma
from maskalg import alibi, causal, document, sliding, softcap
from maskalg.engine.normal_form import bound

from .cases import assert_close, assert_equal, ids_of, inputs, with_gradients

SLOPES = torch.tensor([0.5, 0.25, 0.1, 0.0])
SCORE = causal & document(ids_of(70)) + alibi(SLOPES)
FORWARD = torch.ops.maskalg.attention_forward.default
BACKWARD = torch.ops.maskalg.attention_backward.default


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


class Operators(TorchDispatchMode):
    """Counts the calls of each operator."""

    def __init__(self):
        super().__init__()
        self.calls = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls[func] = self.calls.get(func, 0) + 1
        return func(*args, **(kwargs or {}))


def block(q, k, v):
    return ma.attention(q.sin(), k, v, SCORE)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant):
    def again(q, k, v):
        return checkpoint(block, q, k, v, use_reentrant=reentrant)

    tensors = inputs()
    wanted = with_gradients(block, tensors)
    if not reentrant:
        assert_equal(with_gradients(again, tensors), wanted)
        return
    again(*tensors).sin().sum().backward()  # torch.autograd.grad does not reach into these
    # The first pass wants no gradient there: torch's attention serves it and rounds differently.
    assert_close([tensor.grad for tensor in tensors], wanted[1:])


@pytest.mark.parametrize("saved, runs", [(True, 1), (False, 2)])
def test_selective_checkpoint(saved, runs):
    """The policy sees the operator, and attention that is saved is not computed again."""

    def policy(ctx, op, *args, **kwargs):
        keep = saved and op is FORWARD
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    tensors = inputs()
    wanted = with_gradients(block, tensors)
    with Operators() as seen:
        found = with_gradients(
            lambda *t: checkpoint(block, *t, use_reentrant=False, context_fn=contexts), tensors
        )
    assert_equal(found, wanted)
    assert seen.calls[FORWARD] == runs and seen.calls[BACKWARD] == 1


def test_compiled_checkpoint():
    def again(q, k, v):
        return checkpoint(block, q, k, v, use_reentrant=False)

    tensors = inputs()
    compiled = torch.compile(again, fullgraph=True, backend="aot_eager")
    assert_equal(with_gradients(compiled, tensors), with_gradients(block, tensors))


def test_compiled_regions_take_masks():
    """A checkpoint, or a region that is compiled once, whose function has a mask as an argument."""

    def attend(q, k, v, mask):
        return ma.attention(q.sin(), k, v, mask)

    region = torch.compiler.nested_compile_region(attend)
    calls = (
        lambda *t: checkpoint(attend, *t, causal & document(ids_of(70)), use_reentrant=False),
        lambda *t: region(*t, causal & document(ids_of(70))),
    )
    tensors = inputs()
    wanted = with_gradients(lambda *t: attend(*t, causal & document(ids_of(70))), tensors)
    for call in calls:
        compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
        assert_equal(with_gradients(compiled, tensors), wanted)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype, backend):
    """As torch's attention casts: what is computed is that of inputs in the lower precision."""

    def attend(*tensors):
        with torch.autocast("cpu", dtype=dtype):
            torchs = F.scaled_dot_product_attention(*tensors, enable_gqa=True)
            out = ma.attention(*tensors, SCORE, backend=backend)
        assert out.dtype == torchs.dtype == dtype
        return out

    tensors = inputs()
    found = with_gradients(attend, tensors)
    assert [gradient.dtype for gradient in found[1:]] == [torch.float32] * 3
    wanted = with_gradients(
        lambda *t: ma.attention(*[x.to(dtype) for x in t], SCORE, backend=backend), tensors
    )
    assert_equal(found, wanted)


def test_autocast_leaves_float64_and_evens_out_mixed_inputs():
    q, k, v = inputs()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        doubles = [t.double() for t in (q, k, v)]
        assert ma.attention(*doubles, SCORE).dtype == torch.float64
        assert F.scaled_dot_product_attention(*doubles, enable_gqa=True).dtype == torch.float64
        assert ma.attention(q.bfloat16(), k, v, SCORE).dtype == torch.bfloat16
    with pytest.raises(ma.MaskTypeError, match="must share one dtype"):
        ma.attention(q.bfloat16(), k, v, SCORE)


def test_autocast_in_a_compiled_function():
    def attend(q, k, v):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return ma.attention(q, k, v, SCORE)

    tensors = inputs()
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    found, wanted = with_gradients(compiled, tensors), with_gradients(attend, tensors)
    assert found[0].dtype == torch.bfloat16
    assert_equal(found, wanted)


def test_fake_tensors():
    with FakeTensorMode():
        q, k, v = tensors = inputs()
        out, lse = ma.attention(q, k, v, causal & document(ids_of(70)), return_lse=True)
        gradients = torch.autograd.grad(out.sum() + lse.sum(), tensors)
        assert out.shape == (2, 4, 70, 16) and out.dtype == torch.float32
        assert lse.shape == (2, 4, 70) and lse.dtype == torch.float32
        assert [g.shape for g in gradients] == [t.shape for t in tensors]
        with pytest.raises(ma.MaskValueError, match=r"ids of shape \[3\]"):
            ma.attention(q, k, v, document(ids_of(3)))


def test_plain_calls_take_no_operator():
    """They are the fast ones. Within an operator a mode sees nothing more."""
    q, k, v = tensors = inputs()
    with torch.profiler.profile() as profile:
        torch.autograd.grad(ma.attention(q, k, v, SCORE).sum(), tensors)
    assert not any("maskalg" in event.key for event in profile.key_averages())
    with Operators() as seen:
        ma.attention(q.detach(), k.detach(), v.detach(), SCORE)
    assert set(seen.calls) - {torch.ops.aten.detach.default} == {FORWARD}


def arguments(score, tensors):
    form = bound(score)
    tables = [tensor for _, tensor in form.tensors()]
    numbers = [value for value in form.values if not isinstance(value, torch.Tensor)]
    integers = [number for number in numbers if isinstance(number, int)]
    reals = [number for number in numbers if isinstance(number, float)]
    return [*tensors, tables], [form.structure.key, integers, reals, None, "exp"]


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_opcheck(backend):
    """torch's own tests of an operator: schema, fakes, autograd, symbolic shapes."""
    slopes = SLOPES.clone().requires_grad_()
    score = causal & sliding(5) & document(ids_of(23, 7)) + softcap(2.0) @ alibi(slopes)
    tensors, rest = arguments(score, inputs(23, dim=8, lead=(1,)))
    torch.library.opcheck(FORWARD, (*tensors, *rest, True, backend, False))
    tensors[0] = tensors[0].detach().transpose(1, 2).contiguous().transpose(1, 2)
    torch.library.opcheck(FORWARD, (*tensors, *rest, True, backend, False))
    tensors = [t.detach() for t in tensors[:3]] + [[t.detach() for t in tensors[3]]]
    out, lse = FORWARD(*tensors, *rest, True, backend, False)
    change = (torch.randn_like(out), torch.randn_like(lse))
    torch.library.opcheck(
        BACKWARD, (*tensors, out, lse, *change, *rest, [False, True], backend, False)
    )


def test_a_graph_without_lse_is_differentiated():
    """One that was exported from inputs without gradients, and then trained."""
    tensors, rest = arguments(SCORE, inputs())
    wanted = with_gradients(lambda *t: ma.attention(*t, SCORE), tensors[:3])

    def attend(q, k, v):
        out, lse = FORWARD(q, k, v, tensors[3], *rest, False, "cpu", False)
        assert lse.shape == (0,)
        return out

    # Torch's own attention served the forward pass, which rounds differently.
    assert_close(with_gradients(attend, tensors[:3]), wanted)


def test_refusals():
    q, k, v = inputs()
    nested = torch.nested.nested_tensor([torch.randn(4, 7, 16)] * 2, layout=torch.jagged)
    with pytest.raises(ma.BackendError, match=r"dropout_p=0.1.* is not built"):
        ma.attention(q, k, v, causal, dropout_p=0.1)
    with pytest.raises(ma.MaskTypeError, match="query is a nested tensor"):
        ma.attention(nested, k, v, causal)
    with pytest.raises(ma.MaskTypeError, match="key is a nested tensor"):
        ma.attention(q, nested, v, causal)
    with Operators(), pytest.raises(ma.BackendError, match="create_graph=True"):
        (slope,) = torch.autograd.grad(ma.attention(q, k, v).sum(), q, create_graph=True)
        slope.sum().backward()
    _, rest = arguments(SCORE, [q, k, v])
    with pytest.raises(ma.MaskValueError, match="takes 2 tensors, 0 integers"):
        FORWARD(q, k, v, [], *rest, True, "cpu", False)


def test_compiled_autograd_after_a_plain_call():
    """The backward pass breaks the graph: Dynamo does not follow the launch of a kernel."""
    tensors = inputs()

    def gradients(backward):
        for tensor in tensors:
            tensor.grad = None
        backward(ma.attention(*tensors, SCORE).sin().sum())
        return [tensor.grad for tensor in tensors]

    wanted = gradients(lambda loss: loss.backward())
    with torch._dynamo.config.patch(compiled_autograd=True):
        compiled = torch.compile(lambda loss: loss.backward(), backend="eager", dynamic=True)
        assert_equal(gradients(compiled), wanted)
