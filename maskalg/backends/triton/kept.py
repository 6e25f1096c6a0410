"""Bits of the pairs that a mask keeps, on the device (`codegen/bits.py`)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias

import torch
import triton
from torch.nn.functional import pad

from ...codegen import store
from ...codegen.arguments import BitsTable
from ...codegen.bits import may_cost
from ...engine.extents import Extents, dependence
from ...engine.normal_form import Bound
from ...engine.recent import Recent
from ...schedule.memory import Memory, captured, stream_of
from ...schedule.tile_runs import EMPTY, FULL, PARTIAL
from ...schedule.tiling import Of
from .constants import count_constants
from .launching.compiler import CompilerError, naming_the_compiler
from .launching.spec import OF_ALL

_FEWEST_ROWS: Final = 512  # fewer pairs are computed as fast
_MOST_BITS: Final = 1 << 29  # of a table of 64 MiB
_LONGEST_TILE: Final = 256  # of positions, in which tables end with a whole tile
_MADE_TOGETHER: Final = 64  # rows and columns of a program that makes them
_COUNTED: Final = (64, 128)  # sides of the tiles that are counted
_FEWEST_COUNTED: Final = 1 << 27  # pairs of all heads; with fewer, counting takes too long
MOST_REMEMBERED: Final = 1 << 30
"""Bytes of all bits that are remembered; past them, the least recently used are made anew."""

_MEMORY: Final = Memory(MOST_REMEMBERED, lambda bits: bits.nbytes)
_COUNTS: Final[Recent[Hashable, tuple[float, float, float]]] = Recent(1024)
_SERVES: Final[dict[tuple[str, str, torch.device], bool]] = {}

Reads: TypeAlias = Callable[[], tuple[Sequence[int], tuple[torch.Tensor, ...]]]
"""The numbers and tables of the hooks that compute a mask."""


class BitsLayout(NamedTuple):
    """How the bits of pairs lie in memory.

    Attributes:
        members: batch entries and heads with masks of their own.
        rows, columns: positions of a member, of one side and of the other.
        words: integers of 32 bits in a row.
        of_batch, of_head: words from one batch entry, and from one head, to the next; 0 if the mask
            is the same for all.
    """

    members: tuple[int, int]
    rows: int
    columns: int
    words: int
    of_batch: int
    of_head: int


def bits_layout(form: Bound, extents: Extents, rows: Of) -> BitsLayout:
    """The layout of the bits of a call, with rows of queries or of keys."""
    told = dependence(form.structure.mask, form, extents)
    lengths = (extents.q_len, extents.kv_len)
    along, across = lengths if rows == "queries" else lengths[::-1]
    words = -(-across // _LONGEST_TILE) * _LONGEST_TILE // 32
    of_head = along * words
    of_batch = of_head * told.heads if told.batch > 1 else 0
    members = (told.batch, told.heads)
    return BitsLayout(members, along, across, words, of_batch, of_head if told.heads > 1 else 0)


def bits_are_worth(form: Bound, extents: Extents) -> bool:
    """Whether a mask costs so much that bits are faster, for these numbers of pairs."""
    if min(extents.q_len, extents.kv_len) < _FEWEST_ROWS or not may_cost(form.structure):
        return False
    told = dependence(form.structure.mask, form, extents)
    return told.batch * told.heads * extents.q_len * extents.kv_len <= _MOST_BITS


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
        self._device, self._layout = device, bits_layout(form, extents, table.rows)

    @property
    def found(self) -> torch.Tensor:
        """The bits, int32; remembered while the tensors of the mask live unchanged."""
        key = ("bits", self._table.rows, self._layout, self._device, stream_of(self._device))
        return _MEMORY.recall(key, (self._form.structure.mask,), self._form.values, self._made)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that they take."""
        return 4 * self._words

    @property
    def serve(self) -> bool:
        """Whether Triton compiles the kernel that makes them; tried once, with a warning."""
        at = (self._table.hooks.digest, self._table.suffix, self._device)
        if at not in _SERVES and not triton.knobs.runtime.interpret:
            nothing = torch.empty(0, dtype=torch.int32, device=self._device)
            passed, constants = self._passed(nothing)
            try:
                with naming_the_compiler(self._kernel):
                    compiled = self._kernel.warmup(*passed, grid=self._programs, **constants)
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
        """The label of each tile of `side` queries and keys, a power of two from 32 to 256."""
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
        if extents.batch * extents.heads * extents.q_len * extents.kv_len < _FEWEST_COUNTED:
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
    def _words(self) -> int:
        # Rows past the last one are read by a tile that the length cuts.
        rows = math.prod(self._layout.members) * self._layout.rows + _LONGEST_TILE
        return rows * self._layout.words

    @property
    def _kernel(self) -> Any:
        # Gluon need not be there, nor Triton.
        return import_module("maskalg_kernels.kept_bits").kept_bits

    @property
    def _programs(self) -> tuple[int, int]:
        layout, side = self._layout, _MADE_TOGETHER
        tiles = -(-layout.rows // side) * (layout.words * 32 // side)
        return tiles, math.prod(layout.members)

    def _made(self) -> torch.Tensor:
        bits = torch.empty(self._words, dtype=torch.int32, device=self._device)
        passed, constants = self._passed(bits)
        self._kernel[self._programs](*passed, **constants)
        return bits

    def _passed(self, bits: torch.Tensor) -> tuple[list[Any], dict[str, Any]]:
        """The kernel's arguments, and its constants."""
        table, layout = self._table, self._layout
        scalars, tables = self._reads()
        hooks = store.load(table.hooks.source, table.hooks.digest)
        numbers = (layout.rows, layout.columns, layout.words, self._extents.kv_len)
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


def labels_of_bits(bits: torch.Tensor, layout: BitsLayout, side: int) -> torch.Tensor:
    """The label of each tile of `side` rows and columns, a power of two from 32 to 256."""
    size = math.prod(layout.members) * layout.rows
    words = bits.view(-1, layout.words)[:size].view(*layout.members, layout.rows, -1, side // 32)
    some, every = (words != 0).any(-1), (words == -1).all(-1)
    cut = (0, 0, 0, -layout.rows % side)
    some = pad(some, cut).unflatten(2, (-1, side)).any(3)
    every = pad(every, cut, value=True).unflatten(2, (-1, side)).all(3)
    labels: torch.Tensor = torch.where(every, FULL, PARTIAL).to(torch.uint8) * some
    return labels[..., : -(-layout.columns // side)].contiguous()
