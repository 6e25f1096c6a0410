"""Mistakes at masks, biases, numbers and tables, and what the message says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import maskalg as ma
from maskalg import (
    alibi,
    batch,
    block_causal,
    causal,
    chunked,
    dense,
    dense_bias,
    dilated,
    document,
    fire,
    global_tokens,
    head,
    key_bias,
    kv_idx,
    padding,
    prefix,
    q_idx,
    relative,
    scalar,
    sigmoid,
    sliding,
    softcap,
    softmax_with_sink,
    table,
    where,
    window,
)
from maskalg.formula.parameters import INT32_MAX
from tests.cases.mistakes import BIAS, FLAGS, FLOATS, IDS, raises

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
    raises(ValueError, lambda: atom(2**31), f"{name}({2**31})", "32-bit", "Leave out a limit")
    atom(low), atom(INT32_MAX)


def test_window() -> None:
    raises(ValueError, lambda: window(-1, 0), "window(-1, 0): left must be an integer >= 0, got -1")
    raises(ValueError, lambda: window(-1, 0), "None is unlimited.")
    raises(ValueError, lambda: window(None, -2), "right must be an integer >= 0, got -2")
    raises(TypeError, lambda: window(torch.tensor(1), 0), "of type Tensor. Write its .item().")
    raises(TypeError, lambda: window(1.5, 0), "window(1.5, 0): left", "1.5 of type float")
    raises(
        ValueError, lambda: window(0, 2**40), "right must fit a 32-bit integer", "(None in window"
    )


def test_prefix_and_padding_tensors() -> None:
    raises(TypeError, lambda: prefix(FLOATS), "prefix", "int32 or int64", "torch.float32")
    raises(ValueError, lambda: prefix(IDS[None, None]), "[batch] or [batch, heads]", "[1, 1, 4]")
    raises(TypeError, lambda: padding(FLOATS), "padding: lengths", "int32 or int64", "float32")
    raises(TypeError, lambda: padding([1.5, 2]), "padding: lengths", "got list of torch.float32")
    raises(ValueError, lambda: padding(IDS[None]), "shape [batch], got [1, 4]")
    raises(ValueError, lambda: padding(torch.tensor(3)), "shape [batch], got []")
    raises(TypeError, lambda: padding(FLAGS), "got torch.bool", "from_mask(attention_mask)")
    raises(ValueError, lambda: padding(IDS[None]), "from_mask(attention_mask)")
    raises(TypeError, lambda: padding(IDS, queries=3), "padding: queries", "got int")
    raises(ValueError, lambda: padding(IDS, queries=IDS[None]), "queries", "[batch], got [1, 4]")
    made = padding.from_mask
    raises(ValueError, lambda: made(IDS[None], queries=IDS), "queries", "[batch, q_len], got [4]")


def test_padding_masks() -> None:
    call, made = "padding.from_mask: attention_mask", padding.from_mask
    raises(TypeError, lambda: made(FLOATS[None]), call, "a bool or integer tensor", "float32")
    raises(TypeError, lambda: made([[1, 0.5]]), call, "got list of torch.float32")
    raises(ValueError, lambda: made(IDS), call, "shape [batch, kv_len], got [4]")
    raises(ValueError, lambda: made(IDS[None]).to_dense(5), "has 4 entries along dimension 1")
    assert made(FLAGS).parameters["attention_mask"] is FLAGS
    assert (causal & made(IDS[None])).prove().exact


def test_lists_of_anything_but_numbers() -> None:
    learned = torch.ones((), requires_grad=True)
    calls = {
        "ids": document,
        "slopes": alibi,
        "lengths": padding,
        "cu_seqlens": document.from_cu_seqlens,
        "window": sliding,
        "flags": global_tokens,
        "cap": softcap,
        "lengths ": document.from_lengths,
    }
    holds = "got list. A list or an array holds numbers alone or flags alone, in rows of one length"
    for name, atom in calls.items():
        rows = ["a"] if name == "lengths " else [[1], [2, 3]]  # of lengths, rows may differ
        for entries in (rows, ["a"], [learned], [1, True], [[True], [0]]):
            says = [name] if name == "lengths " else [name, holds]
            raises(TypeError, lambda atom=atom, entries=entries: atom(entries), *says)
    raises(TypeError, lambda: alibi(np.array(["a"])), "got ndarray", "holds numbers")
    raises(TypeError, lambda: document([True, False]), "document: ids", "got list of torch.bool")


def test_tensors_of_another_dtype() -> None:
    raises(TypeError, lambda: document(FLOATS), "got torch.float32. Write ids.long().")
    raises(TypeError, lambda: document(IDS.short()), "got torch.int16. Write ids.long().")
    raises(TypeError, lambda: alibi(IDS), "got torch.int64. Write slopes.float().")
    raises(TypeError, lambda: global_tokens(IDS), "got torch.int64. Write flags != 0.")
    raises(TypeError, lambda: global_tokens([0, 5]), "torch.isin(torch.arange(length), torch.tens")
    square = torch.eye(4).to_sparse()
    for made, sparse in (
        (document, IDS.to_sparse()),
        (padding, IDS.to_sparse()),
        (dense, square.bool()),
        (dense_bias, square),
        (table, square),
    ):
        raises(TypeError, lambda m=made, t=sparse: m(t), "layout torch.sparse_coo", ".to_dense().")
    says = "Write tensor != 0 where 1 keeps and 0 drops, tensor == 0 where 0 keeps and -inf drops."
    raises(TypeError, lambda: dense(FLAGS.float()), "got torch.float32", says)
    raises(TypeError, lambda: padding.from_mask(FLAGS.float()), "attention_mask == 0 where 0 keeps")


def test_numbers_of_numpy_are_numbers() -> None:
    two = np.float32(2)
    assert softcap(two) == softcap(2.0) == softcap(np.int64(2)) == softcap(3).bind(cap=two)
    assert where(head < 1, BIAS, two) == where(head < 1, BIAS, 2.0)
    assert repr(where(causal, two, 1)) == repr(where(causal, 2.0, 1))
    assert two * BIAS == BIAS * two == 2 * BIAS and BIAS + two == two + BIAS == BIAS + 2
    assert BIAS - two == BIAS - 2
    assert repr(two * q_idx) == repr(q_idx * two) == "2.0*q_idx" and (two < q_idx) == (q_idx > 2.0)
    assert scalar(two, "n").node.own[0].value == 2
    assert softmax_with_sink(two).sink == 2 and sigmoid(np.int64(2)).formula is not None


def test_integers_of_numpy_are_integers() -> None:
    three = np.int64(3)
    assert sliding(three) == sliding(3) == sliding(2).bind(window=three)
    assert causal.shift(q=three) == causal.shift(q=3)
    assert (q_idx < three) == (q_idx < 3) and (kv_idx < scalar(three)) == (kv_idx < scalar(3))
    lengths = np.array([200, 100], dtype=np.uint8)
    assert document.from_lengths(lengths).parameters["ids"].shape == (300,)
    raises(TypeError, lambda: sliding(np.bool_(True)), "window must be an integer")


def test_dense() -> None:
    raises(TypeError, lambda: dense(IDS), "dense: tensor must be a bool tensor, got torch.int64")
    raises(TypeError, lambda: dense([[1]]), "must be a bool tensor, got list of torch.int64")
    raises(TypeError, lambda: dense(IDS[None]), "ma.padding.from_mask(attention_mask)")
    rows = dense(torch.ones(2, 8, dtype=torch.bool))
    raises(ValueError, lambda: rows.to_dense(8), "reads 8", "ma.padding.from_mask(tensor)")
    raises(ValueError, lambda: dense(IDS > 0), "[batch, heads, q, k], got [4]")


def test_biases() -> None:
    raises(TypeError, lambda: alibi(IDS), "alibi: slopes", "floating-point", "torch.int64")
    raises(TypeError, lambda: alibi(8), "alibi: slopes", "[heads], got 8", "alibi(2.0 ** (-8 / n *")
    raises(TypeError, lambda: fire(FLOATS), "got Tensor. Write fire(ma.FireParameters(w1, b1")
    raises(
        TypeError, lambda: relative(torch.nn.Embedding(3, 2)), "got Embedding. Write table.weight"
    )
    raises(
        ValueError, lambda: alibi(FLOATS[None, None]), "[heads] or [batch, heads], got [1, 1, 4]"
    )
    raises(TypeError, lambda: relative(IDS), "relative: table", "torch.int64")
    raises(ValueError, lambda: relative(FLOATS), "[heads, 2 * d + 1] or [2 * d + 1], got [4]")
    raises(TypeError, lambda: softcap("3"), "softcap('3'): cap must be a positive number")
    raises(TypeError, lambda: softcap(True), "type bool")
    raises(TypeError, lambda: softcap(IDS), "softcap: cap must be a floating-point tensor", "int64")
    raises(ValueError, lambda: softcap(FLOATS[None, None]), "softcap: cap", "[] or [heads]")
    raises(ValueError, lambda: softcap(0), "softcap(0): cap must be a positive finite number")
    raises(ValueError, lambda: softcap(-1.0), "got -1.0")
    raises(ValueError, lambda: softcap(float("inf")), "got inf")
    raises(ValueError, lambda: softcap(float("nan")), "got nan")


def test_biases_of_keys() -> None:
    rows = "shape [4, 4] may be [batch, length] or [heads, length]. Write tensor[:, None] for"
    raises(ValueError, lambda: key_bias(torch.zeros(4, 4)), "key_bias", rows, "tensor[None]")
    raises(ValueError, lambda: key_bias(FLOATS[None, None, None]), "[length] or [batch, heads, len")
    raises(TypeError, lambda: key_bias(IDS), "key_bias: tensor must be a floating-point tensor")
    for flags in (IDS, FLAGS):
        says = "ma.padding.from_mask(attention_mask)", "Write tensor.float() for numbers"
        raises(TypeError, lambda flags=flags: dense_bias(flags), "dense_bias: tensor must", *says)


def test_scalar_and_table() -> None:
    raises(TypeError, lambda: scalar("2", "n"), "scalar('2'): n must be a number", "type str")
    raises(ValueError, lambda: scalar(2, "n", low=3), "n must be an integer >= 3, got 2")
    raises(ValueError, lambda: scalar(2**31, "n"), "n must fit a 32-bit integer")
    raises(ValueError, lambda: q_idx + 2**31, "index expression", "32-bit")
    raises(TypeError, lambda: scalar(True, "n", low=3), "n must be a number >= 3, got True of type")
    raises(ValueError, lambda: scalar(2.5, "n", low=3), "n must be a number >= 3, got 2.5")
    for entries in (["a"], [[1], [2, 3]], [1, True]):
        says = f"or a list or an array of its entries, got {entries}", "rows of one length"
        raises(TypeError, lambda entries=entries: table(entries), "table: tensor must be", *says)
    raises(TypeError, lambda: table(IDS * 1j, "t"), "dtype torch.complex64", "t.real")
    raises(ValueError, lambda: table(IDS, 3), "3 cannot name a parameter")
    for taken in ("q", "k1", "q_idx", "kv_idx", "head"):
        raises(ValueError, lambda name=taken: scalar(3, name), f"{taken!r} cannot name", "k0, k1")
    raises(TypeError, lambda: table(3), "got 3 of type int", "ma.scalar(value)")
    for unread in (lambda: table(IDS) + 1, lambda: 2 * table(IDS), lambda: table(IDS) < 3):
        raises(TypeError, unread, "without an index for each dimension", "ma.table(tensor)[q_idx]")
    raises(ValueError, lambda: 3 // q_idx, "divisor is not known to be positive", "low=1")
    near = q_idx - kv_idx < 100 % scalar(7, low=1)
    assert near.to_dense(4).equal((q_idx - kv_idx < 2).to_dense(4))
    assert near.bind(scalar=97).to_dense(4).equal((q_idx - kv_idx < 3).to_dense(4))
    raises(TypeError, lambda: table(sliding), "write sliding(window)")
    for name in ("q", "k", "q0", "q1", "batch", "head", "no name", ""):
        raises(ValueError, lambda name=name: scalar(1, name), repr(name), "identifier other than")
        raises(ValueError, lambda name=name: table(IDS, name), repr(name), "identifier other than")


def test_nan_is_no_number() -> None:
    nan = float("nan")
    for call in (
        lambda: where(causal, nan, 1),
        lambda: where(head < 1, BIAS, nan),
        lambda: BIAS + nan,
        lambda: BIAS * np.float32(nan),
        lambda: scalar(nan),
        lambda: softcap(3.0).bind(cap=nan),
    ):
        raises(ValueError, call, "nan is no number. Write a finite one", "`mask + bias`")


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


def test_moves() -> None:
    mask = document(IDS)
    says = "to(torch.float16): an expression moves to a device", "mask.to('cuda')"
    raises(TypeError, lambda: mask.to(torch.float16), *says)
    raises(AttributeError, lambda: mask.cuda(), "a Mask has no attribute 'cuda'", "mask.to('cuda')")
    assert mask.to("meta").parameters["ids"].device.type == "meta"


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
    raises(TypeError, lambda: mask.bind(4), "bind(4): values are bound by name", "bind(window=512)")
    raises(TypeError, lambda: mask.bind(ids=3), "bind(ids=…): expected a tensor", "got int")
    rank = "bind(ids=…): expected a tensor of kind int and rank 1"
    raises(ValueError, lambda: mask.bind(ids=IDS[None]), rank, "got torch.int64 and rank 2")
    raises(ValueError, lambda: mask.bind(ids=FLOATS), rank, "got torch.float32 and rank 1")
    raises(TypeError, lambda: softcap(3.0).bind(cap="x"), "expected a number", "got str")
    for cap in (-5, 0, float("inf")):
        says = f"bind: cap must be a positive finite number, got {cap}"
        raises(ValueError, lambda cap=cap: softcap(3.0).bind(cap=cap), says)
    raises(ValueError, lambda: (q_idx < scalar(2.5, "n", low=2)).bind(n=1.5), ">= 2, got 1.5")
    raises(ValueError, lambda: mask.bind(ids=[[0, 1]]), rank, "got torch.int64 and rank 2")
    raises(TypeError, lambda: mask.bind(ids=[0, True]), "bind(ids=…): expected a tensor", "list")
    row = dense(torch.ones(1, 4, dtype=torch.bool))
    square = torch.ones(4, 4, dtype=torch.bool)
    raises(
        ValueError, lambda: row.bind(dense=square), "bind: dense must have shape [1, …], got [4, 4]"
    )


def test_one_logit_for_all_heads() -> None:
    for weight in (ma.sigmoid, ma.softmax_with_sink):
        raises(ValueError, lambda weight=weight: weight(torch.tensor(1.0)), ".expand(heads)")


@pytest.mark.parametrize("length", ["a", None, 1.5, True, -1, 2**40])
def test_a_length_of_chosen_columns(length):
    kind = ValueError if type(length) is int else TypeError
    raises(
        kind,
        lambda: ma.vertical_slash.from_indices([0], [0], length),
        "vertical_slash.from_indices: length must",
    )


def test_slices_that_are_no_lists():
    slices, pairs = ma.attention_slices, [[0, 2]]
    for name, given in (("q_ranges", (3, pairs, [0])), ("kinds", (pairs, pairs, 0))):
        raises(TypeError, lambda given=given: slices(*given), f"{name} must be a list or a tensor")
    raises(ValueError, lambda: slices(pairs, torch.tensor(3), [0]), "[slices, 2], got 3")


def test_media_that_start_far_apart():
    ma.media([-(2**62), 2**62], 2)
    raises(ValueError, lambda: ma.media([2**62, -(2**62) - 1], 1), "entries of starts must ascend")
