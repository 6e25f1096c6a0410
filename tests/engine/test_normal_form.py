"""Structure apart from values: which expressions share a key, and therefore proof and kernel."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given

from maskalg import (
    Mask,
    alibi,
    causal,
    chunked,
    document,
    head,
    kv_idx,
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
from maskalg.engine.normal_form import Structure, bound
from maskalg.formula.expression import Expression
from maskalg.proof.proof import proofs_made
from maskalg.testing.case import Case
from maskalg.testing.strategies import masks

IDS = torch.tensor([0, 0, 1, 1])
OTHER = torch.tensor([3, 4, 4, 4, 4, 5])
SLOPES = torch.tensor([0.5, 0.25])


def structure(expression: Expression) -> Structure:
    return bound(expression).structure


def key(expression: Expression) -> str:
    return structure(expression).key


SAME: dict[str, tuple[Expression, Expression]] = {
    "window": (sliding(4), sliding(900)),
    "two windows": (sliding(4) | sliding(9), sliding(12) | sliding(3)),
    "three windows": (
        sliding(4) | sliding(9) | sliding(1),
        sliding(100) | sliding(20) | sliding(3),
    ),
    "sides of a window": (window(3, 1), window(0, 7)),
    "chunk": (chunked(4) & causal, chunked(128) & causal),
    "ids": (document(IDS), document(OTHER)),
    "dtype of ids": (document(IDS), document(OTHER.int())),
    "ids of two": (document(IDS) & document(OTHER), document(OTHER) & document(IDS)),
    "lengths": (padding(torch.tensor([1])), padding(torch.tensor([5, 6, 7]))),
    "slopes": (causal + alibi(SLOPES), causal + alibi(SLOPES * 3)),
    "cap": (softcap(3.0), softcap(30.0)),
    "relative": (relative(torch.randn(2, 5)), relative(torch.randn(4, 9))),
    "shift": (causal.shift(q=3), causal.shift(q=-70)),
    "shift of a shift": (causal.shift(q=3).shift(q=4), causal.shift(q=1).shift(q=1)),
    "scalar": (q_idx <= scalar(3, "n"), q_idx <= scalar(4, "n")),
    "order of &": (causal & sliding(4), sliding(4) & causal),
    "order of |": (document(IDS) | sliding(4), sliding(4) | document(IDS)),
    "order of three": (
        (causal & sliding(3)) & document(IDS),
        document(IDS) & (sliding(3) & causal),
    ),
    "order of +": (alibi(SLOPES) + softcap(2.0), softcap(2.0) + alibi(SLOPES)),
    "double negation": (~~causal, causal),
    "twice": (causal & causal, causal),
    "strict": (q_idx > kv_idx, q_idx >= kv_idx + 1),
}


@pytest.mark.parametrize("name", SAME)
def test_same_key(name: str) -> None:
    left, right = SAME[name]
    assert key(left) == key(right)
    assert structure(left) is structure(right)


DIFFERENT: dict[str, tuple[Expression, Expression]] = {
    "atom": (sliding(4), chunked(4)),
    "and, or": (causal & sliding(4), causal | sliding(4)),
    "negation": (causal, ~causal),
    "rank": (document(IDS), document(IDS[None])),
    "side left open": (window(3, None), window(3, 3)),
    "constant": (q_idx <= 3, q_idx <= 4),
    "declared bound": (q_idx <= scalar(3, "n"), q_idx <= scalar(3, "n", low=0)),
    "bias": (causal + alibi(SLOPES), causal + softcap(3.0)),
    "no bias": (causal, causal + alibi(SLOPES)),
    "one tensor or two": (document(IDS, IDS), document(IDS, IDS.clone())),
    "integer or tensor": (prefix(3), prefix(torch.tensor(3))),
    "tensor per batch": (prefix(torch.tensor(3)), prefix(torch.tensor([3]))),
    "direction of a shift": (causal.shift(q=3), causal.shift(kv=3)),
    "nesting of biases": (softcap(2.0) @ alibi(SLOPES), alibi(SLOPES) @ softcap(2.0)),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_key(name: str) -> None:
    left, right = DIFFERENT[name]
    assert key(left) != key(right)


def test_values_stand_in_their_slots() -> None:
    form = bound(causal & sliding(4) & document(IDS))
    by_name = dict(zip([s.name for s in form.structure.slots], form.values, strict=True))
    assert by_name["window"] == 4 and by_name["ids"] is IDS
    assert [slot.index for slot in form.structure.slots] == [0, 1]
    assert [slot.name for slot in form.structure.scalars] == ["window"]
    assert [slot.name for slot in form.structure.tables] == ["ids"]
    assert [(slot.name, tensor) for slot, tensor in form.tensors()] == [("ids", IDS)]


def test_one_tensor_in_two_places_is_one_slot() -> None:
    form = bound(document(IDS) & document(IDS).shift(kv=1))
    assert len(form.structure.tables) == 1
    assert len(bound(document(IDS) & document(IDS.clone()).shift(kv=1)).structure.tables) == 2


def test_slots_of_one_name_are_told_apart() -> None:
    form = bound(sliding(4) | sliding(9))
    assert sorted(slot.name for slot in form.structure.slots) == ["window", "window_2"]
    assert sorted(form.values) == [4, 9]


def test_mask_key_is_that_of_the_mask_alone() -> None:
    plain, biased = structure(causal & sliding(4)), structure(causal & sliding(8) + alibi(SLOPES))
    assert plain.mask_key == biased.mask_key and plain.key != biased.key


def test_depends_on() -> None:
    form = structure(where(head % 2 == 0, causal, sliding(4)) + alibi(SLOPES))
    assert form.depends_on("head") and form.depends_on("q_idx") and not form.depends_on("batch")
    assert structure(padding(torch.tensor([3]))).depends_on("batch")
    assert structure(causal + alibi(SLOPES)).depends_on("head"), "the bias counts"


def test_normal_form_is_found_once() -> None:
    mask = causal & sliding(4)
    assert bound(mask) is bound(mask)


def test_second_mask_of_a_structure_makes_no_proof() -> None:
    first = (causal & sliding(11) & document(IDS)) | prefix(2)
    first.prove()
    made = proofs_made()
    second = prefix(77) | (document(OTHER) & sliding(5) & causal)
    assert second.prove() is first.prove()
    second.blocks(6, block=2)
    (second + alibi(SLOPES)).mask.prove()
    first.bind(window=2, prefix=1).blocks(4, block=2)
    assert proofs_made() == made
    (second & ~causal).prove()
    assert proofs_made() == made + 1


@given(masks(depth=2), masks(depth=1))
def test_order_of_operands_is_no_structure(a: Case, b: Case) -> None:
    left, right = a.mask & b.mask, b.mask & a.mask
    assert left == right and hash(left) == hash(right)
    if not has_twins(left):
        assert key(left) == key(right)
        assert key(a.mask | b.mask) == key(b.mask | a.mask)


def has_twins(mask: Mask) -> bool:
    """Whether parts differ in their numbers and tensors alone: those stay in the order given."""
    parts = {part for part in mask.mask_node.walk() if part.kind == "bool"}
    return len({part.skeleton for part in parts}) < len(parts)


@given(masks(depth=2))
def test_every_parameter_has_a_slot(case: Case) -> None:
    form = bound(case.mask)
    assert len(form.values) == len(form.structure.slots)
    assert len({slot.name for slot in form.structure.slots}) == len(form.structure.slots)
    scalars = [v for v in form.values if not isinstance(v, torch.Tensor)]
    tensors = [id(v) for v in form.values if isinstance(v, torch.Tensor)]
    assert len(set(tensors)) == len(tensors), "a tensor has one slot"
    for value in case.mask.parameters.values():
        assert id(value) in tensors if isinstance(value, torch.Tensor) else value in scalars


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (document([1, 0, 1]), document([1, 1, 2], order="ascending")),
        (q_idx - kv_idx < scalar(3, "w"), q_idx - kv_idx < scalar(3, "w", low=1)),
        (kv_idx < table([1, 0])[q_idx], kv_idx < table([1.0, 0.0])[q_idx]),
    ],
    ids=["order", "low", "kind"],
)
def test_formulas_that_declare_other_things_differ(one, other):
    """Proofs are kept by formulas, so what one mask declares must not serve another."""
    assert bound(one).structure.mask != bound(other).structure.mask
