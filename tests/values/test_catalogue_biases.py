"""Every score term against the oracle, and its gradients against finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import maskalg as ma
from maskalg import attention, causal, prefix
from maskalg.testing import oracle
from maskalg.testing.case import BATCH, HEADS
from maskalg.testing.catalogue import BIASES, LENGTH

WIDTH = 4
# The logarithm of a whole distance is taken in float32, whatever the scores are.
TOLERANCE = {"KERPLE, power": 1e-5}
MASK = causal | prefix(3)


def inputs(q_len: int, kv_len: int, seed: int = 0) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [
        torch.randn(BATCH, HEADS, n, WIDTH, dtype=torch.float64, generator=random)
        for n in (q_len, kv_len, kv_len)
    ]


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("lengths", [(LENGTH, LENGTH), (4, LENGTH), (LENGTH, 6), (1, 1)])
@pytest.mark.parametrize("name", BIASES)
def test_bias_is_the_oracle(name: str, lengths: tuple[int, int], backend: str) -> None:
    case = BIASES[name]
    q, k, v = inputs(*lengths)
    at = {"q_len": lengths[0], "kv_len": lengths[1]}
    added = case.matrix(*lengths)
    keep = oracle.causal(**at) | oracle.prefix(3, **at)
    wanted, wanted_lse = oracle.attention(q, k, v, keep, lambda s: s + added)
    bias = case.build(*[t.detach() for t in case.tensors()])
    out, lse = attention(q, k, v, MASK + bias, return_lse=True, backend=backend)
    np.testing.assert_allclose(out.numpy(), wanted, rtol=TOLERANCE.get(name, 1e-9), atol=1e-12)
    np.testing.assert_allclose(lse.numpy(), wanted_lse, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", BIASES)
def test_gradients(name: str, backend: str) -> None:
    """By gradcheck: of queries, keys, values and every table, in float64."""
    case = BIASES[name]

    def attend(q: Any, k: Any, v: Any, *tables: Any) -> Any:
        score = MASK + case.build(*tables)
        return attention(q, k, v, score, return_lse=True, backend=backend)

    tensors = [t.requires_grad_() for t in inputs(6, 6)]
    assert torch.autograd.gradcheck(attend, (*tensors, *case.tensors()), fast_mode=True)


@pytest.mark.parametrize("name", BIASES)
def test_backends_agree_on_gradients(name: str) -> None:
    case = BIASES[name]

    def gradients(backend: str) -> list[torch.Tensor]:
        tensors = [t.requires_grad_() for t in inputs(LENGTH, LENGTH)]
        tables = case.tensors()
        out = attention(*tensors, MASK + case.build(*tables), backend=backend)
        weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
        return list(torch.autograd.grad((out * weights).sum(), [*tensors, *tables]))

    for found, wanted in zip(gradients("cpu"), gradients("reference"), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-11)


def test_relative_2d_by_hand() -> None:
    """A window of 1 x 2: places -1, 0, 1 from key to query along x."""
    table = torch.tensor([[1.0], [2.0], [4.0]])
    assert added(ma.relative_2d(table, (1, 2)), 2) == [[2, 1], [4, 2]]


def test_decomposed_by_hand() -> None:
    rel_h, rel_w = torch.tensor([[[[10.0, 20.0]]]]), torch.tensor([[[[1.0, 2.0]]]])
    assert added(ma.decomposed(rel_h, rel_w), 1, 4) == [[11, 12, 21, 22]]


def test_t5_by_hand() -> None:
    """Two exact buckets of four, then one up to distance 3, and one for the rest."""
    table = torch.arange(4.0)[:, None]
    bias = ma.t5(table, bidirectional=False, max_distance=8)
    assert added(bias, 6)[5] == [3, 3, 2, 2, 1, 0]
    assert added(bias, 1, 3)[0] == [0, 0, 0]


@pytest.mark.parametrize("bidirectional", [True, False])
def test_t5_buckets_of_the_published_size(bidirectional: bool) -> None:
    table = torch.arange(32.0)[:, None]
    bias = ma.t5(table, bidirectional=bidirectional)
    found = added(bias, 300)
    for q, k in [(0, 0), (0, 299), (299, 0), *((150, 150 + d) for d in range(-149, 150))]:
        assert found[q][k] == oracle.t5_bucket(k - q, 32, bidirectional, 128)


def test_shaw_is_the_product_with_embeddings() -> None:
    q, k, v = inputs(7, 7)
    embeddings = torch.randn(5, WIDTH, dtype=torch.float64)
    scores = q @ k.transpose(-1, -2)
    for i in range(7):
        for j in range(7):
            scores[:, :, i, j] += q[:, :, i] @ embeddings[min(max(j - i, -2), 2) + 2]
    wanted = (scores / 2).softmax(-1) @ v
    out = attention(q, k, v, ma.shaw(q @ embeddings.T / 2), backend="cpu")
    torch.testing.assert_close(out, wanted)


def test_kerple_and_sandwich_by_hand() -> None:
    one = torch.ones(1)
    assert added(ma.kerple_power(2 * one, 2 * one), 3)[0] == pytest.approx([0, -2, -8])
    assert added(ma.kerple_log(one, one), 2)[1] == pytest.approx([-0.6931472, 0])
    assert added(ma.sandwich(3 * one, 2, dim=2), 2)[0] == pytest.approx([3, 3 * np.cos(1e-4)])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sandwich_keeps_its_curve_in_float32_beside_factors_in_16_bits(dtype: torch.dtype) -> None:
    factors = torch.tensor([0.5], dtype=dtype)
    wanted = [sum(np.cos(q / 10000 ** (2 * i / 128)) for i in range(1, 65)) / 2 for q in range(9)]
    found = (ma.everything + ma.sandwich(factors, 9)).to_dense(9)[0, 0, :, 0]
    assert found.tolist() == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_sandwich_is_as_exact_as_a_call_in_float64(dtype: torch.dtype, backend: str) -> None:
    factors = torch.tensor([0.3, 0.7], dtype=dtype)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 32, 8, dtype=torch.float64, generator=generator) for _ in range(3))
    distance = torch.arange(32.0, dtype=torch.float64)[:, None] - torch.arange(32.0)
    curve = sum(torch.cos(distance / 10000 ** (2 * i / 16)) for i in range(1, 9))
    scores = q @ k.mT / 8**0.5 + factors.double()[:, None, None] * curve
    out = attention(q, k, v, ma.sandwich(factors, 32, dim=16), backend=backend)
    torch.testing.assert_close(out, scores.softmax(-1) @ v, rtol=0, atol=1e-13)


def test_positions_without_an_entry_are_refused() -> None:
    with pytest.raises(ma.MaskValueError, match=r"has 3 entries along dimension 0"):
        added(ma.key_bias(torch.zeros(3)), 2, 4)
    with pytest.raises(ma.MaskValueError, match=r"kv_len 3\) reads 3. Windows of n = H"):
        added(ma.relative_2d(torch.zeros(3, 1), (1, 2)), 3)
    with pytest.raises(ma.MaskValueError, match=r"curve .* Write a greater `length` in sandwich"):
        added(ma.sandwich(torch.ones(1), 4), 5)
    with pytest.raises(ma.MaskValueError, match=r"curve of shape \[7\] holds fewer distances"):
        added(ma.sandwich(torch.ones(1), 4).shift(q=4), 1, 1)


def added(bias: ma.Bias, q_len: int, kv_len: int | None = None) -> list[list[float]]:
    """What a bias of one head adds: the lse of a single kept key with a score of 0."""
    keys = q_len if kv_len is None else kv_len
    columns = []
    for key in range(keys):
        q, k = torch.zeros(1, 1, q_len, 2), torch.zeros(1, 1, keys, 2)
        mask = ma.prefix(keys) & (ma.kv_idx == key)
        _, lse = attention(q, k, k, mask + bias, return_lse=True, backend="reference")
        columns.append(lse[0, 0])
    return torch.stack(columns, dim=1).tolist()
