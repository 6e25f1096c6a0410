"""The masks of tokens, patterns and formats: small matrices, attention of all masks, refusals."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import maskalg as ma
from maskalg import attention, causal, prefix, sliding
from maskalg.testing import (
    assert_closed_forms_sound,
    assert_labels_exact,
    assert_same_mask,
    oracle,
)
from maskalg.testing.case import BATCH, HEADS
from maskalg.testing.catalogue import CATALOGUE
from maskalg.testing.strategies import Shape, shapes
from maskalg.values.by_hand import FARTHEST_SHIFT
from tests.cases.mask_pictures import check, ids, picture


def bits(text: str) -> torch.Tensor:
    return torch.tensor([c == "#" for c in text])


def test_sliding_per_head() -> None:
    found = sliding(ids(1, 2)).to_dense(3)
    assert found.shape == (1, 2, 3, 3)
    np.testing.assert_array_equal(found[0, 0].numpy(), picture("#.. .#. ..#"))
    np.testing.assert_array_equal(found[0, 1].numpy(), picture("##. ### .##"))
    check(sliding(ids([2], [1])), "##. ### .##", "#.. .#. ..#")
    windows = ids(1)
    mask = sliding(windows)
    windows.fill_(-4)  # what is written later counts as 1
    check(mask, "#. .#")


def test_prefix_per_head() -> None:
    found = prefix(ids([0, 2], [1, -3])).to_dense(1, 3)
    assert found.tolist() == [
        [[[False, False, False]], [[True, True, False]]],
        [[[True, False, False]], [[False, False, False]]],
    ]


def test_strided() -> None:
    check(ma.strided(2), "#... ##.. ###. .###")
    check(ma.strided(3), "#...... ##..... ###.... ####... .####.. ..####. #..####")


def test_per_document() -> None:
    packed = ids(0, 0, 0, 1, 1)
    check(ma.per_document(causal | prefix(2), packed), "##... ##... ###.. ...## ...##")
    check(ma.per_document(prefix(1), packed), "#.... #.... #.... ...#. ...#.")
    check(ma.per_document(causal & ma.chunked(2), packed), "#.... ##... ..#.. ...#. ...##")
    # Positions count from the first occurrence of an id that comes back.
    check(ma.per_document(prefix(3), ids(4, 9, 4, 4)), "#.#. .#.. #.#. #.#.")
    check(ma.per_document(prefix(1), ids([0, 0, 1], [0, 1, 1])), "#.. #.. ..#", "#.. .#. .#.")


def test_per_document_leaves_distances_alone() -> None:
    packed = ids(0, 0, 0, 1, 1)
    mask = ma.per_document(causal & sliding(2), packed)
    assert mask.mask_node == (causal & sliding(2) & ma.document(packed)).mask_node


def test_shared_prefix() -> None:
    """A prompt of two tokens, two answers to it, and an answer to the second."""
    mask = ma.shared_prefix(ids(0, 0, 1, 2, 2, 3), ids(-1, 0, 0, 2))
    check(mask, "#..... ##.... ###... ##.#.. ##.##. ##.###")
    assert set(mask.parameters) == {"end"}, "an interval of queries for every key"
    rows = ma.shared_prefix(ids([0, 1, 2], [0, 0, 2]), ids(-1, 0, 0))
    check(rows, "#.. ##. #.#", "#.. ##. ###")
    # An answer that stands before its prompt.
    check(ma.shared_prefix(ids(1, 0, 0), ids(-1, 0)), "### .#. .##")


def test_global_tokens() -> None:
    check(ma.global_tokens(bits("#..")), "### #.. #..")
    check(sliding(1) | ma.global_tokens(bits("..#")), "#.# .## ###")


def test_block_table() -> None:
    table = torch.tensor([[1, 0], [0, 7]])
    check(ma.block_table(table, 2), "##.. ##.. ..## ..##")
    check(ma.block_table(table.bool(), (1, 3)), "###... ...###")
    per_head = ma.block_table(torch.stack([table, 1 - table.clamp(max=1)]), 1).to_dense(2)
    np.testing.assert_array_equal(per_head[0, 1].numpy(), picture(".# #."))


def test_block_table_from_kv_indices() -> None:
    lists = torch.tensor([[2, 0, 1], [1, 0, 2]])
    counts = torch.tensor([2, 0])
    build = ma.block_table.from_kv_indices
    check(build(lists, 1, columns=3, kv_num_blocks=counts), "#.# ...")
    check(build(torch.tensor([[2, -1], [0, 1]]), 1, columns=3), "..# ##.")
    # Entries that do not count may be anything.
    check(build(torch.tensor([[0, 99]]), 1, columns=2, kv_num_blocks=torch.tensor([1])), "#.")


def test_block_diffusion() -> None:
    check(ma.block_diffusion(2, 1), "#... .##. ..#. ..##")
    check(ma.block_diffusion(4, 2), "##...... ##...... ..####.. ..####.. "
          "....##.. ....##.. ....#### ....####")  # fmt: skip


def test_vertical_slash() -> None:
    check(ma.vertical_slash(bits("#..."), bits("#...")), "#... ##.. #.#. #..#")
    check(ma.vertical_slash(bits("...."), bits(".#.#")), ".... #... .#.. #.#.")
    build = ma.vertical_slash.from_indices
    check(build(ids(1), ids(0, 2), 4), "#... .#.. ###. .#.#")


def test_tree() -> None:
    """Two tokens of prompt, then a root with two children and a child of the second."""
    rows = "#..... ##.... ###... ####.. ###.#. ###.##"
    check(ma.tree([-1, 0, 0, 2], prompt=2), rows)
    check(ma.tree(ids(-1, 0, 0, 2), 2), rows)
    # Numbered by level: two roots with a child each.
    check(ma.tree([-1, -1, 0, 1]), "#... .#.. #.#. .#.#")
    check(ma.tree([-1, -1, 0, 1], torch.tensor([0])), "#... .#.. #.#. .#.#")
    check(ma.tree(ids([-1, 0], [-1, -1]), 1), "#.. ##. ###", "#.. ##. #.#")
    # A parent that stands after its child.
    check(ma.tree([1, -1]), "## .#")


def test_tree_depth_first_is_an_interval() -> None:
    ordered, other = ma.tree([-1, 0, 1, 0]), ma.tree([-1, 0, 0, 1])
    assert set(ordered.parameters) == {"end", "prompt"}
    assert set(other.parameters) == {"end", "order", "prompt"}


def test_spans_and_transfusion() -> None:
    spans = ma.spans(ids(-1, 0, 0, -1, 1))
    check(spans, "..... .##.. .##.. ..... ....#")
    check(causal | spans, "#.... ###.. ###.. ####. #####")


def test_modality() -> None:
    allowed = torch.tensor([[True, False], [True, True]])
    check(ma.modality(ids(0, 1, 0), allowed), "#.# ### #.#")


def test_media() -> None:
    """Two media of two tokens each; texts start at 1 and 3."""
    check(ma.media(ids(1, 3), 2), ".... ##.. ##.. ..## ..##")
    check(ma.media(ids(1, 1), 1, ids(3, 2)), ".. ## #. ..")


def test_permutation() -> None:
    check(ma.permutation(ids(2, 0, 1)), "### .#. .##")
    check(ma.permutation(ids(2, 0, 1), strict=True), ".## ... .#.")


def test_flashmask() -> None:
    def rows(*entries: Any) -> torch.Tensor:
        return torch.tensor(entries, dtype=torch.int32)[None, None]

    check(ma.flashmask(rows([3], [2], [3]), causal=True), "#.. ##. #.#")
    check(ma.flashmask(rows([1, 2], [3, 3], [3, 3]), causal=True), "#.. .#. ###")
    check(ma.flashmask(rows([2, 0], [3, 1], [3, 3]), causal=False), "#.. ##. .#.")
    check(ma.flashmask(rows([2, 3, 0, 1], [1, 2, 0, 0]), causal=False), ".# #. .#")


def test_attention_slices() -> None:
    def kind(name: str) -> ma.Mask:
        return ma.attention_slices([(1, 3)], [(1, 4)], [name], q_len=4)

    check(kind("full"), "..... .###. .###. .....")
    check(kind("causal"), "..... .##.. .###. .....")
    check(kind("inverse_causal"), "..... .###. ..##. .....")
    check(kind("bicausal"), "..... .##.. ..##. .....")
    # More queries than keys: the first ones of a causal slice see nothing.
    check(ma.attention_slices([(0, 3)], [(0, 2)], [1]), ".. #. ##")
    both = ma.attention_slices(
        torch.tensor([[0, 2], [1, 3]]), [(0, 1), (2, 4)], torch.tensor([0, 0])
    )
    check(both, "#... #.## ..##")
    check(ma.attention_slices([], [], [], q_len=2), ".. ..")


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("name", CATALOGUE)
def test_attention_is_the_oracle(name: str, backend: str) -> None:
    case, random = CATALOGUE[name], torch.Generator().manual_seed(3)
    q, k, v = (
        torch.randn(BATCH, HEADS, n, 8, dtype=torch.float64, generator=random) for n in (37, 40, 40)
    )
    wanted, wanted_lse = oracle.attention(q, k, v, case.dense(37, 40))
    out, lse = attention(q, k, v, case.mask, return_lse=True, backend=backend)
    np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(lse.numpy(), wanted_lse, rtol=1e-6)


NAMES = st.sampled_from(sorted(CATALOGUE))
SHIFTS = st.integers(0, FARTHEST_SHIFT)


@given(NAMES, NAMES, st.booleans(), st.booleans(), SHIFTS, SHIFTS, shapes())
@settings(max_examples=100)
def test_compositions(
    left: str, right: str, union: bool, without: bool, q: int, kv: int, shape: Shape
) -> None:
    """Two masks of the catalogue, one moved, one perhaps negated: matrix, labels, closed forms."""
    other = CATALOGUE[right].shift(q, kv)
    other = ~other if without else other
    case = CATALOGUE[left] | other if union else CATALOGUE[left] & other
    sizes: dict[str, Any] = {"batch": BATCH, "heads": HEADS}
    assert_same_mask(case.mask, case.dense(*shape.lengths), *shape.lengths, **sizes)
    assert_closed_forms_sound(case.mask, *shape.lengths, shape.block_q, **sizes)
    assert_labels_exact(case.mask, *shape.lengths, shape.block, **sizes)


INT = ids(0, 1)
BITS = bits("#.")
REFUSED: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "window dtype": (lambda: sliding(torch.ones(2)), ("window", "int32 or int64")),
    "window shape": (lambda: sliding(torch.ones(1, 1, 1).int()), ("[batch, heads]", "[1, 1, 1]")),
    "stride": (lambda: ma.strided(0), ("strided(0)", ">= 1")),
    "a table inside documents": (
        lambda: ma.per_document(ma.spans(INT), INT),
        ("reads ids at positions", "& other"),
    ),
    "ids of keys inside documents": (
        lambda: ma.per_document(causal, INT, torch.ones(2)),
        ("per_document(…): kv_ids", "float32"),
    ),
    "other documents of keys": (
        lambda: ma.per_document.from_cu_seqlens(causal, ids(0, 1), ids(0, 1, 2)),
        ("per_document.from_cu_seqlens: kv_cu_seqlens", "[2], as cu_seqlens has, got [3]"),
    ),
    "descending keys": (
        lambda: ma.document.from_cu_seqlens(ids(0, 1, 2), ids(0, 3, 2)),
        ("document.from_cu_seqlens: kv_cu_seqlens must start at 0 and never descend",),
    ),
    "too few keys in all": (
        lambda: ma.document.from_cu_seqlens(ids(0, 1), ids(0, 3), total=(1, 2)),
        ("total", ">= 3, got 2"),
    ),
    "too few keys of one packing": (
        lambda: ma.document.from_cu_seqlens(ids(0, 3), total=(4, 2)),
        ("total", ">= 3, got 2"),
    ),
    "three lengths in all": (
        lambda: ma.document.from_cu_seqlens(ids(0, 3), total=(3, 4, 5)),  # type: ignore[arg-type]
        ("document.from_cu_seqlens: total must have shape (q_len, kv_len), got [3, 4, 5]",),
    ),
    "a length in all that is no integer": (
        lambda: ma.document.from_cu_seqlens(ids(0, 3), total=3.5),  # type: ignore[arg-type]
        ("document.from_cu_seqlens: total must be an integer >= 0, got 3.5",),
    ),
    "cumulative lengths in place of a mask": (
        lambda: ma.per_document.from_cu_seqlens([0, 3], [0, 4]),  # type: ignore[arg-type]
        ("mask must be a mask, got list.",),
    ),
    "no mask inside documents": (lambda: ma.per_document(ma.alibi, INT), ("a mask",)),  # type: ignore[arg-type]
    "an id without a document": (
        lambda: ma.shared_prefix(ids(0, 3), ids(-1, 0)),
        ("entries of ids must lie in 0 … 1", "from 0 to 3"),
    ),
    "parents of documents": (lambda: ma.shared_prefix(INT, ids([0])), ("[documents]",)),
    "a circle": (lambda: ma.tree([1, 0]), ("parents of node 0", "leads back")),
    "its own parent": (lambda: ma.tree([-1, 1]), ("node 1",)),
    "a parent that is no token": (lambda: ma.tree([-1, 5]), ("node 1", "0 … 1", "got 5")),
    "parents as numbers": (lambda: ma.tree([0.5]), ("parents", "float")),  # type: ignore[list-item]
    "parents as reals": (lambda: ma.tree(torch.ones(2)), ("int32 or int64", "float32")),
    "a query past the tree": (
        lambda: ma.tree([-1, 0], 2).to_dense(5),
        ("2 entries", "reads 3"),
    ),
    "flags": (lambda: ma.global_tokens(INT), ("flags", "a bool tensor", "int64")),
    "flags per head": (
        lambda: ma.global_tokens(torch.ones(1, 1, 1).bool()),
        ("[length] or [batch, length]",),
    ),
    "too few flags": (lambda: ma.global_tokens(BITS).to_dense(3), ("has 2 entries", "reads 3")),
    "block side": (lambda: ma.block_table(torch.ones(1, 1).bool(), 0), ("block", ">= 1")),
    "block table of reals": (lambda: ma.block_table(torch.ones(1, 1), 2), ("bool or integer",)),
    "block table of one row": (lambda: ma.block_table(INT, 2), ("[rows, columns]",)),
    "too few blocks": (
        lambda: ma.block_table(torch.ones(2, 2).int(), 4).to_dense(9),
        ("2 entries", "reads 3"),
    ),
    "a column that is none": (
        lambda: ma.block_table.from_kv_indices(ids([0, 2]), 4, columns=2),
        ("kv_indices", "0 … 1"),
    ),
    "counts of other rows": (
        lambda: ma.block_table.from_kv_indices(ids([0]), 4, columns=2, kv_num_blocks=INT),
        ("kv_num_blocks", "[1]", "[2]"),
    ),
    "diffusion": (lambda: ma.block_diffusion(8, 0), ("block_diffusion(8, 0)", "block")),
    "columns": (lambda: ma.vertical_slash(INT, BITS), ("vertical", "a bool tensor")),
    "columns outside": (
        lambda: ma.vertical_slash.from_indices(ids(4), ids(0), 4),
        ("vertical", "0 … 3", "from 4 to 4"),
    ),
    "types outside": (
        lambda: ma.modality(ids(0, 2), torch.ones(2, 2).bool()),
        ("types", "0 … 1"),
    ),
    "allowed": (lambda: ma.modality(INT, torch.ones(2, 3).bool()), ("[kinds, kinds]", "[2, 3]")),
    "media out of order": (lambda: ma.media(ids(3, 1), 2), ("starts must ascend",)),
    "ends of other media": (lambda: ma.media(INT, 2, ids(1)), ("ends", "[2]", "[1]")),
    "tokens of a medium": (lambda: ma.media(INT, 0), ("tokens", ">= 1")),
    "rank": (lambda: ma.permutation(BITS), ("rank", "int32 or int64")),
    "flashmask form": (
        lambda: ma.flashmask(torch.zeros(1, 1, 4, 4).int(), causal=True),
        ("causal=True", "1 or 2"),
    ),
    "flashmask dtype": (lambda: ma.flashmask(BITS, causal=False), ("startend_row_indices",)),
    "slices of unequal number": (
        lambda: ma.attention_slices([(0, 1)], [], [0]),
        ("q_ranges and k_ranges", "1 and 0"),
    ),
    "a range backwards": (
        lambda: ma.attention_slices([(2, 1)], [(0, 1)], [0]),
        ("q_ranges", "(2, 1)"),
    ),
    "a range of three": (
        lambda: ma.attention_slices([(2, 1, 0)], [(0, 1)], [0]),  # type: ignore[list-item]
        ("[slices, 2]",),
    ),
    "kind": (
        lambda: ma.attention_slices([(0, 1)], [(0, 1)], ["diagonal"]),
        ("full, causal", "'diagonal'"),
    ),
    "fewer queries than slices": (
        lambda: ma.attention_slices([(0, 5)], [(0, 1)], [0], q_len=4),
        ("q_len", ">= 5"),
    ),
    "Swin window": (lambda: ma.relative_2d(torch.ones(4, 1), (2, 2)), ("9 relative", "4 entries")),
    "Swin side": (lambda: ma.relative_2d(torch.ones(4, 1), (0, 2)), ("height", ">= 1")),
    "T5 buckets": (lambda: ma.t5(torch.ones(3, 1)), ("even number of buckets",)),
    "T5 distance": (lambda: ma.t5(torch.ones(32, 1), max_distance=8), ("max_distance", ">= 9")),
    "Shaw rows": (lambda: ma.shaw(torch.ones(1, 1, 2, 4)), ("2 * d + 1",)),
    "KERPLE shapes": (lambda: ma.kerple_log(torch.ones(2), torch.ones(3)), ("as r1",)),
    "KERPLE dtype": (lambda: ma.kerple_power(INT, INT), ("r1", "floating-point")),
    "Sandwich dim": (lambda: ma.sandwich(torch.ones(2), 4, dim=3), ("dim must be even, got 3",)),
    "a distance without entry": (
        lambda: ma.graphormer(torch.ones(2, 1), ids([0, 2], [1, 0])),
        ("distances", "0 … 1", "to 2"),
    ),
    "decomposed shapes": (
        lambda: ma.decomposed(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 3, 2)),
        ("rel_w", "as rel_h"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    mistake, texts = REFUSED[name]
    with pytest.raises((ma.MaskTypeError, ma.MaskValueError)) as caught:
        mistake()
    for text in texts:
        assert text in str(caught.value), f"{text!r} is not in: {caught.value}"


def test_tables_that_follow_others() -> None:
    before, after = ids(0, 0, 0, 1, 1), ids(0, 1, 1, 2, 2, 2)
    inner = causal | prefix(2)
    mask, wanted = (ma.per_document(inner, found) for found in (before, after))
    again = mask.bind(ids=before, start=mask.parameters["start"])
    for old in (mask, mask.to("cpu"), again, pickle.loads(pickle.dumps(mask))):
        assert torch.equal(old.bind(ids=after).to_dense(6), wanted.to_dense(6))
    starts, later = ids(1, 3), ids(0, 2, 5)
    media = ma.media(starts, 2).bind(starts=later)
    of_keys = ids(0, 0, 1, 1, 1, 1)
    both = ma.per_document(inner, before, of_keys).bind(ids=after)
    assert torch.equal(both.to_dense(6), ma.per_document(inner, after, of_keys).to_dense(6))
    assert torch.equal(media.to_dense(6), ma.media(later, 2).to_dense(6))
    with pytest.raises(ma.MaskValueError, match="starts must ascend"):
        media.bind(starts=ids(3, 1))
    given = ma.media(starts, 2, ids(2, 4)).bind(starts=ids(0, 1))
    assert torch.equal(given.to_dense(4), ma.media(ids(0, 1), 2, ids(2, 4)).to_dense(4))
