"""`attention` under torch.func: vmap and grad, over members that share or own an expression."""

import pytest
import torch
from torch.func import grad, jacrev, vmap

import maskalg as ma
from maskalg import alibi, causal, document, sliding

from .cases import assert_close, ids_of, inputs

MEMBERS = 3
SLOPES = torch.tensor([0.5, 0.25, 0.1, 0.0])
SCORE = causal & document(ids_of(70)) + alibi(SLOPES)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def plain(*lead):
    return [tensor.detach() for tensor in inputs(lead=lead)]


def one_by_one(function, *tensors):
    """What vmap means: the function of each member, stacked."""
    found = [function(*members) for members in zip(*tensors, strict=True)]
    if isinstance(found[0], torch.Tensor):
        return torch.stack(found)
    return tuple(torch.stack(parts) for parts in zip(*found, strict=True))


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_vmap(backend):
    def attend(q, k, v):
        return ma.attention(q, k, v, SCORE, return_lse=True, backend=backend)

    tensors = plain(MEMBERS, 2)
    assert_close(vmap(attend)(*tensors), one_by_one(attend, *tensors))


def test_vmap_along_other_dimensions_and_over_shared_keys():
    def attend(q, k, v):
        return ma.attention(q, k, v, SCORE)

    q, k, v = plain(MEMBERS, 2)
    found = vmap(attend, in_dims=(0, None, 1))(q, k[0], v.transpose(0, 1))
    assert_close([found], [one_by_one(lambda q, v: attend(q, k[0], v), q, v)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e4m3fn])
def test_vmap_over_no_members(dtype):
    """Empty results of the shapes that members have, as torch's operations give."""

    def attend(q, k, v, ids):
        return ma.attention(q, k, v, causal & document(ids), return_lse=True)

    tensors = [*(t.to(dtype) for t in plain(MEMBERS, 2)), torch.randint(0, 3, (MEMBERS, 70))]
    wanted = vmap(attend)(*tensors)
    for in_dims in ((0, 0, 0, 0), (0, 0, 0, None)):
        few = [t[:0] if d == 0 else t[0] for t, d in zip(tensors, in_dims, strict=True)]
        for found, full in zip(vmap(attend, in_dims)(*few), wanted, strict=True):
            assert found.shape == (0, *full.shape[1:])
            assert (found.dtype, found.device) == (full.dtype, full.device)


def test_gradients_over_no_members():
    q, k, v = (t[:0] for t in plain(MEMBERS, 2))
    for slopes, dim in ((SLOPES, None), (SLOPES.expand(MEMBERS, 4)[:0], 0)):
        found = vmap(grad(loss, argnums=ALL), in_dims=(0, 0, 0, dim))(q, k, v, slopes)
        assert [g.shape for g in found] == [q.shape, k.shape, v.shape, (0, 4)]

    def total(q, k, v, slopes):
        return vmap(loss, in_dims=(0, 0, 0, None))(q, k, v, slopes).sum()

    found = grad(total, argnums=ALL)(q, k, v, SLOPES)
    assert_close(found, [q, k, v, torch.zeros(4)])


def test_errors_tell_the_shapes_of_a_member():
    q = torch.randn(3, 4, 8, 16)
    with pytest.raises(ma.MaskValueError, match=r"head_dim\], got \[4, 8, 16\]"):
        vmap(lambda q: ma.attention(q, q, q, causal))(q)
    with pytest.raises(ma.MaskValueError, match=r"query \[1, 4, 8, 16\], key \[1, 3, 8, 16\]"):
        vmap(lambda q, k: ma.attention(q, k, k, causal))(q[:, None], q[:, None, :3])


def test_vmap_twice():
    def attend(q, k, v):
        return ma.attention(q[None], k[None], v[None], SCORE)[0]

    q, k, v = plain(MEMBERS, 2)
    wanted = one_by_one(lambda *t: ma.attention(*t, SCORE), q, k, v)
    assert_close([vmap(vmap(attend))(q, k, v)], [wanted])


