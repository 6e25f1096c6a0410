"""The declared order of a table: in the text of a structure, checked wherever a tensor enters."""

import io
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import maskalg as ma
from maskalg import causal, document, per_document, sliding
from maskalg.engine.keys import structure_of
from maskalg.engine.normal_form import bound
from maskalg.formula.entries import ensure, lies_in
from maskalg.schedule.intervals.steps import step_tables
from maskalg.testing import assert_labels_exact, assert_same_mask, oracle
from maskalg.values.masks.documents.document import packed_ids
from tests.cases.mistakes import raises

ASCENDING, CONTIGUOUS, SCATTERED = [1, 1, 4], [4, 4, 1], [4, 1, 4]


@given(st.lists(st.lists(st.integers(0, 3), min_size=5, max_size=5), min_size=1, max_size=3))
def test_orders(rows: list[list[int]]) -> None:
    ascending = all(row == sorted(row) for row in rows)
    runs = [[x for i, x in enumerate(row) if i == 0 or row[i - 1] != x] for row in rows]
    contiguous = all(len(run) == len(set(run)) for run in runs)
    assert bool(lies_in("ascending", torch.tensor(rows))) == ascending
    assert bool(lies_in("contiguous", torch.tensor(rows))) == contiguous


def test_ids_are_checked_where_they_enter() -> None:
    for order, good, bad in (
        ("ascending", ASCENDING, CONTIGUOUS),
        ("contiguous", CONTIGUOUS, SCATTERED),
    ):
        mask = document(good, order=order)
        other = mask.bind(ids=[7, 8, 8])
        assert other.to_dense(3)[0, 0].int().tolist() == [[1, 0, 0], [0, 1, 1], [0, 1, 1]]
        says = repr(order), "document(ids), without an order"
        raises(
            ValueError, lambda m=mask, b=bad: m.bind(ids=b), "bind(ids=…): entries of ids", *says
        )
        raises(ValueError, lambda o=order, b=bad: document(b, order=o), "document: entries", *says)
        raises(
            ValueError, lambda o=order, g=good, b=bad: document(g, b, order=o), "of kv_ids", *says
        )
        per = per_document(causal, good, order=order)
        raises(ValueError, lambda p=per, b=bad: p.bind(ids=b), "bind(ids=…)", *says)
    raises(ValueError, lambda: document([1], order="sorted"), "document: order", "got 'sorted'")
    document(SCATTERED).bind(ids=CONTIGUOUS)  # without an order there is none to hold
    known = document.from_lengths([2, 1])
    raises(ValueError, lambda: known.bind(ids=SCATTERED), "'ascending'", "document.from_cu_seqlens")


def test_ids_written_in_place_are_checked_where_they_are_read() -> None:
    ids = torch.tensor(ASCENDING)
    mask, x = causal & document(ids, order="ascending"), torch.randn(1, 1, 3, 16)
    ma.attention(x, x, x, mask)
    ids.copy_(torch.tensor([0, 5, 9]))
    torch.testing.assert_close(ma.attention(x, x, x, mask), x)
    ids.copy_(torch.tensor(SCATTERED))
    raises(ValueError, lambda: ma.attention(x, x, x, mask), "attention: entries of ids must ascend")
    raises(ValueError, lambda: mask.blocks(3, block=2), "entries of ids must ascend")
    ensure("ids", torch.tensor(CONTIGUOUS), "contiguous")


def test_the_text_of_a_structure_says_it() -> None:
    structures = {
        order: bound(causal & document(ASCENDING, order=order)).structure
        for order in (None, "contiguous", "ascending")
    }
    assert len({structure.key for structure in structures.values()}) == 3
    assert len({structure.mask_key for structure in structures.values()}) == 3
    for order, structure in structures.items():
        # Read back as a process does that has not met it.
        other = structure_of(structure.key.replace("ids", f"others_{order}"))
        assert [slot.order for slot in other.slots] == [order]
        assert [slot.order for slot in structure.slots] == [order]
    with pytest.raises(ValueError, match="key"):
        structure_of(structures["ascending"].key.replace("ascending", "sorted"))


def test_what_becomes_of_an_expression_keeps_it() -> None:
    mask = causal & document.from_cu_seqlens([0, 2, 5])
    buffer = io.BytesIO()
    pickle.dump(mask, buffer)
    copies = {
        "moved": mask.to("cpu"),
        "bound": mask.bind(ids=[1, 2, 2, 2, 3]),
        "pickled": pickle.loads(buffer.getvalue()),
    }
    key = bound(mask).structure.key
    assert {
        name: bound(copy).structure.key == key for name, copy in copies.items()
    } == dict.fromkeys(copies, True)
    assert bound(mask.shift(q=1)).structure.slots[0].order == "ascending"


def test_proofs_are_exact_without_a_condition() -> None:
    for mask in (
        causal & document.from_lengths([2, 3]),
        causal & sliding(4) & document(CONTIGUOUS, order="contiguous"),
        ~document.from_lengths([2, 3]),
        document.from_cu_seqlens([0, 2, 4], [0, 2, 5]),
    ):
        proof = mask.prove()
        assert proof.claim == "exact"
        assert any("ids" in given for given in proof.assumptions)
        certificate = proof.check()
        assert certificate.exact
        assert any("declared order" in claim.by for claim in certificate.obligations)
        assert "contiguous documents" not in str(certificate)
    both = document(CONTIGUOUS, SCATTERED), document(CONTIGUOUS, CONTIGUOUS, order="contiguous")
    for mask in both:  # "contiguous" says nothing of the order of two tables
        assert any(span.documents for span in mask.prove().forms.unfull)


_ROWS = st.lists(st.integers(0, 5), min_size=9, max_size=9).map(sorted)


@given(_ROWS, _ROWS, st.sampled_from([1, 2, 3]))
def test_queries_without_keys_leave_labels_exact(
    q_ids: list[int], kv_ids: list[int], block: int
) -> None:
    for mask in (
        document(q_ids, kv_ids, order="ascending"),
        document([q_ids], kv_ids, order="ascending") & causal,
    ):
        assert assert_labels_exact(mask, 9, block=block).evaluated == 0
    of_both = oracle.document(q_ids, kv_ids, q_len=9, kv_len=9)
    assert_same_mask(document(q_ids, kv_ids, order="ascending"), of_both, 9)
    tables = step_tables(torch.tensor(q_ids), torch.tensor(kv_ids), "ascending")
    assert tables.contiguous()
    for x, own in enumerate(q_ids):
        places = [y for y, other in enumerate(kv_ids) if other == own]
        assert (
            list(range(int(tables.named("first")[x]), int(tables.named("last")[x]) + 1)) == places
        )


def test_ids_of_cumulative_lengths_ascend_whatever_those_are() -> None:
    assert packed_ids(torch.tensor([0, 5, 3, 8]), 10).tolist() == [1] * 5 + [3] * 3 + [4] * 2
    ensure("ids", packed_ids(torch.tensor([[4, 0, 9], [3, 3, -1]]), 10), "ascending")
