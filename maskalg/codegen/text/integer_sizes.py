"""The widths of integers in an expression's kernels: 32, 64 or 128 bits.

Closed forms multiply by the mask's divisors and move terms from one side of a comparison to the
other, so the bounds of a loop may be larger than any integer in the mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from ... import errors
from ...engine.extents import MOST_OF_ENTRY, Extents, fits_int32
from ...engine.normal_form import Bound, Structure, transposed
from ...engine.widths import Known, bits_of, known_of, limits
from ...formula import nodes
from ...formula.comparisons import arranged, holds_entry
from ...formula.nodes import Node
from ...formula.printing import formula_text
from ...proof.closed_forms import in_kernels
from ...proof.proof import closed_forms_of
from ..style import Style
from . import long_integers

_UNTOLD: Final = 2**31
"""Positions are below this where no lengths are known."""
_DIGITS: Final = ("mul", "floordiv", "mod")


@dataclass(frozen=True)
class Sizes:
    """Whether indices have 64 bits, and the most limbs that other integers need."""

    wide: bool = False
    limbs: int = 1


def sizes_of(form: Bound, extents: Extents | None = None, *, wide: bool = False) -> Sizes:
    """The integers of a call, or of an expression where no lengths are known.

    Args:
        form: the expression.
        extents: of the call; None where no lengths are known.
        wide: without them, whether indices are computed in 64 bits.

    Raises:
        MaskValueError: a mask or a bias whose integers may need more than 128 bits.
    """
    if extents is None:
        return _sizes(form.structure, known_of(form.values), wide, None)
    most = max(extents.q_len, extents.kv_len, extents.batch, extents.heads, 1)
    wide = not fits_int32(form, extents)
    # Rounded up to a power of two, so that a growing cache of keys finds the same result.
    return _sizes(form.structure, known_of(form.values), wide, 1 << (most - 1).bit_length())


@lru_cache(maxsize=4096)
def _sizes(
    structure: Structure, values: tuple[Known, ...], wide: bool, positions: int | None
) -> Sizes:
    """The integers if positions are below a number; None if no lengths are known."""
    most = _UNTOLD if positions is None else positions
    wide = wide or (positions is not None and _multiples_outgrow(structure, values, most))
    limbs = 1
    for of_bounds, root in _roots(structure, wide):
        bits = max(bits_of(part, values, most) for part in _computed(root))
        if bits <= 63:
            continue
        size = max(bits_of(part, values, most) for part in _kept(root))
        needed = (
            long_integers.LIMBS
            if size <= long_integers.most_bits(root)
            else long_integers.LIMBS + 1
        )
        if needed > long_integers.LIMBS and not of_bounds:
            raise errors.integer_too_long(formula_text(root), size, long_integers.most_bits(root))
        limbs = max(limbs, needed)
    return Sizes(wide, limbs)


def elements_are_short(structure: Structure, style: Style) -> bool:
    """Whether each element is decided in 32 bits (64 beside entries), whatever the bounds need.

    Warp-specialised kernels have no registers for more.
    """
    if style.wide or style.limbs == 1:
        return not style.wide
    return all(of_bounds for of_bounds, _ in _roots(structure, style.wide))


def _computed(root: Node) -> tuple[Node, ...]:
    """The parts of a root that must fit 64 bits if it is computed in 64, in any order of terms."""
    return (nodes.subtract(*root.args),) if long_integers.compares_integers(root) else (root,)


def _kept(root: Node) -> tuple[Node, ...]:
    """The parts of a root that are computed in more than 64 bits."""
    return arranged(root).args if long_integers.compares_integers(root) else (root,)


@lru_cache(maxsize=4096)
def _roots(structure: Structure, wide: bool) -> tuple[tuple[bool, Node], ...]:
    """The roots that may need more than 64 bits, and whether they occur in bounds only."""
    formulas = [(False, structure.mask), (False, structure.bias)]
    formulas += [(True, bound) for bound in _bounds(structure)]
    found = [(bound, root) for bound, formula in formulas for root in long_integers.roots(formula)]
    return tuple(dict.fromkeys((b, r) for b, r in found if long_integers.is_long(r, wide=wide)))


@lru_cache(maxsize=4096)
def _bounds(structure: Structure) -> tuple[Node, ...]:
    """The bounds of loops over keys and over queries."""
    entries = any(node.op == "read" and node.kind == "int" for node in structure.mask.walk())
    if not entries and structure.mask.ops().isdisjoint(_DIGITS):
        # Sums of positions and numbers, as in the mask itself.
        return ()
    both = [closed_forms_of(one).bounds for one in (structure, transposed(structure))]
    return tuple(dict.fromkeys(filter(in_kernels, both[0] + both[1])))


def _multiples_outgrow(structure: Structure, values: tuple[Known, ...], most: int) -> bool:
    """Whether a product in a bound may be too large for kernels of 32 bits."""
    end = MOST_OF_ENTRY if structure.reads or structure.truncates else 2**31
    return any(
        max(-low, high) >= end
        for low, high in (limits(part, values, most) for part in _multiples(structure))
    )


@lru_cache(maxsize=4096)
def _multiples(structure: Structure) -> tuple[Node, ...]:
    return tuple(dict.fromkeys(part for bound in _bounds(structure) for part in _sums(bound)))


def _sums(bound: Node) -> Iterator[Node]:
    """The sums and products of a bound, without entries of tensors."""
    for part in bound.walk():
        if part.kind == "int" and "mul" in part.ops():
            terms = part.args if part.op == "add" else (part,)
            yield nodes.add(*[term for term in terms if not holds_entry(term)])
