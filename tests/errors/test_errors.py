"""Every mistake the algebra can meet, and what the message says.

Each message names what was typed, what was found, and what to write instead.
"""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

import maskalg as ma
from maskalg import (
    alibi,
    block_table,
    causal,
    implies,
    kv_idx,
    padding,
    q_idx,
    sliding,
    softcap,
    table,
    where,
)
from maskalg.errors import MaskTypeError
from tests.cases.mistakes import BIAS, FLAGS, FLOATS, IDS, SCORE, Mistake, raises, traced

# What was typed, and the texts the TypeError must hold.
ALGEBRA: dict[str, tuple[Mistake, tuple[str, ...]]] = {
    "of a mask": (lambda: softcap(30).of(causal), (".of(causal) takes the bias", "got Mask")),
    "and": (lambda: causal and sliding(4), ("causal has no truth value", "`a & b`")),
    "or": (lambda: sliding(4) or causal, ("sliding(4) has no truth value", "`a | b`")),
    "not": (lambda: not causal, ("causal has no truth value", "`~a`")),
    "if": (lambda: 1 if causal else 2, ("`if`", "`a & b`", "`mask is not None`")),
    "if score": (lambda: 1 if SCORE else 2, ("causal + alibi(slopes[2]) has no truth value",)),
    "if index": (lambda: 1 if q_idx else 2, ("q_idx has no truth value",)),
    "chained comparison": (
        lambda: 0 <= q_idx < kv_idx,
        ("q_idx >= 0 has no truth value", "(x <= q_idx) & (q_idx < y)"),
    ),
    "or of a bias in parentheses": (
        lambda: causal | (sliding(4) + BIAS),
        ("`causal | (sliding(4) + alibi(slopes[2]))` has no meaning", "`(a | b) + bias`"),
    ),
    "or of a bias without parentheses": (
        lambda: causal | sliding(4) + BIAS,
        ("Python binds `+` tighter than `|`", "write `(a | b) + bias`"),
    ),
    "score or mask": (lambda: SCORE | causal, ("has no meaning", "`(a | b) + bias`")),
    "score or score": (lambda: SCORE | SCORE, ("has no meaning",)),
    "mask or bias": (lambda: causal | BIAS, ("`causal | alibi(slopes[2])` has no meaning",)),
    "bias or mask": (lambda: BIAS | causal, ("has no meaning", "`(a | b) + bias`")),
    "not a score": (lambda: ~SCORE, ("~(causal + alibi(slopes[2]))", "`~mask + bias`")),
    "not a bias": (lambda: ~BIAS, ("~(alibi(slopes[2]))", "only a mask can be negated")),
    "mask and bias": (
        lambda: causal & BIAS,
        ("`causal & alibi(slopes[2])`", "Write `causal + alibi(slopes[2])`"),
    ),
    "bias and mask": (lambda: BIAS & causal, ("Write `alibi(slopes[2]) + causal`",)),
    "score and bias": (lambda: SCORE & BIAS, ("adds to the score",)),
    "mask plus mask": (lambda: causal + sliding(4), ("`causal + sliding(4)`", "`a & b`")),
    "score plus score": (lambda: SCORE + SCORE, ("adds two scores", "`a & b`")),
    "mask equals index": (lambda: q_idx == causal, ("expected an index expression", "type Mask")),
    "index and tensor": (
        lambda: q_idx >= IDS,
        ("`ma.table(tensor)[index]`", "torch.int64 tensor of shape"),
    ),
    "real divisor": (lambda: q_idx // 2.5, ("2.5 is a real number", "`ma.truncate(x)`")),
    "index and complex number": (lambda: q_idx + 2j, ("2j of type complex", "`ma.scalar(value)`")),
    "index and Boolean": (lambda: q_idx + True, ("True of type bool",)),
    "table index": (lambda: table(IDS)[causal], ("expected an index expression",)),
    "table that is not read": (
        lambda: table(IDS, "ids") == table(IDS),
        ("table(ids) of shape [4] stands without an index", "`ma.table(tensor)[q_idx] =="),
    ),
    "mask and table": (lambda: causal & table(IDS > 0), ("write ma.table(tensor)[kv_idx]",)),
    "table or mask": (lambda: table(IDS > 0) | causal, ("write `ma.table(tensor)[kv_idx]`",)),
    "index and table": (lambda: q_idx >= table(IDS, "ids"), ("got table(ids[4])",)),
    "not an index": (lambda: ~table(IDS)[kv_idx], ("`~(table[kv_idx])`", "Write `x == 0`")),
    "integers for flags": (lambda: causal & table(IDS)[kv_idx], ("stand for flags are `x != 0`",)),
    "too many table indices": (
        lambda: table(IDS, "ids")[q_idx, kv_idx],
        ("table ids has shape [4] and takes 1 index, 2 were given",),
    ),
    "too few table indices": (
        lambda: table(IDS[None], "ids")[q_idx],
        ("shape [1, 4] and takes 2 indices, 1 were given",),
    ),
    "where without a condition": (lambda: where(q_idx, causal, causal), ("ma.where", "got Index")),
    "where of a mask and an index": (
        lambda: where(causal, causal, q_idx),
        ("two masks, two biases or two index expressions", "got Mask and Index"),
    ),
    "comparisons without parentheses": (
        lambda: q_idx >= kv_idx & kv_idx < 3,
        ("`kv_idx & kv_idx`", "`(q_idx >= kv_idx) & (kv_idx < 3)`"),
    ),
    "mask or comparison": (
        lambda: causal | kv_idx < 3,
        ("`causal | kv_idx`", "`(q_idx >= kv_idx) | (kv_idx < 3)`"),
    ),
    "mask and tensor": (
        lambda: causal & FLAGS,
        ("`causal & tensor`: a torch.bool tensor of shape [4, 4]", "`ma.dense(tensor)`"),
    ),
    "tensor or mask": (lambda: FLAGS | causal, ("`tensor | causal`", "`ma.table(tensor)[kv_idx]`")),
    "mask and padding": (
        lambda: causal & FLAGS[:2],
        ("torch.bool tensor of shape [2, 4] is no mask", "`ma.padding.from_mask(tensor)`"),
    ),
    "score and tensor": (lambda: SCORE & FLAGS, ("`ma.dense(tensor)`",)),
    "array or mask": (
        lambda: np.ones((1, 4), bool) | causal,
        ("`array | causal`: a bool array of shape [1, 4] is no mask", "`ma.dense(tensor)`"),
    ),
    "mask and list": (lambda: causal & [[True]], ("`causal & list`: a list is no mask",)),
    "array plus bias": (
        lambda: np.ones(4) + BIAS,
        ("a float64 array of shape [4] is no bias", "`ma.key_bias(tensor)`"),
    ),
    "bias times array": (
        lambda: BIAS * np.ones(4),
        ("`alibi(slopes[2]) * ndarray`: a bias takes a number", "`ma.where(condition, bias, 0)`"),
    ),
    "mask times bias": (lambda: BIAS * causal, ("takes a number as its factor",)),
    "array of numbers and index": (
        lambda: np.ones(4) * q_idx,
        ("got a float64 array of shape [4]",),
    ),
    "function of NumPy and index": (
        lambda: np.log(q_idx),
        ("np.log(q_idx) got an index expression", "no array. Write", "ma.log"),
    ),
    "function of NumPy and array": (
        lambda: np.maximum(np.ones(4), q_idx),
        ("np.maximum(ndarray, q_idx) got an index expression",),
    ),
    "function of NumPy and mask": (
        lambda: np.logical_not(causal),
        ("np.logical_not(causal) got a Mask", ".to_dense(q_len, kv_len)"),
    ),
    "choice of NumPy": (
        lambda: np.where(causal, np.ones(4), 0),
        ("np.where(causal, ndarray, 0) got a Mask", "Write ma.where(condition, x, y)."),
    ),
    "limits of NumPy": (
        lambda: np.clip(q_idx, 0, 3),
        ("np.clip(q_idx, 0, 3)", "Write ma.minimum(ma.maximum(x, low), high)."),
    ),
    "masks that NumPy joins": (
        lambda: np.stack([causal, np.ones(4), BIAS], axis=-1),
        ("np.stack([causal, ndarray, alibi(slopes[2])], axis=-1) got a Mask", ".to_dense("),
    ),
    "array that NumPy joins to an index": (
        lambda: np.concatenate((np.ones(4), q_idx)),
        ("np.concatenate([ndarray, q_idx]) got an index expression", "no array. Write"),
    ),
    "mask as an array": (
        lambda: np.asarray(causal),
        ("np.asarray(causal) got a Mask", ".to_dense(q_len, kv_len)"),
    ),
    "array at an index": (
        lambda: np.ones(4)[q_idx],
        ("np.asarray(q_idx) got an index", "Write ma.table(tensor)[index]"),
    ),
    "list at an index": (
        lambda: [1, 2][kv_idx],
        ("`kv_idx` is a formula, and no number for Python", "`ma.table(list)[index]`"),
    ),
    "function of math": (lambda: math.log(q_idx + 1), ("ma.log(x) for math.log(x)",)),
    "int of an index": (lambda: int(q_idx / 2), ("ma.truncate(x) for int(x)",)),
    "remainder of a mask": (
        lambda: causal % 2,
        ("`causal % 2`: a mask is no number", "`q_idx % 2 == 0` is a mask"),
    ),
    "power of a score": (lambda: 2**SCORE, ("`2 ** (causal + alibi(slopes[2]))`", "a mask is no")),
    "mask and flag": (lambda: causal & True, ("`causal & True`", "`ma.everything`")),
    "flag or mask": (lambda: False | causal, ("`False | causal`", "`ma.nothing`")),
    "exclusive or with a score": (
        lambda: causal ^ (sliding(4) + BIAS),
        ("`causal ^ (sliding(4) + alibi(slopes[2]))` has no meaning", "`(a ^ b) + bias`"),
    ),
    "score, exclusive or": (
        lambda: SCORE ^ causal,
        ("`(causal + alibi(slopes[2])) ^ causal`", "one side of `^`", "`(a ^ b) + bias`"),
    ),
    "bias, exclusive or": (lambda: BIAS ^ causal, ("`alibi(slopes[2]) ^ causal` has no meaning",)),
    "index, exclusive or": (lambda: causal ^ kv_idx < 3, ("`causal ^ kv_idx`", "parentheses")),
    "mask and number": (
        lambda: causal & 3 <= q_idx,
        ("`causal & 3`: 3 is no mask", "write `causal & (3 <= q_idx)`"),
    ),
    "number and score": (
        lambda: q_idx - kv_idx < 3 & SCORE,
        (
            "`3 & (causal + alibi(slopes[2]))`: 3 is no mask",
            "write `(q_idx - kv_idx < 3) & (causal",
        ),
    ),
    "mask and flag of numpy": (lambda: causal & np.bool_(True), ("`causal & True`: True is no",)),
    "mask or text": (lambda: causal | "x", ("`causal | 'x'`", "without quotation marks")),
    "bias plus text": (lambda: BIAS + "x", ("`alibi(slopes[2]) + 'x'`", "quotation marks")),
    "bias times text": (lambda: BIAS * "x", ("a bias takes a number as its factor",)),
    "bias of a number": (lambda: BIAS @ 3, ("`alibi(slopes[2]) @ 3`", "Write `bias * number`")),
    "mask minus mask": (lambda: causal - sliding(4), ("`causal - sliding(4)`", "`a & ~b`")),
    "mask minus bias": (lambda: causal - BIAS, ("from a mask. Write `mask + (-bias)`",)),
    "score minus bias": (lambda: SCORE - BIAS, ("`mask + (-bias)`",)),
    "mask plus tensor": (lambda: causal + FLOATS, ("`causal + tensor`", "`ma.dense_bias(tensor)`")),
    "tensor plus bias": (lambda: FLOATS + BIAS, ("shape [4] is no bias", "`ma.key_bias(tensor)`")),
    "flag minus bias": (lambda: True - BIAS, (f"`{BIAS} - True`: True is no bias", "`ma.bias(1)`")),
    "score minus tensor": (lambda: SCORE - FLOATS, ("`ma.dense_bias(tensor)`",)),
    "mask and function of ours": (
        lambda: causal & sliding,
        ("`causal & sliding`: `&` joins masks", "sliding was not called: write sliding(window)."),
    ),
    "mask and value of ours": (lambda: causal & padding, ("write padding(lengths).",)),
    "value of ours and mask": (lambda: block_table | causal, ("write block_table(table, block).",)),
    "mask and function": (
        lambda: causal & (lambda b, h, q, k: q >= k),
        ("`causal & <lambda>`", "enters as ma.mask(function), one of scores as ma.score(function)"),
    ),
    "mask and BlockMask": (
        lambda: causal & create_block_mask(traced, None, None, 8, 8, device="cpu"),
        ("`causal & BlockMask`", "ma.mask(block_mask.mask_mod)"),
    ),
    "mask and nothing": (lambda: causal & None, ("`causal & None`", "write `ma.everything`")),
    "mask plus nothing": (lambda: causal + None, ("`+` takes a bias. Leave it out",)),
    "mask plus function": (lambda: SCORE + softcap, ("write softcap(cap).",)),
    "bias of function": (lambda: softcap(3) @ alibi, ("`@` takes a bias", "alibi(slopes)")),
    "larger index": (lambda: max(q_idx, kv_idx), ("has no truth value", "ma.maximum(x, y)")),
    "index in a list": (
        lambda: kv_idx in [1, 2],
        ("Write `(x == 1) | (x == 2)` for `x in (1, 2)`",),
    ),
    "entry of a mask": (lambda: 3 in causal, ("causal[…]`", "has no entries", ".to_dense(")),
    "entries of a mask": (lambda: [*(causal & sliding(4))], ("has no entries", "`.operands`")),
    "entries of an index": (lambda: [*q_idx], ("(q_idx)[…]`", "has no entries")),
    "entry of an index": (lambda: 3 in q_idx, ("has no entries", "`q_idx == 0` to ask")),
    "sum of scores": (lambda: sum([SCORE]), (" + 0`: a number that is added to each score",)),
    "smaller index": (lambda: min(q_idx, 3), ("ma.minimum(x, y) for `max` and `min`",)),
    "where of a function": (lambda: where(causal, sliding, causal), ("write sliding(window)",)),
    "where by a function": (lambda: where(sliding, causal, causal), ("write sliding(window)",)),
    "question about a function": (lambda: implies(sliding, causal), ("write sliding(window)",)),
    "question about a score": (lambda: implies(SCORE, causal), ("by its mask: score.mask",)),
    "where of scores": (
        lambda: where(causal, SCORE, SCORE),
        ("got Score and Score", "ma.where(c, mask, other_mask) + ma.where(c, bias, other_bias)"),
    ),
    "where of a bias and an index": (
        lambda: where(causal, BIAS, q_idx),
        ("got Bias and Index", "ma.bias(x)"),
    ),
    "where of a bias and a tensor": (
        lambda: where(causal, BIAS, FLOATS[0]),
        ("got Bias and Tensor", "`ma.table(tensor)[index]`", "`ma.table(tensor)[()]`"),
    ),
    "where of a bias and a mask": (lambda: where(causal, BIAS, causal), ("got Bias and Mask",)),
    "where of a mask and a number": (lambda: where(causal, causal, 0), ("Write `ma.nothing`",)),
    "where of a bias and nothing": (lambda: where(causal, BIAS, None), ("Write 0 for no bias",)),
    "where by a comparison": (
        lambda: where(table(FLAGS[0])[kv_idx] == 1, causal, causal),
        ("got bool", "a Boolean table is a mask as it is"),
    ),
    "number compared and mask": (
        lambda: (table(FLAGS[0])[kv_idx] == 1) & causal,
        ("`False & causal`", "a Boolean table is a mask as it is", "`~mask`"),
    ),
    "order of a mask": (
        lambda: table(FLAGS[0])[kv_idx] > 0,
        ("`table[kv_idx] > 0`: a mask is no number", "ma.implies(a, b)"),
    ),
    "order of masks": (lambda: causal <= sliding(4), ("`causal <= sliding(4)`: a mask is no",)),
    "order of a bias": (lambda: BIAS >= 3, ("`alibi(slopes[2]) >= 3`: a bias is no number",)),
    "order of a score": (lambda: SCORE < 3, ("< 3`: a score is no number",)),
    "mask and index": (lambda: causal == kv_idx, ("expected an index expression",)),
    "matrix @ mask": (lambda: torch.ones(4, 4) @ causal, ("`tensor @ causal`: `@` applies",)),
    "tensor at an index": (
        lambda: FLOATS[q_idx],
        ("tensor[…] got an index expression", "Write ma.table(tensor)[index]"),
    ),
    "tensor at a mask": (lambda: FLOATS[causal], ("got a Mask", ".to_dense(q_len, kv_len)")),
    "function without a formula": (
        lambda: torch.nn.functional.relu(q_idx),
        ("torch's relu(…, inplace=…) got an index expression", "ma.mask(f) or ma.score(f)"),
    ),
    "option without a formula": (
        lambda: torch.add(q_idx, kv_idx, alpha=2),
        ("torch's add(…, alpha=…) got an index",),
    ),
    "clamp": (lambda: torch.clamp(q_idx, 3), ("Write ma.minimum(ma.maximum(x, low), high)",)),
    "masks stacked": (lambda: torch.stack([causal, causal]), ("stack(…) got a Mask",)),
    "masks compared in torch": (lambda: torch.eq(causal, causal), ("eq(…) got a Mask",)),
    "attention of torch": (
        lambda: torch.nn.functional.scaled_dot_product_attention(FLOATS, FLOATS, FLOATS, SCORE),
        ("got a Score", "Write ma.attention(query, key, value, mask + bias)"),
    ),
    "method of a tensor": (
        lambda: torch.zeros(4, 4).masked_fill(causal, 0),
        ("masked_fill(…) got a Mask", ".to_dense(q_len, kv_len)"),
    ),
    "where of a bias and True": (lambda: where(causal, BIAS, True), ("got Bias and bool",)),
}


@pytest.mark.parametrize("name", ALGEBRA)
def test_algebra(name: str) -> None:
    mistake, says = ALGEBRA[name]
    raises(TypeError, mistake, *says)


# What was typed, and the corrections of its message that can be run.
CORRECTED: dict[str, tuple[str, ...]] = {
    "BIAS & 3": ("alibi(slopes[2]) + (3 <= q_idx)",),
    "3 & BIAS": ("(q_idx - kv_idx < 3) + alibi(slopes[2])",),
    "BIAS & (3 <= q_idx)": ("alibi(slopes[2]) + (q_idx >= 3)",),
    "SCORE & 3": ("(causal + alibi(slopes[2])) & (3 <= q_idx)",),
    "SCORE & BIAS": ("(causal + alibi(slopes[2])) + alibi(slopes[2])",),
    "3 | SCORE": ("(a | b) + bias",),
    "BIAS ^ True": ("(a ^ b) + bias",),
    "BIAS & True": ("ma.everything",),
    "SCORE * 2": ("mask + 2 * bias", "ma.where(mask, bias, 0)"),
    "1 - causal": ("~mask",),
    "causal + np.bool_(True)": ("ma.bias(1)",),
    "np.bool_(False) + BIAS": ("ma.bias(0)",),
    "BIAS - True": ("ma.bias(1)",),
    "True & table(FLAGS[0])": ("ma.table(tensor)[kv_idx]",),
    "~table(FLAGS[0])": ("ma.table(tensor)[kv_idx]",),
    "table(FLAGS[0]) and causal": ("ma.table(tensor)[kv_idx]",),
    "BIAS * np.bool_(True)": ("ma.where(condition, bias, 0)",),
}


@pytest.mark.parametrize("typed", CORRECTED)
def test_corrections_run(typed: str) -> None:
    with pytest.raises(MaskTypeError) as caught:
        eval(typed)
    masks = {"mask": causal, "condition": causal, "a": causal, "b": sliding(4)}
    given = {**masks, "bias": BIAS, "slopes": {2: FLOATS}, "tensor": FLAGS[0]}
    for correction in CORRECTED[typed]:
        assert f"`{correction}`" in str(caught.value)
        eval(correction, globals(), given)


def test_strangers_are_left_to_python() -> None:
    class Stranger:
        def __rand__(self, other: object) -> str:
            return "answered"

    assert causal & Stranger() == SCORE & Stranger() == BIAS & Stranger() == "answered"
    for mistake in (lambda: causal | Stranger(), lambda: SCORE ^ Stranger(), lambda: BIAS @ {}):
        with pytest.raises(TypeError, match="unsupported operand"):
            mistake()


def test_attributes_that_others_have() -> None:
    for name in ("show", "prove", "blocks", "to_dense", "cost"):
        says = f"a Score has no attribute {name!r}. Its mask has: write score.mask.{name}(…)."
        if name not in ("show", "to_dense"):
            raises(AttributeError, lambda name=name: getattr(SCORE, name), says)
        raises(AttributeError, lambda name=name: getattr(BIAS, name), "Masks have it", "bias.plot")
        assert callable(getattr(SCORE.mask, name))
    says = "has no attribute 'abs'", "write abs(x)", "indices have the methods of tensors"
    raises(AttributeError, lambda: (q_idx - kv_idx).abs(), *says)
    raises(AttributeError, lambda: causal.shape, "no tensor", "to_dense(q_len", "model_mask(mask")
    raises(AttributeError, lambda: causal.shwo, "a Mask has no attribute 'shwo'.")
    raises(AttributeError, lambda: causal.numpy(), "no attribute 'numpy'. It is a formula, no")
    assert copy.deepcopy(SCORE).mask == SCORE.mask


@pytest.mark.parametrize(
    "name, write",
    [
        ("flex_attention", "ma.attention(query, key, value, mask + bias)"),
        ("create_block_mask", "nothing: ma.attention takes ma.mask(mask_mod)"),
        ("and_masks", "`f & g`"),
        ("slidng", "has no attribute 'slidng'. Did you mean sliding?"),
        ("nonsense", "has no attribute 'nonsense'."),
    ],
)
def test_names_of_other_packages(name, write):
    with pytest.raises(AttributeError) as caught:
        getattr(ma, name)
    assert write in str(caught.value)
    assert not hasattr(ma, name)


def test_masks_are_no_truth_values_of_pairs():
    with pytest.raises(
        TypeError, match=r"pairs at which both hold or neither does are ~\(a \^ b\)"
    ):
        causal & ((ma.q_idx < 3) == (ma.kv_idx < 3))
