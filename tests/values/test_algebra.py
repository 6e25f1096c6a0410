"""Operators, printing, equality, hashing, pickling, and values bound anew."""

from __future__ import annotations

import ast
import math
import pickle
from functools import reduce
from operator import add, xor
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings

import maskalg as ma
from maskalg import (
    Bias,
    Mask,
    Score,
    alibi,
    attention,
    batch,
    block_causal,
    causal,
    chunked,
    dense,
    dilated,
    document,
    everything,
    head,
    kv_idx,
    maximum,
    minimum,
    nothing,
    padding,
    prefix,
    q_idx,
    relative,
    scalar,
    sliding,
    softcap,
    table,
    truncate,
    where,
    window,
)
from maskalg.engine.normal_form import bound
from maskalg.formula.expression import Expression
from maskalg.testing import assert_same_mask
from maskalg.testing.case import BATCH, HEADS, Case
from maskalg.testing.index_strategies import comparisons
from maskalg.testing.strategies import masks
from maskalg.values.index import Index

IDS = torch.tensor([0, 0, 1, 1, 1, 2])
SLOPES = torch.tensor([0.5, 0.25])
M = alibi(SLOPES)


def same_attention(left: Expression, right: Expression) -> None:
    """Both expressions do the same to attention, at lengths that differ."""
    random = torch.Generator().manual_seed(0)
    tensors = [torch.randn(2, 2, n, 4, dtype=torch.float64, generator=random) for n in (5, 6, 6)]
    out, wanted = (attention(*tensors, e, backend="reference") for e in (left, right))
    torch.testing.assert_close(out, wanted, rtol=1e-12, atol=1e-12)


# --- operators -----------------------------------------------------------------------------------


def test_format() -> None:
    assert f"{causal & sliding(3):>22}|{causal}" == "   causal & sliding(3)|causal"


def test_what_operators_give() -> None:
    assert isinstance(causal & sliding(4), Mask)
    assert isinstance(causal | sliding(4), Mask)
    assert isinstance(~causal, Mask)
    assert isinstance(causal + M, Score)
    assert isinstance(M + causal, Score)
    assert isinstance(causal & sliding(4) + M, Score)
    assert isinstance(M + softcap(3.0), Bias)
    assert isinstance(softcap(3.0) @ M, Bias)
    assert isinstance(softcap(3.0) @ (causal + M), Score)
    assert isinstance(sum([M, M]), Bias)
    assert isinstance(2 * M - 1, Bias)
    assert isinstance((causal + M).shift(q=1), Score)
    assert isinstance((causal + M).mask, Mask)
    assert isinstance((causal + M).bias, Bias)


def test_plus_binds_tighter_and_means_what_it_looks_like() -> None:
    written = causal & sliding(4) + M
    meant = (causal & sliding(4)) + M
    assert written == meant and hash(written) == hash(meant)
    assert written == (sliding(4) + M) & causal == M + (causal & sliding(4))
    same_attention(written, meant)
    assert written != causal & sliding(4)


def test_scores_combine_masks_and_add_biases() -> None:
    both = (causal + M) & (sliding(3) + softcap(2.0))
    assert both == (causal & sliding(3)) + (M + softcap(2.0))
    assert both.mask == causal & sliding(3)
    assert both.bias == M + softcap(2.0)
    same_attention(both, (causal & sliding(3)) + softcap(2.0) + M)
    assert (causal + M) + softcap(2.0) == causal + (M + softcap(2.0)) == softcap(2.0) + (causal + M)


def test_cap_of_a_biased_score() -> None:
    outside, inside = softcap(2.0) @ M, M @ softcap(2.0)
    assert outside != inside
    assert softcap(2.0) @ (causal + M) == causal + outside
    # Nesting is associative, and an additive bias nested in another only adds.
    assert (M @ softcap(2.0)) @ M == M @ (softcap(2.0) @ M)
    same_attention(M @ M, 2 * M)


