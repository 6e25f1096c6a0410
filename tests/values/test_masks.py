"""Every mask and bias: a matrix written out, and the oracle at many lengths and shifts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings

import maskalg as ma
from maskalg import (
    alibi,
    attention,
    block_causal,
    causal,
    chunked,
    dense,
    dilated,
    document,
    everything,
    nothing,
    padding,
    prefix,
    relative,
    sliding,
    softcap,
    table,
    window,
)
from maskalg.testing import assert_same_mask, oracle
from maskalg.testing.case import BATCH, HEADS, Case
from maskalg.testing.catalogue import CATALOGUE
from maskalg.testing.strategies import Shape, masks, shapes
from tests.cases.mask_pictures import check, ids, picture

LENGTHS = ((8, 8), (17, 17), (5, 23), (23, 5), (1, 19), (19, 1), (0, 4), (4, 0))


def test_everything_and_nothing() -> None:
    check(everything, "### ###")
    check(nothing, "... ...")


def test_causal() -> None:
    check(causal, "#.. ##. ###")
    # Aligned at 0: two queries and four keys do not move to the bottom right.
    check(causal, "#... ##..")
    check(causal, "#. ## ## ##")


def test_sliding() -> None:
    check(sliding(1), "#.. .#. ..#")
    check(sliding(2), "##... ###.. .###. ..###")
    check(causal & sliding(2), "#... ##.. .##. ..##")


def test_window() -> None:
    check(window(1, 0), "#... ##.. .##. ..##")
    check(window(0, 2), "###.. .###. ..###")
    check(window(None, 0), "#.. ##. ###")
    check(window(1, None), "#### #### .### ..##")
    check(window(None, None), "### ###")


def test_prefix() -> None:
    check(prefix(2), "##.. ##..")
    check(prefix(0), "... ...")
    check(causal | prefix(2), "##. ##. ###")
    check(prefix(ids(0, 1, 5)), "... ...", "#.. #..", "### ###")
    check(prefix(torch.tensor(1, dtype=torch.int32)), "#.. #..")


def test_prefix_of_a_negative_entry_keeps_nothing() -> None:
    check(prefix(ids(-3, 2)), "... ...", "##. ##.")


def test_padding() -> None:
    check(padding(ids(1, 3)), "#.. #..", "### ###")
    check(padding(ids(0, 2), queries=True), "... ... ...", "##. ##. ...")
    check(padding(ids(3, 1), queries=ids(1, 2)), "### ...", "#.. #..")
    check(padding(ids(2), queries=ids(1)).bind(queries=ids(3)), "##. ##. ##. ...")
    real = padding.from_mask(ids([0, 1, 1]), queries=ids([1, 0]))
    check(real, ".## ...")
    assert repr(real) == "padding.from_mask(attention_mask[1, 3], queries[1, 2])"


def test_document() -> None:
    check(document(ids(7, 7, 2)), "##. ##. ..#")
    check(document(ids(5, -1, 5, -1)), "#.#. .#.# #.#. .#.#")
    check(document(ids(0, 0, 1, 1)), "##.. ##..")
    check(document(ids([0, 0, 1], [0, 1, 0])), "##. ##.", "#.# .#.")


def test_document_with_ids_of_keys() -> None:
    check(document(ids(0, 1), ids(1, 0, 1)), ".#. #.#")
    check(document(ids(0, 1), ids([1, 0], [0, 0])), ".# #.", "## ..")
    check(document(ids([0, 1], [1, 1]), ids(1, 0)), ".# #.", "#. #.")


def test_chunked_and_block_causal() -> None:
    check(chunked(2), "##... ##... ..##.")
    check(block_causal(2), "##... ##... ####. ####.")


def test_dilated() -> None:
    check(dilated(2), "#.#.# .#.#.")
    check(dilated(3), "#..# .#.. ..#. #..#")
    check(dilated(1), "## ##")


def test_dense() -> None:
    check(dense(torch.from_numpy(picture("#.# .##"))), "#.# .##")
    check(dense(torch.from_numpy(picture("#.#"))), "#.# #.# #.#")
    check(dense(torch.from_numpy(picture("# .").reshape(2, 1))), "### ...")
    per_head = dense(torch.from_numpy(np.stack([picture("#. ##"), picture(".# ..")])))
    found = per_head.to_dense(2)
    assert found.shape == (1, 2, 2, 2)
    assert found[0, 1].tolist() == [[False, True], [False, False]]


def test_where() -> None:
    by_head = ma.where(ma.head == 0, causal, sliding(1)).to_dense(2, heads=2)
    assert by_head[0, 0].tolist() == [[True, False], [True, True]]
    assert by_head[0, 1].tolist() == [[True, False], [False, True]]
    check(ma.kv_idx <= ma.where(ma.q_idx >= 2, ma.q_idx, 0), "#... #... ###. ####")


def test_index_expressions() -> None:
    check(ma.q_idx - ma.kv_idx <= 1, "### ### .## ..#")
    check(abs(ma.q_idx - ma.kv_idx) % 2 == 1, ".#.# #.#.")
    check(ma.kv_idx // 2 != ma.q_idx // 2, "..## ..## ##.. ##..")
    check(ma.minimum(ma.kv_idx, 1) > 0, ".## .##")
    check(3 - ma.maximum(ma.q_idx, ma.kv_idx) * 2 >= 0, "##. ##. ...")
    check(-ma.q_idx < ma.kv_idx - 1, "..# .## ###")
    check(table(torch.tensor([2, 0, 1]), "rank")[ma.q_idx] >= ma.kv_idx, "### #.. ##.")
    check(table(torch.tensor([True, False, True]))[ma.kv_idx], "#.# #.#")
    check(1 + ma.batch > ma.kv_idx + ma.scalar(0) * table(ids(0, 0))[ma.batch], "#. #.", "## ##")


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32])
def test_tables_of_narrow_integers_are_compared_in_full(dtype: torch.dtype) -> None:
    most = torch.iinfo(dtype).max
    entries = table(torch.tensor([0, 2, most], dtype=dtype))[ma.kv_idx]
    check(entries >= 2, ".##")
    check(entries + entries >= most, "..#")
    check(entries - most > 0, "...")


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32])
def test_two_tables_of_unsigned_integers_are_compared(dtype: torch.dtype) -> None:
    one, two = (table((torch.arange(30) // n).to(dtype)) for n in (7, 5))
    mask, query = one[ma.q_idx] == two[ma.kv_idx], torch.randn(1, 1, 30, 8)
    wanted = attention(query, query, query, mask, backend="reference")
    torch.testing.assert_close(attention(query, query, query, mask), wanted)


@pytest.mark.parametrize("shape", [(1, 2, 2), (1, 1, 2, 2)])
def test_a_table_of_blocks_for_one_head_serves_every_group(shape: tuple[int, ...]) -> None:
    found = ma.block_table(torch.eye(2, dtype=torch.bool).expand(shape), 4, group=2)
    assert_same_mask(found, ma.block_table(torch.eye(2, dtype=torch.bool), 4), 8, heads=6)
    assert found.segments(8).shape == (1, 1, 1)  # heads need not be told
    with pytest.raises(ma.MaskValueError, match="must have shape"):
        found.bind(table=torch.ones(*shape[:-3], 3, 2, 2, dtype=torch.bool))
    one = torch.ones(1)
    for index in (5, ma.scalar(3, "layer"), 4 * ma.batch + ma.head):
        with pytest.raises(ma.MaskValueError, match="has 1 entries along dimension 0"):
            ma.attention(*torch.ones(3, 1, 6, 4, 8), ma.bias(table(one)[index]))


def test_shift() -> None:
    check(causal.shift(q=2), "###. ####")
    check(causal.shift(q=-1), "... #.. ##.")
    check(causal.shift(kv=1), "... #.. ##.")
    check(sliding(2).shift(q=2), ".### ..##")
    check(document(ids(0, 1, 1)).shift(q=1, kv=1), "## ##")
    check(causal.shift(q=torch.tensor(1)), "##. ###")
    check(causal.shift(q=ids(0, 2)), "#.. ##.", "### ###")
    check((~causal).shift(q=1).shift(q=1), "...# ....")
    assert causal.shift() is causal and causal.shift(q=0, kv=0) is causal


@pytest.mark.parametrize("name", CATALOGUE)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_catalogue_is_the_oracle(name: str, lengths: tuple[int, int]) -> None:
    case = CATALOGUE[name]
    assert_same_mask(case.mask, case.dense(*lengths), *lengths, batch=BATCH, heads=HEADS)


@pytest.mark.parametrize("name", CATALOGUE)
@pytest.mark.parametrize("moves", [(3, 0), (0, 5), (4, 2)])
def test_shifted_catalogue_is_the_oracle(name: str, moves: tuple[int, int]) -> None:
    case = CATALOGUE[name].shift(*moves)
    assert_same_mask(case.mask, case.dense(9, 14), 9, 14, batch=BATCH, heads=HEADS)


@given(masks(depth=3), shapes())
@settings(max_examples=150)
def test_random_compositions_are_the_oracle(case: Case, shape: Shape) -> None:
    lengths = shape.lengths
    assert_same_mask(case.mask, case.dense(*lengths), *lengths, batch=BATCH, heads=HEADS)


@given(masks(depth=1), masks(depth=1))
def test_de_morgan(a: Case, b: Case) -> None:
    sizes = {"batch": BATCH, "heads": HEADS}
    assert_same_mask(~(a.mask & b.mask), ~a.mask | ~b.mask, 11, 9, **sizes)
    assert_same_mask(~(a.mask | b.mask), ~a.mask & ~b.mask, 11, 9, **sizes)
    assert_same_mask(~~a.mask, a.mask, 11, 9, **sizes)


def test_to_dense_has_one_entry_where_batch_and_head_do_not_matter() -> None:
    assert causal.to_dense(3, batch=4, heads=2).shape == (1, 1, 3, 3)
    assert (padding(ids(1, 2)) & (ma.head >= 1)).to_dense(3, heads=2).shape == (2, 2, 3, 3)


# --- biases --------------------------------------------------------------------------------------

BATCHES, Q_LEN, KV_LEN, WIDTH = 2, 6, 9, 4
SLOPES = torch.tensor([0.5, -1.25], dtype=torch.float64)
RELATIVE = torch.randn(2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

lengths: dict[str, int] = {"q_len": Q_LEN, "kv_len": KV_LEN}
ALIBI = oracle.alibi(SLOPES.numpy(), **lengths)
TABLE = oracle.relative(RELATIVE.numpy(), **lengths)
Function = Callable[[Any], Any]

BIASES: dict[str, tuple[Callable[[], ma.Bias], Function]] = {
    "alibi": (lambda: alibi(SLOPES), lambda s: s + ALIBI),
    "relative": (lambda: relative(RELATIVE), lambda s: s + TABLE),
    "relative for all heads": (lambda: relative(RELATIVE[0]), lambda s: s + TABLE[:, :1]),
    "softcap": (lambda: softcap(2.0), lambda s: oracle.softcap(s, 2.0)),
    "decay": (lambda: ma.decay(-SLOPES), lambda s: oracle.decay(s, -SLOPES.numpy())),
    "two that add": (lambda: alibi(SLOPES) + relative(RELATIVE), lambda s: s + ALIBI + TABLE),
    "capped bias": (lambda: softcap(2.0) @ alibi(SLOPES), lambda s: oracle.softcap(s + ALIBI, 2.0)),
    "biased cap": (lambda: alibi(SLOPES) @ softcap(2.0), lambda s: oracle.softcap(s, 2.0) + ALIBI),
    # f + g is f(s) + g(s) - s, so a cap adds what it changes.
    "cap and bias": (
        lambda: softcap(2.0) + alibi(SLOPES),
        lambda s: oracle.softcap(s, 2.0) + ALIBI,
    ),
    "two caps": (
        lambda: softcap(2.0) + softcap(0.5),
        lambda s: oracle.softcap(s, 2.0) + oracle.softcap(s, 0.5) - s,
    ),
    "scaled": (lambda: 3 * alibi(SLOPES), lambda s: s + 3 * ALIBI),
    "scaled cap": (lambda: softcap(2.0) * 3, lambda s: s + 3 * (oracle.softcap(s, 2.0) - s)),
    "difference": (lambda: alibi(SLOPES) - relative(RELATIVE), lambda s: s + ALIBI - TABLE),
    "negative": (lambda: -alibi(SLOPES), lambda s: s - ALIBI),
    "plus a number": (lambda: alibi(SLOPES) + 2, lambda s: s + ALIBI + 2),
    "minus a number": (lambda: alibi(SLOPES) - 2, lambda s: s + ALIBI - 2),
    "sum": (lambda: sum([alibi(SLOPES)] * 3), lambda s: s + 3 * ALIBI),
}


@pytest.mark.parametrize("name", BIASES)
def test_bias_is_the_oracle(name: str) -> None:
    """Scores are seen through the lse of one key at a time, masked or not by nothing else."""
    build, function = BIASES[name]
    random = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(BATCHES, 2, n, WIDTH, dtype=torch.float64, generator=random)
        for n in (Q_LEN, KV_LEN, KV_LEN)
    )
    keep = oracle.causal(**lengths) | oracle.prefix(3, **lengths)
    wanted, wanted_lse = oracle.attention(query, key, value, keep, function)
    out, lse = attention(
        query, key, value, (causal | prefix(3)) + build(), return_lse=True, backend="reference"
    )
    np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(lse.numpy(), wanted_lse, rtol=1e-6)


def test_biases_move_with_shift() -> None:
    query = torch.zeros(1, 2, 3, WIDTH, dtype=torch.float64)
    key = torch.zeros(1, 2, KV_LEN, WIDTH, dtype=torch.float64)
    value = torch.randn(1, 2, KV_LEN, 2, dtype=torch.float64)
    for bias, function in ((alibi(SLOPES), oracle.alibi), (relative(RELATIVE), oracle.relative)):
        entries = bias.parameters.popitem()[1]
        moved: Any = function(entries, q_len=3, kv_len=KV_LEN, q_shift=4, kv_shift=1)
        wanted, _ = oracle.attention(query, key, value, True, lambda s, add=moved: s + add)
        out = attention(query, key, value, bias.shift(q=4, kv=1), backend="reference")
        np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-12)


def test_ids_of_keys_beyond_those_of_queries() -> None:
    """Ids that agree in their last 32 bits are not the same."""
    ids = torch.tensor([1, 2], dtype=torch.int32)
    kv_ids = torch.tensor([2**32 + 1, 1, 2**32 + 2, 2])
    first = ma.per_document(ma.prefix(1), ids, kv_ids)
    assert first.to_dense(2, 4)[0, 0].int().tolist() == [[0, 1, 0, 0], [0, 0, 0, 1]]
