"""What proofs say: printed closed forms, contradictions, budgets, and where exact is exact."""

from __future__ import annotations

from functools import reduce

import pytest
import sympy as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

import maskalg as ma
from maskalg import (
    alibi,
    block_causal,
    causal,
    chunked,
    dense,
    dilated,
    document,
    everything,
    kv_idx,
    nothing,
    padding,
    prefix,
    q_idx,
    scalar,
    sliding,
    window,
)
from maskalg.proof import symbols
from maskalg.proof.proof import Proof
from maskalg.proof.symbols import FloorDiv, Step
from maskalg.schedule.intervals.steps import step_tables
from maskalg.testing import assert_closed_forms_sound, assert_labels_exact
from maskalg.testing.catalogue import CATALOGUE

IDS = torch.tensor([0] * 5 + [1] * 6 + [2] * 5)


def lines(mask: ma.Mask, title: str) -> list[str]:
    """The lines of a printed proof under `touched` or `not full`."""
    found: list[str] = []
    inside = False
    for line in str(mask.prove()).splitlines():
        inside = line.startswith(title) or (inside and line.startswith("      or"))
        if inside:
            found.append(line[9:].strip())
    return found


def says(mask: ma.Mask, touched: list[str], unfull: list[str]) -> Proof:
    assert lines(mask, "touched") == touched
    assert lines(mask, "not full") == unfull
    return mask.prove()


def test_causal() -> None:
    assert says(causal, ["k <= q1"], ["q0 + 1 <= k"]).exact


def test_causal_and_sliding() -> None:
    says(
        causal & sliding(4),
        ["q0 - window + 1 <= k <= q1"],
        ["k <= q1 - window", "q0 + 1 <= k"],
    )


def test_sinks_and_window() -> None:
    says(
        causal & (sliding(4) | prefix(2)),
        ["q0 - window + 1 <= k <= q1", "k <= min(prefix - 1, q1)"],
        ["q0 + 1 <= k", "prefix <= k <= q1 - window"],
    )


def test_causal_and_document() -> None:
    # A query's own key bounds its document on one side, the diagonal on the other.
    says(
        causal & document(IDS),
        ["first_ids(q0) <= k <= q1"],
        ["k <= start_ids(q1) - 1", "q0 + 1 <= k"],
    )


def test_chunks() -> None:
    says(
        chunked(4),
        ["chunk*(q0 // chunk) <= k <= chunk*(q1 // chunk) + chunk - 1"],
        ["k <= chunk*(q1 // chunk) - 1", "chunk*(q0 // chunk) + chunk <= k"],
    )
    says(
        block_causal(4),
        ["k <= chunk*(q1 // chunk) + chunk - 1"],
        ["chunk*(q0 // chunk) + chunk <= k"],
    )


def test_dilated_window() -> None:
    says(
        sliding(4) & dilated(2),
        ["q0 - window + 1 <= k <= q1 + window - 1, where some (q - k) % dilation == 0"],
        [
            "every key, where some (q - k) % dilation != 0",
            "q0 + window <= k",
            "k <= q1 - window",
        ],
    )


def test_padding_of_a_batch() -> None:
    says(
        causal & padding(torch.tensor([3, 4])),
        ["k <= min(lengths[batch] - 1, q1)"],
        ["q0 + 1 <= k", "lengths[batch] <= k"],
    )


def test_whole_proof_as_printed() -> None:
    text = str((causal & document(IDS)).prove()).splitlines()
    assert text[:-1] == [
        "mask      (ids[kv_idx] == ids[q_idx]) & (q_idx >= kv_idx)",
        "for a tile of queries q0..q1 and keys k0..k1:",
        "touched   first_ids(q0) <= k <= q1",
        "not full  k <= start_ids(q1) - 1",
        "      or  q0 + 1 <= k",
        "EMPTY     iff k0..k1 meets no touched key",
        "FULL      iff k0..k1 meets no key that is not full",
    ]
    assert text[-1].startswith(
        "proof     exact if equal entries of ids are contiguous (closed form, "
    )


