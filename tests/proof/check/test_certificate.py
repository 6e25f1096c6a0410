"""Certificates: true closed forms are verified, false ones never, and z3 agrees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, make_dataclass, replace

import pytest
import sympy as sp
import torch

from maskalg import causal, dense, q_idx, sliding
from maskalg.formula import nodes
from maskalg.formula.laws import All, NotNegative, equal, negated
from maskalg.formula.nodes import Node
from maskalg.proof.check.certificate import _FORM_FIELDS, _SPAN_FIELDS
from maskalg.proof.check.cubes import cases, cubes
from maskalg.proof.check.refutation import refuted
from maskalg.proof.closed_forms import ClosedForms, Section, Span
from maskalg.proof.proof import Proof
from maskalg.testing.catalogue import CATALOGUE
from tests.proof.check.z3_formulas import Z3

VERIFIED = [
    "everything", "nothing", "causal", "sliding", "window", "window, open to the left",
    "window, open to the right", "prefix", "prefix per batch", "padding", "block causal",
    "causal sliding", "sinks and window", "prefix LM", "padded causal", "decoding step",
]  # fmt: skip
SLOW = ["chunked", "global and window", "band ring", "heads of two kinds"]


@pytest.mark.parametrize("name", VERIFIED + SLOW)
def test_sound_and_exact_for_all_values(name: str) -> None:
    certificate = CATALOGUE[name].mask.prove().check()
    assert certificate.sound and certificate.exact, str(certificate)
    assert str(certificate).endswith("verified  sound and exact")


@pytest.mark.parametrize(
    "name",
    [
        "document",
        "document with ids of keys per batch",
        "causal documents",
        "documents or a window",
    ],
)
def test_documents_are_exact_by_the_laws_of_their_tables(name: str) -> None:
    certificate = CATALOGUE[name].mask.prove().check()
    assert certificate.sound and certificate.exact, str(certificate)
    claims = [claim for claim in certificate.obligations if "contiguous" in claim.claim]
    assert claims and all("contiguous documents" in claim.by for claim in claims)


MORE = [
    "dilated", "one remainder of four", "dilated sliding", "kinds of keys", "modality",
    "global tokens per batch", "tree numbered depth first", "permutation", "causal block table",
    "decoding step by a tensor", "media with both ends", "shared prefix",
    "window that grows with the head", "Longformer", "other documents", "Transfusion in documents",
    "prefix per document that recurs", "block diffusion with a cut block",
]  # fmt: skip


@pytest.mark.parametrize("name", MORE)
def test_remainders_sets_and_sections(name: str) -> None:
    certificate = CATALOGUE[name].mask.prove().check()
    assert certificate.sound and certificate.exact, str(certificate)


def with_section(proof: Proof, change: Callable[[Section], Section]) -> Proof:
    """The proof with the section of its first touched span changed."""
    span = proof.forms.touched[0]
    assert span.section is not None
    changed = replace(span, section=change(span.section))
    return replace(proof, forms=replace(proof.forms, touched=(changed, *proof.forms.touched[1:])))


def test_sections_that_count_other_pairs_are_refuted() -> None:
    proof = CATALOGUE["permutation"].mask.prove()
    (f, g), one = proof.forms.touched[0].section.order[0], nodes.const(1)  # type: ignore[union-attr]
    fewer = with_section(proof, lambda s: replace(s, order=((f, nodes.subtract(g, one)),)))
    more = with_section(proof, lambda s: replace(s, order=((f, nodes.add(g, one)),)))
    assert proof.check().exact
    assert not fewer.check().sound
    assert more.check().sound and not more.check().exact


def test_remainders_that_are_others_are_refuted() -> None:
    proof = CATALOGUE["one remainder of four"].mask.prove()
    span = proof.forms.touched[0]
    assert span.residue is not None
    moved = replace(span, residue=replace(span.residue, residue=nodes.const(3)))
    certificate = replace(proof, forms=replace(proof.forms, touched=(moved,))).check()
    assert not certificate.sound and not certificate.exact


def test_no_claim_of_exactness_is_verified_where_none_is_made() -> None:
    proof = (causal & dense(torch.ones(4, 4, dtype=torch.bool))).prove()
    certificate = proof.check()
    assert not proof.exact and certificate.sound and not certificate.exact


def test_printed() -> None:
    assert str(causal.prove().check()) == (
        "touched   sound  in an interval, where q_idx >= kv_idx\n"
        "                 linear arithmetic\n"
        "touched   exact  some query keeps each key: kv_idx <= q1\n"
        "                 linear arithmetic\n"
        "not full  sound  in an interval, where ~(q_idx >= kv_idx)\n"
        "                 linear arithmetic\n"
        "not full  exact  some query keeps each key: q0 + 1 <= kv_idx\n"
        "                 linear arithmetic\n"
        "verified  sound and exact"
    )


# --- false closed forms --------------------------------------------------------------------------

Change = Callable[[Node], Node]


def moved(by: int) -> Change:
    return lambda bound: nodes.add(bound, nodes.const(by))


def changes(proof: Proof, tighter: bool) -> list[tuple[str, Proof]]:
    """The proof with one bound of one interval moved by one, for each of them."""
    found: list[tuple[str, Proof]] = []
    for side in ("touched", "unfull"):
        spans: tuple[Span, ...] = getattr(proof.forms, side)
        for i, span in enumerate(spans):
            for ends, inward in (("lows", 1), ("highs", -1)):
                for j, bound in enumerate(getattr(span, ends)):
                    new = moved(inward if tighter else -inward)(bound)
                    bounds = getattr(span, ends)
                    changed = replace(span, **{ends: (*bounds[:j], new, *bounds[j + 1 :])})
                    forms = replace(proof.forms, **{side: (*spans[:i], changed, *spans[i + 1 :])})
                    found.append((f"{side} {i} {ends} {j}", replace(proof, forms=forms)))
    return found


MUTATED = ["causal", "causal sliding", "prefix LM", "block causal", "causal documents"]


@pytest.mark.parametrize("name", MUTATED)
def test_intervals_that_are_too_narrow_are_not_sound(name: str) -> None:
    mutants = changes(CATALOGUE[name].mask.prove(), tighter=True)
    assert mutants
    for what, proof in mutants:
        assert not proof.check().sound, f"{what}\n{proof.check()}"


@pytest.mark.parametrize("name", ["causal", "causal sliding", "block causal"])
def test_intervals_that_are_too_wide_are_sound_and_not_exact(name: str) -> None:
    mutants = changes(CATALOGUE[name].mask.prove(), tighter=False)
    assert mutants
    for what, proof in mutants:
        certificate = proof.check()
        assert certificate.sound and not certificate.exact, f"{what}\n{certificate}"


def test_a_missing_interval_is_not_sound() -> None:
    proof = (causal & sliding(4)).prove()
    forms = replace(proof.forms, unfull=proof.forms.unfull[:1])
    assert not replace(proof, forms=forms).check().sound
    assert not replace(proof, forms=replace(proof.forms, touched=())).check().sound


def test_a_closed_form_that_says_more_is_not_verified() -> None:
    proof = causal.prove()
    wider = make_dataclass("Wider", [("extra", object, None)], bases=(ClosedForms,), frozen=True)
    forms = wider(proof.forms.touched, proof.forms.unfull, "closed form", (), extra="more")
    certificate = replace(proof, forms=forms).check()
    assert not certificate.sound and "unchecked: extra" in str(certificate)
    more = make_dataclass("MoreSpan", [("extra", object, None)], bases=(Span,), frozen=True)
    span = more(**vars(proof.forms.touched[0]), extra="more")
    assert not replace(proof, forms=replace(proof.forms, touched=(span,))).check().sound


def test_a_field_that_is_new_has_no_claim_yet() -> None:
    """Fields are listed by hand, so that adding one leaves proofs unverified until it has."""
    assert {field.name for field in fields(Span)} == set(_SPAN_FIELDS)
    assert {field.name for field in fields(ClosedForms)} == set(_FORM_FIELDS)


# --- the solver's door ---------------------------------------------------------------------------


def test_refutation_is_over_the_integers() -> None:
    x, y = sp.symbols("x y", real=True)
    assert refuted([NotNegative(2 * x - 1), NotNegative(1 - 2 * x)])
    assert refuted([NotNegative(x * y - 3), NotNegative(2 - x * y)])
    assert not refuted([NotNegative(x - y), NotNegative(y - x)])
    assert not refuted([])
    assert refuted([negated(All(()))])
    assert refuted([equal(x, 3), negated(equal(x, 3))])


def test_cubes() -> None:
    mask = (causal & sliding(4)) | (q_idx < 3)
    assert len(cubes(mask.prove().mask, True)) == 2
    assert len(cubes(mask.prove().mask, False)) == 3
    assert cubes(nodes.FALSE, True) == [] and cubes(nodes.FALSE, False) == [nodes.TRUE]


def test_cases_of_choices() -> None:
    """A cube with two choices is four cubes without, which say the same together."""
    a, b = (nodes.where(nodes.ge(nodes.Q, nodes.const(n)), nodes.K, nodes.Q) for n in (3, 7))
    cube = nodes.conjunction(nodes.ge(a, nodes.const(5)), nodes.ge(nodes.const(9), b))
    found = cases(cube)
    assert len(found) == 4 and not any(n.op == "where" for one in found for n in one.walk())
    z = Z3()
    assert z.answer(z.of(cube) != z.z3.Or(*map(z.of, found))) == "unsat"
    assert z.answer(z.of(cube) != z.z3.Or(*map(z.of, found[1:]))) == "sat"
    assert cases(nodes.ge(nodes.Q, nodes.K)) == [nodes.ge(nodes.Q, nodes.K)]


# --- z3 ------------------------------------------------------------------------------------------


FLOOR_DIVISION = ["block causal"]
AFFINE = [
    "causal",
    "sliding",
    "window",
    "prefix",
    "causal sliding",
    "sinks and window",
    "prefix LM",
]


@pytest.mark.parametrize("name", AFFINE + FLOOR_DIVISION)
def test_z3_finds_no_value_that_contradicts_the_closed_forms(name: str) -> None:
    proof = CATALOGUE[name].mask.prove()
    for negate, spans in ((False, proof.forms.touched), (True, proof.forms.unfull)):
        z = Z3()
        q, k, q0, q1 = (
            z.of(node)
            for node in (nodes.Q, nodes.K, *(Node("index", "int", data=n) for n in ("q0", "q1")))
        )
        mask = z.of(nodes.negation(proof.mask) if negate else proof.mask)
        tile = [q0 >= 0, q0 <= q, q <= q1, k >= 0]
        outside = [z.z3.Not(z.holds(span)) for span in spans]
        assert z.answer(mask, *tile, *outside) == "unsat"
        for span in spans:
            unmet = z.z3.ForAll([q], z.z3.Not(z.z3.And(q0 <= q, q <= q1, mask)))
            hard = name in FLOOR_DIVISION
            found = z.answer(
                z.holds(span), q0 >= 0, q0 <= q1, k >= 0, unmet,
                milliseconds=2_000 if hard else 20_000,
            )  # fmt: skip
            assert found == "unsat" or (hard and found == "unknown"), found


def test_z3_refutes_narrower_intervals() -> None:
    """The control: without it, "unsat" could come from a contradiction in the translation."""
    for what, proof in changes(CATALOGUE["causal sliding"].mask.prove(), tighter=True):
        answers = []
        for negate, spans in ((False, proof.forms.touched), (True, proof.forms.unfull)):
            z = Z3()
            q, k, q0, q1 = (
                z.of(Node("index", "int", data=n)) for n in ("q_idx", "kv_idx", "q0", "q1")
            )
            mask = z.of(nodes.negation(proof.mask) if negate else proof.mask)
            outside = [z.z3.Not(z.holds(span)) for span in spans]
            answers.append(z.answer(mask, q0 >= 0, q0 <= q, q <= q1, k >= 0, *outside))
        assert "sat" in answers, what
