"""Documents that share a prefix: rollouts of one prompt, turns of one dialogue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast

import numpy as np
import torch
from numpy.typing import ArrayLike

from .... import errors
from ....formula import nodes
from ....formula.derived import Documents, note_documents
from ....formula.entries import Entries, integers, of_rank, readable
from ....formula.nodes import SCORE, K, Q
from ....formula.parameters import Table
from ....formula.printing import called
from ....formula.watched import watched
from ...algebra import Mask
from ...arguments import at, entries_within, positions
from ...by_hand import IDS, Bools, MaskRows, entry, padded, pairs, row
from ...helped import Ways
from .ancestry import ancestry
from .document import cumulative, packed_length, total_of

__all__ = ["shared_prefix"]

_PAIRS_AT_ONCE: Final = 1 << 26  # pairs of segments compared in one operation
# A custom operator of torch makes each table of packed segments: done in small operations, every
# one of them would take the host as long as one kernel for the whole table. The GPU backend
# registers such kernels when it is loaded.
SEGMENT_ENDS: Final = "maskalg::segment_ends"
"""The operator of `_ends`."""

SEGMENT_DEPTHS: Final = "maskalg::segment_depths"
"""The operator of `_depths`."""

_FROM_CU_SEQLENS: Final = "shared_prefix.from_cu_seqlens"
_DEPTHS: Final = "shared_prefix.depths"


class _SharedPrefix(Ways, name="shared_prefix"):
    """Documents that continue others: `shared_prefix(ids, parents)`, or from cumulative lengths."""

    __slots__ = ()

    def __call__(self, ids: Entries, parents: Entries) -> Mask:
        """Causal within the query's own document, and every key of the documents it continues.

        A query keeps the keys of its own document up to itself, and all keys of that document's
        parent, of the parent's parent, and so on: one prompt serves all its rollouts, one turn all
        its answers.

        Args:
            ids: integer tensor `[length]` or `[batch, length]`: the document of each position, an
                index into `parents`.
            parents: integer tensor `[documents]` on the device of the ids: the document that each
                continues, negative for none.

        If ids on the CPU are packed depth first, each document right behind the one it continues,
        every key has one interval of queries; otherwise two tables decide, as in `tree`. Both ways
        visit the same tiles.

        Raises:
            ValueError: on the CPU, ids that are no index of `parents`, a parent that is no
                document, a circle. On a GPU and in compiled functions entries are not checked: such
                an id counts as the nearest, such a parent as none, and a circle goes unnoticed.

        Source: prefix sharing of rollouts in reinforcement learning; Hydragen (Juravsky et al.,
        2024).
        """
        call = "shared_prefix"
        ids = positions(call, "ids", ids).tensor
        parents = _parents(call, parents)
        entries_within(call, "ids", ids, 0, len(parents))
        forest, own = ancestry(call, parents), ids.long().clamp(0, max(len(parents) - 1, 0))
        order, end = (
            entries.to(dtype=torch.int32, device=ids.device)[own]
            for entries in (forest.order, forest.end)
        )
        if readable(order) and bool((order.diff(dim=-1) >= 0).all()):
            # A document and all that continue it are one range of positions: its end is enough.
            return _depth_first(Table("end", torch.searchsorted(order, end, out_int32=True)))
        places, ends = Table("order", order), Table("end", end)
        of_query, of_key = at(places, Q), at(places, K)
        above = nodes.conjunction(nodes.gt(of_query, of_key), nodes.gt(at(ends, K), of_query))
        within = nodes.conjunction(nodes.eq(of_query, of_key), nodes.ge(Q, K))
        return Mask(nodes.disjunction(within, above), SCORE, called(call, places, ends))

    def from_cu_seqlens(
        self,
        cu_seqlens: Entries,
        parents: Entries,
        *,
        total: int | None = None,
        device: torch.device | str | None = None,
    ) -> Mask:
        """Segments between consecutive entries of `cu_seqlens`, each after the one it continues.

        A query keeps its own segment up to itself, and all of the segment's parent, of the
        parent's parent, and so on. Nothing is read back from a device. `depths` gives the position
        of each token in its own sequence, for rotary embeddings and for windows:
        `mask & sliding(w).at(q=depths, kv=depths)`.

        Args:
            cu_seqlens: cumulative lengths `[segments + 1]`, starting at 0.
            parents: integer `[segments]`: the segment that each continues, negative for none.
                Segments are packed depth first: the parent is the segment before, or one that
                this segment continues. If both are on the CPU, the lengths of paths are known,
                and guide the choice of kernels.
            total: length of the packed sequence; by default the last entry (read from the device
                once, here). Positions past the last entry keep nothing.
            device: where the mask's table lives; by default that of `cu_seqlens`.

        Raises:
            TypeError, ValueError: what `document.from_cu_seqlens` raises; another number of parents
                than of segments; on the CPU, segments in another order. On a GPU an assertion fails
                on the device.

        Source: prefix trees of rollouts, as `TreeRow` of TRL 1.16 packs them.

        Examples:
            >>> mask = shared_prefix.from_cu_seqlens([0, 2, 3, 5], [-1, 0, 0])
            >>> mask.to_dense(5)[0, 0].int().tolist()
            [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 0, 1, 0], [1, 1, 0, 1, 1]]
            >>> shared_prefix.depths([0, 2, 3, 5], [-1, 0, 0]).tolist()
            [0, 1, 2, 2, 3]
        """
        call = _FROM_CU_SEQLENS
        total, cu_seqlens, above = _checked(call, cu_seqlens, parents, total)
        where = cu_seqlens.device if device is None else torch.device(device)
        made = Documents(len(above), None, None)
        if total is not None and _served(where, cu_seqlens, above):
            end = torch.ops.maskalg.segment_ends(cu_seqlens, above, total)
        else:
            packed = _Segments.of(call, cu_seqlens, above, total, where)
            end, made = packed.ends(), packed.documents()
        if not torch.compiler.is_compiling():
            note_documents(end, *made)
        return _depth_first(Table("end", end))

    def depths(
        self,
        cu_seqlens: Entries,
        parents: Entries,
        *,
        total: int | None = None,
        device: torch.device | str | None = None,
    ) -> torch.Tensor:
        """The position of each token in its own sequence, int64 `[length]`: its `position_ids`.

        0 past the last segment. Takes what `from_cu_seqlens` takes, and raises its errors.
        """
        total, cu_seqlens, above = _checked(_DEPTHS, cu_seqlens, parents, total)
        where = cu_seqlens.device if device is None else torch.device(device)
        if total is not None and _served(where, cu_seqlens, above):
            return cast(torch.Tensor, torch.ops.maskalg.segment_depths(cu_seqlens, above, total))
        return _Segments.of(_DEPTHS, cu_seqlens, above, total, where).depths()


shared_prefix = _SharedPrefix()


def _depth_first(end: Table) -> Mask:
    """Keys `k` of queries `k … end[k] - 1`."""
    node = nodes.conjunction(nodes.ge(Q, K), nodes.gt(at(end, K), Q))
    return Mask(node, SCORE, called("shared_prefix", end))


@dataclass(frozen=True, eq=False)
class _Segments:
    """Segments packed depth first.

    Attributes:
        cu_seqlens: int64 `[segments + 1]`.
        past: int64 `[segments]`, one past the last segment that continues each.
        total: positions.
        device: where tables with an entry for each position are made.
    """

    cu_seqlens: torch.Tensor
    past: torch.Tensor
    total: int
    device: torch.device

    @staticmethod
    def of(
        call: str,
        cu_seqlens: torch.Tensor,
        parents: torch.Tensor,
        total: int | None,
        device: torch.device,
    ) -> _Segments:
        """Segments made of the lengths and parents that `_checked` returns."""
        cu_seqlens = cu_seqlens.long()
        total = total_of(call, cu_seqlens) if total is None else total
        past = _past_each(call, parents.long()).to(cu_seqlens.device)
        return _Segments(cu_seqlens, past, total, device)

    def at_positions(self, entries: torch.Tensor, behind: int) -> torch.Tensor:
        """The entry of its segment at each position, from `[segments]`; `behind` past the last."""
        entries = torch.nn.functional.pad(entries, (1, 1), value=behind)
        # A copy to the CPU must be complete before it is read.
        later = self.device.type != "cpu"
        entries, cu_seqlens = (
            tensor.to(self.device, non_blocking=later) for tensor in (entries, self.cu_seqlens)
        )
        places = torch.arange(self.total, device=self.device)
        return entries[torch.searchsorted(cu_seqlens, places, right=True)]

    def ends(self) -> torch.Tensor:
        """For each position, the end of the last segment continuing its own, int32 `[total]`."""
        return self.at_positions(self.cu_seqlens[self.past].int(), 0)

    def above(self) -> torch.Tensor:
        """How many tokens stand before each segment in its sequence, int64 `[segments]`."""
        own = self.cu_seqlens.diff()
        # Each length is added after its segment, and subtracted once no segment continues it.
        sums = torch.nn.functional.pad(own, (1, 0)).index_add(0, self.past, own, alpha=-1)
        return sums.cumsum(0)[:-1]

    def depths(self) -> torch.Tensor:
        """The position of each token in its own sequence, int64 `[total]`."""
        moved = self.above() - self.cu_seqlens[:-1]
        places = torch.arange(self.total, device=self.device)
        # Past the last segment every depth is clamped to 0.
        return (places + self.at_positions(moved, -self.total)).clamp(min=0)

    def documents(self) -> Documents:
        """What is known of segments: only how many there are, if reading more would wait for a
        GPU."""
        count = len(self.past)
        if not count or not readable(self.cu_seqlens):
            return Documents(count, None, None)
        own, above = self.cu_seqlens.diff(), self.above()
        tokens = max(int(own.sum()), 1)
        of_paths = int(((above + own) * own).sum()) / tokens
        # On average as many tokens stand after a token as before it.
        mean = of_paths + int((above * own).sum()) / tokens
        most = int((above + self.cu_seqlens[self.past] - self.cu_seqlens[:-1]).max())
        return Documents(count, of_paths, (most, mean))


def _checked(
    call: str, cu_seqlens: object, parents: object, total: int | None
) -> tuple[int | None, torch.Tensor, torch.Tensor]:
    """The total, cumulative lengths `[segments + 1]` and parents `[segments]`."""
    total = packed_length(call, total)
    cumulated, above = cumulative(call, "cu_seqlens", cu_seqlens, total), _parents(call, parents)
    count = len(cumulated) - 1
    if len(above) != count:
        wanted = f"[{count}], one for each segment of cu_seqlens"
        raise errors.tensor_shape(call, "parents", list(above.shape), wanted)
    return total, cumulated, above


def _ends(cu_seqlens: torch.Tensor, parents: torch.Tensor, total: int) -> torch.Tensor:
    """For each position, the end of the last segment that continues its own, int32 `[total]`."""
    packed = _Segments.of(_FROM_CU_SEQLENS, cu_seqlens, parents, total, cu_seqlens.device)
    return packed.ends()


def _depths(cu_seqlens: torch.Tensor, parents: torch.Tensor, total: int) -> torch.Tensor:
    """The position of each token in its own sequence, int64 `[total]`."""
    return _Segments.of(_DEPTHS, cu_seqlens, parents, total, cu_seqlens.device).depths()


for _name, _by_torch in ((SEGMENT_ENDS, _ends), (SEGMENT_DEPTHS, _depths)):
    torch.library.define(_name, "(Tensor cu_seqlens, Tensor parents, int total) -> Tensor")
    torch.library.impl(_name, "CompositeExplicitAutograd", _by_torch)


def _served(where: torch.device, *tensors: torch.Tensor) -> bool:
    """Whether the operators serve: tensors lie on the result's GPU, and no mode sees operations."""
    if where.type != "cuda" or watched(*tensors):
        return False
    here = tensors[0].device
    alike = all(tensor.device == here for tensor in tensors)
    return alike and here.type == "cuda" and where.index in (here.index, None)


