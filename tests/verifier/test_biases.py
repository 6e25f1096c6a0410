"""What kernels add to scores, and its slope, proved as functions of real numbers."""

import dataclasses
import math
import random

import pytest
import torch

import maskalg as ma
from maskalg.codegen.hooks import Style, hooks_of
from maskalg.engine.normal_form import bound
from maskalg.testing.catalogue import BIASES
from maskalg.verifier import terms
from maskalg.verifier.claims import Subject, claims
from maskalg.verifier.elements import SCALE, TritonHooks
from maskalg.verifier.meaning import SCORE, Meaning
from maskalg.verifier.reals import prove_real

from .mutation import of_triton

pytest.importorskip("z3")

SCORES = {
    "softcap": ma.causal & ma.sliding(4) + ma.softcap(30.0),
    "softcap of ALiBi": ma.causal + ma.softcap(5.0).of(ma.alibi(torch.ones(4))),
    "by cases": ma.score(lambda s, b, h, q, k: torch.where(s > 0, s * 2.0, torch.exp(s))),
    "cut": ma.score(lambda s, b, h, q, k: torch.maximum(s, q * 0.5) * 3.0 - torch.abs(s - k)),
    "steps": ma.score(lambda s, b, h, q, k: torch.floor(s) * s),
    "quotient": ma.score(lambda s, b, h, q, k: torch.sigmoid(s) / (1.0 + torch.exp(s))),
}


def of_kind(expression, *kinds):
    found = ma.verify(expression, seconds=5)
    return [claim for claim in found.claims if claim.kind in kinds]


@pytest.mark.parametrize("name", SCORES)
def test_scores(name):
    found = of_kind(SCORES[name], "bias", "derivative")
    # Two loops: PTX and Triton, of 32 and of 64 bits, and C++; other styles besides.
    assert len([claim for claim in found if claim.text.count(", ") <= 3]) == 20
    assert all(claim.outcome == "proved" for claim in found), found


@pytest.mark.parametrize("name", ["alibi", "KERPLE, power", "T5 decoder", "bias of pairs"])
def test_biases_of_the_catalogue(name):
    case = BIASES[name]
    found = of_kind(ma.causal + case.build(*case.tensors()), "bias", "derivative")
    assert len([claim for claim in found if claim.text.count(", ") <= 3]) == 10
    assert all(claim.outcome == "proved" for claim in found), found
    # A bias of distances is read from tables, or computed by real numbers, in most calls.
    assert any("distances" in claim.text for claim in found) == (name != "bias of pairs")
    assert any("rows of multiples of 8" in claim.text for claim in found) == (
        name == "bias of pairs"
    )


def test_a_wrong_slope_is_not_proved():
    wanted = terms.apply("multiply", terms.apply("tanh", SCORE), SCORE)
    scale = SCALE, False

    def outcome(text):
        return prove_real([], text, wanted, scale, slope=True).outcome

    s = terms.apply("multiply", SCORE, SCALE)
    square = terms.apply("multiply", terms.apply("tanh", s), terms.apply("tanh", s))
    one = terms.real(1.0)
    inner = terms.apply("multiply", s, terms.apply("subtract", one, square))
    assert outcome(terms.apply("add", inner, terms.apply("tanh", s))) == "proved"
    assert outcome(terms.apply("subtract", inner, terms.apply("tanh", s))) == "open"
    assert outcome(terms.apply("add", inner, terms.apply("tanh", SCORE))) == "open"
    assert outcome(inner) == "open"


FUNCTIONS = {
    "add": lambda x, y: x + y, "subtract": lambda x, y: x - y, "multiply": lambda x, y: x * y,
    "divide quickly": lambda x, y: x / y, "negative": lambda x: -x, "real_of": float,
    "tanh": math.tanh,
}  # fmt: skip


def test_no_mutant_is_accepted_that_computes_another_number():
    form = bound(ma.causal + ma.softcap(30.0))
    subject = Subject(form.structure, {})
    hooks = hooks_of(form.structure, Style(far=True), backward=True)

    def computed(text, name):
        read = TritonHooks(
            form.structure, dataclasses.replace(hooks, source=text), Meaning({}), wide=False
        )
        values = {"score": 3.7, "scale": 0.37, "n0": 30.0}
        term = read.element(name, "kv_idx").term
        return terms.computed(term, values, None, lambda name, *args: FUNCTIONS[name](*args))

    every = [m for m in of_triton(hooks.source) if m.function in ("biased", "slope")]
    outcomes = []
    for mutant in random.Random(0).sample(every, 30):
        changed = dataclasses.replace(subject, rendered=lambda _, m=mutant: m.text)
        kind = {"biased": "bias", "slope": "derivative"}[mutant.function]
        (found,) = [
            claim
            for claim in claims(changed, ("triton",), 2000, (32,))
            if claim.kind == kind and claim.moving == "kv_idx"
        ]
        outcomes.append(found.outcome)
        if found.outcome == "proved":
            right = computed(hooks.source, mutant.function)
            assert math.isclose(computed(mutant.text, mutant.function), right), mutant
    assert outcomes.count("not proved") > 15
