"""What the verifier states of the kernels' functions, proved of their own text."""

import contextlib
import inspect

import pytest

from maskalg.codegen import divisors
from maskalg.codegen.divisors import factor_and_shift
from maskalg.verifier import terms
from maskalg.verifier.meaning import NotDefined
from maskalg.verifier.reading.library import Library
from maskalg.verifier.reading.triton import Module, Reader, kernel_module, kernel_source
from maskalg.verifier.reading.values import INT32, INT64, TYPES, Number
from maskalg.verifier.solve import OWN, prove, settled

from .mutation import of_triton

z3 = pytest.importorskip("z3")
X, C = terms.variable("x"), terms.variable("c")
FACTOR, SHIFT = terms.variable("factor"), terms.variable("shift")


def between(low, term, high):
    return [
        term >= low,
        high >= term,
    ]


@pytest.mark.parametrize("of", [INT32, INT64])
@pytest.mark.parametrize("name", ["floor_div", "floor_mod"])
def test_division(name, of):
    module = kernel_module("integers")
    x, c = Number(X, of), Number(C, of)
    found = Reader(module).call(name, x, c).term
    low, high = of.ends
    given = [*between(low, X, high), *between(1, C, high)]
    (found,) = settled(given, [found])
    if name == "floor_div":
        assert prove(given, terms.equal(found, X // C)).outcome == "proved"
        return
    # Between 0 and c - 1, and x less a multiple of c.
    inside = [found >= 0, found < C]
    one_less = (X - 1) // C
    wholes = [X // C, one_less, one_less + 1]
    multiples = [X - C * whole for whole in wholes]
    some = terms.either(*[terms.equal(found, multiple) for multiple in multiples])
    assert prove(given, terms.both(*inside, some)).outcome == "proved"


@pytest.mark.parametrize("name", ["quotient_of_any", "remainder", "remainder_of_any"])
def test_by_factors(name):
    """With what is stated of `quotient` and no other function."""
    library = Library({("factor", "shift"): C}).summaries()
    reader = Reader(kernel_module("integers"), {"quotient": library["quotient"]})
    x, c, m, s = (Number(term, INT32) for term in (X, C, FACTOR, SHIFT))
    args = (x, m, s) if name == "quotient_of_any" else (x, c, m, s)
    found = reader.call(name, *args).term
    low = 0 if name == "remainder" else -(2**31)
    given = [*between(low, X, 2**31 - 1), *between(1, C, 2**31 - 1)]
    (found,) = settled(given, [found])
    wanted = (terms.quotient if name.startswith("quotient") else terms.remainder)(X, C)
    assert prove(given, terms.equal(found, wanted)).outcome == "proved"


def quotient_of(source, shift):
    """What a text of `quotient` computes for 0 <= x < 2**31 and a factor of 32 bits."""
    module = Module(source, "integers")
    factor = Number(FACTOR, TYPES["uint32"])
    found = Reader(module).call("quotient", Number(X, INT32), factor, Number(shift, INT32)).term
    return settled([*between(0, X, 2**31 - 1), *between(0, FACTOR, 2**32 - 1)], [found])[0]


@pytest.mark.parametrize("shift", [1, 7, 31])
def test_the_text_of_a_quotient(shift):
    """It is floor(floor(2 x m / 2**32) / 2**s), and of its mutants only those that are as well."""
    source, s = kernel_source("integers"), terms.number(shift)
    high = 2 * X * FACTOR // 2**32
    wanted = high // 2**shift
    assert quotient_of(source, s) is wanted
    mutants = [mutant for mutant in of_triton(source) if mutant.function == "quotient"]
    accepted = []
    for mutant in mutants:
        with contextlib.suppress(NotDefined, KeyError, TypeError):
            if quotient_of(mutant.text, s) is wanted:
                accepted.append(mutant)
    # A product is the same the other way round, a shift or a factor with a sign or without.
    equal = {"arguments", "condition", "width"}
    assert len(mutants) >= 5 and {mutant.rule for mutant in accepted} <= equal


@pytest.mark.parametrize("shift", range(32))
def test_the_factor_of_a_divisor(shift):
    """That text is floor(x / c) where m c = 2**(31 + s) + e with 0 <= e < c <= 2**s.

    q c <= x < q c + c, so what is left to show is q 2**(31 + s) <= x m < (q + 1) 2**(31 + s).
    Both sides are multiplied by c: x m c = x 2**(31 + s) + x e.
    """
    x, e, qc, c = z3.Ints("x e qc c")
    power = 2 ** (31 + shift)
    xe = z3.Int("x e")  # below (2**31 - 1) * (2**shift - 1)
    solver = z3.Solver()
    solver.add(x >= 0, x < 2**31, e >= 0, e < c, c <= 2**shift, qc <= x, x < qc + c)
    solver.add(xe >= 0, xe <= (2**31 - 1) * max(2**shift - 1, 0))
    xmc = x * power + xe
    solver.add(z3.Not(z3.And(qc * power <= xmc, xmc < (qc + c) * power)))
    assert solver.check() == z3.unsat


def wrong_factor(function):
    """A divisor, at the ends of each shift, whose factor and shift are not as that proof takes
    them; None for none."""
    for shift in range(1, 32):
        for c in {2 ** (shift - 1) + 1, 2**shift - 1, 2**shift, 3 * 2 ** (shift - 1) // 2}:
            if not 0 < c < 2**31:
                continue
            m, s = function(c)
            e = m * c - 2 ** (31 + s)
            if not (0 <= e < c <= 2**s and 0 <= m < 2**32):
                return c
    return None


def test_factors():
    assert wrong_factor(factor_and_shift) is None


def quotients(function):
    """Quotients by divisors that are small, and by some that are larger than what is divided."""
    pairs = [function(c) for c in (*range(1, 300), 2**31 - 1, 2**31, 2**33)]
    ends = (0, 1, 2**20 + 7, 2**31 - 2, 2**31 - 1)
    return [(2 * x * (m % 2**32) >> 32) >> s for m, s in pairs for x in ends]


def test_wrong_factors_are_seen():
    """A change of the host's function is seen, or changes no quotient."""
    source = inspect.getsource(divisors)
    mutants = [m for m in of_triton(source) if m.function == "factor_and_shift"]
    assert len(mutants) >= 20
    right, same = quotients(factor_and_shift), set()
    for mutant in mutants:
        names = {"__name__": divisors.__name__, "__package__": divisors.__package__}
        exec(compile(mutant.text, "mutant", "exec"), names)
        function = names["factor_and_shift"]
        try:
            wrong = wrong_factor(function) is not None or quotients(function) != right
        except (ValueError, TypeError, ZeroDivisionError):
            wrong = True
        if not wrong:
            same.add((mutant.before, mutant.after))
    # Of a divisor of 0, which none is; and of those past all that is divided: any small factor and
    # shift give 0.
    assert same == {
        ("0 < divisor < 2 ** _BITS", "0 <= divisor"),
        ("0", "-1"),
        ("0", "1"),
        ("2", "3"),
    }


def test_divisions_of_numbers_with_the_other_sign():
    """Which of two sides leads with a sign depends on which one was read first."""
    x, y, z = X, terms.variable("y"), terms.variable("z")
    of_three = [-1 - x - y, x + z]
    known = [terms.equal(each, terms.number(0)) for each in of_three]
    known.append(C >= 1)
    lacking = C - 1
    for claim in (
        terms.same(terms.divides(C, x), terms.divides(C, z)),
        terms.equal(x % C + y % C, lacking),
        terms.equal(x // C + y // C, terms.number(-1)),
    ):
        verdict = prove(known, claim, 1000)
        assert verdict.outcome == "proved", verdict
        assert verdict.by in (OWN, "z3, linear"), verdict
    wrong = terms.same(terms.divides(C, x), terms.divides(C, y))
    assert prove(known, wrong, 1000).outcome == "refuted"