def _parents(call: str, parents: object) -> torch.Tensor:
    return of_rank(call, "parents", integers(call, "parents", parents), (1,), "[documents]")


def _past_each(call: str, parents: torch.Tensor) -> torch.Tensor:
    """For each segment, in depth-first order, one past the last segment that continues it."""
    count = len(parents)
    places = torch.arange(count + 1, device=parents.device)
    own = places[:count]
    # That is the next segment whose parent stands before this one, or the end of all segments.
    above = torch.nn.functional.pad(parents, (0, 1), value=-1)
    past = torch.cat(
        [
            ((above < part) & (places > part)).view(torch.uint8).argmax(1)
            for part in own[:, None].split(max(_PAIRS_AT_ONCE // (count + 1), 1))
        ]
    )
    # A parent must reach past its child. Without a parent, index -1 reads the entry added last.
    until = torch.nn.functional.pad(past, (0, 1), value=count + 1)
    right = (parents < own) & (until[parents.clamp(-1, count - 1)] > own)
    if readable(right):
        wrong = (~right).nonzero()
        if len(wrong):
            raise errors.MaskValueError(
                f"{call}: segment {int(wrong[0])} continues segment {int(parents[wrong[0]])}, "
                "which is neither the segment before it nor one which that segment continues. Pack "
                "the segments depth first, or write shared_prefix(ids, parents), which takes any "
                "order."
            )
    elif not torch.compiler.is_compiling():
        torch._assert_async(right.all(), f"{call}: segments are not packed depth first")
    return past


# The second definition, and the rows of the catalogue.


def shared_prefix_by_hand(ids: ArrayLike, parents: ArrayLike, **at: int) -> Bools:
    """Causal in the query's own document; all keys of its parent, of the parent's parent, ..."""
    rows, above = padded(ids, 2), list(np.asarray(parents))

    def keep(b: int, h: int, q: int, k: int) -> bool:
        own, other = int(entry(rows, b, q)), int(entry(rows, b, k))
        if own == other:
            return k <= q
        own = above[own]
        while own >= 0:
            if own == other:
                return True
            own = above[own]
        return False

    return pairs(keep, len(rows), **at)


def rows() -> MaskRows:
    documents = np.array([-1, 0, 0, -1, 3, 4, 3])
    both = np.stack([IDS, 6 - IDS])
    return {
        "shared prefix": row(shared_prefix, shared_prefix_by_hand, IDS, documents),
        "shared prefix in any order": row(shared_prefix, shared_prefix_by_hand, both, documents),
    }
