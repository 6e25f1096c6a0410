"""The meaning of formulas against their evaluation, also where entries are the ends of a dtype."""

import random

import pytest
import torch

import maskalg as ma
from maskalg.engine.evaluate import Environment, evaluate
from maskalg.engine.long_integers import MOST_WHOLE
from maskalg.engine.normal_form import bound
from maskalg.testing.catalogue import CATALOGUE
from maskalg.verifier import terms
from maskalg.verifier.meaning import Meaning

F = torch.float32


def of_reals(name, *args):
    """Operations on float32 by torch."""
    if name == "whole":
        x = float(args[0])
        return 0 if x != x else int(max(-MOST_WHOLE, min(MOST_WHOLE, x)))
    if name == "real_of":
        return torch.tensor(args[0], dtype=torch.int64).to(F)
    x = [torch.as_tensor(arg, dtype=F) for arg in args]
    named = {"greater or equal": "ge", "greater": "gt", "equal": "eq", "divide": "true_divide"}
    found = getattr(torch, named.get(name, name))(*x)
    return bool(found) if found.dtype == torch.bool else found


def by_meaning(mask, place):
    form = bound(mask)
    structure, values = form.structure, form.values
    dtypes = {s.index: values[s.index].dtype for s in structure.tables}
    known = dict(place)
    tables = {}
    for slot, value in zip(structure.slots, values, strict=True):
        if slot.is_table:
            tables[f"t{slot.index}"] = value
            for axis, size in enumerate(value.shape):
                known[f"size{slot.index}_{axis}"] = size
        else:
            known[f"n{slot.index}"] = value

    def entry(table, at):
        found = tables[table.name].flatten()[at]
        return found if table.kind == "real" else found.item()

    return terms.computed(Meaning(dtypes)(structure.mask), known, entry, of_reals)


def by_evaluation(mask, place):
    form = bound(mask)
    indices = {name: torch.tensor(at).view(1, 1, 1, 1) for name, at in place.items()}
    return bool(evaluate(form.structure.mask, Environment(indices, form.values)))


@pytest.mark.parametrize("name", CATALOGUE)
def test_catalogue(name):
    mask, drawn = CATALOGUE[name].mask, random.Random(name)
    for _ in range(12):
        place = {"q_idx": drawn.randrange(40), "kv_idx": drawn.randrange(40)}
        place |= {"batch": drawn.randrange(2), "head": drawn.randrange(3)}
        assert by_meaning(mask, place) == by_evaluation(mask, place), place


ENDS = torch.tensor([-(2**63), -(2**31), -1, 0, 1, 2**31 - 1, 2**63 - 1])


@pytest.mark.parametrize(
    "mask",
    [
        (ma.q_idx - ma.table(ENDS, "t")[ma.kv_idx]) // 3 <= ma.kv_idx,
        ma.table(ENDS, "t")[ma.q_idx] * ma.table(ENDS, "t")[ma.kv_idx] >= ma.q_idx,
        ma.table(ENDS, "t")[ma.q_idx] % 7 == ma.kv_idx % 7,
        ma.table(ENDS, "t")[ma.kv_idx] - 1 < ma.table(ENDS, "t")[ma.q_idx] + 1,
        ma.table(torch.tensor([0.1, float("nan"), -0.0, float("inf")]), "r")[ma.q_idx] * 3.1
        + ma.kv_idx
        >= 1.5,
        ma.table(ENDS, "t")[ma.q_idx - ma.kv_idx] > 0,
    ],
)
def test_ends_of_dtypes(mask):
    for q in range(7):
        for k in range(7):
            place = {"q_idx": q, "kv_idx": k, "batch": 0, "head": 0}
            assert by_meaning(mask, place) == by_evaluation(mask, place), place


@pytest.mark.parametrize("op", ["bitand", "bitor", "bitxor"])
def test_signs_of_bitwise_operations(op):
    x, y, z = map(terms.variable, "xyz")
    found = terms.at_least(terms.bitwise(op, terms.bitwise(op, x, y), z))
    for n in range(8):
        values = {name: -3 if n >> place & 1 else 5 for place, name in enumerate("xyz")}
        a, b, c = values.values()
        wanted = {"bitand": a & b & c, "bitor": a | b | c, "bitxor": a ^ b ^ c}[op] >= 0
        assert terms.computed(found, values, lambda *at: 0, of_reals) == wanted


@pytest.mark.parametrize("c", [1, 2, 5])
def test_equal_remainders(c):
    """Of sums of remainders, which are written as one condition of divisibility."""
    x, y, n = terms.variable("x"), terms.variable("y"), terms.number(c)
    a, b = (terms.remainder(each, n) for each in (x, y))
    last = terms.subtract(n, terms.number(1))
    pairs = [(a, last), (terms.add(a, b), last), (a, b), (a, terms.number(0)), (last, a)]
    for left, right in pairs:
        found = terms.equal(left, right)
        for i in range(-6, 7):
            for j in range(-6, 7):
                values = {"x": i, "y": j}
                sides = [terms.computed(t, values, None, of_reals) for t in (left, right)]
                assert terms.computed(found, values, None, of_reals) == (sides[0] == sides[1])
