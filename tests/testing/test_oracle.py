"""The oracle against matrices and numbers written out by hand. ``#`` is kept, ``.`` is not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from maskalg.testing import oracle


def picture(text: str) -> NDArray[np.bool_]:
    """``"#. ##"`` → ``[[True, False], [True, True]]``, one word a query row."""
    return np.array([[c == "#" for c in row] for row in text.split()])


def check(keep: NDArray[np.bool_], *expected: str) -> None:
    """``keep`` is ``[len(expected), 1, q_len, kv_len]`` and shows these pictures, one a batch."""
    want = np.stack([picture(text) for text in expected])[:, None]
    assert keep.dtype == np.bool_
    np.testing.assert_array_equal(keep, want)
    assert keep.shape == want.shape


def test_everything_and_nothing() -> None:
    check(oracle.everything(q_len=2, kv_len=3), "### ###")
    check(oracle.nothing(q_len=2, kv_len=3), "... ...")


def test_causal() -> None:
    check(oracle.causal(q_len=3, kv_len=3), "#.. ##. ###")
    # Aligned at 0, never at the bottom right.
    check(oracle.causal(q_len=2, kv_len=4), "#... ##..")
    check(oracle.causal(q_len=4, kv_len=2), "#. ## ## ##")


def test_shift_of_causal() -> None:
    check(oracle.causal(q_len=2, kv_len=4, q_shift=2), "###. ####")
    check(oracle.causal(q_len=3, kv_len=3, q_shift=-1), "... #.. ##.")
    check(oracle.causal(q_len=3, kv_len=3, kv_shift=-1), "##. ### ###")
    check(oracle.causal(q_len=3, kv_len=3, kv_shift=1), "... #.. ##.")


def test_sliding() -> None:
    check(oracle.sliding(1, q_len=3, kv_len=3), "#.. .#. ..#")
    check(oracle.sliding(2, q_len=4, kv_len=5), "##... ###.. .###. ..###")
    check(oracle.sliding(2, q_len=2, kv_len=4, q_shift=-2), ".... #...")
    check(oracle.sliding(2, q_len=2, kv_len=4, q_shift=2), ".### ..##")


def test_window() -> None:
    check(oracle.window(1, 0, q_len=4, kv_len=4), "#... ##.. .##. ..##")
    check(oracle.window(0, 2, q_len=3, kv_len=5), "###.. .###. ..###")
    check(oracle.window(None, 0, q_len=3, kv_len=3), "#.. ##. ###")
    check(oracle.window(1, None, q_len=4, kv_len=4), "#### #### .### ..##")
    check(oracle.window(None, None, q_len=2, kv_len=3), "### ###")
    check(oracle.window(0, 0, q_len=2, kv_len=3, kv_shift=-1), ".#. ..#")
    # A negative bound leaves a band that does not hold the diagonal.
    check(oracle.window(-1, 2, q_len=3, kv_len=4), ".##. ..## ...#")


def test_prefix() -> None:
    check(oracle.prefix(2, q_len=2, kv_len=4), "##.. ##..")
    check(oracle.prefix(2, q_len=1, kv_len=4, kv_shift=-1), "###.")
    check(oracle.prefix(2, q_len=1, kv_len=4, q_shift=7, kv_shift=1), "#...")
    check(oracle.prefix(np.array([0, 1, 5]), q_len=2, kv_len=3), "... ...", "#.. #..", "### ###")


def test_padding() -> None:
    check(oracle.padding([1, 3], q_len=2, kv_len=3), "#.. #..", "### ###")
    check(oracle.padding([0, 2], queries=True, q_len=3, kv_len=3), "... ... ...", "##. ##. ...")
    check(oracle.padding([2], queries=True, q_len=3, kv_len=3, q_shift=1), "##. ... ...")


def test_document() -> None:
    check(oracle.document([7, 7, 2], q_len=3, kv_len=3), "##. ##. ..#")
    # Ids that come back are the same document.
    check(oracle.document([5, -1, 5, -1], q_len=4, kv_len=4), "#.#. .#.# #.#. .#.#")
    check(oracle.document([0, 0, 1, 1], q_len=2, kv_len=4), "##.. ##..")
    check(oracle.document([0, 0, 1, 1], q_len=2, kv_len=4, q_shift=1), "##.. ..##")
    check(oracle.document([0, 1, 1], q_len=2, kv_len=2, q_shift=1, kv_shift=1), "## ##")


def test_document_per_batch_and_with_ids_of_keys() -> None:
    check(oracle.document([[0, 0, 1], [0, 1, 0]], q_len=2, kv_len=3), "##. ##.", "#.# .#.")
    check(oracle.document([0, 1], [1, 0, 1], q_len=2, kv_len=3), ".#. #.#")
    check(oracle.document([0, 1], [[1, 0], [0, 0]], q_len=2, kv_len=2), ".# #.", "## ..")
    check(oracle.document([[0, 1], [1, 1]], [1, 0], q_len=2, kv_len=2), ".# #.", "#. #.")


@pytest.mark.parametrize("shift", [-1, 2])
def test_document_does_not_wrap_around(shift: int) -> None:
    with pytest.raises(IndexError, match="outside"):
        oracle.document([0, 0, 1], q_len=2, kv_len=2, q_shift=shift)
    with pytest.raises(IndexError, match="outside"):
        oracle.document([0, 0, 1], q_len=2, kv_len=2, kv_shift=shift)


def test_document_from_cu_seqlens() -> None:
    packed = "##... ##... ..#.. ..... ....."
    check(oracle.document_from_cu_seqlens([0, 2, 3], q_len=5, kv_len=5), packed)
    check(oracle.document_from_cu_seqlens([0, 2, 2, 3], q_len=5, kv_len=5), packed)
    check(oracle.document_from_cu_seqlens([0, 2, 4], q_len=2, kv_len=4, q_shift=1), "##.. ..##")
    check(oracle.document_from_cu_seqlens([0, 2], q_len=2, kv_len=3, q_shift=-1), "... ##.")


def test_document_from_lengths() -> None:
    packed = "##... ##... ..#.. ..... ....."
    check(oracle.document_from_lengths([2, 1], q_len=5, kv_len=5), packed)
    check(oracle.document_from_lengths([2, 0, 1], q_len=5, kv_len=5), packed)
    check(oracle.document_from_lengths([2, 2], q_len=2, kv_len=4, q_shift=1), "##.. ..##")
    check(oracle.document_from_lengths([2], q_len=2, kv_len=3, q_shift=-1), "... ##.")


def test_chunked() -> None:
    check(oracle.chunked(2, q_len=3, kv_len=5), "##... ##... ..##.")
    check(oracle.chunked(2, q_len=3, kv_len=4, q_shift=1), "##.. ..## ..##")
    # Positions −2 and −1 are a chunk of their own: // rounds down.
    check(oracle.chunked(2, q_len=3, kv_len=3, q_shift=-1), "... ##. ##.")
    check(oracle.chunked(2, q_len=3, kv_len=3, q_shift=-1, kv_shift=-1), "#.. .## .##")


def test_block_causal() -> None:
    check(oracle.block_causal(2, q_len=4, kv_len=5), "##... ##... ####. ####.")
    check(oracle.block_causal(2, q_len=3, kv_len=3, q_shift=-1), "... ##. ##.")


def test_dilated() -> None:
    check(oracle.dilated(2, q_len=2, kv_len=5), "#.#.# .#.#.")
    check(oracle.dilated(3, q_len=4, kv_len=4), "#..# .#.. ..#. #..#")
    check(oracle.dilated(3, q_len=2, kv_len=4, q_shift=-1), "..#. #..#")


def test_dense() -> None:
    check(oracle.dense(picture("#.# .##"), q_len=2, kv_len=3), "#.# .##")
    check(oracle.dense(picture("#.# .##"), q_len=1, kv_len=2, q_shift=1, kv_shift=1), "##")
    check(oracle.dense(np.array([True, False]), q_len=3, kv_len=2), "#. #. #.")
    check(oracle.dense(picture("#. .#")[:, None, None, :], q_len=1, kv_len=2), "#.", ".#")
    per_head = oracle.dense(np.stack([picture("#."), picture(".#")]), q_len=1, kv_len=2)
    np.testing.assert_array_equal(per_head, [[[[True, False]], [[False, True]]]])


@pytest.mark.parametrize("shift", [-1, 1])
def test_dense_does_not_wrap_around(shift: int) -> None:
    with pytest.raises(IndexError, match="outside"):
        oracle.dense(picture("#.# .##"), q_len=2, kv_len=3, q_shift=shift)
    with pytest.raises(IndexError, match="outside"):
        oracle.dense(picture("#.# .##"), q_len=2, kv_len=3, kv_shift=shift)


@pytest.mark.parametrize("name", ["causal", "everything", "nothing"])
def test_zero_lengths(name: str) -> None:
    assert getattr(oracle, name)(q_len=0, kv_len=3).shape == (1, 1, 0, 3)
    assert getattr(oracle, name)(q_len=3, kv_len=0).shape == (1, 1, 3, 0)


def test_alibi() -> None:
    bias = oracle.alibi([1.0, 0.5], q_len=2, kv_len=3)
    np.testing.assert_array_equal(bias, [[[[0, 1, 2], [-1, 0, 1]], [[0, 0.5, 1], [-0.5, 0, 0.5]]]])
    shifted = oracle.alibi([2.0], q_len=1, kv_len=3, q_shift=2)
    np.testing.assert_array_equal(shifted, [[[[-4, -2, 0]]]])


def test_relative() -> None:
    bias = oracle.relative([[10, 20, 30], [1, 2, 3]], q_len=2, kv_len=4)
    first, second = [[20, 30, 30, 30], [10, 20, 30, 30]], [[2, 3, 3, 3], [1, 2, 3, 3]]
    np.testing.assert_array_equal(bias, [[first, second]])
    shifted = oracle.relative([[10, 20, 30]], q_len=1, kv_len=4, q_shift=2)
    np.testing.assert_array_equal(shifted, [[[[10, 10, 20, 30]]]])


def test_softcap() -> None:
    # tanh(log 2) = (2 − 1/2) / (2 + 1/2) = 0.6
    np.testing.assert_allclose(oracle.softcap([0.0, 3 * math.log(2)], 3.0), [0, 1.8], rtol=1e-15)


def test_attention_by_hand() -> None:
    # Scores 0 and log 3 weigh the values 1/4 and 3/4; the second query sees its first key only.
    q = np.array([[[[1.0], [1.0]]]])
    k = np.array([[[[0.0], [math.log(3)]]]])
    v = np.array([[[[4.0, 0.0], [0.0, 8.0]]]])
    out, lse = oracle.attention(q, k, v, picture("## #."))
    np.testing.assert_allclose(out, [[[[1, 6], [4, 0]]]], rtol=1e-15)
    np.testing.assert_allclose(lse, [[[math.log(4), 0]]], rtol=1e-15)
    assert out.dtype == lse.dtype == np.float64


def test_attention_scale() -> None:
    q, k, v = np.ones((1, 1, 1, 4)), np.zeros((1, 1, 2, 4)), np.array([[[[0.0], [1.0]]]])
    k[..., 1, :] = math.log(3) / 2
    out, _ = oracle.attention(q, k, v, True)
    np.testing.assert_allclose(out, [[[[3 / 4]]]], rtol=1e-15)
    out, _ = oracle.attention(q, k, v, True, scale=0.25)
    np.testing.assert_allclose(out, [[[[math.sqrt(3) / (1 + math.sqrt(3))]]]], rtol=1e-15)


def test_attention_score() -> None:
    q, k, v = np.ones((1, 1, 1, 1)), np.zeros((1, 1, 2, 1)), np.array([[[[0.0], [1.0]]]])
    bias = oracle.alibi([math.log(3)], q_len=1, kv_len=2)
    out, lse = oracle.attention(q, k, v, True, score=lambda s: s + bias)
    np.testing.assert_allclose(out, [[[[3 / 4]]]], rtol=1e-15)
    np.testing.assert_allclose(lse, [[[math.log(4)]]], rtol=1e-15)
    # A bias of −∞ is as good as a mask.
    out, lse = oracle.attention(q, k, v, True, score=lambda s: s - np.inf)
    assert (out == 0).all() and (lse == -np.inf).all()


def test_attention_of_a_fully_masked_row() -> None:
    ones = np.ones((1, 1, 3, 2))
    keep = oracle.causal(q_len=3, kv_len=3, q_shift=-1)
    out, lse = oracle.attention(ones, ones, ones, keep, scale=0.5)
    np.testing.assert_allclose(out, [[[[0, 0], [1, 1], [1, 1]]]], rtol=1e-15)
    np.testing.assert_allclose(lse, [[[-np.inf, 1, 1 + math.log(2)]]], rtol=1e-15)


def test_attention_without_keys() -> None:
    none = np.ones((1, 1, 0, 2))
    out, lse = oracle.attention(np.ones((1, 1, 2, 2)), none, none, np.ones((1, 1, 2, 0), np.bool_))
    assert (out == 0).all() and out.shape == (1, 1, 2, 2)
    assert (lse == -np.inf).all() and lse.shape == (1, 1, 2)


def test_attention_groups_neighbouring_heads() -> None:
    # One key, so the output is its value: heads 0 and 1 read the first, heads 2 and 3 the second.
    q, k = np.ones((1, 4, 1, 2)), np.array([[[[1.0, 0.0]], [[0.0, 5.0]]]])
    out, lse = oracle.attention(q, k, [[[[10.0]], [[20.0]]]], True, scale=1.0)
    np.testing.assert_array_equal(out.ravel(), [10, 10, 20, 20])
    np.testing.assert_array_equal(lse.ravel(), [1, 1, 5, 5])


def test_attention_masks_each_batch() -> None:
    q, k = np.ones((2, 1, 1, 1)), np.zeros((2, 1, 3, 1))
    v = np.array([[[[3.0], [5.0], [70.0]]], [[[1.0], [2.0], [6.0]]]])
    out, lse = oracle.attention(q, k, v, oracle.prefix([2, 3], q_len=1, kv_len=3))
    np.testing.assert_allclose(out.ravel(), [4, 3], rtol=1e-15)
    np.testing.assert_allclose(lse.ravel(), [math.log(2), math.log(3)], rtol=1e-15)


def test_attention_survives_large_scores() -> None:
    q, k = np.full((1, 1, 1, 1), 1e4), np.ones((1, 1, 2, 1))
    out, lse = oracle.attention(q, k, [[[[1.0], [3.0]]]], True, scale=1.0)
    np.testing.assert_allclose(out, [[[[2]]]], rtol=1e-15)
    np.testing.assert_allclose(lse, [[[1e4 + math.log(2)]]], rtol=1e-15)


def test_labels() -> None:
    # 5 × 7 in tiles of 2 × 3: the last row of tiles is 1 high, the last column 1 wide.
    keep = oracle.causal(q_len=5, kv_len=7)
    assert (oracle.EMPTY, oracle.PARTIAL, oracle.FULL) == (0, 1, 2)
    result = oracle.labels(keep, 2, 3)
    assert result.dtype == np.uint8
    np.testing.assert_array_equal(result, [[[[1, 0, 0], [2, 1, 0], [2, 1, 0]]]])


def test_labels_of_cut_tiles() -> None:
    # Full means every element in range, even where the tile sticks out.
    full = oracle.labels(oracle.everything(q_len=5, kv_len=3), 4, 2)
    np.testing.assert_array_equal(full, [[[[2, 2], [2, 2]]]])
    empty = oracle.labels(oracle.nothing(q_len=5, kv_len=3), 4, 2)
    np.testing.assert_array_equal(empty, [[[[0, 0], [0, 0]]]])
    np.testing.assert_array_equal(oracle.labels(picture("#. ##")[None, None], 128, 64), [[[[1]]]])
    np.testing.assert_array_equal(oracle.labels(picture("## ##")[None, None], 128, 64), [[[[2]]]])


def test_labels_per_batch_and_of_zero_lengths() -> None:
    keep = oracle.prefix([0, 2, 3], q_len=3, kv_len=4)
    by_batch = [[[[0, 0], [0, 0]]], [[[2, 0], [2, 0]]], [[[2, 1], [2, 1]]]]
    np.testing.assert_array_equal(oracle.labels(keep, 2, 2), by_batch)
    assert oracle.labels(oracle.causal(q_len=0, kv_len=3), 2, 2).shape == (1, 1, 0, 2)
