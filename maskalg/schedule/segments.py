"""`mask.segments()`: what each tile of queries visits, by what is known soon.

`mask.blocks()` also looks at the tiles that stay open here, so its labels are those of the
elements: a tile in a PARTIAL segment may be EMPTY or FULL there. Other tiles have the same label.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..engine.extents import resolve
from ..engine.normal_form import bound
from ..formula.expression import Expression
from ..formula.printing import Shown
from .rung import rung_of
from .tile_runs import FULL, PARTIAL, TileRuns
from .tiling import Tiling, block_pair


@dataclass(frozen=True, eq=False)
class Segments(TileRuns, Shown):
    """The visits of each tile of queries: ordered, disjoint ranges of tiles of keys.

    Row `r = (batch_index * heads + head_index) * rows + tile` owns the segments from
    `row_start[r]` up to, not including, `row_start[r + 1]`. Neighbours that touch have different
    labels, and a row with nothing to visit has no segments.

    Attributes:
        row_start: int32 `[batch * heads * rows + 1]`, where the segments of each row begin.
        first, end: int32 `[segments]`, the tiles `first <= tile < end`.
        label: int32 `[segments]`, PARTIAL=1 or FULL=2.
        shape: `(batch, heads, rows)`; batch and heads are 1 where the mask does not depend on
            them.
        block: `(block_q, block_kv)`; the last row and column may be cut by the lengths.
        q_len, kv_len: lengths in positions.

    No kept element is outside of the segments, and FULL segments hold full tiles only. PARTIAL ones
    may hold tiles that turn out empty or full where the proof leaves tiles open; `mask.blocks`
    evaluates those.
    """

    block: tuple[int, int]
    q_len: int
    kv_len: int

    def counts(self) -> tuple[int, int, int]:
        """How many tiles are outside of the segments, in PARTIAL ones and in FULL ones."""
        tiles = self.tiles
        partial, full = (int(tiles[self.label == label].sum()) for label in (PARTIAL, FULL))
        batches, heads, rows = self.shape
        columns = -(-self.kv_len // self.block[1])
        return batches * heads * rows * columns - partial - full, partial, full

    @property
    def nbytes(self) -> int:
        """Bytes of the four arrays."""
        arrays = (self.row_start, self.first, self.end, self.label)
        return sum(array.numel() * array.element_size() for array in arrays)

    def __repr__(self) -> str:
        empty, partial, full = self.counts()
        return (
            f"Segments(q_len={self.q_len}, kv_len={self.kv_len}, block={self.block}, "
            f"segments={len(self.first)}, empty={empty}, partial={partial}, full={full})"
        )


def segments(
    mask: Expression,
    q_len: int,
    kv_len: int | None,
    *,
    block: int | tuple[int, int],
    batch: int | None,
    heads: int | None,
) -> Segments:
    """The row schedule of a mask; see `Mask.segments`."""
    pair = block_pair(block)
    form = bound(mask)
    extents = resolve(form, q_len, kv_len, batch, heads)
    runs = rung_of(form.structure).runs(Tiling(form, extents, pair))
    arrays = (runs.row_start, runs.first, runs.end, runs.label)
    return Segments(*arrays, runs.shape, pair, extents.q_len, extents.kv_len)
