"""Bits of pairs: a kernel that looks up a bit finds the one computed for the same pair.

The maker (`kernels/kept_bits.py`) stores a bit for each query and key; readers find it by the
strides of the call's layout (`backends.triton.kept.BitsLayout`). Both are read from their source
for one element of a block. A pair's bit is bit `column % 32` of word `column // 32` of its row.
Rows are grouped by *member*: a batch entry and a head, as far as the mask depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from .. import terms
from ..given import between
from ..meaning import NotDefined
from ..reading.triton import as_number, power_of_two
from ..reading.values import BOOL, FLOAT32, INT32, Block, Indexed, Number, Pointer, Type
from ..solve import settled
from ..terms import Table, Term, number
from .loops import Proof, Walker, ordered
from .runs import conditions

SIDE: Final = 64  # rows and columns that a program of the maker computes
LINES: Final = 64
COLUMNS: Final = 256
SIZES: Final = (8, 16, 32, 64, 128, COLUMNS)
"""Numbers of columns of a reader's tile, which begins at a multiple of this number."""
_WORD: Final = 32
_MOST: Final = 2**26
_BITS: Final = Table("bits", "int", -(2**31), 2**31 - 1)


# --- the maker ------------------------------------------------------------------------------------

_LANE: Final = terms.variable("lane")
_OF_ROW, _OF_COLUMN, _OF_WORD = (
    terms.variable(f"lane of {name}") for name in ("row", "column", "word")
)
_OF_BIT: Final = terms.variable("bit of a word")
_KEPT: Final = terms.variable("kept", "bool")
"""Whether the hook keeps the element of a lane."""


@dataclass(frozen=True)
class _Word(Indexed):
    """A word of 32 bits; its bit number `_OF_BIT` is `bit`."""

    bit: Term

    def __invert__(self) -> _Word:
        return _Word(~self.bit)

    def chosen(self, condition: Term, otherwise: Indexed) -> _Word:
        assert isinstance(otherwise, _Word)
        return _Word(terms.choice(condition, self.bit, otherwise.bit))


