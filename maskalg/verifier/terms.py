"""Terms over mathematical integers: the meaning of formulas and of generated text.

A formula, and the text generated for it, become terms by two readers that share no other code.
Integers are unbounded; a machine's integer of `bits` bits is `wrapped(term, bits)`, the number in
its range that is equal modulo 2**bits. Real numbers are float32. An operation on them is an
uninterpreted function: equal arguments in the same order give equal results, and a sum in another
order is another number.

Terms are written with Python's operators: `(x // 4 + 1 >= y) & ~known`. Only equality is a
function, `equal` of integers and `same` of conditions, because `==` compares objects.

Integers are kept as polynomials over *atoms* (variables, entries of tables, quotients, choices …),
so `a + b` and `b + a` are one object. Equal terms are the same object: compare them with `is`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from math import gcd
from typing import Any, Final, Literal
from weakref import WeakValueDictionary

from ..formula.meaning import OPERATIONS

Sort = Literal["int", "bool", "real"]
BitOperation = Literal["bitand", "bitor", "bitxor"]


class Term:
    """One operation; made by the functions below, never changed."""

    __slots__ = ("__weakref__", "args", "data", "op", "serial", "sort")

    op: str
    sort: Sort
    args: tuple[Term, ...]
    data: Any
    serial: int

    def __repr__(self) -> str:
        return shown(self)

    def __bool__(self) -> bool:
        raise TypeError("a term is not known to hold; compare it with `is`")

    def __add__(self, other: Term | int) -> Term:
        return add(self, _term_of(other))

    def __sub__(self, other: Term | int) -> Term:
        total = polynomial(self)
        for atoms, times in polynomial(_term_of(other)).items():
            total[atoms] = total.get(atoms, 0) - times
        return _of_polynomial(total)

    def __rsub__(self, other: int) -> Term:
        return number(other) - self

    def __mul__(self, other: Term | int) -> Term:
        return multiply(self, _term_of(other))

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other: Term | int) -> Term:
        return quotient(self, _term_of(other))

    def __mod__(self, other: Term | int) -> Term:
        return remainder(self, _term_of(other))

    def __neg__(self) -> Term:
        return _of_polynomial({atoms: -times for atoms, times in polynomial(self).items()})

    def __ge__(self, other: Term | int) -> Term:
        return at_least(self - other)

    def __le__(self, other: Term | int) -> Term:
        return at_least(other - self)

    def __gt__(self, other: Term | int) -> Term:
        return at_least(self - other - 1)

    def __lt__(self, other: Term | int) -> Term:
        return at_least(other - self - 1)

    def __and__(self, other: Term) -> Term:
        return both(self, other)

    def __or__(self, other: Term) -> Term:
        return either(self, other)

    def __invert__(self) -> Term:
        return no(self)

    def walk(self, known: Container[int] = ()) -> Iterator[Term]:
        """All parts of the term, each once, arguments first. Parts with serial numbers in `known`
        are left out, with their arguments."""
        seen: set[int] = set()
        stack: list[tuple[Term, bool]] = [(self, False)]
        while stack:
            term, done = stack.pop()
            if done:
                yield term
            elif term.serial not in seen and term.serial not in known:
                seen.add(term.serial)
                stack.append((term, True))
                stack.extend((arg, False) for arg in term.args)


@dataclass(frozen=True)
class Table:
    """A tensor as kernels see it, a flat array.

    `kind` is the sort of its entries; `low` and `high` are the ends of an integer dtype.
    """

    name: str
    kind: Sort
    low: int = 0
    high: int = 0


_KNOWN: Final[WeakValueDictionary[object, Term]] = WeakValueDictionary()
_made = 0


def _term(op: str, sort: Sort, args: tuple[Term, ...] = (), data: Any = None) -> Term:
    global _made
    # 1, 1.0 and True are equal as keys, so the type is part of a key; sums have integers alone.
    told = data if op == "sum" else (type(data), repr(data))
    key = (op, sort, tuple([arg.serial for arg in args]), told)
    found = _KNOWN.get(key)
    if found is None:
        found = object.__new__(Term)
        found.op, found.sort, found.args, found.data = op, sort, args, data
        _made += 1
        found.serial = _made
        _KNOWN[key] = found
    return found


# --- integers ------------------------------------------------------------------------------------

Polynomial = dict[tuple[Term, ...], int]  # atoms that are multiplied, and the coefficient


def number(value: int) -> Term:
    return _term("sum", "int", (), (value, ()))


def variable(name: str, sort: Sort = "int") -> Term:
    return _term("variable", sort, (), name)


def _term_of(value: Term | int) -> Term:
    return number(value) if isinstance(value, int) else value


def is_number(term: Term) -> bool:
    return term.op == "sum" and not term.args


def value_of_number(term: Term) -> int:
    return int(term.data[0])


def polynomial(term: Term) -> Polynomial:
    """An integer as products of atoms with coefficients; the empty product is the constant."""
    if term.op == "sum":
        constant, coefficients = term.data
        found: Polynomial = {(): constant} if constant else {}
        for atom, times in zip(term.args, coefficients, strict=True):
            found[atom.args if atom.op == "product" else (atom,)] = times
        return found
    return {term.args if term.op == "product" else (term,): 1}


def _of_polynomial(parts: Polynomial) -> Term:
    constant, rows = 0, []
    for atoms, times in parts.items():
        if not times:
            continue
        if not atoms:
            constant = times
        else:
            atom = atoms[0] if len(atoms) == 1 else _term("product", "int", atoms)
            rows.append((atom, times))
    rows.sort(key=lambda row: row[0].serial)
    if len(rows) == 1 and rows[0][1] == 1 and not constant:
        return rows[0][0]
    coefficients = tuple([times for _, times in rows])
    return _term("sum", "int", tuple([atom for atom, _ in rows]), (constant, coefficients))


def add(*terms: Term) -> Term:
    total: Polynomial = {}
    for term in terms:
        for atoms, times in polynomial(term).items():
            total[atoms] = total.get(atoms, 0) + times
    return _of_polynomial(total)


def multiply(*factors: Term) -> Term:
    total: Polynomial = {(): 1}
    for factor in factors:
        row: Polynomial = {}
        for atoms, times in total.items():
            for others, more in polynomial(factor).items():
                both = tuple(sorted((*atoms, *others), key=lambda atom: atom.serial))
                row[both] = row.get(both, 0) + times * more
        total = row
    return _of_polynomial(total)


def quotient(x: Term, c: Term) -> Term:
    """floor(x / c) for c >= 1; unknown for any other c."""
    return _division("quotient", x, c)


def remainder(x: Term, c: Term) -> Term:
    """x - c floor(x / c) for c >= 1, in 0..c - 1."""
    return _division("remainder", x, c)


def _division(op: Literal["quotient", "remainder"], x: Term, c: Term) -> Term:
    if is_number(c) and value_of_number(c) == 1:
        return x if op == "quotient" else number(0)
    if is_number(x) and is_number(c) and value_of_number(c) >= 1:
        value = OPERATIONS["floordiv" if op == "quotient" else "mod"].value
        return number(value(value_of_number(x), value_of_number(c)))
    if x.op == "choice":
        chosen, then, otherwise = x.args
        return rebuilt(x, (chosen, _division(op, then, c), _division(op, otherwise, c)))
    whole, rest = _divided(x, c)
    if whole is not None:
        found = _division(op, rest, c)
        return whole + found if op == "quotient" else found
    if _leads_negative(x):
        # floor(x / c) = -1 - floor((-1 - x) / c), and (-1 - x) mod c = c - 1 - x mod c.
        turned = _division(op, -1 - x, c)
        return -1 - turned if op == "quotient" else c - 1 - turned
    return _term(op, "int", (x, c))


def _divided(x: Term, c: Term) -> tuple[Term | None, Term]:
    """x as `whole * c + rest`: 7 y + z divided by 4 is y * 4 + (3 y + z). None if `whole` is 0.

    Coefficients are divided towards zero, so that x and -1 - x are written alike.
    """
    whole: Polynomial = {}
    rest: Polynomial = {}
    by = value_of_number(c) if is_number(c) else None
    ratios = {c: number(1), number(0): number(0)}
    for atoms, times in polynomial(x).items():
        if len(atoms) == 1 and atoms[0].op == "choice" and ratios.keys() >= {*atoms[0].args[1:]}:
            # c if a condition holds, else 0
            chosen, then, otherwise = atoms[0].args
            whole[choice(chosen, ratios[then], ratios[otherwise]),] = times
        elif by is not None and by >= 1:
            more = times // by if not atoms or times > 0 else -(-times // by)
            whole[atoms], rest[atoms] = more, times - more * by
        elif by is None and c.op != "sum" and c in atoms:
            place = atoms.index(c)
            whole[atoms[:place] + atoms[place + 1 :]] = times
        else:
            rest[atoms] = times
    if not any(whole.values()):
        return None, x
    return _of_polynomial(whole), _of_polynomial(rest)


def _leads_negative(x: Term) -> bool:
    leading = [(atoms, times) for atoms, times in polynomial(x).items() if atoms]
    if not leading:
        return False
    leading.sort(key=lambda row: [atom.serial for atom in row[0]])
    return leading[0][1] < 0


def truncated_quotient(x: Term, c: Term) -> Term:
    """x / c rounded towards zero, for c >= 1, as processors divide."""
    towards = -(-x // c)
    return quotient(x, c) if never_negative(x) else _natural(at_least(x), quotient(x, c), towards)


def truncated_remainder(x: Term, c: Term) -> Term:
    """The remainder of `truncated_quotient`, with the sign of x."""
    below = -(-x % c)
    return remainder(x, c) if never_negative(x) else _natural(at_least(x), remainder(x, c), below)


NATURAL: Final = "natural"
"""Marks a choice by the sign of the dividend, in a division rounded towards zero."""


def _natural(chosen: Term, then: Term, otherwise: Term) -> Term:
    if chosen is TRUE or chosen is FALSE or then is otherwise:
        return otherwise if chosen is FALSE else then
    return _term("choice", "int", (chosen, then, otherwise), NATURAL)


def never_negative(term: Term) -> bool:
    """Whether the form of a term alone shows that it is at least 0."""
    if is_number(term):
        return value_of_number(term) >= 0
    if term.op == "choice":
        chosen, then, otherwise = term.args
        return all(
            never_negative(part) or implied is at_least(part)
            for part, implied in ((then, chosen), (otherwise, no(chosen)))
        )
    if term.op == "most":
        return any(map(never_negative, term.args))
    if term.op in ("least", "remainder"):
        return term.op == "remainder" or all(map(never_negative, term.args))
    return term.op == "quotient" and never_negative(term.args[0])


def least(*terms: Term) -> Term:
    return _extreme("least", terms)


def most(*terms: Term) -> Term:
    return _extreme("most", terms)


def _extreme(op: Literal["least", "most"], terms: tuple[Term, ...]) -> Term:
    flat: dict[Term, None] = {}
    for term in terms:
        flat.update(dict.fromkeys(term.args if term.op == op else (term,)))
    numbers = [value_of_number(term) for term in flat if is_number(term)]
    rest = [term for term in flat if not is_number(term)]
    if numbers:
        rest.append(number(min(numbers) if op == "least" else max(numbers)))
    if len(rest) == 1:
        return rest[0]
    return _term(op, "int", tuple(sorted(rest, key=lambda term: term.serial)))


def bitwise(op: BitOperation, left: Term, right: Term) -> Term:
    """A bitwise operation in two's complement, with as many bits as the numbers need."""
    for x, y in ((left, right), (right, left)):
        if op == "bitxor" and x.op == "sign":
            # x is -1 or 0: all bits are flipped, or none.
            return choice(at_least(x), y, -1 - y)
        if op == "bitxor" and x.op == "choice" and all(map(is_number, x.args[1:])):
            chosen, then, otherwise = x.args
            return choice(chosen, bitwise(op, then, y), bitwise(op, otherwise, y))
    if is_number(left) and is_number(right):
        a, b = value_of_number(left), value_of_number(right)
        return number(OPERATIONS[op].value(a, b))
    for x, y in ((left, right), (right, left)):
        if op == "bitand" and is_number(y) and value_of_number(y) == 1:
            return remainder(x, number(2))
    terms: list[Term] = []
    for term in (left, right):
        terms += term.args if term.op == op else (term,)
    return _term(op, "int", tuple(sorted(terms, key=lambda term: term.serial)))


