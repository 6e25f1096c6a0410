"""What a type checker says of expressions; `test_typing.py` has mypy read it.

A line that ends in `# wrong` must be refused, every other line must pass.
"""

from functools import reduce

import torch
from typing_extensions import assert_type

import maskalg as ma
from maskalg import causal, head, kv_idx, q_idx, sliding


def masks(ids: torch.Tensor) -> None:
    m = causal & sliding(3)
    m.show(16)
    assert_type(m | ~causal, ma.Mask)
    assert_type(reduce(lambda a, b: a & b, [causal, m]), ma.Mask)
    listed: list[ma.Mask] = [causal, causal & sliding(3), q_idx >= kv_idx]
    takes_a_mask(causal & (sliding(3) | ma.prefix(2)))
    takes_a_mask(listed[0].bind(window=2).shift(q=3))
    takes_a_mask(causal & ma.table(ids > 0)[kv_idx])
    takes_a_mask(m + ma.softcap(30))  # wrong
    causal + sliding(4)  # wrong
    causal - sliding(4)  # wrong
    assert_type(causal ^ sliding(4), ma.Mask)
    takes_a_mask(m.at(q=3, kv=[0, 1]).at(kv=kv_idx // 2))
    causal ^ ma.softcap(30)  # wrong
    causal & ids  # wrong
    ids | causal  # wrong
    causal + ids  # wrong
    causal & True  # wrong
    True | causal  # wrong
    causal & sliding  # wrong
    causal & None  # wrong
    causal & kv_idx  # wrong
    causal + 1  # wrong


def takes_a_mask(mask: ma.Mask) -> int:
    return mask.blocks(16).labels.numel()


def scores(slopes: torch.Tensor) -> None:
    bias = ma.alibi(slopes)
    score = causal & sliding(3) + bias
    assert_type(score, ma.Score)
    assert_type(score & causal, ma.Score)
    assert_type(bias + causal, ma.Score)
    assert_type(bias + score + bias, ma.Score)
    assert_type(bias + bias - 2, ma.Bias)
    assert_type(2 * -bias + 0.5, ma.Bias)
    assert_type(ma.softcap(30) @ bias, ma.Bias)
    assert_type(ma.softcap(30) @ score, ma.Score)
    assert_type(ma.softcap(30).of(score), ma.Score)
    assert_type(score.mask & score.mask, ma.Mask)
    causal & bias  # wrong
    causal | score  # wrong
    bias | causal  # wrong
    bias - causal  # wrong
    score + score  # wrong
    assert_type(score + causal, ma.Score)
    bias @ causal  # wrong
    bias + slopes  # wrong


def formulas(ids: torch.Tensor) -> None:
    far = ma.where(head % 2 == 0, q_idx - kv_idx, 3) > 4
    assert_type(far & (q_idx >= 3), ma.Mask)
    assert_type(ma.where(far, causal, sliding(3)), ma.Mask)
    assert_type(ma.bias(-0.5 * abs(q_idx - kv_idx)), ma.Bias)
    flags, ranks = ma.table(ids > 0), ma.table(ids)
    assert_type(flags[q_idx] & ~flags[kv_idx] | causal, ma.Mask)
    assert_type(causal & (ranks[q_idx] >= ranks[kv_idx]), ma.Mask)
    assert_type((flags[kv_idx] | causal) + ma.bias(ranks[kv_idx] + 1), ma.Score)
    assert_type(flags[kv_idx] + ma.softcap(30), ma.Score)
    assert_type(ma.where(flags[q_idx], causal, flags[kv_idx]), ma.Mask)
    assert_type(ma.where(far, ranks[kv_idx], 0) > 3, ma.Mask)
    assert_type(ma.where(far, ranks[q_idx], ranks[kv_idx]) > 3, ma.Mask)
    takes_a_mask(flags[kv_idx])
    again: ma.Mask = flags[kv_idx]
    again = again & causal
    flags[kv_idx] & ids  # wrong
    flags[kv_idx].number()  # wrong
    causal + flags[kv_idx]  # wrong
    q_idx & flags[kv_idx]  # wrong
    flags["key"]  # wrong
    assert_type(ma.where(far, ma.softcap(30), 0), ma.Bias)
    assert_type(ma.where(far, 0.5, ma.softcap(30)) @ ma.softcap(20), ma.Bias)
    ma.where(far, ma.softcap(30), causal)  # wrong
    ma.where(far, causal, q_idx)  # wrong
    _ = q_idx >= ids  # wrong
    q_idx + causal  # wrong
    q_idx & kv_idx  # wrong
    ma.table(ids)[causal]  # wrong


def calls(q: torch.Tensor, flag: bool) -> None:
    assert_type(ma.attention(q, q, q, causal), torch.Tensor)
    out, lse = ma.attention(q, q, q, causal, return_lse=True)
    both = ma.attention(q, q, q, causal, return_lse=flag)
    assert_type(both, torch.Tensor | tuple[torch.Tensor, torch.Tensor])
    assert_type(out - lse[..., None], torch.Tensor)
    ma.attention(q, q, q, q > 0)  # wrong
    ma.attention(q, q, q, is_causal=True)  # wrong
    ma.attention(q, q, q, None, 0.0)  # wrong
    ma.nn.Attention(64, 8)  # wrong
