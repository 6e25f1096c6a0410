"""Assumptions of the claims: conditions that every call checks before a kernel runs.

Lengths, numbers and sizes of tables are unknown within limits that the mask declares, that 32 bits
set, or that decide how the kernel is written (`codegen.style.Style`). For example, a kernel of 32
bits runs if lengths, numbers and products add up to less than 2**31 (`engine.extents.fits_int32`),
or less than 2**30 if the formula reads tables or truncates real numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..codegen.text.long_integers import compares_integers, is_long, roots
from ..engine.extents import MOST_OF_ENTRY, _repeats, is_kept_from_zero
from ..engine.normal_form import Structure
from ..formula import nodes
from ..formula.comparisons import holds_entry
from ..formula.meaning import RULES
from ..formula.nodes import Node
from ..formula.parameters import INT32_MAX, common_order
from ..proof.closed_forms import Span, in_kernels
from ..proof.documents import same_document
from . import terms
from .meaning import BATCH, HEAD, KV_LEN, Q0, Q1, Q_LEN, K, Meaning, Q
from .terms import Term

PADDING = 4096
_NEAR = 2**22
MOST_OF_TABLE = 2**30
"""Most entries of a table along an axis: an assumption that no call checks."""
BATCHES, HEADS = terms.variable("batches"), terms.variable("heads")


@dataclass(frozen=True)
class Kernel:
    """The traits of a kernel that decide which calls it runs in.

    Attributes:
        bits: bits of its indices, 32 or 64.
        grain: divides the number of keys, and the row length of tables that are read key by key.
        near: positions and numbers add up to at most 2**22, which float32 holds exactly.
        short: products have at most 64 bits (`Style.limbs` is 1).
        every_integer: all integers of the formulas are at most 2**62, as in the kernels of CPUs.
        most: largest number of queries, keys, batch entries and heads of a call.
        checked: whether calls check that computed indices lie inside their tables.
    """

    bits: int
    grain: int = 1
    near: bool = False
    short: bool = True
    every_integer: bool = False
    most: int = 2**31 - 1
    checked: bool = True


def given(structure: Structure, meaning: Meaning, kernel: Kernel) -> list[Term]:
    """Facts about a structure's lengths, numbers and tables in the calls that run the kernel."""
    found = [
        *between(1, Q_LEN, kernel.most),
        *between(1, KV_LEN, kernel.most),
        *_below(BATCH, BATCHES),
        *_below(HEAD, HEADS),
        *between(1, BATCHES, kernel.most),
        *between(1, HEADS, kernel.most),
    ]
    for slot in structure.scalars:
        if slot.kind == "int":
            low = -INT32_MAX if slot.low is None else slot.low
            found += between(low, meaning.number(slot), INT32_MAX)
    for slot in structure.tables:
        for axis in range(slot.ndim):
            found += between(1, meaning.size(slot, axis), MOST_OF_TABLE)
    found += _indices(structure, meaning, kernel.checked)
    if kernel.bits == 32:
        found.append(_fits_32(structure, meaning))
    if kernel.short:
        found += _short_roots(structure, meaning)
    if kernel.every_integer:
        for part in (*structure.mask.walk(), *structure.bias.walk()):
            if part.kind == "int":
                found += between(-(2**62), meaning(part), 2**62)
    if kernel.near:
        total = terms.add(terms.most(Q_LEN, KV_LEN), *_numbers(structure, meaning))
        found.append(_at_most(total + structure.constants, _NEAR))
    return found


def pair() -> list[Term]:
    """Facts: Q is a query and K a key of the call."""
    return [*_below(Q, Q_LEN), *_below(K, KV_LEN)]


def past_the_end() -> list[Term]:
    """Facts: Q is a query, and K a position past the last key that a tile may still reach."""
    past = KV_LEN + PADDING > K
    return [*_below(Q, Q_LEN), K >= KV_LEN, past]


def tile_and_key() -> list[Term]:
    """Facts: q0..q1 is a tile of queries, and K a key of the call."""
    return [Q0 >= 0, Q1 >= Q0, Q_LEN > Q1, *_below(K, KV_LEN)]


def sizes_of_bounds(spans: tuple[Span, ...], meaning: Meaning, kernel: Kernel) -> list[Term]:
    """Limits of the integers in loop bounds, which calls check before a kernel runs.

    On CPUs all integers are at most 2**62. On GPUs a product, or a sum with a product but without
    its table entries, fits the kernel's 32 or 64 bits (`integer_sizes.sizes_of`).
    """
    found: list[Term] = []
    bounds = [bound for span in spans for bound in span.bounds]
    for bound in filter(in_kernels, bounds):
        for part in bound.walk():
            if part.kind != "int":
                continue
            if kernel.every_integer:
                found += between(-(2**62), meaning(part), 2**62)
            elif "mul" in part.ops():
                terms_of = part.args if part.op == "add" else (part,)
                near = nodes.add(*[term for term in terms_of if not holds_entry(term)])
                most = 2**63 if kernel.bits == 64 else 2**31
                found += between(-most, meaning(near), most - 1)
    return found