OF_INTEGERS: Final[dict[str, Callable[[Term, Term], Term]]] = {
    "add": add, "mul": multiply, "min": least, "max": most,
    "floordiv": lambda x, c: quotient(x, most(c, number(1))),
    "mod": lambda x, c: remainder(x, most(c, number(1))),
    "bitand": lambda x, y: bitwise("bitand", x, y),
    "bitor": lambda x, y: bitwise("bitor", x, y),
    "bitxor": lambda x, y: bitwise("bitxor", x, y),
}  # fmt: skip
"""Operations of formulas, by name; a divisor below 1 counts as 1."""


def sign_of(term: Term) -> Term:
    """-1 for a negative number, else 0: its highest bit, shifted down."""
    if is_number(term):
        return number(-1 if value_of_number(term) < 0 else 0)
    return _term("sign", "int", (term,))


def ends_of_bits(bits: int, signed: bool) -> tuple[int, int]:
    """The smallest and the largest integer of `bits` bits."""
    low = -(1 << bits - 1) if signed else 0
    return low, low + (1 << bits) - 1


def stays(term: Term, bits: int, signed: bool) -> Term:
    """The condition that an integer fits `bits` bits."""
    low, high = ends_of_bits(bits, signed)
    return (term >= low) & (term <= high)


def wrapped(term: Term, bits: int, signed: bool = True) -> Term:
    """The integer of `bits` bits that equals the term modulo 2**bits."""
    if is_number(term):
        return number(_turned(value_of_number(term), bits, signed))
    plain = unwrapped_ring(term, bits)
    if plain.op == "wrapped" and _holds(bits, signed, *plain.data):
        return plain
    return _term("wrapped", "int", (plain,), (bits, signed))


