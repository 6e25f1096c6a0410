"""The steps of a rank in one call of a plan: tokens it exchanges, and calls of attention."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch

from .planning import Plan, Range
from .work import Numbers

Method = Literal["gather", "ring"]


@dataclass(frozen=True)
class Call:
    """One call of attention: queries and keys that are each consecutive tokens.

    Attributes:
        piece: the number of the rank's range of queries.
        queries: where they lie among the rank's own.
        keys: where they lie among the keys at hand.
        q_start, kv_start: the token that the first of them is.
    """

    piece: int
    queries: slice
    keys: slice
    q_start: int
    kv_start: int


@dataclass(frozen=True, eq=False)
class Hop:
    """One exchange of keys and values, of every rank with some others.

    Attributes:
        send: int64, which own tokens go out, those to rank 0 first.
        to, back: how many tokens go to each rank, and come from each.
        order: int64, puts what came in the order of tokens.
        calls: the calls of attention to the keys that came, so ordered.
    """

    send: torch.Tensor
    to: list[int]
    back: list[int]
    order: torch.Tensor
    calls: tuple[Call, ...]


@dataclass(frozen=True, eq=False)
class Steps:
    """The calls to a rank's own keys, and the exchanges, each with its calls."""

    pieces: tuple[slice, ...]
    own: tuple[Call, ...]
    hops: tuple[Hop, ...]


@lru_cache(maxsize=256)
def steps_of(plan: Plan, layer: int, rank: int, method: Method, device: torch.device) -> Steps:
    """The steps of a rank under the mask number `layer`; index tensors are on `device`.

    Gathering is one exchange. A ring has one for each distance between ranks, without those in
    which no rank needs a key of another.
    """
    held = [plan.tokens(each).numpy() for each in range(plan.ranks)]
    chunks = [tokens // plan.chunk for tokens in held]
    needed = plan.needed[layer]
    pieces = _ranges(held[rank])
    distances = np.arange(1, plan.ranks)
    groups = [distances] if method == "gather" else np.split(distances, len(distances))
    hops = []
    for group in groups:
        away = np.zeros((plan.ranks, plan.ranks), dtype=np.bool_)  # to, from
        for distance in group:
            away[(np.arange(plan.ranks) + distance) % plan.ranks, np.arange(plan.ranks)] = True
        travels = any(needed[to][chunks[of]].any() for to, of in zip(*away.nonzero(), strict=True))
        if not travels:
            continue
        none = np.zeros(0, dtype=np.int64)
        send = [
            needed[to][chunks[rank]].nonzero()[0] if away[to, rank] else none
            for to in range(plan.ranks)
        ]
        came = [
            held[of][needed[rank][chunks[of]]] if away[rank, of] else none
            for of in range(plan.ranks)
        ]
        tokens = np.concatenate(came)
        order = tokens.argsort(kind="stable")
        hops.append(
            Hop(
                torch.from_numpy(np.concatenate(send)).to(device),
                [len(each) for each in send],
                [len(each) for each in came],
                torch.from_numpy(order).to(device),
                _calls(plan, layer, pieces, _ranges(tokens[order])),
            )
        )
    own = _calls(plan, layer, pieces, pieces)
    return Steps(tuple(place for _, place in pieces), own, tuple(hops))


def _ranges(tokens: Numbers) -> list[tuple[Range, slice]]:
    """Ranges of consecutive tokens, and where each lies among them."""
    cuts = np.flatnonzero(np.diff(tokens) != 1) + 1
    begins, ends = [0, *cuts.tolist()], [*cuts.tolist(), len(tokens)]
    return [
        ((int(tokens[begin]), int(tokens[end - 1]) + 1), slice(begin, end))
        for begin, end in zip(begins, ends, strict=True)
        if begin < end
    ]


def _calls(
    plan: Plan,
    layer: int,
    queries: list[tuple[Range, slice]],
    keys: list[tuple[Range, slice]],
) -> tuple[Call, ...]:
    """Calls for ranges of queries and keys that have a tile in common; keys are cut to those."""
    needs, chunk = plan.needs[layer], plan.chunk
    found = []
    for piece, ((q_start, q_end), place) in enumerate(queries):
        mine = (needs.row >= q_start // chunk) & (needs.row < -(-q_end // chunk))
        first, end = needs.first[mine], needs.end[mine]
        for (start, stop), at in keys:
            low = np.maximum(first, start // chunk)
            high = np.minimum(end, -(-stop // chunk))
            some = low < high
            if not some.any():
                continue
            begin = max(int(low[some].min()) * chunk, start)
            past = min(int(high[some].max()) * chunk, stop)
            where = slice(at.start + begin - start, at.start + past - start)
            found.append(Call(piece, place, where, q_start, begin))
    return tuple(found)