def is_reachable(structure: Structure, kernel: Kernel) -> bool:
    """Whether any call runs the kernel. None runs a kernel of 32 bits if a factor of a product
    reads a table, or if the constants of the formula are too large."""
    return kernel.bits == 64 or (
        structure.constants + PADDING < _most_of_32(structure)
        and not any(
            any(part.op == "read" for part in product.walk()) for product in _products(structure)
        )
    )


def document_laws(node: Node, meaning: Meaning) -> list[Term]:
    """Facts about the tables made from document ids, for each comparison of ids in a formula.

    If query x and key y have equal ids, then first[x] <= y <= last[x]. The converse holds if ids
    are contiguous, as a flag on the device or a declared order says. If queries and keys share one
    tensor of ids, x and y may change places.
    """
    laws: list[Term] = []
    for part in node.walk():
        same = same_document(part) if part.op == "eq" else None
        if same is None:
            continue
        own = (*same.of_query.own, *same.of_key.own)
        contiguous = terms.TRUE
        if common_order(*own) is None:
            flag = meaning(Node("step", "int", (), "contiguous", own))
            contiguous = ~terms.equal(flag, terms.number(0))
        x, y = same.of_query.args[-1], same.of_key.args[-1]
        pairs = [(x, y)] if own[0] is not own[1] else [(x, y), (y, x)]
        leading = same.of_query.args[:-1] or same.of_key.args[:-1]
        for at, other in pairs:
            low, high = (
                meaning(Node("step", "int", (*leading, at), name, own))
                for name in ("first", "last")
            )
            within = (meaning(other) >= low) & (high >= meaning(other))
            laws.append(~meaning(part) | within)
            laws.append(~within | ~contiguous | meaning(part))
    return laws


def _short_roots(structure: Structure, meaning: Meaning) -> list[Term]:
    """Facts: products, and sums and comparisons with products, fit 64 bits.

    `integer_sizes.sizes_of` checks this, by the dtypes of tables and the sizes of numbers.
    """
    found: dict[Term, None] = {}
    for formula in (structure.mask, structure.bias):
        for root in roots(formula):
            if not is_long(root, wide=True):
                continue
            computed = nodes.subtract(*root.args) if compares_integers(root) else root
            for part in computed.walk():
                if part.kind == "int" and "mul" in part.ops():
                    found.update(dict.fromkeys(between(-(2**63), meaning(part), 2**63 - 1)))
                    if part.op == "add":  # in whatever order terms are added
                        sizes = [size_of(meaning(term)) for term in part.args]
                        found[_at_most(terms.add(*sizes), 2**63 - 1)] = None
    return list(found)


def between(low: int, term: Term, high: int) -> list[Term]:
    """The conditions low <= term and term <= high."""
    return [term >= low, high >= term]


def _at_most(term: Term, high: int) -> Term:
    return high >= term


def _below(index: Term, count: Term) -> list[Term]:
    return [index >= 0, count > index]


def _indices(structure: Structure, meaning: Meaning, checked: bool) -> list[Term]:
    """Facts: tables are large enough for the call, as `engine.extents.check` checks."""
    counts = {"q_idx": Q_LEN, "kv_idx": KV_LEN, "batch": BATCHES, "head": HEADS}
    found: list[Term] = []
    for slot, axis, index in structure.table_indices:
        size = meaning.size(slot, axis)
        if index.op == "index":
            count = counts[str(index.data)]
            if index.data in ("batch", "head"):
                one = terms.equal(size, terms.number(1))
                found.append(one | terms.equal(size, count))
            else:
                found.append(size >= count)
        elif checked and not _repeats(index) and _is_bounded(index):
            within = _below(meaning(index), size)
            found += within[1:] if is_kept_from_zero(structure, slot, index) else within
    return found


def _is_bounded(index: Node) -> bool:
    """Whether the lengths and numbers of a call bound an index."""
    known = all(part.op in ("index", "const", "scalar", "extent") or part.op in RULES
                for part in index.walk())  # fmt: skip
    # `RULES` know no limits of these where an argument may be negative, or a divisor 0, and no call
    # checks such an index.
    return known and "bitand" not in index.ops() and not {"floordiv", "mod"} & index.ops()


def _numbers(structure: Structure, meaning: Meaning) -> list[Term]:
    """The absolute values of the expression's integer scalars."""
    return [size_of(meaning.number(slot)) for slot in structure.scalars if slot.kind == "int"]


def size_of(term: Term) -> Term:
    """The absolute value of an integer."""
    return terms.most(term, -term)


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


def _most_of_32(structure: Structure) -> int:
    return MOST_OF_ENTRY if structure.reads or structure.truncates else 2**31


def _fits_32(structure: Structure, meaning: Meaning) -> Term:
    parts = [Q_LEN, KV_LEN, BATCHES, HEADS]
    parts += [2 * size for size in _numbers(structure, meaning)]
    # `fits_int32` adds up upper limits of products, which are at least these products.
    if structure.multiplies:
        parts += [size_of(meaning(product)) for product in _products(structure)]
    total = structure.repeats * terms.add(*parts)
    total = total + (PADDING + structure.constants)
    return _at_most(total, _most_of_32(structure) - 1)
