"""Random compositions over hundreds of positions: the CPU backend against the reference."""

import pytest
import torch

import maskalg as ma
from maskalg.backends.cpu import plan
from tests.cases.compositions import BATCH, HEADS, composition, lengths
from tests.cases.gradients import gradients


@pytest.mark.parametrize("seed", range(60))
def test_attention(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Batch entries and heads with other visits together, or one by one.
    monkeypatch.setattr(plan, "_OF_TILE", 0 if seed % 2 else 1 << 30)
    q_len, kv_len = lengths(seed)
    expression = composition(seed, q_len, kv_len)
    torch.manual_seed(seed)
    sizes = ((HEADS, q_len), (2, kv_len), (2, kv_len))
    leaves = [torch.randn(BATCH, h, n, 8).double().requires_grad_() for h, n in sizes]
    change = torch.randn(BATCH, HEADS, q_len, 8).double()
    found = ma.attention(*leaves, expression, backend="cpu")
    torch.testing.assert_close(found, ma.attention(*leaves, expression, backend="reference"))
    wanted = gradients(leaves, expression, change, "reference")
    for one, other in zip(gradients(leaves, expression, change, "cpu"), wanted, strict=True):
        torch.testing.assert_close(one, other)
