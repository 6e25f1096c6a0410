"""The meaning of formulas against their evaluation, also where entries are the ends of a dtype."""

import itertools
import random
from math import inf, nan

import pytest
import torch

import maskalg as ma
from maskalg.engine.evaluate import Environment, evaluate
from maskalg.engine.normal_form import bound
from maskalg.formula import nodes
from maskalg.formula.functions import FUNCTIONS
from maskalg.formula.laws import LAWS, All, NotNegative, divided, sign_of_quotient, size_of_quotient
from maskalg.formula.meaning import MOST_WHOLE, OPERATIONS
from maskalg.formula.nodes import Node
from maskalg.formula.parameters import Slot, Table
from maskalg.testing.catalogue import CATALOGUE
from maskalg.testing.index_strategies import EXTREMES
from maskalg.verifier import solve, terms
from maskalg.verifier.given import _indices
from maskalg.verifier.meaning import Meaning, of_float32


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

    return terms.computed(Meaning(dtypes)(structure.mask), known, entry, of_float32)


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


MODULUS = 2**31 - 1
ENTRIES = sorted({-(2**31), *EXTREMES, *(-x - 1 for x in EXTREMES), -7, -1, 0, 1, 2, 3, 2**30})
REAL_ENTRIES = [
    *(0.0, -0.0, 1.0, -1.5, 2.5, 0.1, 1e-45, -1e-45, 2.0**-126, 2.0**24 + 2, 2.0**31 - 128),
    *(2.0**31, -(2.0**31), 2.0**63, 3.4028235e38, -3.4028235e38, inf, -inf, nan),
]


def operands(entries, dtype):
    """Reads of a table of these entries at the query and at the key, and every pair of them."""
    tensor = torch.tensor(entries, dtype=dtype)
    slot = Slot(0, "t", Table("t", tensor))
    reads = [Node("read", slot.kind, (index,), own=(slot,)) for index in (nodes.Q, nodes.K)]
    at = torch.arange(len(entries))
    env = Environment({"q_idx": at[:, None], "kv_idx": at[None, :]}, (tensor,))
    return *reads, env


def of_pairs(formula, env):
    """The values of a formula at every pair, by evaluation and by its meaning."""
    (tensor,) = env.values
    size = len(tensor)
    evaluated = evaluate(formula, env).expand(size, size)
    meaning = Meaning({0: tensor.dtype})(formula)
    real = tensor.is_floating_point()

    def entry(table, at):
        return tensor[at] if real else int(tensor[at])

    for q in range(size):
        for k in range(size):
            place = {"q_idx": q, "kv_idx": k, "size0_0": size}
            yield q, k, evaluated[q, k].item(), terms.computed(meaning, place, entry, of_float32)


def stopped(integer):
    """An integer in 64 bits, as `evaluate` gives it."""
    return max(-(2**63), min(2**63 - 1, integer))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
@pytest.mark.parametrize("op", OPERATIONS)
def test_operations_at_extreme_entries(op, dtype):
    """Evaluation, the meaning and the table of operations agree, past 64 bits too."""
    ends = torch.iinfo(dtype)
    entries = [x for x in ENTRIES if ends.min <= x <= ends.max]
    x, y, env = operands([ends.min, *entries, ends.max], dtype)
    found = Node(op, "int", (x, y))
    wanted = [[OPERATIONS[op].value(int(a), int(b)) for b in env.values[0]] for a in env.values[0]]
    for q, k, evaluated, meant in of_pairs(found, env):
        assert meant == wanted[q][k]
        assert evaluated == stopped(meant)
    for q, k, evaluated, meant in of_pairs(nodes.mod(found, nodes.const(MODULUS)), env):
        assert evaluated == meant == wanted[q][k] % MODULUS
    for q, k, evaluated, meant in of_pairs(nodes.ge(found, y), env):
        assert evaluated == meant == (wanted[q][k] >= int(env.values[0][k]))
    law = LAWS.get(op)
    if law is not None:
        values = [int(a) for a in env.values[0]]
        for a, b in itertools.product(values, values):
            assert holds(law(OPERATIONS[op].value(a, b), a, b)), (a, b)


def holds(condition):
    """Whether a condition of integers is true."""
    if isinstance(condition, NotNegative):
        return condition.expression >= 0
    return (all if isinstance(condition, All) else any)(map(holds, condition.parts))


def test_laws_of_division_at_extreme_entries():
    for x, c in itertools.product(ENTRIES, [c for c in ENTRIES if c >= 1]):
        f, r = (OPERATIONS[op].value(x, c) for op in ("floordiv", "mod"))
        assert holds(divided(f, r, x, c)) and not holds(divided(f + 1, r, x, c))
        assert holds(sign_of_quotient(f, x)) and holds(size_of_quotient(f, x))
        assert not holds(size_of_quotient(-f - 1, x))


