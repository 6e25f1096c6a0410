"""Attention slices: a mask as a list of rectangles, whole or cut along diagonals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from .... import errors
from ....formula import nodes
from ....formula.nodes import SCORE, K, Q
from ....formula.parameters import Table
from ....formula.printing import called
from ...algebra import Mask
from ...arguments import integer
from ...by_hand import Bools, MaskRows, pairs, row

__all__ = ["attention_slices"]

KINDS = ("full", "causal", "inverse_causal", "bicausal")

Ranges = Sequence[tuple[int, int]] | torch.Tensor


def attention_slices(
    q_ranges: Ranges,
    k_ranges: Ranges,
    kinds: Sequence[int | str] | torch.Tensor,
    *,
    q_len: int | None = None,
) -> Mask:
    """The union of slices: query q of [q0, q1) keeps the keys of [k0, k1) that its kind allows.

        0 full            all
        1 causal          k - k1 <= q - q1     the last query sees the last key
        2 inverse_causal  k - k0 >= q - q0     the first query sees the first key
        3 bicausal        both

    Args:
        q_ranges: `[slices, 2]` half-open ranges of queries; a sequence of pairs or an integer
            tensor, read from the device once, here.
        k_ranges: `[slices, 2]` half-open ranges of keys.
        kinds: `[slices]`, by name or number, numbered as MagiAttention's `attn_type_map`.
        q_len: the most queries of a call; by default the largest end of `q_ranges`. Queries in no
            slice keep nothing.

    The formula grows with the largest number of slices that share a query, not with that of all
    slices.
    `to_attention_slices` writes the format.

    Source: MagiAttention (SandAI, 2025).
    """
    call = "attention_slices"
    queries, keys = _ranges(call, "q_ranges", q_ranges), _ranges(call, "k_ranges", k_ranges)
    kind_numbers = [_kind(call, kind) for kind in _listed(call, "kinds", kinds)]
    for name, given in (("k_ranges", keys), ("kinds", kind_numbers)):
        if len(given) != len(queries):
            raise errors.MaskValueError(
                f"{call}: q_ranges and {name} must have equally many entries, got {len(queries)} "
                f"and {len(given)}."
            )
    longest = max((end for _, end in queries), default=0)
    if q_len is not None:
        integer(call, "q_len", q_len, low=longest)
        longest = q_len
    device = q_ranges.device if isinstance(q_ranges, torch.Tensor) else torch.device("cpu")
    starts, ends = _row_intervals(queries, keys, kind_numbers, longest)
    first, past = Table("starts", starts.to(device)), Table("ends", ends.to(device))
    parts = []
    for layer in range(starts.shape[0]):
        low, high = (nodes.read(table, nodes.const(layer), Q) for table in (first, past))
        parts.append(nodes.conjunction(nodes.ge(K, low), nodes.gt(high, K)))
    return Mask(nodes.disjunction(*parts), SCORE, called(call, first, past))


def _row_intervals(
    queries: list[tuple[int, int]], keys: list[tuple[int, int]], kinds: list[int], length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Starts and ends of the intervals of keys of every query, int32 `[layers, length]`."""
    met = torch.zeros(length, dtype=torch.int64)
    for q0, q1 in queries:
        met[q0:q1] += 1
    layers = max(int(met.max()) if length else 0, 1)
    starts, ends = (torch.zeros(layers, length, dtype=torch.int32) for _ in range(2))
    met.zero_()
    for (q0, q1), (k0, k1), kind in zip(queries, keys, kinds, strict=True):
        rows = torch.arange(q0, q1)
        layer = met[q0:q1].clone()
        met[q0:q1] += 1
        low = k0 + (rows - q0) if kind in (2, 3) else torch.full_like(rows, k0)
        high = k1 - (q1 - 1 - rows) if kind in (1, 3) else torch.full_like(rows, k1)
        starts[layer, rows] = low.clamp(k0, k1).to(torch.int32)
        ends[layer, rows] = high.clamp(k0, k1).to(torch.int32)
    return starts, ends


def _ranges(call: str, name: str, ranges: Ranges) -> list[tuple[int, int]]:
    found = []
    for entry in _listed(call, name, ranges):
        if not isinstance(entry, (tuple, list)) or len(entry) != 2:
            raise errors.tensor_shape(call, name, entry, "[slices, 2]")
        for value in entry:
            if isinstance(value, bool) or not isinstance(value, int):
                raise errors.not_an_integer(call, name, value, 0)
        if not 0 <= entry[0] <= entry[1]:
            raise errors.MaskValueError(
                f"{call}: a range of {name} must be (start, end) with 0 <= start <= end, got "
                f"{(entry[0], entry[1])}."
            )
        found.append((entry[0], entry[1]))
    return found


def _listed(call: str, name: str, values: Sequence[object] | torch.Tensor) -> list[object]:
    if isinstance(values, (torch.Tensor, np.ndarray)):
        listed = values.tolist()
        values = listed if isinstance(listed, list) else [listed]
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise errors.MaskTypeError(
            f"{call}: {name} must be a list or a tensor, got {values!r}. Write [(0, 4), (4, 9)] "
            'for ranges and ["full", "causal"] for kinds.'
        )
    return list(values)


def _kind(call: str, kind: object) -> int:
    if isinstance(kind, str) and kind in KINDS:
        return KINDS.index(kind)
    if isinstance(kind, int) and not isinstance(kind, bool) and 0 <= kind < len(KINDS):
        return kind
    raise errors.MaskValueError(
        f"{call}: a kind must be one of {', '.join(KINDS)}, or its number from 0, got {kind!r}."
    )


# The second definition, and the rows of the catalogue.


def attention_slices_by_hand(
    q_ranges: Sequence[tuple[int, int]],
    k_ranges: Sequence[tuple[int, int]],
    kinds: Sequence[int],
    **at: int,
) -> Bools:
    """Rectangles, whole (0) or cut: the last query sees the last key (1), the first the first (2).

    Kind 3 is cut both ways.
    """

    def keep(b: int, h: int, q: int, k: int) -> bool:
        for (q0, q1), (k0, k1), kind in zip(q_ranges, k_ranges, kinds, strict=True):
            if not (q0 <= q < q1 and k0 <= k < k1):
                continue
            from_end, from_start = (k1 - 1 - k) >= (q1 - 1 - q), (k - k0) >= (q - q0)
            if {0: True, 1: from_end, 2: from_start, 3: from_end and from_start}[kind]:
                return True
        return False

    return pairs(keep, **at)


def rows() -> MaskRows:
    slices = (
        ((0, 9), (9, 20), (9, 20), (20, 31), (31, 40), (31, 40), (40, 64)),
        ((0, 12), (0, 9), (12, 30), (9, 31), (2, 8), (20, 40), (40, 47)),
        (0, 1, 2, 3, 3, 1, 1),
    )
    return {"attention slices": row(attention_slices, attention_slices_by_hand, *slices)}