def _turned(value: int, bits: int, signed: bool) -> int:
    low, _ = ends_of_bits(bits, signed)
    return (value - low) % (1 << bits) + low


def _holds(bits: int, signed: bool, inner_bits: int, inner_signed: bool) -> bool:
    """Whether the outer type holds every integer of the inner one."""
    if signed == inner_signed:
        return inner_bits <= bits
    return signed and inner_bits < bits


def unwrapped_ring(term: Term, bits: int) -> Term:
    """A sum or product without the wrapping of its parts, equal modulo 2**bits."""
    if term.op == "wrapped" and term.data[0] >= bits:
        return term.args[0]
    if term.op not in ("sum", "product"):
        return term
    total: list[Term] = []
    for atoms, times in polynomial(term).items():
        factors = [unwrapped_ring(atom, bits) if atom.op == "wrapped" else atom for atom in atoms]
        total.append(multiply(number(times), *factors))
    return add(*total)


def entry(table: Table, at: Term) -> Term:
    return _term("entry", table.kind, (at,), table)


def whole_part(real: Term) -> Term:
    """The integer part of a real number, as `engine.long_integers.whole` has it."""
    return _term("whole", "int", (real,))


# --- conditions ----------------------------------------------------------------------------------

TRUE: Final = _term("true", "bool")
FALSE: Final = _term("false", "bool")


