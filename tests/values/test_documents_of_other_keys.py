"""Documents whose queries and keys are cut differently, as variable-length attention takes them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import maskalg as ma
from maskalg import attention, causal, prefix, sliding
from tests.cases.mask_pictures import check, ids
from tests.cases.mistakes import raises


def test_per_document_with_other_keys() -> None:
    of_queries, of_keys = ids(0, 0, 1, 1), ids(0, 0, 0, 1)
    # The last query stands at the last key: a query before the first key keeps nothing.
    check(ma.per_document(causal, of_queries, of_keys), "##.. ###. .... ...#")
    check(ma.per_document(sliding(2), of_queries, of_keys), "###. .##. ...# ...#")
    check(ma.per_document(prefix(1), of_queries, of_keys), "#... #... ...# ...#")
    check(ma.per_document(causal, ids([0, 1], [1, 1]), ids(0, 0, 1)), "##. ..#", "... ..#")
    check(ma.per_document(causal, ids(1), ids([1, 1], [0, 1])), "##", ".#")
    # Neither an id without keys nor one without queries meets another.
    check(ma.per_document(causal, ids(5, 7), ids(7, 6, 6)), "... #..")
    assert ma.per_document(causal, ids(5), ids()[:0].int()).to_dense(1, 0).shape == (1, 1, 1, 0)


def test_first_query_at_the_first_key() -> None:
    of_queries, of_keys = ids(0, 0, 1, 1), ids(0, 0, 0, 1)
    first = partial(ma.per_document, align="first")
    check(first(causal, of_queries, of_keys), "#... ##.. ...# ...#")
    check(first(sliding(2), of_queries, of_keys), "##.. ###. ...# ...#")
    check(first(causal, ids(0, 0, 1, 1)), "#... ##.. ..#. ..##")
    of = ma.per_document.from_cu_seqlens
    check(of(causal, ids(0, 2, 3), ids(0, 3, 4), align="first"), "#... ##.. ...#")
    bound = first(causal, of_queries, of_keys).bind(ids=[1, 0, 0, 0], kv_ids=[1, 1, 0, 0])
    check(bound, "#... ..#. ..## ..##")
    assert str(bound) == "per_document(causal, ids[4], kv_ids[4], align='first')"
    raises(ValueError, lambda: of(causal, [0, 1], align="left"), "'last', 'first', got 'left'")


def test_per_document_from_cu_seqlens() -> None:
    of = ma.per_document.from_cu_seqlens
    check(of(causal, ids(0, 2, 3), ids(0, 3, 4)), "##.. ###. ...#")
    check(of(causal, ids(0, 2, 2, 3), ids(0, 3, 4, 5)), "##... ###.. ....#")
    check(of(causal, ids(0, 1, 2, 3), ids(0, 2, 2, 3)), "##. ... ..#")
    check(of(causal, ids(0, 1), ids(0, 1), total=(3, 2)), "#. .. ..")
    check(of(causal | prefix(2), ids(0, 3, 4), total=5), "##... ##... ###.. ...#. .....")
    cut = ids(0, 2, 5)
    assert of(causal, cut, cut).mask_node.skeleton == of(causal, cut).mask_node.skeleton
    check(ma.document.from_cu_seqlens(ids(0, 1, 3), ids(0, 2, 3), total=4), "##.. ..#. ..#. ....")
    check(ma.document.from_cu_seqlens(ids(0, 1, 2), total=(2, 4)), "#... .#..")
    check(of(causal, cut, total=(5, 6)), "#..... ##.... ..#... ..##.. ..###.")


@pytest.mark.parametrize("align", ["last", "first"])
@pytest.mark.parametrize("mask", [causal, ma.window(30, 0), causal | prefix(9)], ids=str)
def test_sequences_of_other_lengths_as_each_alone(mask: ma.Mask, align: Any) -> None:
    """`flash_attn_varlen_func`, by a loop over sequences, some without queries or keys."""
    q_lens, kv_lens = (70, 0, 5, 33, 9, 150), (100, 4, 0, 33, 3, 190)
    cut = [ids(0, *np.cumsum(lengths)) for lengths in (q_lens, kv_lens)]
    torch.manual_seed(0)
    made = [torch.randn(1, 2, sum(n), 16).requires_grad_() for n in (q_lens, kv_lens, kv_lens)]
    packed = attention(
        *made, ma.per_document.from_cu_seqlens(mask, *cut, align=align), backend="cpu"
    )
    parts = [x.split(n, 2) for x, n in zip(made, (q_lens, kv_lens, kv_lens), strict=True)]
    alone = torch.cat(
        [
            attention(*part, mask.shift(q=(kv - q) * (align == "last")), backend="reference")
            for q, kv, *part in zip(q_lens, kv_lens, *parts, strict=True)
        ],
        2,
    )
    torch.testing.assert_close(packed, alone, atol=1e-5, rtol=1e-5)
    weights = torch.randn(packed.shape)
    for found, wanted in zip(
        torch.autograd.grad(packed, made, weights),
        torch.autograd.grad(alone, made, weights),
        strict=True,
    ):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_documents_of_other_keys_visit_no_empty_tile() -> None:
    cut = torch.arange(5) * 512, torch.arange(5) * 768
    for mask, visited in ((causal, 4 * 18), (ma.window(127, 0), 4 * 8)):
        blocks = ma.per_document.from_cu_seqlens(mask, *cut).segments(2048, 3072)
        assert (blocks.end - blocks.first).sum() == visited
