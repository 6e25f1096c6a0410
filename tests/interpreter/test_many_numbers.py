"""More numbers than kernels take one by one, in Triton's interpreter, against the reference."""

import os

import pytest
import torch

import maskalg as ma
from maskalg.attention import checked_call
from maskalg.codegen.arguments import NumbersTable
from maskalg.codegen.hooks import hooks_of
from maskalg.engine.normal_form import bound
from tests.cases.many_numbers import expressions, sixty, windows

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)

LENGTH = 70


def results(tensors, expression, change, backend, more=()):
    """Output, lse and gradients of the tensors and of `more`."""
    out, lse = ma.attention(*tensors, expression, return_lse=True, backend=backend)
    total = (out * change.to(out.dtype)).sum() + torch.where(lse.isfinite(), lse, 0).sum()
    return [out, lse, *torch.autograd.grad(total, [*tensors, *more])]


def check(expression, more=(), q_len=LENGTH, kv_len=LENGTH, batch=1):
    torch.manual_seed(1)
    shapes = ((2, q_len, 16), (1, kv_len, 16), (1, kv_len, 16))
    tensors = [torch.randn(batch, *shape, requires_grad=True) for shape in shapes]
    wide = [t.detach().double().requires_grad_() for t in tensors]
    change = torch.randn(batch, 2, q_len, 16)
    found = results(tensors, expression, change, "triton", more)
    wanted = results(wide, expression, change, "reference", more)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.double(), other.double(), atol=5e-5, rtol=5e-5)


@pytest.mark.parametrize("name", list(expressions()))
def test_output_and_gradients(name):
    expression, least = expressions()[name]
    assert len(hooks_of(bound(expression).structure).scalars) >= least
    check(expression, batch=2 if name == "documents" else 1)


def test_gradients_of_tables():
    slopes = torch.rand(2, requires_grad=True)
    table = torch.randn(2, 11, requires_grad=True)
    check(sixty(slopes, table), (slopes, table), batch=2)


@pytest.mark.parametrize("q_len", [1, 3])
def test_few_queries_of_many_keys(q_len):
    """Programs share the keys of a row."""
    check(sixty().shift(q=297), q_len=q_len, kv_len=300)


def test_other_numbers_need_no_other_kernel():
    from maskalg.backends.triton.arguments import scalars_of, tables_of
    from maskalg.backends.triton.plan import plan_of

    mask = windows(15)
    query = torch.randn(1, 2, LENGTH, 16)
    plans, passed, tables, kept = [], [], [], []
    for value in (3, 40, 3):
        other = mask.bind(more13=value)
        check(other)
        call = checked_call(query, query, query, other)
        plans.append(plan_of(call))
        hooks = plans[-1].hooks
        passed.append(scalars_of(hooks, call.form, call.extents))
        tables.append(tables_of(hooks, call)[hooks.tables.index(NumbersTable())])
        kept.append(other.to_dense(LENGTH))
    assert plans[0] is plans[1] is plans[2]
    assert passed[0] == passed[1] == passed[2]
    assert tables[0] is tables[2]
    assert (tables[0] != tables[1]).sum() == 1
    assert not torch.equal(kept[0], kept[1])
