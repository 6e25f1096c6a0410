"""What every call has checked before a kernel runs: the conditions under which claims are proved.

Lengths, numbers and sizes of tables are unknown within the bounds that the package checks: those
declared by a mask, those of 32 bits, and those that choose how the kernel is written
(`codegen.style.Style`): a kernel of 32 bits runs where lengths, numbers and products add up to
less than 2**31 (`engine.extents.fits_int32`), or 2**30 beside entries of tables.
"""

from __future__ import annotations


from ..engine.extents import MOST_OF_ENTRY, _repeats
from ..engine.normal_form import Structure
from ..formula.integer_ranges import RULES
from ..formula.node import Node
from ..formula.parameters import INT32_MAX
from ..proof.check.document_laws import same_document
from . import terms
from .meaning import BATCH, HEAD, K, KV_LEN, Q, Q_LEN, Meaning
from .terms import Term

_PADDING = 4096
_NEAR = 2**22
BATCHES, HEADS = terms.variable("batches"), terms.variable("heads")


def given(structure: Structure, meaning: Meaning, *, wide: bool, near: bool) -> list[Term]:
    """What holds of the unknowns of a structure in a kernel of 32 bits, or a `wide` one of 64.

    `near`: sums of positions and numbers are below 2**22, which real numbers hold exactly.
    """
    found = [
        *_between(1, Q_LEN, 2**31 - 1),
        *_between(1, KV_LEN, 2**31 - 1),
        *_below(Q, Q_LEN),
        *_below(K, KV_LEN),
        *_below(BATCH, BATCHES),
        *_below(HEAD, HEADS),
        *_between(1, BATCHES, 2**31 - 1),
        *_between(1, HEADS, 2**31 - 1),
    ]
    for slot in structure.scalars:
        if slot.kind == "int":
            low = -INT32_MAX if slot.low is None else slot.low
            found += _between(low, meaning.number(slot), INT32_MAX)
    for slot in structure.tables:
        for axis in range(slot.ndim):
            found += _between(1, meaning.size(slot, axis), 2**31 - 1)
    found += _indices(structure, meaning)
    if not wide:
        found.append(_fits_32(structure, meaning))
    if near:
        total = terms.add(terms.most(Q_LEN, KV_LEN), *_numbers(structure, meaning))
        found.append(_at_most(terms.add(total, terms.number(structure.constants)), _NEAR))
    return found


def is_reachable(structure: Structure, *, wide: bool) -> bool:
    """Whether any call has such a kernel: none of 32 bits where a table is a factor."""
    return wide or not any(
        any(part.op == "read" for part in product.walk()) for product in _products(structure)
    )


def document_laws(node: Node, meaning: Meaning) -> list[Term]:
    """What the tables prepared of documents say, for each comparison of ids in a formula.

    Equal ids at query x and key y: first[x] <= y <= last[x]. Where ids are contiguous, which a
    flag on the device says, the bounds give equal ids as well. With one tensor for both sides the
    tables serve both directions.
    """
    laws: list[Term] = []
    for part in node.walk():
        same = same_document(part) if part.op == "eq" else None
        if same is None:
            continue
        own = (*same.of_query.own, *same.of_key.own)
        flag = meaning(Node("step", "int", (), "contiguous", own))
        contiguous = terms.no(terms.equal(flag, terms.number(0)))
        x, y = same.of_query.args[-1], same.of_key.args[-1]
        pairs = [(x, y)] if own[0] is not own[1] else [(x, y), (y, x)]
        leading = same.of_query.args[:-1] or same.of_key.args[:-1]
        for at, other in pairs:
            low, high = (
                meaning(Node("step", "int", (*leading, at), name, own)) for name in ("first", "last")
            )
            within = terms.both(
                terms.greater_equal(meaning(other), low), terms.greater_equal(high, meaning(other))
            )
            laws.append(terms.either(terms.no(meaning(part)), within))
            laws.append(terms.either(terms.no(within), terms.no(contiguous), meaning(part)))
    return laws


def _between(low: int, term: Term, high: int) -> list[Term]:
    return [
        terms.greater_equal(term, terms.number(low)),
        terms.greater_equal(terms.number(high), term),
    ]


def _at_most(term: Term, high: int) -> Term:
    return terms.greater_equal(terms.number(high), term)


def _below(index: Term, count: Term) -> list[Term]:
    return [terms.at_least(index), terms.greater(count, index)]


def _indices(structure: Structure, meaning: Meaning) -> list[Term]:
    """Tables fit the call: `engine.extents.check`."""
    counts = {"q_idx": Q_LEN, "kv_idx": KV_LEN, "batch": BATCHES, "head": HEADS}
    found: list[Term] = []
    for slot, axis, index in structure.table_indices:
        size = meaning.size(slot, axis)
        if index.op == "index":
            count = counts[str(index.data)]
            if index.data in ("batch", "head"):
                one = terms.equal(size, terms.number(1))
                found.append(terms.either(one, terms.equal(size, count)))
            else:
                found.append(terms.greater_equal(size, count))
        elif not _repeats(index) and _is_bounded(index):
            found += _below(meaning(index), size)
    return found


def _is_bounded(index: Node) -> bool:
    """Whether a call bounds an index by its lengths and numbers."""
    known = all(part.op in ("index", "const", "scalar", "extent") or part.op in RULES
                for part in index.walk())  # fmt: skip
    # Bounds of a bitwise operation may be unknown.
    return known and "bitand" not in index.ops() and not {"floordiv", "mod"} & index.ops()


def _numbers(structure: Structure, meaning: Meaning) -> list[Term]:
    """The sizes of the numbers that are bound."""
    numbers = [meaning.number(slot) for slot in structure.scalars if slot.kind == "int"]
    return [terms.most(number, terms.negate(number)) for number in numbers]


def _products(structure: Structure) -> list[Node]:
    """The products that `fits_int32` adds up."""
    formulas = (structure.mask, structure.bias)
    return [
        node
        for formula in formulas
        for node in formula.walk()
        if node.op == "mul" and node.kind == "int" and not _is_negation(node)
    ]


def _is_negation(node: Node) -> bool:
    return len(node.args) == 2 and any(arg.data == -1 for arg in node.args if arg.op == "const")


def _fits_32(structure: Structure, meaning: Meaning) -> Term:
    most = MOST_OF_ENTRY if structure.reads or structure.truncates else 2**31
    parts = [Q_LEN, KV_LEN, terms.number(_PADDING + structure.constants)]
    parts += [terms.multiply(terms.number(2), size) for size in _numbers(structure, meaning)]
    # `fits_int32` adds up what products are at most; they are at least what they are here.
    if structure.multiplies:
        products = list(map(meaning, _products(structure)))
        parts += [terms.most(product, terms.negate(product)) for product in products]
    return _at_most(terms.add(*parts), most - 1)


