"""The steps of a rank in one call with a plan: the tokens it exchanges, and its attention calls."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Final, Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch

from .planning import Plan, Range
from .ranges import Call, Ranges
from .work import Flags, Numbers

Method = Literal["gather", "ring"]
Tokens = slice | torch.Tensor
"""Tokens, as a slice if they follow each other, else as int64 indices."""


@dataclass(frozen=True, eq=False)
class Hop:
    """One exchange of keys and values, of every rank with some others.

    Attributes:
        send: own tokens to send, those to rank 0 first.
        sent: pairs that say where the returned gradients of sent tokens are added: rows of the
            gradients, and places in `Steps.sent` or, if that is None, own tokens. No pair has a
            place twice.
        to, back: how many tokens go to each rank, and how many come from each.
        order: sorts received rows by token.
        unsorted: the inverse of `order`.
        calls: the calls of attention to the received keys, sorted by token.
        keys: the ranges of those keys.
    """

    send: Tokens
    sent: tuple[tuple[slice, Tokens], ...]
    to: list[int]
    back: list[int]
    order: Tokens
    unsorted: Tokens
    calls: tuple[Call, ...]
    keys: Ranges


@dataclass(frozen=True, eq=False)
class Steps:
    """The calls to a rank's own keys, and the exchanges, each with its calls.

    Attributes:
        own: the calls to own keys.
        hops: the exchanges.
        sent: own tokens that any exchange sends, ascending; None if no token goes to several ranks.
        count: the number of those tokens.
        queries: the ranges of own queries, in all calls.
        keys: the ranges of own keys, in calls to them.
    """

    own: tuple[Call, ...]
    hops: tuple[Hop, ...]
    sent: Tokens | None
    count: int
    queries: Ranges
    keys: Ranges


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

    Gathering is one exchange. A ring has one exchange for each distance between ranks at which some
    rank needs keys of another.
    """
    held = [plan.tokens(each).numpy() for each in range(plan.ranks)]
    chunks = [tokens // plan.chunk for tokens in held]
    needed = plan.needed[layer]
    pieces = _ranges(held[rank])
    distances = np.arange(1, plan.ranks)
    groups = [distances] if method == "gather" else list(distances[:, None])
    exchanges = list(_exchanges(held, chunks, needed, rank, groups))
    none = np.zeros(0, dtype=np.int64)
    out = np.concatenate([none, *(each for send, _ in exchanges for each in send)])
    sent = np.unique(out)
    once = len(sent) == len(out)

    def chosen(tokens: Numbers) -> Tokens:
        begin, end = (int(tokens[0]), int(tokens[-1]) + 1) if len(tokens) else (0, 0)
        if (np.diff(tokens) == 1).all():
            return slice(begin, end)
        return torch.from_numpy(tokens).to(device)

    hops = []
    for send, came in exchanges:
        out, tokens = np.concatenate(send), np.concatenate(came)
        order = tokens.argsort(kind="stable")
        places = [out] if once else [np.searchsorted(sent, each) for each in send]
        ends = np.cumsum([len(each) for each in places]).tolist()
        calls = _calls(plan, layer, pieces, _ranges(tokens[order]))
        hops.append(
            Hop(
                chosen(out),
                tuple(
                    (slice(end - len(each), end), chosen(each))
                    for end, each in zip(ends, places, strict=True)
                    if len(each)
                ),
                [len(each) for each in send],
                [len(each) for each in came],
                chosen(order),
                chosen(order.argsort(kind="stable")),
                calls,
                Ranges.of(((call, call.keys) for call in calls), len(tokens)),
            )
        )
    own, count = _calls(plan, layer, pieces, pieces), len(held[rank])
    every = [*own, *(call for hop in hops for call in hop.calls)]
    return Steps(
        own,
        tuple(hops),
        None if once else chosen(sent),
        len(sent),
        Ranges.of(((call, call.queries) for call in every), count),
        Ranges.of(((call, call.keys) for call in own), count),
    )


def _exchanges(
    held: list[Numbers],
    chunks: list[Numbers],
    needed: Flags,
    rank: int,
    groups: list[Numbers],
) -> Iterator[tuple[list[Numbers], list[Numbers]]]:
    """For each group of distances over which a key travels: the own tokens that go to each rank,
    and the tokens that come from each."""
    ranks = len(held)
    none = np.zeros(0, dtype=np.int64)
    for group in groups:
        away = np.zeros((ranks, ranks), dtype=np.bool_)  # to, from
        for distance in group:
            away[(np.arange(ranks) + distance) % ranks, np.arange(ranks)] = True
        if not any(needed[to][chunks[of]].any() for to, of in zip(*away.nonzero(), strict=True)):
            continue
        send = [
            needed[to][chunks[rank]].nonzero()[0] if away[to, rank] else none for to in range(ranks)
        ]
        came = [
            held[of][needed[rank][chunks[of]]] if away[rank, of] else none for of in range(ranks)
        ]
        yield send, came


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