def test_assumptions_are_printed() -> None:
    assert "given     window >= 1" in str(sliding(4).prove()).splitlines()
    assert "given     lengths[batch] >= 0" in str(padding(torch.tensor([3])).prove())


def test_contradiction_touches_nothing() -> None:
    for mask in (causal & ~causal, causal & sliding(3) & (kv_idx >= q_idx + 1)):
        assert lines(mask, "touched") == ["no key"]
        assert mask.prove().exact
        assert mask.blocks(16, block=4).counts() == (16, 0, 0)


def test_tautology_has_no_key_that_is_not_full() -> None:
    near = sliding(3)
    for mask in (causal | ~causal, everything, near | ~near):
        assert lines(mask, "not full") == ["no key"]
        assert mask.blocks(16, block=4).counts() == (0, 0, 16)
    assert lines(nothing, "touched") == ["no key"]


def test_a_window_never_exceeds_its_causal_half() -> None:
    # Holds for all windows, so the part that is implied must not be printed.
    assert lines(causal & window(4, 3), "touched") == lines(causal & window(4, None), "touched")


def test_what_cannot_be_proved_says_so() -> None:
    opaque = dense(torch.ones(4, 4, dtype=torch.bool))
    proof = opaque.prove()
    assert (proof.exact, proof.rung) == (False, "evaluation")
    assert proof.reasons == ("dense[q_idx, kv_idx] is not a comparison of positions",)
    assert "EMPTY     if k0..k1" in str(proof), "not `iff`"
    half = (causal & opaque).prove()
    assert (half.exact, half.rung) == (False, "evaluation")
    assert lines(causal & opaque, "touched") == ["k <= q1 (at most)"]
    product = (q_idx * kv_idx >= 8).prove()
    assert not product.exact and "query index" in product.reasons[0]
    places = torch.tensor([2, 3])
    moved = (causal & document(torch.tensor([0, 0, 1, 1]))).at(q=places, kv=places).prove()
    text = "ids[kv_positions[kv_idx]] == ids[kv_positions[q_idx]]"
    assert f"{text} is an equality of entries" in moved.reasons


def groups(count: int) -> ma.Mask:
    """`count` unrelated alternatives: 2 ** count clauses."""
    parts = [
        (q_idx >= scalar(i, f"a{i}")) | (kv_idx >= scalar(2 * i, f"b{i}")) for i in range(count)
    ]
    return reduce(lambda left, right: left & right, parts)


def test_names_are_those_that_bind_takes() -> None:
    """In the formula the second window comes first."""
    mask = ~ma.sliding(3) & ma.sliding(9)
    assert mask.parameters == {"window": 3, "window_2": 9}
    assert lines(mask, "touched")[0].startswith("q0 + window <= k <= q1 + window_2 - 1")
    assert lines(ma.sliding(9) & ~ma.sliding(3), "touched")[0].startswith("q0 + window_2 <= k")


def test_over_budget_is_evaluated_and_does_not_hang() -> None:
    proof = groups(12).prove()
    assert not proof.exact
    assert proof.reasons[0].startswith("more than ")
    assert lines(groups(12), "touched") == ["every key (at most)"]
    assert_labels_exact(groups(12), 32, block=8)
    # The negation is small, so full blocks are still proved.
    assert len(lines(groups(12), "not full")) == 12
    assert groups(5).prove().exact


def test_both_sides_over_budget() -> None:
    mask = groups(9) & ~groups(9).shift(q=3)
    assert mask.prove().rung == "summaries"
    assert_labels_exact(mask, 24, block=8)


def test_a_bias_takes_no_part_in_the_proof() -> None:
    biased = causal & sliding(4) + alibi(torch.ones(2))
    assert str(biased.mask.prove()) == str((causal & sliding(4)).prove())


@pytest.mark.parametrize("name", CATALOGUE)
def test_exact_is_exact(name: str) -> None:
    """No block is left open, and no key is claimed that is not touched (see assertions)."""
    mask = CATALOGUE[name].mask
    for length, block in ((37, 5), (40, 8)):
        assert_labels_exact(mask, length, block=block, batch=2, heads=3)
        assert_closed_forms_sound(mask, length, block_q=block, batch=2, heads=3)


