"""The steps of a rank in one call of a plan: tokens it exchanges, and calls of attention."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch

from .planning import Plan, Range
from .work import Numbers

Method = Literal["gather", "ring"]


@dataclass(frozen=True)
class Call:
    """One call of attention: queries and keys that are each consecutive tokens.

    Attributes:
        queries: where they lie among the rank's own.
        keys: where they lie among the keys at hand.
        q_start, kv_start: the token that the first of them is.
    """

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
    """The calls to a rank's own keys, and the exchanges, each with its calls.

    Attributes:
        merges: the rank's queries, cut so that all of a range are in the same calls: each range,
            and of each such call its number, those to own keys counted first, and where the range
            lies among its queries.
        whole: the number of a call of all queries, if there is one.
    """

    own: tuple[Call, ...]
    hops: tuple[Hop, ...]
    merges: tuple[tuple[slice, tuple[tuple[int, slice], ...]], ...]
    whole: int | None


_KNOWN: Final[WeakKeyDictionary[Plan, dict[Hashable, Steps]]] = WeakKeyDictionary()


def steps_of(plan: Plan, layer: int, rank: int, method: Method, device: torch.device) -> Steps:
    """The steps of a rank under the mask number `layer`, remembered as long as the plan lives.

    Index tensors are on `device`.
    """
    known, key = _KNOWN.setdefault(plan, {}), (layer, rank, method, device)
    if key not in known:
        known[key] = _steps(plan, layer, rank, method, device)
    return known[key]


def _steps(plan: Plan, layer: int, rank: int, method: Method, device: torch.device) -> Steps:
    """See `steps_of`.

    Gathering is one exchange. A ring has one for each distance between ranks, without those in
    which no rank needs a key of another.
    """
    held = [plan.tokens(each).numpy() for each in range(plan.ranks)]
    chunks = [tokens // plan.chunk for tokens in held]
    needed = plan.needed[layer]
    pieces = _ranges(held[rank])
    distances = np.arange(1, plan.ranks)
    groups = [distances] if method == "gather" else list(distances[:, None])
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
    queries = [call.queries for calls in (own, *(hop.calls for hop in hops)) for call in calls]
    every = slice(0, len(held[rank]))
    whole = next((number for number, of in enumerate(queries) if of == every), None)
    cuts = {0, every.stop}.union(*((of.start, of.stop) for of in queries))
    merges = tuple(
        (
            slice(begin, end),
            tuple(
                (number, slice(begin - of.start, end - of.start))
                for number, of in enumerate(queries)
                if of.start <= begin and end <= of.stop
            ),
        )
        for begin, end in pairwise(sorted(cuts))
    )
    return Steps(own, tuple(hops), merges, whole)


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
    """Calls for ranges of queries and keys that have a tile in common; both are cut to those."""
    needs, chunk = plan.needs[layer], plan.chunk
    found = []
    for (q_start, q_end), place in queries:
        mine = (needs.row >= q_start // chunk) & (needs.row < -(-q_end // chunk))
        row, first, end = needs.row[mine], needs.first[mine], needs.end[mine]
        for (start, stop), at in keys:
            low = np.maximum(first, start // chunk)
            high = np.minimum(end, -(-stop // chunk))
            some = low < high
            if not some.any():
                continue
            begin = max(int(low[some].min()) * chunk, start)
            past = min(int(high[some].max()) * chunk, stop)
            q_begin = max(int(row[some][0]) * chunk, q_start)  # rows ascend
            q_past = min((int(row[some][-1]) + 1) * chunk, q_end)
            found.append(
                Call(
                    slice(place.start + q_begin - q_start, place.start + q_past - q_start),
                    slice(at.start + begin - start, at.start + past - start),
                    q_begin,
                    begin,
                )
            )
    return tuple(found)
