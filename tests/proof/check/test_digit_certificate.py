"""Certificates of masks decided by digits: true forms are verified, false ones never."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import make_dataclass, replace
from typing import Any, cast

import numpy as np
import pytest

import maskalg as ma
from maskalg import head, kv_idx, neighborhood, q_idx, spatial, temporal, tiled_neighborhood
from maskalg.engine.extents import Lengths, resolve
from maskalg.engine.normal_form import bound
from maskalg.formula import nodes
from maskalg.formula.nodes import Node
from maskalg.proof.check.digit_certificate import digit_claims
from maskalg.proof.digits.forms import Axis, AxisSpan, BoxClause, DigitForms, DigitPart, Split
from maskalg.proof.proof import Proof
from maskalg.schedule.digits.rung import DigitRung
from maskalg.schedule.tile_runs import PARTIAL
from maskalg.schedule.tiling import Tiling
from maskalg.testing import oracle
from maskalg.testing.catalogue import CATALOGUE


@pytest.mark.parametrize(
    "name",
    [
        "neighborhood on a line",
        "neighborhood on an image",
        "causal neighborhood",
        "heads within frames and across them",
    ],
)
def test_sound_and_exact_for_all_values(name: str) -> None:
    certificate = CATALOGUE[name].mask.prove().check()
    assert certificate.sound and certificate.exact, str(certificate)


def test_an_offset_moves_the_digits() -> None:
    proof = (abs(q_idx % 5 - (kv_idx + 3) % 5) <= 1).prove()
    assert proof.rung == "digits"
    assert proof.check().exact, str(proof.check())


def test_printed() -> None:
    lines = str((q_idx % 4 >= kv_idx % 4).prove().check()).splitlines()
    assert lines[:8] == [
        "touched   sound  in a clause of digits, where q_idx % 4 >= kv_idx % 4",
        "                 linear arithmetic with the laws of floor division",
        "touched   exact  each pair of a clause is met: x % 4",
        "                 linear arithmetic with the laws of floor division",
        "touched   sound  kept of every interval around a query: x % 4: k <= q1",
        "                 linear arithmetic",
        "touched   exact  each coordinate is met: x % 4: k <= q1",
        "                 linear arithmetic",
    ]
    assert lines[-1] == "verified  sound and exact"


# --- false forms ---------------------------------------------------------------------------------


def mutants(forms: DigitForms) -> Iterator[tuple[str, DigitForms]]:
    """The forms with one number moved by one, or with one bound, span, clause or part left out."""
    for i, part in enumerate(forms.parts):
        for what, changed in _of_part(part):
            if not changed and len(forms.parts) == 1:
                continue
            parts = (*forms.parts[:i], *changed, *forms.parts[i + 1 :])
            yield f"part {i} {what}", replace(forms, parts=parts)


def _of_part(part: DigitPart) -> Iterator[tuple[str, tuple[DigitPart, ...]]]:
    yield "left out", ()
    for name in ("q_offset", "k_offset"):
        more = nodes.add(getattr(part, name), nodes.const(1))
        yield f"{name} + 1", (replace(part, **{name: more}),)
    if isinstance(part.tree, Split):
        wider = replace(part.tree, radix=nodes.add(part.tree.radix, nodes.const(1)))
        yield "radix + 1", (replace(part, tree=wider),)
    for side in ("touched", "unfull"):
        clauses: tuple[BoxClause, ...] = getattr(part, side)
        for i, clause in enumerate(clauses):
            for what, found in _of_clause(clause):
                new = (*clauses[:i], *found, *clauses[i + 1 :])
                yield f"{side} {i} {what}", (replace(part, **{side: new}),)


def _of_clause(clause: BoxClause) -> Iterator[tuple[str, tuple[BoxClause, ...]]]:
    yield "left out", ()
    if clause.conditions:
        yield "conditions left out", (replace(clause, conditions=()),)
    for name in ("q_lows", "q_highs", "k_lows", "k_highs"):
        for what, bounds in _of_bounds(getattr(clause, name)):
            yield f"{name} {what}", (replace(clause, **{name: bounds}),)
    for i, (axis, spans) in enumerate(clause.axes):
        yield f"axis {i} left out", (replace(clause, axes=_put(clause.axes, i)),)
        for what, found in _of_spans(spans):
            yield f"axis {i} {what}", (replace(clause, axes=_put(clause.axes, i, (axis, found))),)
        for what, other in _of_axis(axis):
            yield f"axis {i} {what}", (replace(clause, axes=_put(clause.axes, i, (other, spans))),)


def _of_axis(axis: Axis) -> Iterator[tuple[str, Axis]]:
    if len(axis.digits) > 1:
        yield "digits in another order", replace(axis, digits=axis.digits[::-1])
        more = tuple(nodes.add(radix, nodes.const(1)) for radix in axis.radices)
        yield "radices + 1", replace(axis, radices=more)


def _of_spans(spans: tuple[AxisSpan, ...]) -> Iterator[tuple[str, tuple[AxisSpan, ...]]]:
    for i, span in enumerate(spans):
        if len(spans) > 1:
            yield f"span {i} left out", _put(spans, i)
        for name in ("lows", "highs", "guards"):
            for what, bounds in _of_bounds(getattr(span, name)):
                yield f"span {i} {name} {what}", _put(spans, i, replace(span, **{name: bounds}))


def _of_bounds(bounds: tuple[Node, ...]) -> Iterator[tuple[str, tuple[Node, ...]]]:
    for i, one in enumerate(bounds):
        yield f"{i} left out", _put(bounds, i)
        for by in (1, -1):
            yield f"{i} {by:+d}", _put(bounds, i, nodes.add(one, nodes.const(by)))


def _put(values: tuple[Any, ...], at: int, *new: Any) -> tuple[Any, ...]:
    return (*values[:at], *new, *values[at + 1 :])


def labels(mask: ma.Mask, forms: DigitForms, length: int, block: tuple[int, int]) -> np.ndarray:
    """The labels that schedules make of forms."""
    form = bound(mask)
    tiling = Tiling(form, resolve(form, Lengths(length, length, 1, 2)), block)
    labels = DigitRung(forms, False).runs(tiling).labels(tiling.shape[3])
    return labels.expand(1, 2, -1, -1).numpy()


BLOCKS = ((2, 3), (3, 1), (1, 4))


def faults(masks: list[tuple[ma.Mask, int]], forms: DigitForms) -> tuple[bool, bool]:
    """Whether forms give an unsound label, and whether one that is not exact, for these values."""
    unsound = inexact = False
    for mask, length in masks:
        dense = mask.to_dense(length, heads=2).numpy()
        dense = np.broadcast_to(dense, (1, 2, length, length))
        for block in BLOCKS:
            wanted, found = oracle.labels(dense, *block), labels(mask, forms, length, block)
            unsound |= bool(((found != wanted) & (found != PARTIAL)).any())
            inexact |= bool((found != wanted).any())
    return unsound, inexact


def proved(proof: Proof, forms: DigitForms, *kinds: str) -> bool:
    """Whether all claims of these kinds are proved; looks no further than the first that is not."""
    claims = digit_claims(proof.mask, replace(proof.forms, digits=forms))
    return all(claim.proved for claim in claims if claim.kind in kinds)


def of_heads(frame: int, reach: int, frames: int, reaches: int) -> ma.Mask:
    return cast(ma.Mask, ma.where(head % 2 == 0, spatial(frame, reach), temporal(frames, reaches)))


FAMILIES: dict[str, tuple[list[tuple[ma.Mask, int]], str]] = {
    "heads": ([(of_heads(3, 1, 4, 1), 17)], ""),
    "image": (
        [(neighborhood(shape, window), 20) for shape, window in (((4, 5), (3, 2)), ((5, 3), 3))],
        "touched 0 axis 1 span 0 highs",
    ),
    "tiles": ([(tiled_neighborhood((4, 6), (2, 3), (3, 2)), 24)], "order"),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_false_forms_are_not_verified(family: str) -> None:
    """Whatever change gives a wrong label, for some value here, is found by the certificate."""
    masks, only = FAMILIES[family]
    proof = masks[0][0].prove()
    forms = proof.forms.digits
    assert forms is not None and faults(masks, forms) == (False, False)
    changes = [(what, mutant) for what, mutant in mutants(forms) if only in what][
        :: 1 if only else 2
    ]
    wrong = 0
    for what, mutant in changes:
        unsound, inexact = faults(masks, mutant)
        if unsound:
            assert not proved(proof, mutant, "sound"), what
        if inexact:
            assert not proved(proof, mutant, "sound", "exact"), what
        wrong += inexact
    assert wrong >= (3 if only else 20), (wrong, len(changes))


def test_forms_that_say_more_are_not_verified() -> None:
    proof = (q_idx % 4 >= kv_idx % 4).prove()
    forms = proof.forms.digits
    assert forms is not None and proved(proof, forms, "sound", "exact")
    extra = ("extra", object, None)
    wider = make_dataclass("Wider", [extra], bases=(DigitForms,), frozen=True)
    assert not proved(proof, wider(forms.parts, extra=1), "sound")
    clause_type = make_dataclass("WiderClause", [extra], bases=(BoxClause,), frozen=True)
    (part,) = forms.parts
    clause = clause_type(**vars(part.touched[0]), extra=1)
    changed = replace(forms, parts=(replace(part, touched=(clause,)),))
    assert not proved(proof, changed, "sound")
    strange = replace(proof, forms=replace(proof.forms, digits=cast(Any, "digits")))
    assert not strange.check().sound


def test_a_hull_that_is_too_narrow_is_not_sound() -> None:
    """What kernels walk is checked too."""
    proof = (q_idx // 4 + 1 >= kv_idx // 4).__and__(q_idx % 4 >= kv_idx % 4).prove()
    (span,) = proof.forms.touched
    less = replace(span, highs=(nodes.add(span.highs[0], nodes.const(-1)),))
    assert proof.check().sound
    assert not replace(proof, forms=replace(proof.forms, touched=(less,))).check().sound
    assert not replace(proof, forms=replace(proof.forms, touched=())).check().sound
