"""Tables with an entry for each query and key, of any length, dtype and place, on a GPU."""

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from tests.cases.gradients import check_gradients

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

MOST = {torch.float16: 6e-3, torch.bfloat16: 2.5e-2, torch.float32: 1e-4}


def inputs(dim, dtype, length, q_len=None):
    torch.manual_seed(0)
    sizes = ((4, q_len or length), (2, length), (2, length))
    return [torch.randn(2, h, n, dim, device="cuda", dtype=dtype) for h, n in sizes]


def drawn(*shape, dtype=torch.float32):
    torch.manual_seed(1)
    return torch.randn(*shape, device="cuda", dtype=dtype)


def kept(*shape):
    torch.manual_seed(2)
    return torch.rand(*shape, device="cuda") < 0.6


# Of tables and keys: multiples of eight, of two, or odd; tables that are longer than calls.
@pytest.mark.parametrize(
    "length, longest", [(1160, 1160), (1162, 1166), (1161, 1161), (1160, 1301)]
)
@pytest.mark.parametrize(
    "dim, dtype", [(64, torch.bfloat16), (128, torch.float16), (96, torch.float32)]
)
def test_lengths(length, longest, dim, dtype):
    mask, bias = ma.dense(kept(longest, longest)), ma.dense_bias(drawn(4, longest, longest))
    for expression in (mask, bias, causal & mask, mask + bias):
        check_gradients(inputs(dim, dtype, length), expression, most=MOST[dtype], return_lse=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("shape", [(1096, 1096), (2, 1, 1096, 1096), (2, 4, 1096, 1096)])
def test_entries(shape, dtype):
    check_gradients(inputs(128, torch.bfloat16, 1096), ma.dense_bias(drawn(*shape, dtype=dtype)))


def compositions(n):
    one, other = drawn(n, n), drawn(4, n, n, dtype=torch.bfloat16)
    yield ma.dense_bias(one) + ma.dense_bias(other)
    yield ma.softcap(2.0) @ ma.dense_bias(one)
    yield causal & sliding(300) + ma.dense_bias(other)
    yield ma.dense(kept(n, n)) & ma.document(torch.arange(n, device="cuda") // 300)
    yield ~ma.dense(kept(n, n)) | causal
    yield ma.dense(kept(2, 1, n, n)) + ma.alibi(torch.full((4,), 0.02, device="cuda"))


@pytest.mark.parametrize("which", range(6))
@pytest.mark.parametrize("dim", [64, 128])
def test_compositions(which, dim):
    expression = list(compositions(1112))[which]
    check_gradients(inputs(dim, torch.float16, 1112), expression, most=6e-3)
    check_gradients(
        inputs(dim, torch.float16, 1112), expression, most=6e-3, weight=ma.sigmoid(-3.0)
    )


def test_tables_that_begin_anywhere():
    n = 1104
    bias = drawn(n * n + 1)[1:].view(n, n)
    mask = kept(n * n + 3)[3:].view(n, n)
    for expression in (ma.dense_bias(bias), ma.dense(mask), ma.dense_bias(bias.half())):
        check_gradients(inputs(64, torch.float16, n), expression, most=6e-3)


@pytest.mark.parametrize("q_len", [1, 17, 300])
def test_few_queries(q_len):
    for expression in (ma.dense_bias(drawn(q_len, 1100)), ma.dense(kept(q_len, 1100))):
        tensors = inputs(128, torch.float16, 1100, q_len)
        wide = [tensor.double() for tensor in tensors]
        want = ma.attention(*wide, expression, backend="reference")
        found = ma.attention(*tensors, expression)
        assert (found - want).abs().max().item() <= 4e-3 * want.abs().max().item()


def test_what_lies_behind_a_table_is_not_read():
    """Rows of keys past the last are neither added nor kept, whatever memory holds there."""
    n = 1032
    around = torch.full((2 * n * n,), float("nan"), device="cuda")
    around[: n * n] = drawn(n * n)
    check_gradients(inputs(128, torch.bfloat16, n), ma.dense_bias(around[: n * n].view(n, n)))