class _Square:
    """A program of the maker: its member, and its square of rows and columns."""

    def __init__(self) -> None:
        self.batch, self.head, self.heads, self.begin, self.rows, self.columns = (
            terms.variable(name) for name in ("batch", "head", "heads", "begin", "rows", "columns")
        )
        self.down, self.before, self.across = (
            terms.variable(f"squares {name}") for name in ("above", "before", "of a row")
        )
        self.member = self.batch * self.heads + self.head
        self.program = self.before + self.down * self.across
        self.words = SIDE // _WORD * self.across
        # The row's number among the rows that the launch makes, and the word's in its row.
        self.line = SIDE * self.down + _OF_ROW
        self.word = SIDE // _WORD * self.before + _OF_WORD
        self.row = self.begin + self.line
        self.column = _WORD * self.word + _OF_BIT

    def given(self) -> list[Term]:
        """Sizes of a table of at most 2**26 words."""
        found = [self.heads > self.head, self.across > self.before]
        for each in (self.batch, self.head, self.down, self.before):
            found += between(0, each, _MOST // SIDE)
        found += between(0, self.begin, _MOST)
        for each in (self.heads, self.across, self.rows, self.columns):
            found += between(
                1, each, _MOST // SIDE * (SIDE if each in (self.rows, self.columns) else 1)
            )
        place = (self.member * self.rows + self.line) * self.words
        for of in (place, self.member * self.rows, self.program, self.member):
            for atoms, times in terms.polynomial(of).items():
                found += between(0, terms.multiply(number(times), *atoms), _MOST)
            found += between(0, of, 2**30)
        lanes = ((_OF_ROW, SIDE), (_OF_COLUMN, SIDE), (_OF_WORD, SIDE // _WORD), (_OF_BIT, _WORD))
        return found + [law for lane, many in lanes for law in between(0, lane, many - 1)]


def _made(of_keys: bool, walker: Walker) -> None:
    """Proof steps for one pair: the program and lanes that compute its bit."""
    square = _Square()
    touched, unfull = (terms.variable(name, "bool") for name in ("touched", "unfull"))
    wanted = terms.variable("the mask keeps the pair", "bool")
    walker.given += square.given()
    walker.given += [square.rows > square.line, square.columns > square.column]
    # An untouched square drops this pair, and one without a dropped pair keeps it.
    walker.given += [~wanted | touched, wanted | unfull]

    def plain(*parts: Any) -> list[Term]:
        return settled(walker.given, [as_number(part).term for part in parts])

    def is_own(text: str, found: tuple[Any, ...], own: tuple[Term, ...]) -> None:
        pairs = zip(plain(*found), own, strict=True)
        walker.claim(text, terms.both(*[terms.equal(one, other) for one, other in pairs]))

    def next_run(
        j: Any, first: Any, last: Any, batch: Any, head: Any, length: Any, *of: Any
    ) -> Any:
        first_line = SIDE * square.down
        end = terms.least(first_line + SIDE, square.rows)
        own = (
            square.before,
            square.begin + first_line,
            square.begin + end - 1,
            square.batch,
            square.head,
            square.columns,
        )
        is_own("the square is asked for", (j, first, last, batch, head, length), own)
        if of[-1] != SIDE:
            raise NotDefined(f"tiles of {of[-1]} columns")
        run = (walker.fresh("first"), walker.fresh("end"), walker.fresh("partial", BOOL))
        walker.given += conditions(square.before, run, touched, unfull, square.before).values()
        return run

    lane_column = SIDE * square.before + _OF_COLUMN
    length = Number(terms.variable("kv_len"), INT32)

    def hold(batch: Any, head: Any, row: Any, keys: Any, scale: Any, S: Any, T: Any) -> Any:
        own = (square.batch, square.head, square.row, length.term)
        is_own("what a row needs is loaded", (batch, head, row, keys), own)
        return "held", None

    def masked(
        score: Any, batch: Any, head: Any, q: Any, k: Any, keys: Any, S: Any, T: Any
    ) -> Number:
        pair = (lane_column, square.row) if of_keys else (square.row, lane_column)
        own = (square.batch, square.head, *pair, length.term)
        is_own("the hook is asked about the pair", (batch, head, q, k, keys), own)
        if T != "held" or score.term is not terms.real(0.0):
            raise NotDefined("other arguments of the hook")
        return Number(terms.choice(_KEPT, score.term, terms.real(float("-inf"))), FLOAT32)

    def zeros(shape: tuple[int, ...], of: Type) -> Any:
        return _Word(terms.FALSE) if of == INT32 else Number(terms.real(0.0), of)

    def in_words(value: Any, shape: tuple[int, ...]) -> Any:
        if shape != (SIDE, SIDE // _WORD, _WORD):
            raise NotDefined(f"bits in the shape {shape}")
        return value

    def summed(value: Number, axis: int) -> _Word:
        """The word of its lanes' bits, after a check that each lane adds its own bit alone."""
        kept = terms.choice(_KEPT, terms.real(0.0), terms.real(float("-inf")))
        asked = {terms.apply("equal", kept, terms.real(0.0), sort="bool"): _KEPT,
                 terms.apply("equal", terms.real(0.0), kept, sort="bool"): _KEPT}  # fmt: skip
        of_word = _WORD * _OF_WORD + _OF_BIT
        found = terms.replaced(terms.unwrapped_ring(value.term, 32), asked.get)
        found = terms.replaced(found, {_OF_COLUMN: of_word}.get)
        (found,) = settled(walker.given, [found])
        shift = _OF_BIT % _WORD
        own = terms.choice(_KEPT, number(1), number(0))
        walker.claim("a lane has its own bit", terms.equal(shift, _OF_BIT))
        if axis != 2 or found is not (own * power_of_two(shift)):
            raise NotDefined(f"a word whose lanes add {found}")
        return _Word(wanted)

    stored: list[tuple[Term, Any]] = []

    def store(before: Any, pointer: Pointer, value: Any, mask: Any) -> Any:
        at, inside = settled(walker.given, [pointer.at, as_number(mask).as_condition])
        walker.claim("rows of the table are stored", inside)
        stored.append((at, value))
        return before

    hooks: dict[str, Any] = {"NEXT_RUN": next_run, "HOLD": hold, "MASKED": masked}
    walker.lanes({SIDE: _LANE, SIDE // _WORD: _OF_WORD}, _OF_ROW, _OF_COLUMN)
    walker.words |= {
        **hooks, "zeros": zeros, "reshape": in_words, "sum": summed, "store": store,
        "program_id": lambda axis: Number(square.member if axis else square.program, INT32),
    }  # fmt: skip
    scope = {**hooks, "S": (), "T": (), "OF_KEYS": of_keys, "SIDE": SIDE, "kv_len": length}
    sizes = ("begin", "rows", "columns", "words", "heads")
    scope |= {name: Number(getattr(square, name), INT32) for name in sizes}
    scope |= {"out_ptr": Pointer(_BITS, INT32, number(0)), "stored": None}
    walker.run_stores("kept_bits", scope, "across = ")
    if len(stored) != 1 or not isinstance(stored[0][1], _Word):
        raise NotDefined("what the maker stores")
    (at, word), row = stored[0], square.member * square.rows + square.line
    walker.claim("in the word of the pair", terms.equal(at, row * square.words + square.word))
    walker.claim("and the bit is whether the mask keeps it", terms.same(word.bit, wanted))
    walker.claim("number column % 32", terms.equal(square.column % _WORD, _OF_BIT))


def _apart(walker: Walker) -> None:
    """Proof steps for two pairs of a table: one word has one row, and all words lie inside."""
    heads, rows, words, batches = (
        terms.variable(name) for name in ("heads", "rows", "words", "batches")
    )
    walker.given += [
        law for each in (heads, rows, words, batches) for law in between(1, each, _MOST)
    ]

    def pair(name: str) -> tuple[Term, Term, Term, Term]:
        found = [terms.variable(f"{part}{name}") for part in ("batch", "head", "row", "word")]
        for each, many in zip(found, (batches, heads, rows, words), strict=True):
            walker.given += [each >= 0, many > each]
        batch, head, row, word = found
        return batch, head, row, word

    def places(batch: Term, head: Term, row: Term, word: Term) -> tuple[Term, Term, Term]:
        member = batch * heads + head
        row = member * rows + row
        return member, row, row * words + word

    one, other, sizes = pair(""), pair(" of another"), (heads, rows, words)
    of_one, of_other = (one[0], *places(*one)[:2]), (other[0], *places(*other)[:2])
    for x, y, times in zip(of_one, of_other, sizes, strict=True):
        walker.given += ordered(x, y, times)
    same = terms.equal(places(*one)[2], places(*other)[2])
    walker.claim(
        "pairs of one word are of one row",
        ~same | terms.both(*[terms.equal(x, y) for x, y in zip(one, other, strict=True)]),
    )
    members = batches * heads
    last = (batches, members, members * rows)
    for x, y, times in zip((one[0], *places(*one)[:2]), last, sizes, strict=True):
        walker.given += ordered(x, y, times)
    size = members * rows * words
    walker.claim("within the table", (places(*one)[2] >= 0) & (size > places(*one)[2]))
    of_head = rows * words
    found = one[0] * of_head * heads + one[1] * of_head + one[2] * words + one[3]
    walker.claim("a reader's numbers lead to it", terms.equal(found, places(*one)[2]))


# --- readers --------------------------------------------------------------------------------------


def _found(walker: Walker) -> None:
    """Proof steps for each element of a tile that begins at any multiple of its size."""
    row, tile, lane, other = (
        terms.variable(name) for name in ("row", "tiles before", "lane", "another lane")
    )
    walker.given += [*between(0, row, _MOST), *between(0, tile, _MOST // COLUMNS)]
    for size in SIZES:
        walker.given += [*between(0, lane, size - 1), *between(0, other, size - 1)]
        known = len(walker.given)
        for offset in range(0, max(size, _WORD), size):
            _elements(walker, size, offset, (row, tile, lane, other))
        del walker.given[known - 4 :]


def _found_in_tiles(walker: Walker) -> None:
    """Proof steps for each element of a tile, in the tile of bits that holds it."""
    member, step, row, wide, before, lane, other = (
        terms.variable(name)
        for name in ("member", "step", "row", "COLUMNS before", "before", "lane", "another lane")
    )
    for each, most in ((member, _MOST), (step, _MOST), (row, _MOST), (wide, _MOST // COLUMNS)):
        walker.given += between(0, each, most)
    line = row // LINES * step
    place = terms.entry(_BITS, member + line + wide)
    walker.given += [*between(0, line, _MOST), *between(0, place, _MOST)]
    words = row % LINES * (COLUMNS // _WORD)
    asked: list[tuple[int, Term]] = []

    def bits_at(table: Pointer, row_of: Number, index: Number, size: int) -> Any:
        """Stands for the lookup in whole rows, which `_found` proves."""
        own = table.at is number(0) and isinstance(size, int)
        walker.claim("of the table", terms.truth(own))
        walker.claim("the row's words in its tile", terms.equal(row_of.term, place + words))
        asked.append((size, index.term))
        return "bits"

    def one_of_all(value: Number, axis: int, function: Any) -> Number:
        of_other = terms.replaced(value.term, {lane: other}.get)
        walker.claim("elements share a tile's place", terms.equal(value.term, of_other))
        return Number(of_other, value.type)

    walker.words["_bits_at"] = bits_at
    walker.words["reduce"] = one_of_all
    for size in SIZES:
        many = COLUMNS // size
        known = len(walker.given)
        walker.given += [*between(0, lane, size - 1), *between(0, other, size - 1)]
        walker.given += between(0, before, many - 1)
        inside = size * before + lane
        index = Block(COLUMNS * wide + inside, INT32, (1, size))
        passed = (Number(member, INT32), Number(step, INT32), Block(row, INT32, (1, 1)), index)
        walker.call("bits_of_tiles", Pointer(_BITS, INT32, number(0)), *passed)
        ((asked_size, column),) = asked
        walker.claim("as many columns", terms.truth(asked_size == size))
        walker.claim("the column in the tile of bits", terms.equal(column, inside))
        asked.clear()
        del walker.given[known:]


def _elements(walker: Walker, size: int, offset: int, of: tuple[Term, Term, Term, Term]) -> None:
    row, tile, lane, other = of
    whole = max(size, _WORD)
    begin = whole * tile + offset
    alike: list[Term] = []

    def one_of_all(value: Number, axis: int, function: Any) -> Number:
        """One element along an axis, all of which must be equal."""
        (plain,) = settled(walker.given, [value.term])
        alike.append(plain)
        return Number(terms.replaced(plain, {lane: other}.get), value.type)

    walker.words["reduce"] = one_of_all
    index = Block(begin + lane, INT32, (1, size))
    pointer = Pointer(_BITS, INT32, number(0))
    word, bit = walker.call("bits_of", pointer, Block(row, INT32, (1, 1)), index)
    found = settled(walker.given, [word.term, bit.term])
    for place in range(size):

        def at(term: Term, place: int = place) -> Term:
            """The term at a lane."""

            def replace(part: Term) -> Term | None:
                if part is lane or part is other:
                    return number(place)
                power = part.op == "apply" and part.data == "power of two"
                if power and terms.is_number(part.args[0]):
                    return number(1 << terms.value_of_number(part.args[0]))
                return None

            return terms.replaced(term, replace)

        for each in alike:
            walker.claim(
                "elements share a word's address",
                terms.equal(at(each), terms.replaced(each, {lane: number(0)}.get)),
            )
        word_at, bit_at = map(at, found)
        shift = 0
        if word_at.op == "quotient" and terms.is_number(word_at.args[1]):
            shift = terms.value_of_number(word_at.args[1]).bit_length() - 1
            word_at = word_at.args[0]
        own = (begin + place) // _WORD
        if word_at.op != "entry" or not terms.is_number(bit_at):
            raise NotDefined(f"the word {word_at} and the bit {bit_at}")
        walker.claim("the word of the column", terms.equal(word_at.args[0], row + own))
        # (w >> s) & 2**b is bit s + b of w.
        number_of_bit = shift + terms.value_of_number(bit_at).bit_length() - 1
        one = bin(terms.value_of_number(bit_at)).count("1") == 1
        right = one and number_of_bit == (offset + place) % _WORD
        walker.claim("the bit of the column", terms.truth(right))


LEMMAS: Final[tuple[Proof, ...]] = (
    *(("kept_bits.kept_bits",
       f"the bit of each pair is computed and stored at its place, in a row for each {row}",
       partial(_made, of_keys)) for of_keys, row in ((False, "query"), (True, "key"))),
    ("kept_bits.kept_bits",
     "no two pairs share a place, readers compute the same place, and it lies in the table",
     _apart),
    ("kept_bits.bits_of",
     f"an element finds the bit of its row and column, in tiles of {SIZES} columns", _found),
    ("kept_bits.bits_of_tiles",
     f"an element finds them in the tile of {LINES} rows and {COLUMNS} columns that holds it",
     _found_in_tiles),
)  # fmt: skip