def test_vmap_over_documents():
    def attend(q, k, v, ids):
        return ma.attention(q, k, v, causal & document(ids), return_lse=True)

    tensors = [*plain(MEMBERS, 2), torch.randint(0, 3, (MEMBERS, 70))]
    assert_close(vmap(attend)(*tensors), one_by_one(attend, *tensors))


def test_vmap_over_sinks():
    def attend(q, k, v, logits):
        return ma.attention(q, k, v, causal, weight=ma.softmax_with_sink(logits))

    tensors = [*plain(MEMBERS, 2), torch.randn(MEMBERS, 4)]
    assert_close([vmap(attend)(*tensors)], [one_by_one(attend, *tensors)])


def test_vmap_where_the_mask_reads_the_batch():
    """Entry b of the batch keeps its own documents, whichever member it belongs to."""
    mask = document(torch.stack([ids_of(70), ids_of(70, 9)]))

    def attend(q, k, v):
        return ma.attention(q, k, v, mask)

    tensors = plain(MEMBERS, 2)
    assert_close([vmap(attend)(*tensors)], [one_by_one(attend, *tensors)])


def loss(q, k, v, slopes):
    score = causal & sliding(30) + alibi(slopes)
    out, lse = ma.attention(q, k, v, score, return_lse=True)
    return out.sin().sum() + lse.cos().sum()


def by_autograd(q, k, v, slopes):
    tensors = [t.detach().requires_grad_() for t in (q, k, v, slopes)]
    return torch.autograd.grad(loss(*tensors), tensors)


ALL = (0, 1, 2, 3)


def test_grad():
    tensors = [*plain(2), SLOPES]
    assert_close(grad(loss, argnums=ALL)(*tensors), by_autograd(*tensors))


def test_gradients_of_each_member():
    q, k, v = plain(MEMBERS, 2)
    found = vmap(grad(loss, argnums=ALL), in_dims=(0, None, 0, None))(q, k[0], v, SLOPES)
    assert_close(found, one_by_one(lambda q, v: by_autograd(q, k[0], v, SLOPES), q, v))


def test_gradient_of_a_vmap():
    q, k, v = plain(MEMBERS, 2)

    def total(q, k, v, slopes):
        return vmap(loss, in_dims=(0, None, 0, None))(q, k, v, slopes).sum()

    of_members = one_by_one(lambda q, v: by_autograd(q, k[0], v, SLOPES), q, v)
    wanted = [of_members[0], of_members[1].sum(0), of_members[2], of_members[3].sum(0)]
    assert_close(grad(total, argnums=ALL)(q, k[0], v, SLOPES), wanted)
    tensors = [t.detach().requires_grad_() for t in (q, k[0], v, SLOPES)]
    assert_close(torch.autograd.grad(total(*tensors), tensors), wanted)


def test_jacobian():
    q, k, v = (t[:, :2, :5, :3] for t in plain(1))

    def attend(q):
        return ma.attention(q, k, v, causal)

    wanted = torch.autograd.functional.jacobian(attend, q)
    assert_close([jacrev(attend)(q)], [wanted])


def test_the_gradient_of_a_gradient_is_refused():
    q, k, v = plain(2)

    def slope(q):
        return grad(loss)(q, k, v, SLOPES).sum()

    with pytest.raises(ma.BackendError, match="gradient of a gradient"):
        grad(slope)(q)


def test_several_gradients_of_one_call_are_refused():
    q, k, v = (t[:, :2, :5, :3] for t in plain(1))

    def attend(q, backend=None):
        return ma.attention(q, k, v, causal, backend=backend)

    with pytest.raises(ma.BackendError, match=r"is_grads_batched.*torch\.func\.jacrev"):
        torch.autograd.functional.jacobian(attend, q, vectorize=True)
    found = torch.autograd.functional.jacobian(lambda q: attend(q, "reference"), q, vectorize=True)
    assert_close([found], [jacrev(attend)(q)])


def test_vmap_in_a_compiled_function():
    def attend(q, k, v):
        return vmap(lambda *t: ma.attention(*t, SCORE))(q, k, v)

    torch._dynamo.reset()
    tensors = plain(MEMBERS, 2)
    found = torch.compile(attend, fullgraph=True, backend="aot_eager")(*tensors)
    assert_close([found], [attend(*tensors)])
