"""Bits of the pairs that a mask keeps, on the device (`codegen/bits.py`)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias, cast

import torch
import triton
from torch.nn.functional import pad

from ...codegen import store
from ...codegen.arguments import BitsTable
from ...codegen.bits import may_cost
from ...codegen.spans import compared_ids
from ...codegen.style import Bits
from ...engine.extents import Extents, dependence
from ...engine.memory import Memory, captured, memorable, stream_of
from ...engine.normal_form import Bound
from ...engine.recent import Recent
from ...formula.entries import lies_in
from ...schedule.tile_runs import EMPTY, label_of
from ...schedule.tiling import Of
from .bit_tiles import bits_in_tiles, labels_of_tiles, places_of, pooled
from .constants import count_constants
from .launching.compiler import CompilerError, naming_the_compiler
from .launching.spec import OF_ALL

_FEWEST_POSITIONS: Final = 64  # of either side; decode steps compute fewer
_FEWEST_PAIRS: Final = 1 << 24  # of all heads; fewer are computed as fast
_MOST_BITS: Final = 1 << 29  # of whole rows, 64 MiB; of more pairs, partial tiles alone are kept
_AT_ONCE: Final = 1 << 26  # bytes of rows that are made together
MOST_OF_TILES: Final = 1 << 29
"""The most bytes of a table of partial tiles."""
_LONGEST_TILE: Final = 256  # of positions, in which tables end with a whole tile
_MADE_TOGETHER: Final = 64  # rows and columns of a program that makes them
_COUNTED: Final = (64, 128)  # sides of the tiles that are counted
_MOST_MEMBERS: Final = (1 << 16) - 1  # places along the second axis of a GPU's grid
_FEWEST_COUNTED: Final = 1 << 27  # pairs of all heads; with fewer, counting takes too long
MOST_REMEMBERED: Final = 1 << 31
"""Bytes of all bits that are remembered; past them, the least recently used are made anew."""


def _bytes_of(bits: torch.Tensor | None) -> int:
    """The memory of bits. Bits that do not fit count too, so that they are forgotten in time."""
    return 1 << 20 if bits is None else bits.nbytes


_MEMORY: Final = Memory(MOST_REMEMBERED, _bytes_of)
_COUNTS: Final[Recent[Hashable, tuple[float, float, float]]] = Recent(1024)
_SCATTERED: Final[Recent[Hashable, bool]] = Recent(1024)
_SERVES: Final[dict[tuple[str, str, torch.device], bool]] = {}

Reads: TypeAlias = Callable[[], tuple[Sequence[int], tuple[torch.Tensor, ...]]]
"""The numbers and tables of the hooks that compute a mask."""


class BitsLayout(NamedTuple):
    """How the bits of pairs lie in memory.

    Attributes:
        members: batch entries and heads with masks of their own.
        rows, columns: positions of a member, of one side and of the other.
        step: integers of 32 bits in a row; of tiles, places from one row of tiles to the next.
        of_batch, of_head: integers, or places, from one batch entry and from one head to the next;
            0 if the mask is the same for all.
    """

    members: tuple[int, int]
    rows: int
    columns: int
    step: int
    of_batch: int
    of_head: int

    @property
    def words(self) -> int:
        """Integers of 32 bits in a row."""
        return _columns_kept(self.columns) // 32

    @property
    def size(self) -> tuple[int, int, int]:
        """Members, rows and columns."""
        return math.prod(self.members), self.rows, self.columns


def _columns_kept(columns: int) -> int:
    """The columns of a row of bits, which ends with a whole tile."""
    return -(-columns // _LONGEST_TILE) * _LONGEST_TILE


def bits_layout(form: Bound, extents: Extents, rows: Of, *, tiled: bool) -> BitsLayout:
    """The layout of the bits of a call, with rows of queries or of keys."""
    told = dependence(form.structure.mask, form, extents)
    lengths = (extents.q_len, extents.kv_len)
    along, across = lengths if rows == "queries" else lengths[::-1]
    layout = BitsLayout((told.batch, told.heads), along, across, 0, 0, 0)
    step, of_head = layout.words, along * layout.words
    if tiled:
        down, step = places_of(along, across)
        of_head = down * step
    of_batch = of_head * told.heads if told.batch > 1 else 0
    return layout._replace(step=step, of_batch=of_batch, of_head=of_head if told.heads > 1 else 0)


def ids_are_scattered(form: Bound, extents: Extents, device: torch.device) -> bool:
    """Whether ids of documents that the mask compares lie in no order, such as those of clusters.

    The first mask of a structure decides, for which the host waits; it chooses kernels, and no
    result depends on it. False for few pairs, and in a graph captured before.
    """
    slots = compared_ids(form.structure.mask)
    if not slots or _pairs_of(extents) < _FEWEST_COUNTED:
        return False
    key = (form.structure.mask, device)
    known = _SCATTERED.recall(key)
    if known is not None or captured(device):
        return bool(known)
    ids = [cast(torch.Tensor, form.values[slot.index]) for slot in slots]
    return _SCATTERED.keep(key, any(map(_lie_scattered, ids)))


def _lie_scattered(ids: torch.Tensor) -> bool:
    """Whether ids `[…, length]` are not contiguous, and change more often than at every tile."""
    changes = (ids[..., 1:] != ids[..., :-1]).sum()
    often = changes * _MADE_TOGETHER > ids.numel()
    return bool(often & ~lies_in("contiguous", ids))


def bits_worth(form: Bound, extents: Extents, device: torch.device) -> tuple[Bits, bool]:
    """The bits that are faster than a mask which costs much, and whether its ids are scattered.

    In tiles they serve masks that are remembered alone: the host waits for the number of tiles.
    """
    q_len, kv_len = extents.q_len, extents.kv_len
    if min(q_len, kv_len) < _FEWEST_POSITIONS or _pairs_of(extents) < _FEWEST_PAIRS:
        return "", False
    scattered = ids_are_scattered(form, extents, device)
    if not (scattered or may_cost(form.structure)):
        return "", False
    told = dependence(form.structure.mask, form, extents)
    members = told.batch * told.heads
    if members > _MOST_MEMBERS:
        return "", False
    if members * max(q_len * _columns_kept(kv_len), kv_len * _columns_kept(q_len)) <= _MOST_BITS:
        return "rows", scattered
    kept = memorable(form.tables) and not captured(device)
    return ("tiles", scattered) if kept else ("", False)


class KeptBits:
    """The bits of the pairs of a call that a mask keeps.

    Args:
        table: the hooks and the rows of the bits.
        form: the mask with its values.
        extents: the sizes of the call.
        device: where to make them.
        reads: returns the numbers and tables of the mask's hooks.
    """

    def __init__(
        self, table: BitsTable, form: Bound, extents: Extents, device: torch.device, reads: Reads
    ) -> None:
        self._table, self._form, self._extents, self._reads = table, form, extents, reads
        self._device = device
        self._layout = bits_layout(form, extents, table.rows, tiled=table.tiled)

    @property
    def found(self) -> torch.Tensor:
        """The bits, int32; remembered while the tensors of the mask live unchanged."""
        found = self._remembered
        assert found is not None  # none are asked for that do not `fit`
        return found

    @property
    def fit(self) -> bool:
        """Whether memory is allowed for them; the host waits where only tiles are kept."""
        return not self._table.tiled or self._remembered is not None

    @property
    def nbytes(self) -> int:
        """Bytes of memory that they take."""
        return self.found.nbytes if self._table.tiled else 4 * self._words

    @property
    def serve(self) -> bool:
        """Whether Triton compiles the kernel that makes them; tried once, with a warning."""
        at = (self._table.hooks.digest, self._table.suffix, self._device)
        if at not in _SERVES and not triton.knobs.runtime.interpret:
            nothing = torch.empty(0, dtype=torch.int32, device=self._device)
            passed, constants = self._passed(nothing, 0, self._layout.rows)
            try:
                with naming_the_compiler(self._kernel):
                    compiled = self._kernel.warmup(*passed, grid=(1, 1), **constants)
                compiled.run  # noqa: B018 - loads it
                _SERVES[at] = True
            except (CompilerError, triton.runtime.errors.OutOfResources) as problem:
                why = next(iter(str(problem).strip().splitlines()), "")[:200]
                warnings.warn(
                    f"Triton could not compile the kernel that makes bits of a mask's pairs ({why})"
                    "; what it printed is of no concern. The mask is computed at each element, "
                    "which may be slower.",
                    stacklevel=2,
                )
                _SERVES[at] = False
        return _SERVES.get(at, True)

    def labels(self, side: int) -> torch.Tensor:
        """The label of each tile of `side` queries and keys, a power of two from 32."""
        if self._table.tiled:
            labels = labels_of_tiles(self.found, self._layout.size, side)
            labels = labels.unflatten(0, self._layout.members)
        else:
            labels = labels_of_bits(self.found, self._layout, side)
        return labels if self._table.rows == "queries" else labels.mT

    @property
    def counted(self) -> tuple[float, float, float] | None:
        """Mean numbers of tiles that keep a pair, as arguments of `tiles_of_counts`.

        They are counted for the first mask of this structure with these numbers and sizes. The host
        waits for its counts, as it waits for its kernels to compile; later masks, with other
        tensors, use the same counts. None for few pairs, and in a graph captured before the count.
        """
        extents, values = self._extents, self._form.values
        if _pairs_of(extents) < _FEWEST_COUNTED:
            return None
        numbers = tuple(repr(v) for v in values if not isinstance(v, torch.Tensor))
        key = (self._form.structure.mask, numbers, self._layout, self._device)
        known = _COUNTS.recall(key)
        if known is not None or captured(self._device):
            return known
        small, large = [self.labels(side) != EMPTY for side in _COUNTED]
        begins = large & ~pad(large[..., :-1, :], (0, 0, 1, 0))
        each = [small.sum() / small[..., 0].numel(), large.sum() / large[..., 0].numel()]
        first, second, third = torch.stack([*each, large.sum() / begins.sum().clamp(1)]).tolist()
        return _COUNTS.keep(key, (first, second, third))

    @property
    def _remembered(self) -> torch.Tensor | None:
        """The bits, or None for tiles that take too much memory."""
        table, layout = self._table, self._layout
        key = ("bits", table.rows, table.tiled, layout, self._device, stream_of(self._device))
        return _MEMORY.recall(key, (self._form.structure.mask,), self._form.values, self._made)

    @property
    def _words(self) -> int:
        # Rows past the last one are read by a tile that the length cuts.
        rows = math.prod(self._layout.members) * self._layout.rows + _LONGEST_TILE
        return rows * self._layout.words

    @property
    def _kernel(self) -> Any:
        # Gluon need not be there, nor Triton.
        return import_module("maskalg_kernels.kept_bits").kept_bits

    def _made(self) -> torch.Tensor | None:
        layout, device = self._layout, self._device
        if self._table.tiled:
            return bits_in_tiles(self._piece, layout.size, _AT_ONCE, MOST_OF_TILES, device)
        bits = torch.empty(self._words, dtype=torch.int32, device=device)
        self._fill(bits, 0, layout.rows)
        return bits

    def _piece(self, begin: int, end: int) -> torch.Tensor:
        """The bits of some rows: int32 `[members, rows, words]`."""
        shape = (math.prod(self._layout.members), end - begin, self._layout.words)
        bits = torch.empty(shape, dtype=torch.int32, device=self._device)
        self._fill(bits, begin, end)
        return bits

    def _fill(self, bits: torch.Tensor, begin: int, end: int) -> None:
        side = _MADE_TOGETHER
        squares = -(-(end - begin) // side) * (self._layout.words * 32 // side)
        passed, constants = self._passed(bits, begin, end)
        self._kernel[squares, math.prod(self._layout.members)](*passed, **constants)

    def _passed(self, bits: torch.Tensor, begin: int, end: int) -> tuple[list[Any], dict[str, Any]]:
        """The kernel's arguments for the rows from `begin` to `end`, and its constants."""
        table, layout = self._table, self._layout
        scalars, tables = self._reads()
        hooks = store.load(table.hooks.source, table.hooks.digest)
        numbers = (begin, end - begin, layout.columns, layout.words, self._extents.kv_len)
        constants = {
            "HOLD": getattr(hooks, f"hold{table.suffix}"),
            "MASKED": getattr(hooks, f"masked{table.suffix}"),
            "NEXT_RUN": getattr(hooks, f"next_run{table.suffix}"),
            "OF_KEYS": table.rows == "keys",
            "SIDE": _MADE_TOGETHER,
            **count_constants(table.hooks),
            **OF_ALL,
        }
        return [bits, tables, *numbers, layout.members[1], *scalars], constants


def _pairs_of(extents: Extents) -> int:
    return extents.batch * extents.heads * extents.q_len * extents.kv_len


def labels_of_bits(bits: torch.Tensor, layout: BitsLayout, side: int) -> torch.Tensor:
    """The label of each tile of `side` rows and columns, a power of two from 32."""
    size = math.prod(layout.members) * layout.rows
    words = bits.view(-1, layout.words)[:size].view(*layout.members, layout.rows, -1, side // 32)
    some, every = pooled((words != 0).any(-1), (words == -1).all(-1), (side, 1))
    return label_of(some, ~every)[..., : -(-layout.columns // side)].contiguous()