def test_caps_of_tensors_and_expressions() -> None:
    caps = torch.tensor([2.0, 3.0])
    by_head = where(head == 0, softcap(2.0), softcap(3.0))
    for cap in (caps, table(caps)[head], head + 2):
        same_attention(softcap(cap), by_head)
    for cap in (torch.tensor(2.0), scalar(2.0, "cap"), scalar(2, "cap")):
        same_attention(softcap(cap) @ M, softcap(2.0) @ M)
    assert str(softcap(caps) @ softcap(head + 2)) == "softcap(cap[2]) @ softcap(head + 2)"
    assert softcap(scalar(2.0, "cap")).bind(cap=3.0) == softcap(scalar(3.0, "cap"))


def test_bias_by_a_condition() -> None:
    first = head == 0
    chosen = where(first, M, 0)
    assert isinstance(chosen, Bias)
    same_attention(chosen, alibi(SLOPES * torch.tensor([1.0, 0.0])))
    same_attention(causal + where(q_idx >= kv_idx, 3.0, M @ M), causal)
    # Of additive biases it is additive: it adds in any order, and nested it only adds.
    assert chosen + softcap(2.0) == softcap(2.0) + chosen
    same_attention(M @ chosen, M + chosen)
    same_attention(where(first, softcap(2.0), M) + M, where(first, softcap(2.0) + M, M + M))
    assert where(first, 5, M).bind(constant=4.0) == where(first, 4, M)


def test_biases_add_in_any_order() -> None:
    third = relative(torch.ones(5))
    assert M + softcap(2.0) == softcap(2.0) + M
    same_attention((M + third) + softcap(2.0), softcap(2.0) + (third + M))
    same_attention(sum([M, M, M]), 3 * M)
    same_attention(M - M, everything)
    same_attention(M + 5, M)  # The same number everywhere is no change to a softmax.
    assert 5 - M == -M + 5
    assert 0 + M is M and M + 0 is M


def test_units_and_zeros() -> None:
    assert causal & everything == causal == causal | nothing
    assert causal & nothing == nothing and causal | everything == everything
    assert ~everything == nothing and ~nothing == everything
    assert ~~causal == causal and causal & causal == causal


@given(masks(depth=2), masks(depth=2), masks(depth=1))
def test_equal_however_composed(a: Case, b: Case, c: Case) -> None:
    for compose in (lambda x, y: x & y, lambda x, y: x | y):
        left, right = compose(a.mask, b.mask), compose(b.mask, a.mask)
        assert left == right and hash(left) == hash(right)
        left = reduce(compose, [a.mask, b.mask, c.mask])
        assert left == compose(c.mask, compose(b.mask, a.mask))


# --- equality and hashing ------------------------------------------------------------------------


def test_equality_is_of_structure_values_and_tensors() -> None:
    assert sliding(4) == sliding(4) != sliding(5)
    assert document(IDS) == document(IDS) != document(IDS.clone())
    assert sliding(4) != chunked(4)
    assert len({causal, causal + M, M}) == 3
    assert (q_idx >= kv_idx) == causal, "however it was written"
    assert (causal == 3) is False


def test_hash_is_of_structure_and_scalars() -> None:
    assert hash(sliding(4)) == hash(sliding(4)) != hash(sliding(5))
    assert hash(document(IDS)) == hash(document(IDS.clone()))
    assert len({sliding(4), sliding(4), sliding(5), causal & sliding(4), sliding(4) & causal}) == 3


# --- printing ------------------------------------------------------------------------------------

