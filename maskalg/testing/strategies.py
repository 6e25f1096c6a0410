"""Random compositions for hypothesis: each drawn mask comes with the oracle's matrix of it.

    from hypothesis import given
    from maskalg.testing import assert_labels_exact
    from maskalg.testing.strategies import BATCH, HEADS, masks, shapes

    @given(masks(depth=3), shapes())
    def test_my_composition(case, shape):
        mask = case.mask & my_mask
        assert_labels_exact(mask, *shape.lengths, shape.block, batch=BATCH, heads=HEADS)

Batch and heads, where a mask depends on them, are `BATCH` and `HEADS`. Lengths stay small, so that
brute force is fast and every kind of boundary is met. Simple masks come first: hypothesis shrinks a
failing composition to them. Random scores are in `maskalg.testing.score_strategies`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, get_args

import numpy as np
import torch

from ..formula.entries import lies_in
from ..formula.parameters import Order
from ..values import algebra, index
from ..values import masks as atom
from ..values.algebra import Mask
from ..values.by_hand import ENTRIES, FARTHEST_SHIFT, LONGEST, Bools
from ..values.index import Index, TableExpression
from . import oracle
from .case import BATCH, HEADS, Case, grid, matrix_of, where

try:
    from hypothesis import strategies as st
    from hypothesis.strategies import DrawFn, SearchStrategy

    from .index_strategies import comparisons, conditions, orders, remainders
except ImportError as missing:
    raise ImportError(
        "maskalg.testing.strategies needs hypothesis: pip install 'maskalg[testing]'."
    ) from missing


__all__ = ["BATCH", "HEADS", "Case", "Shape", "atoms", "masks", "shapes"]


@dataclass(frozen=True)
class Shape:
    """Lengths of a call, and sides of blocks, to test a mask with."""

    q_len: int
    kv_len: int
    block_q: int
    block_kv: int

    @property
    def lengths(self) -> tuple[int, int]:
        return self.q_len, self.kv_len

    @property
    def block(self) -> tuple[int, int]:
        return self.block_q, self.block_kv


@st.composite
def shapes(draw: DrawFn) -> Shape:
    """Lengths up to `LONGEST`, equal or not, and blocks that divide them or not."""
    q_len = draw(st.integers(1, LONGEST))
    kv_len = draw(st.one_of(st.just(q_len), st.integers(1, LONGEST)))
    block_q = draw(st.sampled_from((1, 2, 3, 4, 5, 7, 8, 16)))
    block_kv = draw(st.one_of(st.just(block_q), st.sampled_from((1, 2, 3, 4, 5, 7, 8, 16))))
    return Shape(q_len, kv_len, block_q, block_kv)


def masks(depth: int = 3, also: SearchStrategy[Case] | None = None) -> SearchStrategy[Case]:
    """Compositions of atoms by `&`, `|`, `^`, `~`, `shift`, `at`, `where`, nested to `depth`.

    `also` draws more atoms: masks of your own, each a `Case.of(mask, mask_mod)`.
    """
    return _masks(depth, also)


@lru_cache(maxsize=8)
def _masks(depth: int, also: SearchStrategy[Case] | None) -> SearchStrategy[Case]:
    if depth == 0:
        return atoms() if also is None else st.one_of(also, atoms())
    inner = _masks(depth - 1, also)
    # The simplest first: hypothesis shrinks towards it.
    return st.one_of(
        inner,
        inner.map(operator.invert),
        st.builds(operator.and_, inner, inner),
        st.builds(operator.or_, inner, inner),
        st.builds(operator.xor, inner, inner),
        shifted(inner),
        st.builds(Case.at, inner, _places(), _places()),
        st.builds(where, st.one_of(comparisons(), conditions()), inner, inner),
    )


def atoms() -> SearchStrategy[Case]:
    """One mask of the catalogue, or a comparison of index expressions."""
    return st.one_of(
        st.sampled_from(
            (
                Case(atom.causal, matrix_of(oracle.causal)),
                Case(algebra.everything, matrix_of(oracle.everything)),
                Case(algebra.nothing, matrix_of(oracle.nothing)),
            )
        ),
        st.builds(_sized, st.sampled_from(("sliding", "dilated")), st.integers(1, 12)),
        st.builds(_sized, st.sampled_from(("chunked", "block_causal")), st.integers(1, 12)),
        st.builds(_window, _sides(), _sides()),
        prefixes(),
        documents(),
        dense_masks(),
        comparisons(),
        remainders(),
        orders(),
        flags(),
        tables(),
    )


# --- composition ---------------------------------------------------------------------------------


@st.composite
def shifted(draw: DrawFn, inner: SearchStrategy[Case]) -> Case:
    """A case moved by integers or by 0-d tensors, or its queries by one number per batch entry."""
    case = draw(inner)
    moves = st.integers(0 if case.over_positions else -FARTHEST_SHIFT, FARTHEST_SHIFT)
    kind = draw(st.sampled_from(("integers", "tensor", "per batch")))
    if kind == "per batch":
        return case.shift_each(draw(st.lists(moves, min_size=BATCH, max_size=BATCH)))
    return case.shift(draw(moves), draw(moves), as_tensor=kind == "tensor")


def _places() -> SearchStrategy[list[int]]:
    """Positions of rows: as in a ring, or in any order with some negative ones."""
    anywhere = st.lists(st.integers(-2, LONGEST - 1), min_size=ENTRIES, max_size=ENTRIES)
    ring = st.builds(
        lambda last, size: [last - (last - i) % size for i in range(ENTRIES)],
        st.integers(0, LONGEST - 1),
        st.integers(1, LONGEST),
    )
    return st.one_of(ring, anywhere)


# --- atoms ---------------------------------------------------------------------------------------


def _sized(name: str, size: int) -> Case:
    return Case(getattr(atom, name)(size), matrix_of(getattr(oracle, name), size))


def _sides() -> SearchStrategy[int | None]:
    return st.one_of(st.none(), st.integers(0, 9))


def _window(left: int | None, right: int | None) -> Case:
    return Case(atom.window(left, right), matrix_of(oracle.window, left, right))


def _lengths() -> SearchStrategy[list[int]]:
    return st.lists(st.integers(0, LONGEST), min_size=BATCH, max_size=BATCH)


@st.composite
def prefixes(draw: DrawFn) -> Case:
    """`prefix` of an integer or a tensor, and `padding`."""
    kind = draw(st.sampled_from(("integer", "0-d", "per batch", "padding", "queries")))
    if kind in ("integer", "0-d"):
        length = draw(st.integers(0, LONGEST))
        given = length if kind == "integer" else torch.tensor(length, dtype=torch.int32)
        return Case(atom.prefix(given), matrix_of(oracle.prefix, length))
    lengths = draw(_lengths())
    if kind == "per batch":
        return Case(atom.prefix(torch.tensor(lengths)), matrix_of(oracle.prefix, lengths))
    queries = kind == "queries"
    mask = atom.padding(torch.tensor(lengths), queries=queries)
    return Case(mask, matrix_of(oracle.padding, lengths, queries=queries))


@st.composite
def identifiers(draw: DrawFn) -> list[int]:
    """Document ids: ascending, contiguous in any order, or recurring."""
    kind = draw(st.sampled_from(("ascending", "contiguous", "recurring")))
    if kind == "recurring":
        few = st.integers(-1, draw(st.integers(0, 3)))
        return draw(st.lists(few, min_size=ENTRIES, max_size=ENTRIES))
    cuts = sorted(draw(st.lists(st.integers(1, ENTRIES - 1), max_size=6)))
    numbers = [sum(cut <= position for cut in cuts) for position in range(ENTRIES)]
    if kind == "ascending":
        return numbers
    names = draw(st.permutations(range(7)))
    return [names[number] for number in numbers]


@st.composite
def documents(draw: DrawFn) -> Case:
    """`document` of one tensor of ids or of two, per batch or not, and its other constructors."""
    kind = draw(st.sampled_from(("own", "own", "cross", "cu_seqlens", "lengths")))
    if kind == "cu_seqlens":
        cu = [0, *sorted(draw(st.lists(st.integers(0, ENTRIES), max_size=5)))]
        mask = atom.document.from_cu_seqlens(torch.tensor(cu), total=ENTRIES)
        return Case(mask, matrix_of(oracle.document_from_cu_seqlens, cu), over_positions=True)
    if kind == "lengths":
        lengths = draw(st.lists(st.integers(0, 16), min_size=1, max_size=4))
        mask = atom.document.from_lengths(lengths, total=ENTRIES)
        return Case(mask, matrix_of(oracle.document_from_lengths, lengths), over_positions=True)
    q_ids, kv_ids = draw(_id_rows()), draw(_id_rows()) if kind == "cross" else None
    given = [torch.tensor(rows) for rows in (q_ids, kv_ids) if rows is not None]
    held = [order for order in get_args(Order) if all(bool(lies_in(order, t)) for t in given)]
    mask = atom.document(*given, order=draw(st.sampled_from((None, *held))))
    return Case(mask, matrix_of(oracle.document, q_ids, kv_ids), over_positions=True)


@st.composite
def tables(draw: DrawFn) -> Case:
    """Entries at positions computed from the query and the key, equal: `t[q // 2] == t[k]`."""
    q_lead, kv_lead = draw(_LEADS), draw(_LEADS)
    q_entries = np.array(draw(_rows(q_lead)))
    q_table = index.table(torch.from_numpy(q_entries), "t")
    if draw(st.booleans()):
        # One tensor on both sides, read in the same row or in another one.
        kv_entries, kv_table = q_entries, q_table
        kv_lead = q_lead if q_lead is None else draw(st.sampled_from((q_lead, "0")))
    else:
        kv_entries = np.array(draw(_rows(kv_lead)))
        kv_table = index.table(torch.from_numpy(kv_entries), "t")
    q_at, kv_at = draw(_POSITIONS), draw(_POSITIONS)
    left = _entry(q_table, q_lead, q_at(index.q_idx))

    def matrix(*at: int) -> Bools:
        q, k, b, h = grid(*at)
        rows: dict[str, Any] = {"batch": b, "head": h, "0": 0}
        queries = q_entries[q_at(q)] if q_lead is None else q_entries[rows[q_lead], q_at(q)]
        keys = kv_entries[kv_at(k)] if kv_lead is None else kv_entries[rows[kv_lead], kv_at(k)]
        return np.broadcast_to(queries == keys, (BATCH, HEADS, *at[:2]))

    return Case(left == _entry(kv_table, kv_lead, kv_at(index.kv_idx)), matrix, over_positions=True)


_LEADS: Final = st.sampled_from((None, None, "batch", "head", "0"))
_POSITIONS: Final[SearchStrategy[Callable[[Any], Any]]] = st.sampled_from(
    (
        lambda x: x,
        lambda x: x // 1,
        lambda x: x // 2,
        lambda x: 4 * (x // 4),
        lambda x: x % 5,
        lambda x: ENTRIES - 1 - x,
    )
)


def _rows(lead: str | None) -> SearchStrategy[list[Any]]:
    """Entries over positions, or as many rows of them as the leading index distinguishes."""
    if lead is None:
        return identifiers()
    count = HEADS if lead == "head" else BATCH
    return st.lists(identifiers(), min_size=count, max_size=count)


def _entry(entries: TableExpression, lead: str | None, position: Index) -> Index:
    if lead is None:
        return entries[position]
    rows: dict[str, Index | int] = {"batch": index.batch, "head": index.head, "0": 0}
    return entries[rows[lead], position]


def _id_rows() -> SearchStrategy[list[Any]]:
    return st.one_of(
        identifiers(),
        st.lists(identifiers(), min_size=1, max_size=1),
        st.lists(identifiers(), min_size=BATCH, max_size=BATCH),
    )


@st.composite
def dense_masks(draw: DrawFn) -> Case:
    """A Boolean tensor, coarse enough for whole blocks to be empty or full."""
    lead = draw(st.sampled_from(((), (HEADS,), (1, HEADS), (BATCH, 1), (BATCH, HEADS))))
    grain = draw(st.sampled_from((1, 4, 16)))
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    coarse = random.random((*lead, ENTRIES // grain, ENTRIES // grain)) < draw(
        st.sampled_from((0.1, 0.5, 0.9))
    )
    array = coarse.repeat(grain, axis=-1).repeat(grain, axis=-2)
    if draw(st.booleans()):
        array = array[..., :1, :] if draw(st.booleans()) else array[..., :, :1]
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return Case(atom.dense(tensor), matrix_of(oracle.dense, array), over_positions=True)


@st.composite
def flags(draw: DrawFn) -> Case:
    """A Boolean or integer tensor over positions: `table(kinds)[kv_idx] == 2`."""
    entries = draw(st.lists(st.integers(0, 3), min_size=ENTRIES, max_size=ENTRIES))
    wanted = draw(st.integers(0, 3))
    position, chosen = draw(st.sampled_from((("q", index.q_idx), ("k", index.kv_idx))))
    if draw(st.booleans()):
        mask: Mask = index.table(torch.tensor(entries) == wanted, "flags")[chosen]
    else:
        dtype = draw(st.sampled_from((torch.int64, torch.int32, torch.uint8)))
        mask = index.table(torch.tensor(entries, dtype=dtype), "kinds")[chosen] == wanted

    def matrix(q_len: int, kv_len: int, q_shift: int, kv_shift: int) -> Bools:
        q, k, _, _ = grid(q_len, kv_len, q_shift, kv_shift)
        kept = np.asarray(entries)[q if position == "q" else k] == wanted
        return np.broadcast_to(kept, (1, 1, q_len, kv_len))

    return Case(mask, matrix, over_positions=True)
