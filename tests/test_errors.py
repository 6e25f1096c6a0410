"""Every mistake the algebra, the atoms, blocks and attention can meet, and what the message says.

Each message names what was typed, what was found, and what to write instead.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

from maskalg import (
    alibi,
    attention,
    batch,
    block_causal,
    block_table,
    causal,
    chunked,
    dense,
    dilated,
    document,
    errors,
    head,
    implies,
    key_bias,
    kv_idx,
    nn,
    padding,
    prefix,
    q_idx,
    relative,
    scalar,
    sliding,
    softcap,
    table,
    where,
    window,
)
from maskalg.attention import ARGUMENTS
from maskalg.inputs import checked_scale
from maskalg.parameters import INT32_MAX

IDS = torch.tensor([0, 0, 1, 1])
SLOPES = torch.tensor([0.5, 0.25])
BIAS = alibi(SLOPES)
SCORE = causal + BIAS
FLOATS = torch.ones(4)
FLAGS = torch.ones(4, 4, dtype=torch.bool)


def raises(kind: type[Exception], mistake: Callable[[], object], *says: str) -> None:
    """The mistake raises `kind`, one of ours, and its message holds each of the texts."""
    with pytest.raises(kind) as caught:
        mistake()
    assert isinstance(caught.value, errors.MaskalgError)
    for text in says:
        assert text in str(caught.value), f"{text!r} is not in: {caught.value}"


def traced(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


Mistake = Callable[[], object]

# What was typed, and the texts the TypeError must hold.
ALGEBRA: dict[str, tuple[Mistake, tuple[str, ...]]] = {
    "of a mask": (lambda: softcap(30).of(causal), (".of(causal) takes the bias", "got Mask")),
    "and": (lambda: causal and sliding(4), ("causal has no truth value", "`a & b`")),
    "or": (lambda: sliding(4) or causal, ("sliding(4) has no truth value", "`a | b`")),
    "not": (lambda: not causal, ("causal has no truth value", "`~a`")),
    "if": (lambda: 1 if causal else 2, ("`if`", "`a & b`")),
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
    "mask or bias": (lambda: causal | BIAS, ("`causal | (alibi(slopes[2]))` has no meaning",)),
    "bias or mask": (lambda: BIAS | causal, ("has no meaning", "`(a | b) + bias`")),
    "not a score": (lambda: ~SCORE, ("~(causal + alibi(slopes[2]))", "`~mask + bias`")),
    "not a bias": (lambda: ~BIAS, ("~(alibi(slopes[2]))", "only a mask can be negated")),
    "mask and bias": (
        lambda: causal & BIAS,
        ("`causal & alibi(slopes[2])`", "Write `causal + alibi(slopes[2])`"),
    ),
    "bias and mask": (lambda: BIAS & causal, ("Write `causal + alibi(slopes[2])`",)),
    "score and bias": (lambda: SCORE & BIAS, ("adds to the score",)),
    "mask plus mask": (lambda: causal + sliding(4), ("`causal + sliding(4)`", "`a & b`")),
    "score plus mask": (lambda: SCORE + causal, ("adds two masks", "`a & b`")),
    "score plus score": (lambda: SCORE + SCORE, ("adds two scores", "`a & b`")),
    "mask equals index": (lambda: q_idx == causal, ("expected an index expression", "type Mask")),
    "index and tensor": (lambda: q_idx >= IDS, ("`ma.table(tensor)[index]`", "type Tensor")),
    "real divisor": (lambda: q_idx // 2.5, ("2.5 is a real number", "`ma.truncate(x)`")),
    "index and complex number": (lambda: q_idx + 2j, ("2j of type complex", "`ma.scalar(value)`")),
    "index and Boolean": (lambda: q_idx + True, ("True of type bool",)),
    "table index": (lambda: table(IDS)[causal], ("expected an index expression",)),
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
        ("two masks or two index expressions", "got Mask and Index"),
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
    "tensor or mask": (lambda: FLAGS | causal, ("`causal | tensor`", "`ma.table(tensor)[kv_idx]`")),
    "mask and padding": (
        lambda: causal & FLAGS[:2],
        ("torch.bool tensor of shape [2, 4] is no mask", "`ma.padding.from_mask(tensor)`"),
    ),
    "score and tensor": (lambda: SCORE & FLAGS, ("`ma.dense(tensor)`",)),
    "mask and flag": (lambda: causal & True, ("`causal & True`", "`ma.everything`")),
    "flag or mask": (lambda: False | causal, ("`causal | False`", "`ma.nothing`")),
    "exclusive or": (
        lambda: causal ^ sliding(4),
        ("`causal ^ sliding(4)`", "`(a & ~b) | (b & ~a)`"),
    ),
    "mask minus mask": (lambda: causal - sliding(4), ("`causal - sliding(4)`", "`a & ~b`")),
    "mask minus bias": (lambda: causal - BIAS, ("from a mask. Write `mask + (-bias)`",)),
    "score minus bias": (lambda: SCORE - BIAS, ("`mask + (-bias)`",)),
    "mask plus tensor": (lambda: causal + FLOATS, ("`causal + tensor`", "`ma.dense_bias(tensor)`")),
    "tensor plus bias": (lambda: FLOATS + BIAS, ("shape [4] is no bias", "`ma.key_bias(tensor)`")),
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
    "smaller index": (lambda: min(q_idx, 3), ("ma.minimum(x, y) for `max` and `min`",)),
    "where of a function": (lambda: where(causal, sliding, causal), ("write sliding(window)",)),
    "where by a function": (lambda: where(sliding, causal, causal), ("write sliding(window)",)),
    "question about a function": (lambda: implies(sliding, causal), ("write sliding(window)",)),
    "question about a score": (lambda: implies(SCORE, causal), ("by its mask: score.mask",)),
    "where of scores": (lambda: where(causal, SCORE, SCORE), ("got Score and Score",)),
}


@pytest.mark.parametrize("name", ALGEBRA)
def test_algebra(name: str) -> None:
    mistake, says = ALGEBRA[name]
    raises(TypeError, mistake, *says)


def test_strangers_are_left_to_python() -> None:
    for mistake in (lambda: causal & 3, lambda: causal | "x", lambda: BIAS + "x", lambda: BIAS @ 3):
        with pytest.raises(TypeError, match="unsupported operand"):
            mistake()


def test_attributes_that_others_have() -> None:
    for name in ("show", "prove", "blocks", "to_dense", "cost"):
        says = f"a Score has no attribute {name!r}. Its mask has: write score.mask.{name}(…)."
        raises(AttributeError, lambda name=name: getattr(SCORE, name), says)
        raises(AttributeError, lambda name=name: getattr(BIAS, name), "asked of masks", "bias.plot")
        assert callable(getattr(SCORE.mask, name))
    raises(AttributeError, lambda: causal.shape, "no tensor", "to_dense(q_len", "model_mask(mask")
    raises(AttributeError, lambda: causal.shwo, "a Mask has no attribute 'shwo'.")
    assert copy.deepcopy(SCORE).mask == SCORE.mask


SIZES = {"sliding": (sliding, "window", 1), "chunked": (chunked, "chunk", 1),
         "block_causal": (block_causal, "chunk", 1), "dilated": (dilated, "dilation", 1),
         "prefix": (prefix, "prefix", 0)}  # fmt: skip


@pytest.mark.parametrize("name", SIZES)
def test_sizes(name: str) -> None:
    atom, argument, low = SIZES[name]
    wants = f"{argument} must be an integer >= {low}"
    raises(ValueError, lambda: atom(low - 1), f"{name}({low - 1})", f"{wants}, got {low - 1}")
    raises(TypeError, lambda: atom(2.5), f"{name}(2.5)", f"{wants}, got 2.5 of type float")
    raises(TypeError, lambda: atom(True), wants, "type bool")
    raises(TypeError, lambda: atom("4"), wants, "'4' of type str")
    raises(TypeError, lambda: atom(None), wants, "type NoneType")
    raises(ValueError, lambda: atom(2**31), f"{name}({2**31})", "32-bit", "leave the atom out")
    atom(low), atom(INT32_MAX)


def test_window() -> None:
    raises(ValueError, lambda: window(-1, 0), "window(-1, 0): left must be an integer >= 0, got -1")
    raises(ValueError, lambda: window(-1, 0), "None is unlimited.")
    raises(ValueError, lambda: window(None, -2), "right must be an integer >= 0, got -2")
    raises(TypeError, lambda: window(1.5, 0), "window(1.5, 0): left", "1.5 of type float")
    raises(ValueError, lambda: window(0, 2**40), "right must fit a 32-bit integer", "use None")


def test_prefix_and_padding_tensors() -> None:
    raises(TypeError, lambda: prefix(FLOATS), "prefix", "int32 or int64", "torch.float32")
    raises(ValueError, lambda: prefix(IDS[None, None]), "[batch] or [batch, heads]", "[1, 1, 4]")
    raises(TypeError, lambda: padding(FLOATS), "padding: lengths", "int32 or int64", "float32")
    raises(TypeError, lambda: padding([1, 2]), "padding: lengths", "got list")
    raises(ValueError, lambda: padding(IDS[None]), "shape [batch], got [1, 4]")
    raises(ValueError, lambda: padding(torch.tensor(3)), "shape [batch], got []")
    raises(TypeError, lambda: padding(FLAGS), "got torch.bool", "from_mask(attention_mask)")
    raises(ValueError, lambda: padding(IDS[None]), "from_mask(attention_mask)")


def test_padding_masks() -> None:
    call, made = "padding.from_mask: attention_mask", padding.from_mask
    raises(TypeError, lambda: made(FLOATS[None]), call, "a bool or integer tensor", "float32")
    raises(TypeError, lambda: made([[1, 0]]), call, "got list", "torch.tensor(attention_mask)")
    raises(ValueError, lambda: made(IDS), call, "shape [batch, kv_len], got [4]")
    raises(ValueError, lambda: made(IDS[None]).to_dense(5), "has 4 entries along dimension 1")
    assert made(FLAGS).parameters["attention_mask"] is FLAGS
    assert (causal & made(IDS[None])).prove().exact


@pytest.mark.parametrize("made", [list, np.array])
def test_lists_and_arrays_are_no_tensors(made: Callable[[list[int]], Any]) -> None:
    calls = {
        "ids": document,
        "slopes": alibi,
        "lengths": padding,
        "cu_seqlens": document.from_cu_seqlens,
        "window": sliding,
    }
    for name, atom in calls.items():
        hint = f"Write torch.tensor({name})"
        raises(TypeError, lambda atom=atom: atom(made([1, 2])), type(made([])).__name__, hint)


def test_integers_of_numpy_are_integers() -> None:
    three = np.int64(3)
    assert sliding(three) == sliding(3) == sliding(2).bind(window=three)
    assert causal.shift(q=three) == causal.shift(q=3)
    assert (q_idx < three) == (q_idx < 3) and (kv_idx < scalar(three)) == (kv_idx < scalar(3))
    lengths = np.array([200, 100], dtype=np.uint8)
    assert document.from_lengths(lengths).parameters["ids"].shape == (300,)
    raises(TypeError, lambda: sliding(np.bool_(True)), "window must be an integer")


def test_documents() -> None:
    raises(TypeError, lambda: document(FLOATS), "document: ids", "int32 or int64", "float32")
    raises(TypeError, lambda: document([0, 1]), "document: ids", "got list")
    raises(TypeError, lambda: document(IDS, FLOATS), "document: kv_ids", "float32")
    raises(TypeError, lambda: document(IDS.bool()), "document: ids", "torch.bool")
    raises(ValueError, lambda: document(IDS[None, None]), "or [batch, length], got [1, 1, 4]")
    lengths, bounds = document.from_lengths, document.from_cu_seqlens
    raises(TypeError, lambda: lengths(FLOATS), "document.from_lengths: lengths", "float32")
    raises(TypeError, lambda: lengths([1.5]), "document.from_lengths: lengths", "1.5 of type float")
    raises(ValueError, lambda: lengths([3, -1]), "document.from_lengths: lengths", "got -1")
    raises(ValueError, lambda: lengths(IDS[None]), "shape [documents], got [1, 4]")
    raises(TypeError, lambda: bounds(FLOATS), "document.from_cu_seqlens: cu_seqlens", "float32")
    raises(TypeError, lambda: bounds([0, 3]), "cu_seqlens", "got list")
    raises(ValueError, lambda: bounds(IDS[:0]), "shape [documents + 1], got [0]")


@pytest.mark.parametrize("made", [list, torch.tensor])
def test_lengths_of_documents(made: Callable[[list[int]], Any]) -> None:
    lengths = document.from_lengths
    raises(ValueError, lambda: lengths(made([3, -1, 4])), "from_lengths: lengths", ">= 0, got -1")
    raises(ValueError, lambda: lengths(made([3, 4]), total=5), "total", ">= 7, got 5")
    assert lengths(made([3, 4]), total=7).to_dense(7).sum() == 25


def test_cumulative_lengths_of_documents() -> None:
    bounds = document.from_cu_seqlens
    for entries in ([1, 4, 64], [-3, 64], [0, 4, 2, 64]):
        says = "start at 0 and never descend", str(entries), "document.from_lengths(lengths)"
        raises(ValueError, lambda entries=entries: bounds(torch.tensor(entries)), *says)
    raises(ValueError, lambda: bounds(torch.tensor([0, 3, 8]), total=5), "total", ">= 8, got 5")


def test_entries_that_cannot_be_read_are_not() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        ids = torch.tensor([0, 4, 9])
        assert document.from_cu_seqlens(ids, total=9).parameters
        assert document.from_lengths(ids, total=9).parameters
    assert document.from_cu_seqlens(
        torch.empty(3, dtype=torch.int64, device="meta"), total=9
    ).parameters


def test_dense() -> None:
    raises(TypeError, lambda: dense(IDS), "dense: tensor must be a bool tensor, got torch.int64")
    raises(TypeError, lambda: dense([[True]]), "got list")
    raises(TypeError, lambda: dense(IDS[None]), "ma.padding.from_mask(attention_mask)")
    rows = dense(torch.ones(2, 8, dtype=torch.bool))
    raises(ValueError, lambda: rows.to_dense(8), "reads 8", "ma.padding.from_mask(tensor)")
    raises(ValueError, lambda: dense(IDS > 0), "[batch, heads, q, k], got [4]")


def test_biases() -> None:
    raises(TypeError, lambda: alibi(IDS), "alibi: slopes", "floating-point", "torch.int64")
    raises(TypeError, lambda: alibi(0.5), "alibi: slopes", "got float")
    raises(ValueError, lambda: alibi(FLOATS[None]), "shape [heads], got [1, 4]")
    raises(TypeError, lambda: relative(IDS), "relative: table", "torch.int64")
    raises(ValueError, lambda: relative(FLOATS), "[heads, 2 * d + 1] or [2 * d + 1], got [4]")
    raises(TypeError, lambda: softcap("3"), "softcap('3'): cap must be a positive number")
    raises(TypeError, lambda: softcap(True), "type bool")
    raises(ValueError, lambda: softcap(0), "softcap(0): cap must be a positive finite number")
    raises(ValueError, lambda: softcap(-1.0), "got -1.0")
    raises(ValueError, lambda: softcap(float("inf")), "got inf")
    raises(ValueError, lambda: softcap(float("nan")), "got nan")


def test_biases_of_keys() -> None:
    rows = "shape [4, 4] may be [batch, length] or [heads, length]. Write tensor[:, None] for"
    raises(ValueError, lambda: key_bias(torch.zeros(4, 4)), "key_bias", rows, "tensor[None]")
    raises(ValueError, lambda: key_bias(FLOATS[None, None, None]), "[length] or [batch, heads, len")
    raises(TypeError, lambda: key_bias(IDS), "key_bias: tensor must be a floating-point tensor")


def test_scalar_and_table() -> None:
    raises(TypeError, lambda: scalar("2", "n"), "scalar('2'): n must be an integer", "type str")
    raises(ValueError, lambda: scalar(2, "n", low=3), "n must be an integer >= 3, got 2")
    raises(ValueError, lambda: scalar(2**31, "n"), "n must fit a 32-bit integer")
    raises(ValueError, lambda: q_idx + 2**31, "index expression", "32-bit")
    raises(TypeError, lambda: table([1, 2]), "torch.Tensor", "got list")
    for name in ("q", "k", "q0", "q1", "batch", "head", "no name", ""):
        raises(ValueError, lambda name=name: scalar(1, name), repr(name), "identifier other than")
        raises(ValueError, lambda name=name: table(IDS, name), repr(name), "identifier other than")


def test_divisors() -> None:
    raises(ValueError, lambda: q_idx // 0, "q_idx // or %", "the divisor must be an integer >= 1")
    raises(ValueError, lambda: q_idx % -2, "got -2")
    unknown = scalar(2, "n")
    raises(ValueError, lambda: q_idx // unknown, "not known to be positive", "low=1")
    raises(ValueError, lambda: q_idx % kv_idx, "q_idx // or % kv_idx", "not known to be positive")
    raises(ValueError, lambda: q_idx // table(IDS)[batch], "ma.table(tensor, low=1)[index]")
    assert (q_idx // scalar(2, "n", low=1) >= kv_idx).to_dense(2).any()
    assert (q_idx // table(IDS, low=1)[batch] >= kv_idx).to_dense(2).any()


def test_shift() -> None:
    raises(TypeError, lambda: causal.shift(q=1.5), "shift(q=…): q must be an integer", "type float")
    raises(TypeError, lambda: causal.shift(q=False), "shift(q=…)", "type bool")
    raises(ValueError, lambda: causal.shift(kv=2**31), "shift(kv=…): kv must fit a 32-bit integer")
    raises(TypeError, lambda: causal.shift(kv=FLOATS), "shift(kv=…)", "torch.float32")
    raises(ValueError, lambda: causal.shift(q=IDS[None]), "[] or [batch], got [1, 4]")


def test_bind() -> None:
    mask = causal & sliding(4) & document(IDS)
    unknown = "bind(windw=…): this expression has no parameter 'windw'"
    raises(TypeError, lambda: mask.bind(windw=3), unknown, "it has", "window", "ids")
    raises(TypeError, lambda: causal.bind(window=3), "no parameter 'window'; it has none")
    raises(TypeError, lambda: mask.bind(window=2.5), "bind(window=…): expected int", "got float")
    raises(TypeError, lambda: mask.bind(window=True), "expected int", "got bool")
    raises(TypeError, lambda: mask.bind(window=IDS), "got Tensor", "build a new expression")
    raises(ValueError, lambda: mask.bind(window=0), "bind: window must be an integer >= 1, got 0")
    raises(ValueError, lambda: mask.bind(window=2**31), "bind: window must fit a 32-bit integer")
    raises(TypeError, lambda: mask.bind(ids=3), "bind(ids=…): expected a tensor", "got int")
    rank = "bind(ids=…): expected a tensor of kind int and rank 1"
    raises(ValueError, lambda: mask.bind(ids=IDS[None]), rank, "got torch.int64 and rank 2")
    raises(ValueError, lambda: mask.bind(ids=FLOATS), rank, "got torch.float32 and rank 1")
    raises(TypeError, lambda: softcap(3.0).bind(cap="x"), "expected a number", "got str")
    row = dense(torch.ones(1, 4, dtype=torch.bool))
    square = torch.ones(4, 4, dtype=torch.bool)
    raises(ValueError, lambda: row.bind(dense=square), "bind: dense", "1 entries along dimension 0")


# --- lengths, blocks ------------------------------------------------------------------------------


def test_lengths() -> None:
    for call in (causal.blocks, causal.to_dense):
        raises(ValueError, lambda call=call: call(-1), "q_len must be an integer >= 0, got -1")
        raises(ValueError, lambda call=call: call(4, 2.5), "kv_len must be", "got 2.5")
        raises(ValueError, lambda call=call: call(True), "q_len must be", "got True")
        raises(ValueError, lambda call=call: call(None), "q_len must be", "got None")
        raises(ValueError, lambda call=call: call(4, batch=-2), "batch must be", "got -2")
        raises(ValueError, lambda call=call: call(4, heads="2"), "heads must be", "got '2'")


@pytest.mark.parametrize("block", [0, -4, 2.5, (4,), (4, 4, 4), (4, 0), "4", None, True])
def test_block_sizes(block: Any) -> None:
    says = "block must be an integer >= 1 or a pair (block_q, block_kv) of them, got "
    raises(ValueError, lambda: causal.blocks(8, block=block), says + repr(block))


def test_tables_that_do_not_fit() -> None:
    says = ("ids of shape [4] has 4 entries along dimension 0", "reads 6", "at least 6 entries")
    raises(ValueError, lambda: document(IDS).to_dense(6), *says)
    raises(ValueError, lambda: document(IDS).blocks(6), *says)
    raises(ValueError, lambda: document(IDS).blocks(2, 6), "(q_len 2, kv_len 6)", "reads 6")
    raises(ValueError, lambda: document(IDS).shift(q=3).blocks(2), "reads 5", "shift less")
    before = "ids would be read at q_idx + q_shift = -2, before its first entry"
    raises(ValueError, lambda: document(IDS).shift(q=-2).blocks(2), before, "shift by no less")
    square = dense(torch.ones(4, 4, dtype=torch.bool))
    raises(ValueError, lambda: square.blocks(4, 5), "dense of shape [4, 4]", "dimension 1")
    lengths = padding(torch.tensor([1, 2, 3]))
    says = ("lengths of shape [3]", "stands for batch, but batch is 2", "Pass 2 entries, or 1")
    raises(ValueError, lambda: lengths.blocks(4, batch=2), *says)
    by_head = dense(torch.ones(3, 4, 4, dtype=torch.bool))
    raises(ValueError, lambda: by_head.blocks(4, heads=2), "stands for head, but head is 2")


def test_computed_positions_that_stay_inside_are_read() -> None:
    # q - q % 2 is never negative, though its two terms on their own could reach -1.
    entries = table(IDS, "ids")
    mask = entries[q_idx - q_idx % 2] == entries[kv_idx]
    assert mask.to_dense(4)[0, 0, 3].tolist() == [False, False, True, True]


def test_heads_and_batch_entries_that_nothing_tells() -> None:
    says = ("depends on `head`", "pass heads=")
    raises(ValueError, lambda: (head >= q_idx).blocks(4), *says)
    raises(ValueError, lambda: (head >= q_idx).to_dense(4), *says)
    assert (head >= q_idx).to_dense(4, heads=2).shape[1] == 2
    says = ("depends on `batch`", "pass batch=")
    raises(ValueError, lambda: (batch >= q_idx).blocks(4), *says)
    raises(ValueError, lambda: (batch >= q_idx).rows_have_a_key(4), *says)
    raises(ValueError, lambda: implies(batch >= q_idx, causal, 4), *says)
    assert (batch >= q_idx).to_dense(4, batch=2).shape[0] == 2


# --- attention ------------------------------------------------------------------------------------


def inputs(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.zeros(shape, dtype=dtype) for shape in shapes]


SHAPES = ((2, 4, 3, 8), (2, 2, 5, 8), (2, 2, 5, 6))
Q, K, V = inputs(*SHAPES)


def call(*tensors: Any, score: Any = None, **options: Any) -> Callable[[], object]:
    given = tensors or (Q, K, V)
    return lambda: attention(*given, score, **{"backend": "reference", **options})


def test_attention_tensors() -> None:
    says = "attention: key must be a torch.Tensor, got list"
    raises(TypeError, call(Q, [1.0], V), says)
    says = "value must have shape [batch, heads, length, head_dim], got [2, 5, 6]"
    raises(ValueError, call(Q, K, V[:, 0]), says)
    raises(TypeError, call(Q.double(), K, V), "share one dtype", "torch.float64, torch.float32")
    raises(TypeError, call(Q, K.to("meta"), V), "share one device", "cpu, meta, cpu")
    raises(TypeError, call(Q.int(), K.int(), V.int()), "float16, bfloat16, float32", "torch.int32")


ELSEWHERE: dict[str, tuple[object, str]] = {
    "is_causal": (True, "no argument is_causal=True: write attention(query, key, value, causal)."),
    "attn_mask": (FLAGS, "attn_mask: the fourth argument is ma.dense(tensor) for Booleans"),
    "enable_gqa": (True, "enable_gqa=True: leave it out, grouped heads"),
    "mask": (causal, "mask: the mask is the fourth argument"),
    "block_mask": (causal, "ma.mask(block_mask.mask_mod)"),
    "score_mod": (lambda *args: args[0], "ma.score(score_mod)"),
    "window_size": ((-1, 0), "ma.window(left, right) in the mask, None where -1 stood; FlashAtt"),
    "softmax_scale": (0.5, "softmax_scale: write scale=…"),
    "causal": (True, "causal=True: write attention(query, key, value, causal); FlashAttention"),
    "scael": (0.5, "no argument scael: it takes query, key, value, score, scale"),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_names_of_other_functions(name: str) -> None:
    value, says = ELSEWHERE[name]
    raises(TypeError, call(**{name: value}), f"attention has no argument {name}", says)


def test_more_arguments() -> None:
    says = "by position, and 2 more were given", "instead of is_causal=True, write attention(query"
    raises(TypeError, lambda: attention(Q, K, V, None, 0.0, True), *says)
    several = "no argument attn_mask=None: leave it out; is_causal=False: leave it out."
    raises(TypeError, call(attn_mask=None, is_causal=False), several)


def test_what_attention_takes_is_what_is_said() -> None:
    taken = inspect.signature(attention).parameters
    assert tuple(name for name in taken if name not in ("more", "named")) == ARGUMENTS


def test_modules_are_not_made_of_sizes() -> None:
    says = "it takes a score, such as causal", "torch.nn.Linear of your own"
    raises(TypeError, lambda: nn.Attention(64, 8), "ma.nn.Attention(64, 8): ", *says)
    raises(TypeError, lambda: nn.Attention(64), "ma.nn.Attention(64): ", *says)
    raises(TypeError, lambda: nn.Attention(embed_dim=64), "embed_dim=64", *says)


def test_scores_that_are_none() -> None:
    raises(
        TypeError, call(score=traced), "got function. A function of indices", "ma.mask(function)"
    )
    raises(TypeError, call(score=sliding), "sliding was not called: write sliding(window).")
    blocks = create_block_mask(traced, None, None, 8, 8, device="cpu")
    raises(TypeError, call(score=blocks), "got BlockMask", "ma.mask(block_mask.mask_mod)")
    raises(TypeError, call(score=FLAGS), "got Tensor. A Boolean tensor enters as ma.dense(tensor)")
    module = nn.Attention(causal)
    raises(TypeError, lambda: module(Q, K, V, document), "document was not called")


FITS: dict[str, tuple[int, tuple[int, ...], str]] = {
    "batch": (1, (3, 2, 5, 8), "the batch sizes differ"),
    "value heads": (2, (2, 4, 5, 6), "key and value have different numbers of heads"),
    "groups": (0, (2, 3, 3, 8), "3 query heads are no multiple of 2 key-value heads"),
    "lengths": (2, (2, 2, 4, 6), "key and value have different lengths"),
    "head dimension": (1, (2, 2, 5, 7), "query and key have different head dimensions"),
}


@pytest.mark.parametrize("name", FITS)
def test_attention_shapes_that_do_not_fit(name: str) -> None:
    position, shape, says = FITS[name]
    shapes = [*SHAPES]
    shapes[position] = shape
    got = f"got query {list(shapes[0])}, key {list(shapes[1])}, value {list(shapes[2])}"
    raises(ValueError, call(*inputs(*shapes)), f"attention: {says}", got)


def test_attention_score() -> None:
    raises(TypeError, call(score=3), "a mask, a bias or `mask + bias`, got int")
    raises(TypeError, call(score=IDS > 0), "got Tensor", "ma.dense(tensor)")
    raises(TypeError, call(score=lambda b, h, q, k: q >= k), "got function", "ma.mask(function)")
    raises(TypeError, call(score=q_idx), "got Index")


def test_attention_options() -> None:
    raises(TypeError, call(weight=torch.softmax), "weight must be a weight function", "ma.softmax")
    raises(ValueError, call(backend="cuda"), "backend='cuda'", "triton, cpu, reference")
    on_meta = [tensor.to("meta") for tensor in (Q, K, V)]
    for backend in (None, "cpu"):
        raises(RuntimeError, call(*on_meta, backend=backend), "no values", "FakeTensorMode")
    raises(ValueError, call(Q[..., :0], K[..., :0], V), "head dimension", "is 0", "[2, 4, 3, 0]")


def test_scale() -> None:
    learned = torch.tensor(0.3, requires_grad=True)
    says = "requires a gradient", "query * scale"
    raises(TypeError, call(scale=learned), "shape [] on cpu", *says)
    raises(TypeError, call(scale=torch.rand(4)), "scale must be a number", "shape [4]", "query * s")
    raises(TypeError, call(scale=torch.tensor(0.3, device="meta")), "on meta", "query * scale")
    for wrong in (True, "1", [1], 1j):
        raises(TypeError, call(scale=wrong), f"scale must be a number, got {wrong!r} of type")
    for wrong in (float("nan"), float("inf"), np.float32("nan"), torch.tensor(float("nan"))):
        raises(ValueError, call(scale=wrong), "scale must be finite, got")
    for scale in (2, np.float32(2), np.float64(2), torch.tensor(2.0), torch.tensor([2.0])):
        assert repr(checked_scale(scale)) == "2.0"


def test_attention_expressions_that_do_not_fit() -> None:
    ids = torch.zeros(5, dtype=torch.int64)
    raises(ValueError, call(score=document(IDS)), "ids of shape [4]", "(q_len 3, kv_len 5) reads 5")
    raises(ValueError, call(score=document(ids.to("meta"))), "ids lives on meta, query on cpu",
           "mask = mask.to('cpu')")  # fmt: skip
    raises(ValueError, call(score=causal + BIAS), "slopes of shape [2]", "head is 4")
    raises(ValueError, call(score=padding(torch.tensor([1, 2, 3]))), "batch is 2")
    rows = document(torch.zeros(3, 5, dtype=torch.int64))
    raises(ValueError, call(score=rows), "ids of shape [3, 5]", "batch is 2")
    # What fits is not checked again, another length is.
    mask = document(ids)
    call(score=mask)()
    longer = inputs((2, 4, 3, 8), (2, 2, 7, 8), (2, 2, 7, 6))
    raises(ValueError, call(*longer, score=mask), "reads 7")


def test_errors_are_builtin_kinds_and_ours() -> None:
    assert issubclass(errors.MaskTypeError, TypeError)
    assert issubclass(errors.MaskValueError, ValueError)
    assert issubclass(errors.BackendError, RuntimeError)
    for kind in (errors.MaskTypeError, errors.MaskValueError, errors.BackendError):
        assert issubclass(kind, errors.MaskalgError)