@pytest.mark.parametrize("op", ["min", "max"])
def test_laws_say_which_number_an_extremum_is(op):
    for a, b in itertools.product(ENTRIES, ENTRIES):
        for found in (a, b, a - 1, b + 1):
            assert holds(LAWS[op](found, a, b)) == (found == OPERATIONS[op].value(a, b))


def the_same(one, other):
    """Equal numbers of float32 to the bit, or both NaN."""
    a, b = (torch.as_tensor(x, dtype=torch.float32) for x in (one, other))
    return bool(a.isnan() & b.isnan()) or a.view(torch.int32).equal(b.view(torch.int32))


@pytest.mark.parametrize("op", ["add", "mul", "min", "max", "div", "pow", *FUNCTIONS])
def test_operations_on_extreme_real_numbers(op):
    x, y, env = operands(REAL_ENTRIES, torch.float32)
    found = nodes.call(op, x) if op in FUNCTIONS else Node(op, "real", (x, y))
    for q, k, evaluated, meant in of_pairs(found, env):
        # Of 0 and -0, the smaller and the larger may be either.
        zeros = op in ("min", "max") and evaluated == meant == 0
        assert zeros or the_same(evaluated, meant), (REAL_ENTRIES[q], REAL_ENTRIES[k])


@pytest.mark.parametrize("op", ["ge", "gt", "eq", "trunc"])
def test_real_numbers_become_conditions_and_integers(op):
    x, y, env = operands(REAL_ENTRIES, torch.float32)
    found = Node(op, "int", (x,)) if op == "trunc" else Node(op, "bool", (x, y))
    for q, k, evaluated, meant in of_pairs(found, env):
        assert evaluated == meant, (REAL_ENTRIES[q], REAL_ENTRIES[k])
        assert op != "trunc" or abs(meant) <= MOST_WHOLE


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("op", ["add", "mul"])
def test_extreme_integers_become_real_numbers(op, dtype):
    ends = torch.iinfo(dtype)
    x, y, env = operands([e for e in ENTRIES if ends.min <= e <= ends.max], dtype)
    for formula in (nodes.call("float", x), nodes.add(Node(op, "int", (x, y)), nodes.const(0.5))):
        for _, _, evaluated, meant in of_pairs(formula, env):
            assert the_same(evaluated, meant)


@pytest.mark.parametrize("op", ["bitand", "bitor", "bitxor"])
def test_signs_of_bitwise_operations(op):
    x, y, z = map(terms.variable, "xyz")
    found = terms.bitwise(op, terms.bitwise(op, x, y), z) >= 0
    for n in range(8):
        values = {name: -3 if n >> place & 1 else 5 for place, name in enumerate("xyz")}
        a, b, c = values.values()
        wanted = {"bitand": a & b & c, "bitor": a | b | c, "bitxor": a ^ b ^ c}[op] >= 0
        assert terms.computed(found, values, lambda *at: 0, of_float32) == wanted


@pytest.mark.parametrize("c", [1, 2, 5])
def test_equal_remainders(c):
    """Of sums of remainders, which are written as one condition of divisibility."""
    x, y, n = terms.variable("x"), terms.variable("y"), terms.number(c)
    a, b = (each % n for each in (x, y))
    last = n - 1
    pairs = [(a, last), (a + b, last), (a, b), (a, terms.number(0)), (last, a)]
    for left, right in pairs:
        found = terms.equal(left, right)
        for i in range(-6, 7):
            for j in range(-6, 7):
                values = {"x": i, "y": j}
                sides = [terms.computed(t, values, None, of_float32) for t in (left, right)]
                assert terms.computed(found, values, None, of_float32) == (sides[0] == sides[1])


def test_z3_is_told_each_law_once():
    """Also where the quotient and the remainder of one division stand in several questions."""
    pytest.importorskip("z3")
    x, c, d = map(terms.variable, "xcd")
    inner = (x // c) + (x % c)
    claim = (inner // d) + (inner * c % d) >= 0
    for _ in range(2):
        query = solve._Query(False, 1000)
        query.ask([claim])
        told = [fact.get_id() for fact in query._solver.assertions()]
        assert len(told) > 4
        assert len(told) == len(set(told))


def test_an_index_is_not_taken_to_be_inside_where_no_call_checks_it():
    flags, place = ma.table(torch.ones(30).bool(), "flags"), 20 - ma.kv_idx
    facts = [
        set(map(str, _indices(bound(mask).structure, Meaning({}), True)))
        for mask in (flags[place], flags[ma.kv_idx].at(kv=place))
    ]
    checked, dropped_below = facts
    assert len(checked) == 2 and dropped_below < checked
    assert dropped_below == {fact for fact in checked if "size" in fact}  # the last entry
