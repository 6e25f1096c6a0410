"""Plans of context parallelism: the queries of each rank, and the keys it needs by the proof.

plan = ma.parallel.plan(causal & document(ids), 1 << 20, ranks=8)
print(plan)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from .. import errors
from ..engine.normal_form import bound
from ..formula.parameters import plain_number, whole_number
from ..schedule.rung import rung_of
from ..values.algebra import Mask, Score
from .assignment import candidates, ranges_of
from .work import Flags, Needs, Numbers

Range = tuple[int, int]
Layers = Mask | Score | Iterable[tuple[Mask | Score, int]]

_TILE: Final = 128  # the tile of the slowest kernels
_CHUNKS_OF_RANK: Final = 8  # at least, so that there are windows to choose from
_BALANCED: Final = 0.02  # up to this imbalance, fewer calls and keys may make up for it
_AS_GOOD: Final = 0.005  # a plan that equal work in one range each would improve by less is taken
_CALL: Final = 512  # tiles in whose time a GPU begins and ends a call, with 16 heads
_KEY: Final = 1 / 32  # tiles in whose time a key and its gradients travel, at 200 GB/s
_MOST: Final = 1 << 30  # chunks times ranks
_DIGIT_CHUNKS: Final = 2048  # chunks of an image: more cost more time to plan than they gain


@dataclass(frozen=True)
class Share:
    """The share of one rank.

    Attributes:
        queries: ranges of tokens whose queries, keys and values the rank holds; ends not included,
            in order, apart from each other.
        keys: for each mask of the plan, the ranges of tokens whose keys its queries need.
        tiles: tiles of queries by keys that the rank visits, of all layers.
    """

    queries: tuple[Range, ...]
    keys: tuple[tuple[Range, ...], ...]
    tiles: int

    @property
    def tokens(self) -> int:
        """How many tokens the rank holds."""
        return sum(end - start for start, end in self.queries)


@dataclass(frozen=True, eq=False)
class Plan:
    """Chunks of queries for each rank, and the keys it needs; see `plan`.

    Attributes:
        masks: each mask, and the number of layers that have it.
        length: tokens of the sequence.
        chunk: tokens of a chunk; the last one may be cut by the length.
        owner: int64 `[chunks]`, the rank that holds each chunk.
        needed: for each mask a Boolean `[ranks, chunks]`: the chunks whose keys each rank needs,
            its own included.
        tiles: float64 `[ranks]`, the tiles that each rank visits, of all layers.
        needs: for each mask, the chunks of keys that each chunk of queries needs.
        versions: for each mask, torch's version of each of its tensors when it was planned; None in
            a copy of the plan.
    """

    masks: tuple[tuple[Mask, int], ...]
    length: int
    chunk: int
    owner: Numbers
    needed: tuple[Flags, ...]
    tiles: NDArray[np.float64]
    needs: tuple[Needs, ...]
    versions: tuple[tuple[int | None, ...] | None, ...]

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "versions": (None,) * len(self.masks)}  # tensors are copied too

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return len(self.tiles)

    @property
    def shares(self) -> tuple[Share, ...]:
        """The share of each rank."""
        return tuple(
            Share(
                self._ranges(self.owner == rank),
                tuple(self._ranges(needed[rank]) for needed in self.needed),
                int(self.tiles[rank]),
            )
            for rank in range(self.ranks)
        )

    @property
    def imbalance(self) -> float:
        """How far the largest number of tiles of a rank exceeds the mean: 0.01 is 1 per cent."""
        mean = float(self.tiles.mean())
        return float(self.tiles.max()) / mean - 1 if mean else 0.0

    def received(self, layer: int = 0) -> NDArray[np.int64]:
        """Tokens whose keys and values each rank receives from others, int64 `[ranks]`.

        For one layer that has the plan's mask number `layer`. Each token has `2 * kv_heads *
        head_dim` numbers, and as many gradients return.
        """
        of_others = self.needed[layer].copy()
        of_others[self.owner, np.arange(len(self.owner))] = False
        # All chunks but the last are whole. A product of Booleans and integers would be slow.
        missing = self.chunk - self._sizes()[-1]
        received: NDArray[np.int64] = (
            of_others.sum(axis=1) * self.chunk - of_others[:, -1] * missing
        )
        return received

    @property
    def traffic(self) -> int:
        """Tokens whose keys and values travel in one forward pass, over all ranks and layers."""
        counts = enumerate(count for _, count in self.masks)
        return sum(count * int(self.received(layer).sum()) for layer, count in counts)

    def order(self) -> torch.Tensor:
        """The tokens of rank 0, of rank 1, and so on, int64 `[length]`: `x[:, :, plan.order()]`."""
        tokens = torch.arange(self.length)
        owner = torch.from_numpy(self.owner).repeat_interleave(self.chunk)[: self.length]
        return tokens[owner.argsort(stable=True)]

    def tokens(self, rank: int) -> torch.Tensor:
        """The tokens that a rank holds, in order, int64 `[tokens]`."""
        if not 0 <= rank < self.ranks:
            raise errors.MaskValueError(
                f"tokens: rank must lie between 0 and {self.ranks - 1}, got {rank}. The plan has "
                f"{self.ranks} ranks."
            )
        owner = torch.from_numpy(self.owner).repeat_interleave(self.chunk)[: self.length]
        return (owner == rank).nonzero()[:, 0]

    def count(self, rank: int) -> int:
        """How many tokens a rank holds."""
        return int(self._sizes()[self.owner == rank].sum())

    def load_balancer(self, device: torch.device | str = "cpu") -> Any:
        """The plan as a load balancer of `torch.distributed.tensor.experimental`.

        With it, `_context_parallel_shard(mesh, buffers, seq_dims, load_balancer=…)` gives each
        rank its tokens of inputs, labels and positions, and its rows of a `BlockMask`.

        Args:
            device: where those tensors are, such as `mesh.device_type`.

        Raises:
            ValueError: ranks that hold different numbers of tokens, which torch does not support.
        """
        from .load_balancer import balancer

        return balancer(self, device)

    def to_json(self) -> dict[str, list[dict[str, list[list[int]]]]]:
        """Ranges of queries and of keys for each rank, ends not included.

        `{"ranks": [{"queries": [[start, end], …], "keys": [[start, end], …]}, …]}`; with several
        masks, keys that some layer needs.
        """
        some = np.logical_or.reduce(self.needed)
        return {
            "ranks": [
                {
                    "queries": [list(part) for part in self._ranges(self.owner == rank)],
                    "keys": [list(part) for part in self._ranges(some[rank])],
                }
                for rank in range(self.ranks)
            ]
        }

    def _sizes(self) -> NDArray[np.int64]:
        """Tokens of each chunk."""
        starts = np.arange(len(self.owner)) * self.chunk
        sizes: NDArray[np.int64] = np.minimum(self.length - starts, self.chunk)
        return sizes

    def _ranges(self, chosen: Flags) -> tuple[Range, ...]:
        """Chunks as ranges of tokens."""
        edges = np.flatnonzero(np.diff(chosen, prepend=False, append=False)) * self.chunk
        ends = np.minimum(edges, self.length).tolist()
        return tuple(zip(ends[::2], ends[1::2], strict=True))

    def __repr__(self) -> str:
        return (
            f"Plan(length={self.length}, ranks={self.ranks}, chunk={self.chunk}, "
            f"imbalance={100 * self.imbalance:.2f} %)"
        )

    def __str__(self) -> str:
        lines = [f"{mask}, {count} layers" for mask, count in self.masks]
        if len(lines) == 1 and self.masks[0][1] == 1:
            lines = [str(self.masks[0][0])]
        lines.append(
            f"{self.length:,} tokens on {self.ranks} ranks, chunks of {self.chunk}; the most work "
            f"is {100 * self.imbalance:.2f} % above the mean"
        )
        lines.append(f"{'rank':>4} {'tokens':>10} {'tiles':>14} {'keys':>10} {'received':>10}")
        sizes = self._sizes()
        keys = np.maximum.reduce([needed @ sizes for needed in self.needed])
        received = np.maximum.reduce([self.received(i) for i in range(len(self.masks))])
        own = np.bincount(self.owner, weights=sizes, minlength=self.ranks)
        for rank in range(self.ranks):
            lines.append(
                f"{rank:>4} {int(own[rank]):>10,} {int(self.tiles[rank]):>14,} "
                f"{int(keys[rank]):>10,} {int(received[rank]):>10,}"
            )
        return "\n".join(lines)


def plan(
    masks: Layers,
    length: int,
    ranks: int,
    *,
    chunk: int | None = None,
    batch: int | None = None,
    heads: int | None = None,
) -> Plan:
    """Give each rank equally many tokens and equal work, and say which keys it needs.

    Tokens are dealt out in chunks. The numbers of chunks of two ranks differ by one at most; the
    last chunk is shorter if the length is no multiple of `chunk`. The work of a chunk is
    the number of tiles that its queries visit: the tiles that the proof does not call empty. Only
    keys that a rank's queries may keep travel.

    Args:
        masks: a mask, or a score, whose mask is planned; or the masks of all layers, each with the
            number of its layers: `[(causal & sliding(1024), 20), (causal, 4)]`.
        length: tokens of the sequence, queries and keys.
        ranks: processes that share it.
        chunk: tokens that stay together; by default 128, the side of a kernel's tile; fewer if a
            rank would have less than eight chunks, more for long images and videos.
        batch: batch size, if a mask computes with `batch`; all entries share one plan.
        heads: number of heads, where a mask computes with `head`.

    Raises:
        TypeError, ValueError: something that is no mask; more ranks than chunks; what
            `mask.segments` raises.

    Examples:
        >>> plan(causal, 1024, ranks=2).to_json()["ranks"][0]
        {'queries': [[0, 256], [768, 1024]], 'keys': [[0, 1024]]}
    """
    layers = _layers(masks)
    length, ranks = (
        _at_least_one(name, value) for name, value in (("length", length), ("ranks", ranks))
    )
    chunk = _chunk(layers, length, ranks) if chunk is None else _at_least_one("chunk", chunk)
    if ranks > -(-length // chunk):
        raise errors.MaskValueError(
            f"plan: {length} tokens in chunks of {chunk} are {-(-length // chunk)} chunks, and "
            f"{ranks} ranks would leave some without one. Take fewer ranks, or a smaller chunk."
        )
    if -(-length // chunk) * ranks > _MOST:
        raise errors.MaskValueError(
            f"plan: {length} tokens in chunks of {chunk} are {-(-length // chunk)} chunks, too "
            f"many for {ranks} ranks. Take a larger chunk: chunks times ranks are at most {_MOST}."
        )
    needs = [Needs.of(mask.to("cpu"), length, chunk, batch, heads) for mask, _ in layers]
    versions = tuple(versions_of(mask) for mask, _ in layers)
    counts = [count for _, count in layers]
    work = np.stack([each.tiles for each in needs]).T @ np.array(counts, dtype=np.float64)
    crossing = np.stack([each.crossing() for each in needs]).T @ np.array(counts, dtype=np.float64)
    mean, calls = float(work.sum()) / ranks, _CALL * sum(counts)
    balanced = (1 + _BALANCED) * mean
    found: list[tuple[float, Numbers, NDArray[np.float64]]] = []
    for owner in candidates(work, crossing, ranks):
        load = np.bincount(owner, work, ranks).astype(np.float64)
        time = _slowest(owner, load, calls)
        found.append((time, owner, load))
        if load.max() <= balanced and time <= (1 + _AS_GOOD) * (mean + calls):
            break
    allowed = max(balanced, min(load.max() for _, _, load in found))
    best: tuple[float, Plan] | None = None
    for time, owner, load in sorted(found, key=itemgetter(0)):
        if load.max() > allowed:
            continue
        if best is not None and time >= best[0]:
            break
        needed = tuple(each.of_owners(owner, ranks) for each in needs)
        made = Plan(layers, length, chunk, owner, needed, load, tuple(needs), versions)
        time += _KEY * made.traffic / ranks
        if best is None or time < best[0]:
            best = time, made
    assert best is not None
    return best[1]


def versions_of(mask: Mask) -> tuple[int | None, ...]:
    """The versions of the tensors of a mask, which differ once one is written to."""
    return tuple([None if x.is_inference() else x._version for x in bound(mask).tables])


def _slowest(owner: Numbers, load: NDArray[np.float64], call: float) -> float:
    """The time of the slowest rank in tiles, with a call for each pair of its ranges."""
    ranges = ranges_of(owner, len(load))
    return float((load + call * (ranges * (ranges + 1) // 2)).max())


def _layers(masks: Layers) -> tuple[tuple[Mask, int], ...]:
    if isinstance(masks, (Mask, Score)):
        return ((_mask(masks), 1),)
    if not isinstance(masks, Iterable):
        raise _no_masks(masks)
    found = []
    for pair in masks:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise _no_masks(pair)
        found.append((_mask(pair[0]), _at_least_one("number of layers", pair[1])))
    if not found:
        raise _no_masks(masks)
    return tuple(found)


def _mask(given: object) -> Mask:
    mask = given.mask if isinstance(given, Score) else given
    if not isinstance(mask, Mask):
        raise _no_masks(given)
    return mask


def _at_least_one(name: str, value: object) -> int:
    return whole_number("plan", name, plain_number(value), 1)


def _chunk(layers: tuple[tuple[Mask, int], ...], length: int, ranks: int) -> int:
    """The default of `chunk`."""
    chunk = _TILE
    while chunk > 1 and length < chunk * ranks * _CHUNKS_OF_RANK:
        chunk //= 2
    digits = any(rung_of(bound(mask).structure).on_host == "digits" for mask, _ in layers)
    while digits and length >= 2 * chunk * max(_DIGIT_CHUNKS // 2 + 1, ranks * _CHUNKS_OF_RANK):
        chunk *= 2
    return chunk


def _no_masks(found: object) -> errors.MaskTypeError:
    return errors.MaskTypeError(
        "plan: masks must be a mask, or pairs of a mask and the number of layers that have it, got "
        f"{found!r}. Write `plan([(causal & sliding(1024), 20), (causal, 4)], length, ranks)`."
    )