def truth(value: bool) -> Term:
    return TRUE if value else FALSE


def at_least(x: Term) -> Term:
    """x >= 0."""
    if is_number(x):
        return truth(value_of_number(x) >= 0)
    if x.op == "sum":
        constant, coefficients = x.data
        divisor = reduce(gcd, coefficients)
        if divisor > 1:
            # Of integers, 2 x >= 1 is x >= 1.
            row = {(atom.args if atom.op == "product" else (atom,)): times // divisor
                   for atom, times in zip(x.args, coefficients, strict=True)}  # fmt: skip
            return at_least(_of_polynomial({**row, (): constant // divisor}))
    if x.op == "sign":
        return at_least(x.args[0])
    if x.op in ("bitand", "bitor", "bitxor"):
        signs = [no(at_least(part)) for part in x.args]
        if x.op == "bitand":
            return no(both(*signs))
        if x.op == "bitor":
            return no(either(*signs))
        return no(reduce(lambda odd, sign: no(same(odd, sign)), signs))
    minus_one = -1 - x
    if minus_one.op in ("bitand", "bitor", "bitxor", "sign"):
        return no(at_least(minus_one))
    if _leads_negative(x):
        return no(_term("at_least", "bool", (minus_one,)))
    return _term("at_least", "bool", (x,))


def within(low: Term, x: Term, end: Term) -> Term:
    """low <= x < end."""
    return (x >= low) & (end > x)


def equal(left: Term, right: Term) -> Term:
    """left == right, of two integers; x mod c = 0 and x mod c = y mod c become `divides`."""
    x = left - right
    if is_number(x):
        return truth(value_of_number(x) == 0)
    if _leads_negative(x):
        x = -x
    rows = polynomial(x)
    remainders = [atoms[0] for atoms in rows if len(atoms) == 1 and atoms[0].op == "remainder"]
    if 1 <= len(remainders) <= 2:
        # (-1 - y) mod c = c - 1 - y mod c
        c = remainders[0].args[1]
        lacking = add(*remainders) - c + 1
        if (x is lacking or x is -lacking) and all(r.args[1] is c for r in remainders):
            return divides(c, add(*[r.args[0] for r in remainders], number(1)))
    if len(remainders) == len(rows) == 1:
        return divides(remainders[0].args[1], remainders[0].args[0])
    if len(remainders) == len(rows) == 2 and sum(rows.values()) == 0:
        a, b = remainders
        if a.args[1] is b.args[1] and abs(next(iter(rows.values()))) == 1:
            return divides(a.args[1], a.args[0] - b.args[0])
    return _term("zero", "bool", (x,))


def divides(c: Term, x: Term) -> Term:
    """Whether c >= 1 divides x. In x, y mod c is replaced by y."""
    x = add(*[
        multiply(number(times), *[
            atom.args[0] if atom.op == "remainder" and atom.args[1] is c else atom
            for atom in atoms
        ])
        for atoms, times in polynomial(x).items()
    ])  # fmt: skip
    if _leads_negative(x):
        x = -x
    whole, rest = _divided(x, c)
    if whole is not None:
        return divides(c, rest)
    if is_number(x) and is_number(c):
        return truth(value_of_number(x) % value_of_number(c) == 0)
    if is_number(x) and value_of_number(x) == 0:
        return TRUE
    return _term("divides", "bool", (c, x))


def no(condition: Term) -> Term:
    if condition is TRUE or condition is FALSE:
        return truth(condition is FALSE)
    return condition.args[0] if condition.op == "no" else _term("no", "bool", (condition,))


def both(*conditions: Term) -> Term:
    return _joined("both", conditions, FALSE, TRUE)


def either(*conditions: Term) -> Term:
    return _joined("either", conditions, TRUE, FALSE)


def _joined(op: str, conditions: Iterable[Term], decisive: Term, neutral: Term) -> Term:
    flat: dict[Term, None] = {}
    for condition in conditions:
        flat.update(dict.fromkeys(condition.args if condition.op == op else (condition,)))
    flat.pop(neutral, None)
    if decisive in flat or any(no(part) in flat for part in flat):
        return decisive
    if not flat:
        return neutral
    parts = tuple(sorted(flat, key=lambda term: term.serial))
    return parts[0] if len(parts) == 1 else _term(op, "bool", parts)


def same(left: Term, right: Term) -> Term:
    """left <=> right."""
    if left is right:
        return TRUE
    if left is no(right):
        return FALSE
    for x, y in ((left, right), (right, left)):
        if x is TRUE:
            return y
        if x is FALSE:
            return no(y)
    parts = tuple(sorted((left, right), key=lambda term: term.serial))
    return _term("same", "bool", parts)


def choice(chosen: Term, then: Term, otherwise: Term) -> Term:
    """`then` where the condition holds, else `otherwise`; both have one sort."""
    if chosen is TRUE or then is otherwise:
        return then
    if chosen is FALSE:
        return otherwise
    if chosen.op == "no":
        return choice(chosen.args[0], otherwise, then)
    if then.op == "choice" and then.args[0] is chosen:
        then = then.args[1]
    if otherwise.op == "choice" and otherwise.args[0] is chosen:
        otherwise = otherwise.args[2]
    if then is otherwise:
        return then
    if then.sort == "bool":
        return either(both(chosen, then), both(no(chosen), otherwise))
    return _term("choice", then.sort, (chosen, then, otherwise))


# --- real numbers --------------------------------------------------------------------------------

COMMUTE: Final = ("add", "multiply", "minimum", "maximum", "minimum of numbers",
                   "maximum of numbers", "equal")  # fmt: skip


def real(value: float) -> Term:
    """A number that float32 holds."""
    return _term("real", "real", (), float(value))


def apply(name: str, *args: Term, sort: Sort = "real") -> Term:
    """An operation on real numbers, rounded once; to the provers, an uninterpreted function."""
    if name in ("minimum of numbers", "maximum of numbers") and all(map(_is_no_nan, args)):
        name = name.removesuffix(" of numbers")
    if name in COMMUTE:
        args = tuple(sorted(args, key=lambda term: term.serial))
    return _term("apply", sort, args, name)


def _is_no_nan(term: Term) -> bool:
    """Whether the form of a term shows that it is not NaN; calls refuse NaN for a mask's number."""
    if term.op == "apply" and term.data in ("minimum", "maximum"):
        return all(map(_is_no_nan, term.args))
    if term.op == "real":
        return bool(term.data == term.data)
    return term.op in ("real_of", "variable") and term.data != "score"


def real_of(integer: Term) -> Term:
    """The real number nearest to an integer."""
    if is_number(integer) and abs(value_of_number(integer)) <= 1 << 24:
        return real(float(value_of_number(integer)))
    return _term("real_of", "real", (integer,))


def of_bits(integer: Term) -> Term:
    """The real number with these 32 bits."""
    return _term("of_bits", "real", (integer,))


# --- rewriting and computing ---------------------------------------------------------------------


def _of_integers(op: str) -> Callable[..., int]:
    value = OPERATIONS[op].value
    return lambda *args: reduce(value, args)


_OPERATIONS: Final[dict[str, tuple[Callable[..., Term], Callable[..., Any] | None]]] = {
    "product": (multiply, _of_integers("mul")),
    "quotient": (quotient, _of_integers("floordiv")),
    "remainder": (remainder, _of_integers("mod")),
    "least": (least, _of_integers("min")),
    "most": (most, _of_integers("max")),
    **{op: (lambda *args, op=op: reduce(OF_INTEGERS[op], args), _of_integers(op))
       for op in ("bitand", "bitor", "bitxor")},
    "sign": (sign_of, lambda x: -1 if x < 0 else 0),
    "true": (lambda: TRUE, lambda: True),
    "false": (lambda: FALSE, lambda: False),
    "at_least": (at_least, lambda x: x >= 0),
    "zero": (lambda x: equal(x, number(0)), lambda x: x == 0),
    "divides": (divides, lambda c, x: c >= 1 and x % c == 0),
    "no": (no, lambda x: not x),
    "both": (both, lambda *x: all(x)),
    "either": (either, lambda *x: any(x)),
    "same": (same, lambda x, y: x == y),
    "choice": (choice, lambda c, x, y: x if c else y),
    "whole": (whole_part, None), "real_of": (real_of, None), "of_bits": (of_bits, None),
}  # fmt: skip
"""How a term with an operation is built, and its value; None for real numbers."""


def rebuilt(term: Term, args: tuple[Term, ...]) -> Term:
    """The term's operation on other arguments."""
    if all(new is old for new, old in zip(args, term.args, strict=True)):
        return term
    if term.op == "sum":
        constant, coefficients = term.data
        rows = [multiply(number(c), arg) for c, arg in zip(coefficients, args, strict=True)]
        return add(number(constant), *rows)
    if term.op == "wrapped":
        return wrapped(args[0], *term.data)
    if term.op == "entry":
        return entry(term.data, args[0])
    if term.op == "choice" and term.data == NATURAL:
        return _natural(*args)
    if term.op == "apply":
        return apply(term.data, *args, sort=term.sort)
    return _OPERATIONS[term.op][0](*args)


def replaced(term: Term, replace: Callable[[Term], Term | None]) -> Term:
    """The term with each part for which `replace` gives another one replaced, inner parts first."""
    done: dict[int, Term] = {}
    for part in term.walk():
        new = rebuilt(part, tuple([done[arg.serial] for arg in part.args]))
        found = replace(new)
        done[part.serial] = new if found is None else found
    return done[term.serial]


Value = int | bool | float
Entries = Callable[[Table, int], Value]


def computed(
    term: Term,
    values: Mapping[str, Value],
    entries: Entries,
    reals: Callable[..., Any],
) -> Any:
    """The value of a term at these values of its variables.

    Args:
        term: the term.
        values: the values of its variables, by name.
        entries: gives the entry of a table at an offset.
        reals: `reals(name, *args)` computes operations on real numbers, those named by `apply`,
            and "whole", "real_of" and "of_bits".
    """
    done: dict[int, Any] = {}
    for part in term.walk():
        args = [done[arg.serial] for arg in part.args]
        done[part.serial] = _computed(part, args, values, entries, reals)
    return done[term.serial]


def _computed(
    term: Term, args: list[Any], values: Mapping[str, Value], entries: Entries, reals: Any
) -> Any:
    op = term.op
    if op == "sum":
        constant, coefficients = term.data
        return constant + sum(c * arg for c, arg in zip(coefficients, args, strict=True))
    if op == "variable":
        return values[term.data]
    if op == "real":
        return term.data
    if op == "entry":
        return entries(term.data, args[0])
    if op == "wrapped":
        return _turned(args[0], *term.data)
    if op == "apply":
        return reals(term.data, *args)
    value = _OPERATIONS[op][1]
    return reals(op, *args) if value is None else value(*args)


def shown(term: Term) -> str:
    op, args = term.op, [shown(arg) for arg in term.args]
    if op == "sum":
        constant, coefficients = term.data
        rows = [f"{c} {arg}" if c != 1 else arg for c, arg in zip(coefficients, args, strict=True)]
        return "(" + " + ".join([*rows, *([str(constant)] if constant or not rows else [])]) + ")"
    if op in ("variable", "real"):
        return str(term.data)
    if op == "entry":
        return f"{term.data.name}[{args[0]}]"
    if op == "wrapped":
        return f"{'int' if term.data[1] else 'uint'}{term.data[0]}({args[0]})"
    name = term.data if op == "apply" else op
    return f"{name}({', '.join(args)})" if args else str(name)
