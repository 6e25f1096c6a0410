"""FlopCounterMode counts the operators as it counts torch's own attention."""

import subprocess
import sys

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, flop_registry

import maskalg as ma
from maskalg import alibi, causal, sliding


def counted(function, *given, backward=False):
    with FlopCounterMode(display=False) as counter:
        out = function(*given)
        if backward:
            out.sum().backward()
    return {str(name): n for name, n in counter.get_flop_counts().get("Global", {}).items()}


@pytest.mark.parametrize("score", [causal & sliding(9), causal + alibi(torch.ones(4))])
def test_forward_and_backward(score):
    q, k, v = torch.randn(3, 2, 4, 70, 16).unbind()
    for tensor in (q, k, v):
        tensor.requires_grad_()
    attend = torch.ops.aten._scaled_dot_product_flash_attention
    slope = torch.ops.aten._scaled_dot_product_flash_attention_backward
    forward = flop_registry[attend](q, k, v, out_val=None)
    backward = flop_registry[slope](torch.empty(*q.shape[:3], v.shape[3]), q, k, v, out_val=None)
    found = counted(lambda *t: ma.attention(*t, score), q, k, v, backward=True)
    assert found == {
        "maskalg.attention_forward": forward,
        "maskalg.attention_backward": backward,
    }


def test_grouped_heads_float8_and_pages():
    q, k, v = (torch.randn(2, heads, 64, 16) for heads in (4, 2, 2))
    pairs = 2 * 4 * 64 * 64
    assert counted(ma.attention, q, k, v) == {"maskalg.attention_forward": 2 * pairs * 32}
    eighths = [t.to(torch.float8_e4m3fn) for t in (q, k, v)]
    assert counted(ma.attention, *eighths) == {"maskalg.attention_float8": 2 * pairs * 32}
    # Two requests with places for 3 pages of 16 keys.
    keys, values = torch.randn(2, 8, 16, 2, 16)
    pages = ma.Pages(torch.arange(6).view(2, 3), torch.tensor([40, 17]))
    found = counted(lambda *t: ma.attention(*t, pages=pages), q, keys, values)
    assert found == {"maskalg.attention_pages": 2 * (2 * 4 * 64 * 48) * 32}


SCRIPT = """
import sys, maskalg, torch
assert "torch.utils.flop_counter" not in sys.modules
from torch.utils.flop_counter import FlopCounterMode
q = torch.randn(1, 2, 8, 4)
with FlopCounterMode(display=False) as counter:
    maskalg.attention(q, q, q, maskalg.causal)
print(counter.get_total_flops())
"""


def test_a_counter_made_before_the_first_call():
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert int(run.stdout) == 2 * (2 * 8 * 8) * 8