@pytest.mark.parametrize("name", [name for name in CATALOGUE if "dense" not in name])
def test_the_catalogue_is_proved_exactly(name: str) -> None:
    assert CATALOGUE[name].mask.prove().exact
    assert CATALOGUE[name].mask.blocks(40, block=7, batch=2, heads=3).evaluated == 0


# --- the table of monotone functions -------------------------------------------------------------


@given(st.integers(1, 9), st.integers(-30, 30), st.integers(-30, 30))
def test_inverse_of_floor_division(c: int, x: int, n: int) -> None:
    position = sp.Symbol("x", integer=True)
    function = FloorDiv(position, sp.Symbol("c", integer=True))
    for side, holds in ((symbols.lower, x // c >= n), (symbols.upper, x // c <= n)):
        of, bound = side(function, sp.Integer(n))
        assert of == position
        value = int(bound.subs(sp.Symbol("c", integer=True), c))
        assert holds == (x >= value if side is symbols.lower else x <= value)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=10), st.sampled_from((True, False)))
def test_inverse_of_document_tables(entries: list[int], own: bool) -> None:
    """f(x) >= n iff x >= lower(n), and f(x) <= n iff x <= upper(n), inside the tables."""
    q_ids = torch.tensor(entries)
    tables = step_tables(q_ids, q_ids if own else q_ids.flip(0))

    def value(step: Step, at: int) -> int:
        table = tables.named(step.table + ("'" if step.inverse else "")).reshape(-1)
        return int(table[at])

    x = sp.Symbol("x", integer=True)
    for name in ("first", "last", "start", "end"):
        step = Step(sp.Symbol(name), sp.Symbol("ids"), sp.Integer(0), x)
        for n in range(1, len(entries) - 1):
            for side in (symbols.lower, symbols.upper):
                of, bound = side(step, sp.Integer(n))
                assert of == x
                (inverse,) = bound.atoms(Step)
                limit = value(inverse, int(inverse.position)) + int(bound - inverse)
                for at in range(len(entries)):
                    found = value(step, at)
                    if side is symbols.lower:
                        assert (found >= n) == (at >= limit), f"{name}({at}) >= {n}, {entries}"
                    else:
                        assert (found <= n) == (at <= limit), f"{name}({at}) <= {n}, {entries}"


def test_floor_division_takes_multiples_out() -> None:
    x, c = sp.Symbol("x", integer=True), sp.Symbol("c", integer=True)
    assert FloorDiv(x + 2 * c, c) == FloorDiv(x, c) + 2
    assert FloorDiv(x, sp.Integer(1)) == x
    assert FloorDiv(sp.Integer(-7), sp.Integer(2)) == -4
    assert FloorDiv(6 * x + 1, sp.Integer(3)) == 2 * x


def test_unknown_functions_name_the_file_to_edit() -> None:
    with pytest.raises(NotImplementedError, match=r"proof/symbols\.py"):
        symbols.lower(sp.Function("f")(sp.Symbol("x")), sp.Integer(0))
    with pytest.raises(NotImplementedError, match=r"proof/symbols\.py"):
        symbols.upper(sp.Function("f")(sp.Symbol("x")), sp.Integer(0))


def test_either_side_of_a_condition() -> None:
    """Keys before a place follow one mask, those after it another: the sides do not multiply."""
    before = ma.scalar(40, "before", low=1)
    first = causal & ma.padding.from_mask(torch.arange(64)[None] >= 9)
    chosen = (first & (kv_idx < before)) | (sliding(9) & ma.prefix(50) & (kv_idx >= before))
    proof = chosen.prove()
    assert proof.exact and len(proof.unfull) == 5
    swapped = (first & (kv_idx >= before)) | (ma.nothing | sliding(9)) & (before > kv_idx)
    for mask in (chosen, swapped):
        assert_labels_exact(mask, 64, block=8)
        assert_closed_forms_sound(mask, 64, block_q=8)
