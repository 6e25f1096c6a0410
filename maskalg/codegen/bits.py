"""Masks that cost more to compute than to look up: a bit for each pair, made once for all heads.

A partial tile of a neighborhood or of a permutation computes a few dozen instructions for each
element, in every head and layer. Bits of the pairs are computed once and remembered while the
tensors of the mask live unchanged; a lookup takes three instructions (`kernels/kept_bits.py`).
Of long calls, only the bits of partial tiles are kept, and a lookup loads the tile's place first.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from ..engine.normal_form import Structure
from ..formula.separation import Index
from .arguments import BitsNumber, BitsTable
from .spans import contiguous, interval_of
from .style import Style
from .text.predicate_ptx import for_each
from .text.triton import TritonText

IMPORT: Final = "from maskalg_kernels.kept_bits import bits_of, bits_of_tiles\n"


def may_cost(structure: Structure) -> bool:
    """Whether some loop, over keys or over queries, computes more than bounds of its index."""
    return costs(structure, "kv_idx") or costs(structure, "q_idx")


@lru_cache(maxsize=4096)
def costs(structure: Structure, moving: Index) -> bool:
    """Whether an element takes more than comparisons of the loop's index with bounds of a row."""
    bounded = contiguous(structure.mask, moving)
    mask = structure.mask if bounded is None else bounded[0]
    literals = [
        node
        for node in mask.walk()
        if node.op in ("ge", "eq") or (node.kind == "bool" and node.op == "read")
    ]
    moved = [literal for literal in literals if moving in literal.indices()]
    return bool(interval_of(tuple(moved), moving).rest)


def looks_up(structure: Structure, style: Style, moving: Index) -> bool:
    """Whether the elements of a loop look bits up: over queries all do, over keys costly ones."""
    costly = style.scattered or costs(structure, "kv_idx")
    return bool(style.bits) and (moving == "q_idx" or costly)


def kept_by_bits(
    table: BitsTable, text: TritonText, moving: Index, *, ptx: bool
) -> tuple[str, ...]:
    """The body of a `masked` that looks up bits."""
    step, of_batch, of_head = [
        text.number(BitsNumber(table.rows, table.tiled, name))
        for name in ("step", "of_batch", "of_head")
    ]
    stands = "kv_idx" if moving == "q_idx" else "q_idx"
    bits, member = text.arguments.table(table), f"batch * {of_batch} + head * {of_head}"
    if table.tiled:
        found = f"word, bit = bits_of_tiles({bits}, {member}, {step}, {stands}, {moving})"
    else:
        found = f"word, bit = bits_of({bits}, {member} + {stands} * {step}, {moving})"
    assembly = (
        "{ .reg .b32 kept; .reg .pred p; and.b32 kept, $2, $3; setp.ne.s32 p, kept, 0; "
        "selp.f32 $0, $1, 0fFF800000, p; }"
    )
    chosen = for_each(assembly, "=f,f,r,r", ["score", "word", "bit"])
    if not ptx:
        chosen = ('result = tl.where((word & bit) != 0, score, float("-inf"))',)
    return (*text.lines, found, *chosen, "return result")