# Every form, written as it prints; IDS and the others stand for tensors.
PRINTED: list[tuple[Expression, str]] = [
    (causal, "causal"),
    (everything, "everything"),
    (nothing, "nothing"),
    (sliding(4), "sliding(4)"),
    (window(3, None), "window(3, None)"),
    (prefix(7), "prefix(7)"),
    (chunked(8), "chunked(8)"),
    (block_causal(8), "block_causal(8)"),
    (dilated(2), "dilated(2)"),
    (softcap(30.0), "softcap(30.0)"),
    (causal & sliding(4), "causal & sliding(4)"),
    (causal & (sliding(4) | prefix(2)), "causal & (sliding(4) | prefix(2))"),
    (causal & sliding(4) | prefix(2), "causal & sliding(4) | prefix(2)"),
    (~causal, "~causal"),
    (~(causal & sliding(4)), "~(causal & sliding(4))"),
    (~~causal, "~~causal"),
    (causal & sliding(4) + softcap(2.0), "causal & sliding(4) + softcap(2.0)"),
    ((causal & sliding(4)) + softcap(2.0), "(causal & sliding(4)) + softcap(2.0)"),
    (softcap(3.0) @ softcap(2.0), "softcap(3.0) @ softcap(2.0)"),
    (softcap(3.0) + softcap(2.0), "softcap(3.0) + softcap(2.0)"),
    (softcap(3.0) @ (softcap(2.0) + 1), "softcap(3.0) @ (softcap(2.0) + 1.0)"),
    (softcap(3.0) * 2, "2.0 * softcap(3.0)"),
    (2 * (softcap(3.0) + softcap(2.0)), "2.0 * (softcap(3.0) + softcap(2.0))"),
    (causal.shift(q=3), "causal.shift(q=3)"),
    (causal.shift(q=3, kv=-1), "causal.shift(q=3, kv=-1)"),
    ((causal & sliding(4)).shift(kv=2), "(causal & sliding(4)).shift(kv=2)"),
    (causal.shift(q=1).shift(q=2), "causal.shift(q=1).shift(q=2)"),
    (where(head >= 2, causal, ~prefix(1)), "where(head >= 2, causal, ~prefix(1))"),
    (where(head >= 2, softcap(2.0), 0), "where(head >= 2, softcap(2.0), 0)"),
    (1.5 + where(causal, 3, softcap(2.0)), "where(causal, 3.0, softcap(2.0)) + 1.5"),
    (q_idx >= kv_idx, "q_idx >= kv_idx"),
    (q_idx - kv_idx >= 3, "q_idx - kv_idx >= 3"),
    (q_idx // 2 >= kv_idx, "q_idx // 2 >= kv_idx"),
    (2 * (q_idx // 3) >= kv_idx, "2*(q_idx // 3) >= kv_idx"),
    ((q_idx >= 4) & causal, "(q_idx >= 4) & causal"),
    (~(q_idx >= 4), "~(q_idx >= 4)"),
    (q_idx >= scalar(4, "start"), "q_idx >= 4"),
    (minimum(q_idx, 3) >= kv_idx, "min(3, q_idx) >= kv_idx"),
    ((~causal).at(kv=2 - kv_idx), "(~causal).at(kv=2 - kv_idx)"),
    (~causal.at(kv=2 - kv_idx), "~causal.at(kv=2 - kv_idx)"),
    ((q_idx != 3).at(q=q_idx + 1), "(~(q_idx == 3)).at(q=q_idx + 1)"),
    ((-2) ** q_idx > kv_idx, "(-2)**q_idx > kv_idx"),
    (-(2**q_idx) > kv_idx, "-2**q_idx > kv_idx"),
    (ma.power(-0.5, q_idx) > kv_idx, "(-0.5)**q_idx > kv_idx"),
    (kv_idx > scalar(-2.5, "base") ** q_idx, "kv_idx > (-2.5)**q_idx"),
    (kv_idx < truncate(-q_idx / 2), "kv_idx < trunc(-q_idx / 2)"),
    (q_idx < math.inf, "q_idx < inf"),
]  # fmt: skip


def test_exclusive_masks_are_refused_before_they_fill_the_memory() -> None:
    masks = [sliding(n) for n in range(1, 41)]
    odd = reduce(add, [ma.where(mask, 1, 0) for mask in masks[:9]]) % 2 == 1
    assert torch.equal(odd.to_dense(12), reduce(xor, masks[:9]).to_dense(12))
    with pytest.raises(ma.MaskValueError, match=r"`\^`: the formula would be too large.*% 2 == 1"):
        reduce(xor, masks)


@pytest.mark.parametrize(("expression", "text"), PRINTED, ids=[text for _, text in PRINTED])
def test_printed(expression: Expression, text: str) -> None:
    assert repr(expression) == str(expression) == text


NAMES: dict[str, Any] = {name: getattr(ma, name) for name in dir(ma) if not name.startswith("_")}
NAMES |= {
    "min": lambda *parts: reduce(minimum, parts),
    "max": lambda *parts: reduce(maximum, parts),
    "trunc": truncate,
    "inf": math.inf,
}


@pytest.mark.parametrize("text", [text for _, text in PRINTED])
def test_what_is_printed_can_be_typed(text: str) -> None:
    expression = {shown: e for e, shown in PRINTED}[text]
    again = eval(text, NAMES)
    assert type(again) is type(expression)
    if "scalar" not in text and "q_idx" not in text:
        assert again == expression
    assert repr(again) == text
    same_attention(again, expression)


class _Constants(ast.NodeTransformer):
    """Numbers as constant expressions, so that Python does not compute with them on its own."""

    def visit_Constant(self, node: ast.Constant) -> ast.Call:
        return ast.Call(ast.Name("number", ast.Load()), [node], [])


def _number(value: int) -> Index:
    """A constant expression; those past 32 bits are computed."""
    if abs(value) < 2**31:
        return 0 * q_idx + value
    return _number(value // 2**20) * 2**20 + value % 2**20


@given(comparisons(depth=3))
@settings(max_examples=300)
def test_printed_formulas_mean_what_they_say(case: Case) -> None:
    """Read back as Python, with numbers in place of named values, the mask is the same."""
    values = case.mask.parameters
    assume(not any(name.endswith("_2") for name in values))
    names = {name: table(v, name) for name, v in values.items() if isinstance(v, torch.Tensor)}
    names |= {**NAMES, "number": _number}
    tree = ast.fix_missing_locations(_Constants().visit(ast.parse(repr(case.mask), mode="eval")))
    again = eval(compile(tree, "printed", "eval"), names)
    assert_same_mask(case.mask, again, 9, 11, batch=BATCH, heads=HEADS)


def test_tensors_print_as_their_name_and_shape() -> None:
    assert repr(document(IDS)) == "document(ids[6])"
    assert repr(document(IDS, IDS[None])) == "document(ids[6], kv_ids[1, 6])"
    assert repr(causal + M) == "causal + alibi(slopes[2])"
    assert repr(relative(torch.ones(2, 5))) == "relative(table[2, 5])"
    assert repr(padding(torch.tensor([3]), queries=True)) == "padding(lengths[1], queries=True)"
    assert repr(prefix(torch.tensor([3, 4]))) == "prefix(prefix[2])"
    assert repr(dense(torch.ones(3, 4, dtype=torch.bool))) == "dense(dense[3, 4])"
    assert repr(table(IDS, "kinds")[kv_idx] == 2) == "kinds[kv_idx] == 2"
    assert "q_shift[2]" in repr(causal.shift(q=torch.tensor([1, 2])))


def test_index_expressions_print() -> None:
    assert repr(q_idx - kv_idx) == "q_idx - kv_idx"
    assert repr(batch * 2 + head) in ("head + 2*batch", "2*batch + head")


# --- bind, parameters, to, pickle ----------------------------------------------------------------


def test_parameters_by_name() -> None:
    mask = causal & sliding(4) & document(IDS) + M
    assert set(mask.parameters) == {"window", "ids", "slopes"}
    assert mask.parameters["window"] == 4
    assert mask.parameters["ids"] is IDS
    assert mask.parameters["slopes"] is SLOPES
    assert causal.parameters == {}


def test_second_parameter_of_a_name_is_numbered() -> None:
    mask = sliding(4) | sliding(9)
    assert sorted(mask.parameters) == ["window", "window_2"]
    assert sorted(mask.parameters.values()) == [4, 9]


@pytest.mark.parametrize(
    "mask",
    [
        prefix(3) | causal & prefix(5),
        (q_idx - kv_idx < scalar(3, "prefix")) & (kv_idx < scalar(5, "prefix")),
        (prefix(3) | causal & prefix(5)).shift(q=1),
        ((prefix(3) | causal & prefix(5)) + M).mask,
        where(head < 2, prefix(3), causal & prefix(5)),
    ],
    ids=str,
)
def test_names_are_numbered_in_the_order_written(mask) -> None:
    found = mask.parameters
    assert found["prefix"] == 3 and found["prefix_2"] == 5
    assert mask.bind(prefix=9).parameters == {**found, "prefix": 9}


def test_the_order_written_is_no_part_of_the_structure() -> None:
    one, other = prefix(3) | causal & prefix(5), causal & prefix(5) | prefix(3)
    assert bound(one).structure is bound(other).structure and one == other
    assert str(one.bind(prefix=9)) == "prefix(9) | causal & prefix(5)"
    assert one.bind(prefix=9) == other.bind(prefix_2=9)


def test_tables_of_one_tensor_are_one_parameter() -> None:
    other = IDS.flip(0)
    once = table(IDS)[q_idx] == table(IDS)[kv_idx]
    assert list(once.parameters) == ["table"] and repr(once) == "table[kv_idx] == table[q_idx]"
    moved = once.bind(table=other.tolist())
    assert list(moved.parameters) == ["table"]
    assert_same_mask(moved, document(other), len(IDS))
    assert repr(document(IDS) & document(IDS)) == "document(ids[6]) & document(ids[6])"


def test_tables_of_several_tensors_print_under_the_names_that_bind_takes() -> None:
    mask = table(IDS, "rank")[q_idx] >= table(IDS.flip(0), "rank")[kv_idx]
    assert repr(mask) == "rank[q_idx] >= rank_2[kv_idx]"
    assert repr(mask.bind(rank_2=IDS)) == "rank[q_idx] >= rank[kv_idx]"
    mask = document(IDS) & document(IDS.flip(0))
    assert repr(mask) == "document(ids[6]) & document(ids_2[6])"


def test_bind_gives_the_same_structure_with_other_values() -> None:
    mask = causal & sliding(4)
    other = mask.bind(window=7)
    assert other == causal & sliding(7)
    assert repr(other) == "causal & sliding(7)"
    assert mask == causal & sliding(4), "the first one is as it was"
    assert mask.bind({"window": 7}) == other
    assert mask.bind() == mask
    ids = torch.tensor([5, 5, 6])
    assert document(IDS).bind(ids=ids) == document(ids)
    assert repr(document(IDS).bind(ids=ids)) == "document(ids[3])"
    assert_same_mask(other, causal & sliding(7), 12)


def test_bind_reaches_every_place_and_the_printed_form() -> None:
    cap = softcap(3.0).bind(cap=5)
    assert cap == softcap(5.0) and repr(cap) == "softcap(5.0)"
    moved = causal.shift(q=3).bind(q_shift=5)
    assert moved == causal.shift(q=5) and repr(moved) == "causal.shift(q=5)"
    formula = (q_idx >= scalar(4, "start")).bind(start=9)
    assert repr(formula) == "q_idx >= 9"
    assert_same_mask(formula, q_idx >= 9, 12)
    assert repr((2 * softcap(3.0)).bind(factor=4)) == "4.0 * softcap(3.0)"
    assert repr((softcap(2.0) + 1).bind(constant=5)) == "softcap(2.0) + 5.0"
    near = sliding(4)
    assert (near | ~near).bind(window=6).parameters == {"window": 6}
    assert sliding(4).shift(q=1).bind(window=2, q_shift=3) == sliding(2).shift(q=3)


def test_bind_a_longer_table_of_distances() -> None:
    longer = torch.arange(9.0)
    same_attention(relative(torch.ones(5)).bind(table=longer), relative(longer))


def test_to_keeps_one_tensor_one() -> None:
    mask = document(IDS) & document(IDS).shift(kv=1) & padding(torch.tensor([4]))
    moved = mask.to("meta")
    tensors = [v for v in moved.parameters.values() if isinstance(v, torch.Tensor)]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert len({id(tensor) for tensor in tensors}) == 2
    assert mask.to("cpu") == mask


@pytest.mark.parametrize("expression", [e for e, _ in PRINTED], ids=[t for _, t in PRINTED])
def test_pickled_without_tensors_is_equal(expression: Expression) -> None:
    again = pickle.loads(pickle.dumps(expression))
    assert again == expression and hash(again) == hash(expression)
    assert type(again) is type(expression) and repr(again) == repr(expression)


def test_pickled_with_tensors_means_the_same() -> None:
    mask = causal & document(IDS) & document(IDS).shift(q=1)
    again = pickle.loads(pickle.dumps(mask))
    assert again != mask, "another tensor"
    assert repr(again) == repr(mask) and hash(again) == hash(mask)
    assert_same_mask(again, mask, 5, 6)
    assert again.prove() is mask.prove()
    assert again.bind(ids=IDS) == mask
    score = pickle.loads(pickle.dumps(mask + M))
    same_attention(score, mask + M)


def test_expressions_do_not_change() -> None:
    mask = causal & sliding(4)
    text, key = repr(mask), hash(mask)
    mask.bind(window=9), mask.shift(q=3), mask | prefix(2), ~mask, mask + M
    assert (repr(mask), hash(mask)) == (text, key)


def test_shift_moves_masks_and_biases() -> None:
    assert_same_mask((causal & sliding(3)).shift(q=2), window(2, 0).shift(q=1).shift(q=1), 7, 9)
    assert_same_mask(causal.shift(q=3, kv=3), causal, 8)
    score = (causal + M).shift(q=2)
    assert repr(score) == "(causal + alibi(slopes[2])).shift(q=2)"
    same_attention(score, causal.shift(q=2) + M.shift(q=2))


def test_a_mask_of_a_boolean_table_is_a_mask() -> None:
    flags = table(torch.tensor([True, False, True]), "flags")[kv_idx]
    assert isinstance(flags, Mask) and repr(flags & causal) == "flags[kv_idx] & causal"


def test_a_score_and_a_mask_in_either_order():
    traced = ma.score(lambda s, b, h, q, k: torch.where(q - k < 3, s * 2, float("-inf")))
    for both in (traced + causal, causal + traced, traced & causal, causal & traced):
        assert isinstance(both, Score)
        assert torch.equal(both.mask.to_dense(8), (causal & (ma.q_idx - ma.kv_idx < 3)).to_dense(8))


def test_exclusive_or_is_what_one_of_two_keeps() -> None:
    a, b = causal, sliding(3)
    assert_same_mask(a ^ b, (a & ~b) | (b & ~a), 9)
    assert ma.xor(a, b) == a ^ b and repr(a ^ b) == "causal ^ sliding(3)"
    assert repr((a ^ b) & a) == "(causal ^ sliding(3)) & causal"
    assert repr(a & b ^ a | b) == "causal & sliding(3) ^ causal | sliding(3)"
    assert (a ^ a).to_dense(5).sum() == 0 and (a ^ b).prove().exact


def test_bits_print_in_parentheses() -> None:
    bits = ma.mask(lambda b, h, q, k: (q & 3) == (k | 1))
    assert repr(bits) == "(3 & q_idx) == (1 | kv_idx)"


def test_scores_write_out_what_they_add(capsys: pytest.CaptureFixture[str]) -> None:
    score = causal & sliding(3) + M
    dense = score.to_dense(6, 5)
    at = torch.arange(5) - torch.arange(6)[:, None]
    wanted = torch.where(score.mask.to_dense(6, 5), SLOPES[:, None, None] * at, -torch.inf)
    assert dense.dtype == torch.float32 and torch.equal(dense, wanted)
    assert (causal + ma.bias(ma.batch * 1.0)).to_dense(3, batch=2).shape == (2, 1, 3, 3)
    q = torch.randn(1, 2, 6, 8)
    plain = torch.nn.functional.scaled_dot_product_attention(q, q, q, score.to_dense(6))
    torch.testing.assert_close(attention(q, q, q, score), plain)
    with pytest.raises(ma.MaskValueError, match="does more to a score than adding"):
        (causal + softcap(3.0)).to_dense(4)
    score.show(8, head=1)
    shown = capsys.readouterr().out
    assert shown.startswith(f"{score}\n") and "note     head 1 of 2" in shown
