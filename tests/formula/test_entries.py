"""Lists and arrays in place of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import maskalg as ma
from maskalg.formula.expression import Expression

IDS, FLAGS, ROWS = [0, 0, 1], [True, False, True], [[0, 1], [1, 0]]
ATOMS: dict[str, tuple[Callable[..., Expression], tuple[Any, ...]]] = {
    "alibi": (ma.alibi, ([0.5, 0.25],)),
    "alibi of whole numbers": (ma.alibi, ([1.0, 2.0],)),
    "block_table": (lambda table: ma.block_table(table, 2), (ROWS,)),
    "blocks by number": (lambda i: ma.block_table.from_kv_indices(i, 2, columns=2), (ROWS,)),
    "columns": (ma.vertical_slash, (FLAGS, FLAGS)),
    "columns by number": (lambda a, b: ma.vertical_slash.from_indices(a, b, 3), ([0, 2], [1])),
    "decay": (ma.decay, ([-0.5],)),
    "decomposed": (ma.decomposed, ([[[[0.5]]]], [[[[1.5, 2.0]]]])),
    "dense": (ma.dense, ([FLAGS],)),
    "dense_bias": (ma.dense_bias, ([[0.5, 1.0]],)),
    "document": (ma.document, (IDS, [1, 1])),
    "document from cu_seqlens": (ma.document.from_cu_seqlens, ([0, 1, 3], [0, 2, 4])),
    "document from lengths": (ma.document.from_lengths, ([1, 3],)),
    "fire": (
        lambda *six: ma.fire(ma.FireParameters(*six)),
        ([0.5, 1.0], [1.5, 2.0], [[2.5, 3.0]], [0.5], [1.0], [2.0]),
    ),
    "flashmask": (lambda rows: ma.flashmask(rows, causal=True), ([[[[1], [2]]]],)),
    "global_tokens": (ma.global_tokens, (FLAGS,)),
    "graphormer": (ma.graphormer, ([[0.5], [1.5]], ROWS)),
    "kerple": (ma.kerple_log, ([0.5], [1.5])),
    "key_bias": (ma.key_bias, ([0.5, 1.0],)),
    "media": (lambda starts: ma.media(starts, 2), ([0, 2],)),
    "modality": (ma.modality, ([0, 1, 1], [[True, False], [True, True]])),
    "padding": (ma.padding, ([1, 2],)),
    "padding from a mask": (ma.padding.from_mask, ([[0, 1], [1, 1]],)),
    "per_document": (lambda *ids: ma.per_document(ma.prefix(1), *ids), (IDS, [0, 1])),
    "permutation": (ma.permutation, ([2, 0, 1],)),
    "prefix": (ma.prefix, ([1, 2],)),
    "relative": (ma.relative, ([0.5, 1.0, 1.5],)),
    "relative_2d": (lambda table: ma.relative_2d(table, (1, 2)), ([[0.5], [1.0], [1.5]],)),
    "sandwich": (lambda factors: ma.sandwich(factors, 4), ([0.5],)),
    "shared_prefix": (ma.shared_prefix, (IDS, [-1, 0])),
    "shaw": (ma.shaw, ([[[[0.5, 1.0, 1.5]]]],)),
    "shift": (lambda move: ma.causal.shift(q=move), ([3, 20],)),
    "slices": (lambda q, k: ma.attention_slices(q, k, ["full"]), ([[0, 2]], [[1, 3]])),
    "sliding": (ma.sliding, ([1, 2],)),
    "softcap": (ma.softcap, ([1.5, 2.5],)),
    "spans": (ma.spans, ([-1, 3, 3],)),
    "t5": (ma.t5, ([[0.5], [1.0], [1.5], [2.0]],)),
    "table": (lambda ranks: ma.table(ranks)[ma.q_idx] > 1, (IDS,)),
    "tree": (ma.tree, ([-1, 0, 0], [1, 2])),
}


@pytest.mark.parametrize("made", [list, tuple, np.array])
@pytest.mark.parametrize("name", ATOMS)
def test_entries_stand_for_a_tensor(name: str, made: Callable[[Any], Any]) -> None:
    atom, entries = ATOMS[name]
    wanted = atom(*map(torch.tensor, entries))
    found = atom(*map(made, entries))
    assert found.mask_node.skeleton == wanted.mask_node.skeleton
    assert found.bias_node.skeleton == wanted.bias_node.skeleton
    for key, value in wanted.parameters.items():
        other = found.parameters[key]
        assert type(other) is type(value)
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(other, value, check_dtype=made is not np.array)


def test_whole_numbers_and_none_at_all() -> None:
    for slopes in ([1, 2], np.array([1, 2])):
        assert ma.alibi(slopes).parameters["slopes"].dtype == torch.float32  # type: ignore[union-attr]
    assert ma.document([]).to_dense(0).shape == (1, 1, 0, 0)
    assert ma.dense(np.ones((0, 0), bool)).to_dense(0).shape == (1, 1, 0, 0)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8"])
def test_arrays_of_any_integers(dtype: str) -> None:
    given = np.array([1, 0, 1], dtype=dtype)
    assert ma.document(given).parameters["ids"].dtype in (torch.int32, torch.int64)  # type: ignore[union-attr]
    for bias in (ma.alibi(given), ma.key_bias(given), ma.softcap(given)):
        (tensor,) = bias.parameters.values()
        assert isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float32
        assert tensor.tolist() == [1, 0, 1]


def test_a_range_stands_for_its_numbers() -> None:
    assert ma.document(range(3)).to_dense(3).sum() == 3
    assert ma.sliding(range(1, 3)).to_dense(4).shape == (1, 2, 4, 4)


@pytest.mark.parametrize("made", [list, tuple, np.array, torch.tensor])
def test_values_to_bind(made: Callable[[Any], Any]) -> None:
    score = ma.document(IDS) & ma.global_tokens(FLAGS) + ma.alibi([0.5, 0.25])
    other = score.bind(ids=made([1, 2]), flags=made([False, True]), slopes=made([1.0, 2.0]))
    assert other.mask.to_dense(2).tolist() == [[[[False, False], [False, True]]]]
    assert other.parameters["slopes"].tolist() == [1, 2]  # type: ignore[union-attr]
    assert other.mask_node.skeleton == score.mask_node.skeleton
    assert other.bias_node.skeleton == score.bias_node.skeleton


def test_whole_numbers_are_bound_as_real_ones() -> None:
    for slopes in ([1, 2], np.array([1, 2], dtype="i2")):
        bound = ma.alibi([0.5]).bind(slopes=slopes).parameters["slopes"]
        assert isinstance(bound, torch.Tensor) and bound.dtype == torch.float32
    on_meta = ma.document(torch.empty(3, dtype=torch.int64, device="meta"))
    assert on_meta.bind(ids=IDS).parameters["ids"].device.type == "meta"  # type: ignore[union-attr]


def test_logits_of_weights() -> None:
    for made in (list, np.array):
        sink = ma.softmax_with_sink(made([1.0, 2.0])).sink
        assert isinstance(sink, torch.Tensor) and sink.tolist() == [1, 2]
        assert ma.sigmoid(made([1.0, 2.0])).tensors["bias"].tolist() == [1, 2]
    with pytest.raises(ma.MaskTypeError, match=r"softmax_with_sink: logits .* got list"):
        ma.softmax_with_sink(["a"])


def test_arrays_however_they_lie_in_memory() -> None:
    for array in (
        np.array([1, 0, 0])[::-1],
        np.array(IDS, dtype=">i8"),
        np.array([IDS] * 2).T[:, 0],
    ):
        assert ma.document(array).parameters["ids"].tolist() == IDS  # type: ignore[union-attr]
    rows = ma.dense_bias(np.array([[0.0, 1.0], [2.0, 3.0]])[::-1].T).parameters["tensor"]
    assert rows.tolist() == [[2, 0], [3, 1]]  # type: ignore[union-attr]
    assert ma.softcap(np.array(2.0)).parameters["cap"].shape == ()  # type: ignore[union-attr]


def test_an_array_is_copied() -> None:
    ids = np.array(IDS)
    mask = ma.document(ids)
    ids[:] = 0
    assert mask.to_dense(3)[0, 0, 0].tolist() == [True, True, False]
