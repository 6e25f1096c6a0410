"""Labels of blocks against brute force: the catalogue, random compositions, and mutated proofs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sympy as sp
import torch
from hypothesis import given, settings

import maskalg as ma
from maskalg import causal, chunked, document, nothing, padding, prefix, sliding
from maskalg.formula import nodes
from maskalg.formula.parameters import Scalar, Slot
from maskalg.proof import proof, signs
from maskalg.proof.symbols import FloorDiv, Step, Symbols
from maskalg.testing import assert_closed_forms_sound, assert_labels_exact, assert_same_mask
from maskalg.testing.case import BATCH, HEADS, Case
from maskalg.testing.catalogue import CATALOGUE
from maskalg.testing.strategies import Shape, masks, shapes

SHAPES = (
    Shape(16, 16, 4, 4),
    Shape(37, 37, 8, 5),
    Shape(40, 23, 7, 7),
    Shape(23, 40, 16, 4),
    Shape(33, 1, 3, 16),
    Shape(1, 33, 8, 8),
    Shape(9, 9, 64, 64),
    Shape(13, 13, 1, 1),
)


def check(case: Case, shape: Shape) -> ma.Mask:
    """The matrix, the closed forms and the labels of a case, each against brute force."""
    sizes: dict[str, Any] = {"batch": BATCH, "heads": HEADS}
    assert_same_mask(case.mask, case.dense(*shape.lengths), *shape.lengths, **sizes)
    assert_closed_forms_sound(case.mask, *shape.lengths, shape.block_q, **sizes)
    assert_labels_exact(case.mask, *shape.lengths, shape.block, **sizes)
    return case.mask


@pytest.mark.parametrize("name", CATALOGUE)
def test_catalogue(name: str) -> None:
    for shape in SHAPES:
        check(CATALOGUE[name], shape)


@given(masks(depth=1), shapes())
@settings(max_examples=150)
def test_random_atoms(case: Case, shape: Shape) -> None:
    check(case, shape)


@given(masks(depth=3), shapes())
@settings(max_examples=400)
def test_random_compositions(case: Case, shape: Shape) -> None:
    check(case, shape)


def labels(mask: ma.Mask, *lengths: int, **options: Any) -> list[Any]:
    found: list[Any] = mask.blocks(*lengths, **options).labels.tolist()
    return found


def test_labels_written_out() -> None:
    assert labels(causal, 6, block=2) == [[[[1, 0, 0], [2, 1, 0], [2, 2, 1]]]]
    assert labels(causal, 5, 7, block=(2, 3)) == [[[[1, 0, 0], [2, 1, 0], [2, 1, 0]]]]
    assert labels(sliding(3), 8, block=2) == [
        [[[2, 1, 0, 0], [1, 2, 1, 0], [0, 1, 2, 1], [0, 0, 1, 2]]]
    ]
    assert labels(chunked(3), 6, block=3) == [[[[2, 0], [0, 2]]]]
    assert labels(prefix(3), 4, block=2) == [[[[2, 1], [2, 1]]]]
    packed = document(torch.tensor([0, 0, 0, 1, 2, 2]))
    assert labels(packed, 6, block=2) == [[[[2, 1, 0], [1, 1, 0], [0, 0, 2]]]]


def test_labels_have_one_entry_where_batch_and_head_do_not_matter() -> None:
    assert causal.blocks(8, block=4, batch=3, heads=5).labels.shape == (1, 1, 2, 2)
    assert padding(torch.tensor([3, 8])).blocks(8, block=4).labels.shape == (2, 1, 2, 2)
    by_head = ma.head >= ma.q_idx
    assert by_head.blocks(8, block=4, heads=5).labels.shape == (1, 5, 2, 2)
    per_head = ma.dense(torch.ones(4, 8, 8, dtype=torch.bool))
    assert per_head.blocks(8, block=4).labels.shape == (1, 4, 2, 2)
    assert per_head.blocks(8, block=4).labels.dtype == torch.uint8


@pytest.mark.parametrize("lengths", [(0, 5), (5, 0), (0, 0)])
def test_no_queries_or_no_keys(lengths: tuple[int, int]) -> None:
    found = (causal & document(torch.zeros(5, dtype=torch.int64))).blocks(*lengths, block=2)
    assert found.labels.shape == (1, 1, -(-lengths[0] // 2), -(-lengths[1] // 2))
    assert found.counts() == (0, 0, 0) and found.sparsity == 0


def test_block_map_counts() -> None:
    found = causal.blocks(8, block=2)
    assert found.counts() == (6, 4, 6)
    assert found.sparsity == 6 / 16
    assert repr(found) == (
        "BlockMap(q_len=8, kv_len=8, block=(2, 2), empty=6, partial=4, full=6, evaluated=0)"
    )
    assert nothing.blocks(8, block=2).counts() == (16, 0, 0)


def test_open_blocks_are_counted() -> None:
    full = ma.dense(torch.ones(8, 8, dtype=torch.bool))
    found = full.blocks(8, block=2)
    assert found.counts() == (0, 0, 16) and found.evaluated == 0
    assert (causal & full).blocks(8, block=2).evaluated == 0
    # Only where both the diagonal and the tensor cut a block its elements are looked at.
    chess = ma.dense(torch.eye(2).bool().repeat(4, 4))
    assert chess.blocks(8, block=2).evaluated == 0
    assert (causal & chess).blocks(8, block=2).evaluated == 4


def test_kv_len_is_q_len_unless_given() -> None:
    assert causal.blocks(6, block=2).kv_len == 6
    assert causal.blocks(6, 9, block=2).labels.shape == (1, 1, 3, 5)


def test_labels_follow_ids_changed_in_place() -> None:
    ids = torch.tensor([0, 0, 1, 1, 2, 2])
    mask = document(ids)
    assert labels(mask, 6, block=2) == [[[[2, 0, 0], [0, 2, 0], [0, 0, 2]]]]
    ids[2:] = 0
    assert labels(mask, 6, block=2) == [[[[2, 2, 2], [2, 2, 2], [2, 2, 2]]]]


def test_labels_follow_memory_put_into_ids() -> None:
    ids = torch.tensor([0, 0, 1, 1, 2, 2])
    mask = document(ids)
    assert labels(mask, 6, block=2) == [[[[2, 0, 0], [0, 2, 0], [0, 0, 2]]]]
    ids.data = torch.tensor([0, 0, 0, 0, 0, 0])
    assert labels(mask, 6, block=2) == [[[[2, 2, 2], [2, 2, 2], [2, 2, 2]]]]


def test_labels_do_not_come_from_ids_that_are_gone() -> None:
    # A new tensor may get the address of one that was freed.
    q_ids = torch.tensor([0, 0, 1, 1])
    for i in range(20):
        kv_ids = torch.full((4,), i % 2)
        assert_labels_exact(document(q_ids, kv_ids), 4, block=2)
        del kv_ids


def test_a_part_that_stands_twice_in_a_sum_counts_twice() -> None:
    distance = abs(ma.q_idx - ma.kv_idx)
    assert_labels_exact(distance + distance >= 10, 32, block=4)
    assert_labels_exact(distance + distance <= 10, 32, block=4)


def test_one_entry_with_two_lower_bounds() -> None:
    length = ma.table(torch.tensor([3, 12]), "length")[ma.batch]
    longer = ma.maximum(length, 5) > ma.kv_idx
    assert_labels_exact(longer & ~(length > ma.kv_idx), 16, block=4)


@pytest.mark.parametrize("name", ["ids", "set1", "set2", "first", "ids_ids"])
def test_a_tensor_may_be_named_like_what_a_proof_makes(name: str) -> None:
    ids, flags = torch.arange(16) // 4, torch.arange(16) % 3 == 0
    same = ma.table(ids, name)[ma.q_idx] == ma.table(ids, name)[ma.kv_idx]
    for mask in (
        same & ma.table(flags, "flags")[ma.q_idx],
        ma.table(flags, "flags")[ma.q_idx] | same,
    ):
        assert_labels_exact(mask & causal, 16, block=2)


def test_no_symbol_of_a_parameter_is_one_of_the_proof() -> None:
    symbols = Symbols()
    names = ("q", "k", "q0", "head", "x")
    formulas = [nodes.scalar(Slot(i, n, Scalar(n, i))) for i, n in enumerate(names)]
    formulas += [nodes.Q, nodes.K, nodes.HEAD, nodes.BATCH]
    made = [symbols.to_sympy(formula) for formula in formulas]
    assert len(set(made)) == len(formulas)
    assert [symbols.to_node(symbol) for symbol in made] == formulas


def test_ids_read_in_different_rows_are_not_one_document() -> None:
    ids = torch.tensor([[0] * 5 + [1] * 6 + [2] * 5, [0] * 12 + [1] * 2 + [2] * 2])
    rows = ma.table(ids, "ids")
    assert_labels_exact(rows[ma.batch, ma.q_idx] == rows[0, ma.kv_idx], 16, block=4)
    assert_labels_exact(rows[0, ma.q_idx] == rows[ma.batch, ma.kv_idx], 16, block=4)
    assert_labels_exact(rows[ma.head, ma.q_idx] == rows[ma.batch, ma.kv_idx], 16, block=4)
    each, other = (rows[b, ma.q_idx] == rows[b, ma.kv_idx] for b in (ma.batch, ma.head))
    assert_labels_exact(each | other, 16, block=4)
    assert_labels_exact(other & each, 16, block=4)
    cube = ma.table(torch.stack([ids, ids.flip(0)]), "ids")
    by_both = cube[ma.batch, ma.head, ma.q_idx] == cube[ma.batch, ma.head, ma.kv_idx]
    assert_labels_exact(by_both, 16, block=4)


@pytest.mark.parametrize("q", [-3, 0, 10])
@pytest.mark.parametrize("kv", [-3, 0, 10])
def test_shifts_by_tensors_past_the_ids(q: int, kv: int) -> None:
    mask = document(torch.tensor([0] * 5 + [1] * 6 + [2] * 5)) & causal
    assert_labels_exact(mask.shift(q=torch.tensor(q), kv=torch.tensor(kv)), 12, block=4)


# --- a wrong row in the table of monotone functions is noticed -----------------------------------


@pytest.fixture
def no_proofs_kept() -> Iterator[None]:
    kept = dict(proof._CACHE)
    proof._CACHE.clear()
    yield
    proof._CACHE.clear()
    proof._CACHE.update(kept)


Row = Callable[[Any, Any], tuple[Any, Any]]

# The rows a composition can reach: a document is `first(q) <= k <= last(q)` or, negated,
# `k < start(q)` or `k > end(q)`, and the inverses are taken on the way back to k.
ROWS = [
    ("lower", "FloorDiv"),
    ("upper", "FloorDiv"),
    ("upper", "first"),
    ("lower", "last"),
    ("lower", "start"),
    ("upper", "end"),
]


def mutated(row: Row, kind: str, off: int) -> Row:
    def wrong(function: Any, n: Any) -> tuple[Any, Any]:
        x, bound = row(function, n)
        hit = (
            isinstance(function, FloorDiv)
            if kind == "FloorDiv"
            else isinstance(function, Step) and function.table == kind
        )
        return (x, sp.expand(bound + off)) if hit else (x, bound)

    return wrong


def noticed() -> bool:
    for name in ("chunked", "block causal", "document", "causal documents", "other documents"):
        try:
            for shape in SHAPES[:3]:
                check(CATALOGUE[name], shape)
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize("off", [1, -1])
@pytest.mark.parametrize(("side", "kind"), ROWS)
def test_a_wrong_inverse_is_noticed(
    side: str, kind: str, off: int, monkeypatch: pytest.MonkeyPatch, no_proofs_kept: None
) -> None:
    monkeypatch.setattr(signs, side, mutated(getattr(signs, side), kind, off))
    assert noticed()


def test_right_inverses_are_not_called_wrong(no_proofs_kept: None) -> None:
    assert not noticed()


@pytest.mark.parametrize("numbers", [(1.0, 1), (1, 1.0), (0.0, -0.0)])
def test_numbers_that_are_equal_are_not_taken_for_one_another(numbers):
    """1.0 makes real numbers of 1,700,000,000 and of the next 64; 1 leaves integers."""
    times = ma.table(1_700_000_000 + torch.arange(256), "times")
    for number in numbers:
        mask = ma.causal & (times[ma.kv_idx] * ma.scalar(number) == 1_700_000_000)
        matrix = mask.to_dense(256)
        assert torch.equal(
            mask.blocks(256, block=64).labels, ma.dense(matrix).blocks(256, block=64).labels
        )


def test_divisors_in_the_branch_that_is_not_taken():
    divisor = ma.table(torch.arange(130) % 5, low=1)  # 0 is held at 1
    mask = ma.q_idx - ma.kv_idx >= (66 + 0 * ma.q_idx) % divisor[ma.kv_idx]
    assert mask.cost(128, 130).kept == int(mask.to_dense(128, 130).sum())
    mask.blocks(128, 130)


def test_a_constant_beyond_float32_is_infinite():
    assert (ma.q_idx * 1e39 > ma.kv_idx).to_dense(3)[0, 0].sum(1).tolist() == [0, 3, 3]


@pytest.mark.parametrize("built", [ma.document, lambda ids: causal | ma.spans(ids)])
def test_no_batch_entries(built):
    mask = built(torch.zeros(0, 5, dtype=torch.int64))
    assert mask.to_dense(5).shape == (0, 1, 5, 5)
    assert mask.blocks(5).labels.shape == (0, 1, 1, 1) and mask.cost(5).kept == 0
