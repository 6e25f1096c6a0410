"""Documents packed into one sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch

from .... import errors
from ....formula import nodes
from ....formula.documents import note_documents
from ....formula.entries import Entries, integers, is_listed, readable
from ....formula.nodes import BATCH, SCORE, K, Q
from ....formula.parameters import INTEGERS, Table, plain_number
from ....formula.printing import called
from ...algebra import Mask
from ..arguments import at, integer, positions


class _Document:
    """Queries keep the keys of their own document: `document(ids)`, from lengths or cu_seqlens."""

    __slots__ = ()

    def __call__(self, ids: Entries, kv_ids: Entries | None = None) -> Mask:
        """ids[q] = ids[k]: queries keep the keys of their own document.

        Args:
            ids: integer tensor `[length]` or `[batch, length]`, indexed by global position, at
                least as long as the sequences; any values, contiguous or not.
            kv_ids: the ids of the keys where they differ from those of the queries.

        Raises:
            TypeError: ids that are no integer tensor.
            ValueError: ids of another rank; at the call, ids shorter than the sequences.

        Examples:
            >>> mask = causal & document([7, 7, 3])
            >>> mask.to_dense(3)[0, 0].int().tolist()
            [[1, 0, 0], [1, 1, 0], [0, 0, 1]]
        """
        q_table = positions("document", "ids", ids)
        if kv_ids is None:
            return Mask(
                nodes.eq(at(q_table, Q), at(q_table, K)), SCORE, called("document", q_table)
            )
        kv_table = positions("document", "kv_ids", kv_ids)
        node = nodes.eq(at(q_table, Q), at(kv_table, K))
        return Mask(node, SCORE, called("document", q_table, kv_table))

    def from_lengths(
        self,
        lengths: Entries,
        *,
        total: int | None = None,
        device: torch.device | str | None = None,
    ) -> Mask:
        """Documents of these lengths, one after the other.

        Args:
            lengths: tokens of each document, >= 0: `[documents]` for one packing, or
                `[batch, documents]` for one in each batch entry. Rows of a list may differ in
                length, as do tensors in it; a tensor fills its rows up with zeros. Those of a
                tensor on a GPU are not checked.
            total: length of the packed sequence when it is longer than the documents; positions
                past the last document keep nothing. By default the sum of the lengths, of the
                longest packing where there are several, which is read from the device where they
                are a tensor there.
            device: where the ids live; by default that of `lengths`.

        Raises:
            TypeError: lengths that are no integers.
            ValueError: a negative length, or a `total` that is less than their sum.

        Examples:
            >>> (causal & document.from_lengths([100, 156])).blocks(256, block=64).labels[0, 0]
            tensor([[1, 0, 0, 0],
                    [1, 1, 0, 0],
                    [0, 1, 1, 0],
                    [0, 1, 2, 1]], dtype=torch.uint8)
            >>> document.from_lengths([[2, 1], [3]]).to_dense(3)[:, 0].int().tolist()
            [[[1, 1, 0], [1, 1, 0], [0, 0, 1]], [[1, 1, 1], [1, 1, 1], [1, 1, 1]]]
        """
        call = "document.from_lengths"
        total = _length(call, total)
        sizes, packings = _packings(call, lengths)
        known = max(packings, default=0)
        if packings and total is not None and total < known:
            raise errors.below(call, "total", total, known)
        full = total is None and bool(packings) and all(size == known for size in packings)
        total = known if packings and total is None else total
        sizes = sizes if device is None else sizes.to(device)
        cu_seqlens = torch.nn.functional.pad(sizes.cumsum(-1), (1, 0))
        if full:
            return self(packed_ids(cu_seqlens, total))
        return _one_packing(self, cu_seqlens, total)

    def from_cu_seqlens(
        self,
        cu_seqlens: Entries,
        kv_cu_seqlens: Entries | None = None,
        *,
        total: int | tuple[int, int] | None = None,
    ) -> Mask:
        """Documents between consecutive entries of `cu_seqlens` `[documents + 1]`.

        Where queries and keys are cut differently, positions say nothing of what comes first in a
        document: `per_document.from_cu_seqlens(causal, cu_seqlens, kv_cu_seqlens)` is causal there.

        Args:
            cu_seqlens: cumulative lengths, starting at 0, as variable-length attention takes them.
            kv_cu_seqlens: those of the keys where they differ from those of the queries, for as
                many documents.
            total: length of the packed sequence, or `(q_len, kv_len)`; by default the last entry
                (read from the device once, here). Positions past the last entry keep nothing.

        Raises:
            TypeError: no integer tensor.
            ValueError: entries, on the CPU, that do not start at 0 or that descend, or a `total`
                that is less than the last one. Those on a GPU are not waited for. Another number of
                documents for keys than for queries.

        Source: `cu_seqlens_q` and `cu_seqlens_k` of FlashAttention.

        Examples:
            >>> mask = document.from_cu_seqlens([0, 1, 3], [0, 2, 4])
            >>> mask.to_dense(3, 4)[0, 0].int().tolist()
            [[1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]
        """
        call = "document.from_cu_seqlens"
        return packed(call, self, cu_seqlens, kv_cu_seqlens, total)


def _packings(call: str, lengths: object) -> tuple[torch.Tensor, list[int]]:
    """Lengths `[documents]` or `[batch, documents]`, and their sums where they can be read."""
    if isinstance(lengths, (list, tuple)) and lengths and all(map(is_listed, lengths)):
        rows, sums = zip(*[_sizes(call, row, "[documents]") for row in lengths], strict=True)
        sizes = torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
        return sizes, [size for row in sums for size in row] if all(sums) else []
    return _sizes(call, lengths, "[documents]", "[batch, documents]")


def _sizes(call: str, lengths: object, *wanted: str) -> tuple[torch.Tensor, list[int]]:
    """Lengths of one of the shapes `wanted`: of one dimension, of two."""
    if not isinstance(lengths, (torch.Tensor, np.ndarray)):
        if not isinstance(lengths, Iterable):
            raise errors.not_lengths(call, lengths)
        listed = [plain_number(length) for length in lengths]
        for length in listed:
            integer(call, "lengths", length, low=0)
        return torch.tensor(listed, dtype=torch.int64), [sum(listed)]
    sizes = integers(call, "lengths", lengths)
    if not 1 <= sizes.ndim <= len(wanted):
        raise errors.tensor_shape(call, "lengths", list(sizes.shape), " or ".join(wanted))
    if not readable(sizes):
        return sizes, []
    if sizes.numel() and int(sizes.min()) < 0:
        raise errors.below(call, "lengths", int(sizes.min()), 0)
    return sizes, [int(size) for size in sizes.sum(-1).reshape(-1)]


def packed(
    call: str,
    atom: Callable[[torch.Tensor, torch.Tensor | None], Mask],
    cu_seqlens: object,
    kv_cu_seqlens: object,
    total: int | tuple[int, int] | None,
) -> Mask:
    """The mask that `atom` makes of the ids of packed documents; nothing past the last of them."""
    q_total, kv_total = _totals(call, total)
    of_queries = _checked(call, "cu_seqlens", cu_seqlens, q_total)
    alike = kv_cu_seqlens is None or kv_cu_seqlens is cu_seqlens
    if alike and q_total == kv_total:
        return _one_packing(atom, of_queries, q_total)
    given = of_queries if alike else kv_cu_seqlens
    of_keys = _checked(call, "kv_cu_seqlens", given, kv_total)
    if of_keys.shape != of_queries.shape:
        wanted = f"{list(of_queries.shape)}, as cu_seqlens has"
        raise errors.tensor_shape(call, "kv_cu_seqlens", list(of_keys.shape), wanted)
    # Keys past the last document have another id than queries there: one document more ends there.
    ids, kv_ids = (
        packed_ids(of_queries, q_total),
        packed_ids(torch.cat([of_keys, of_keys[-1:]]), kv_total),
    )
    return atom(ids, kv_ids)


def _totals(call: str, total: object) -> tuple[int | None, int | None]:
    """The lengths of the packed queries and keys, None where the last entry says it."""
    both = total if isinstance(total, (tuple, list)) else (total, total)
    if len(both) != 2:
        raise errors.tensor_shape(call, "total", list(both), "(q_len, kv_len)")
    return _length(call, both[0]), _length(call, both[1])


def _length(call: str, total: object) -> int | None:
    total = plain_number(total)
    if total is not None and (isinstance(total, bool) or not isinstance(total, INTEGERS)):
        raise errors.not_an_integer(call, "total", total, 0)
    return total


def _checked(call: str, name: str, cu_seqlens: object, total: int | None) -> torch.Tensor:
    cu_seqlens = integers(call, name, cu_seqlens)
    if cu_seqlens.ndim != 1 or cu_seqlens.numel() < 1:
        raise errors.tensor_shape(call, name, list(cu_seqlens.shape), "[documents + 1]")
    if readable(cu_seqlens):
        if int(cu_seqlens[0]) != 0 or bool((cu_seqlens.diff() < 0).any()):
            raise errors.not_cumulative(call, name, cu_seqlens.tolist())
        if total is not None and total < int(cu_seqlens[-1]):
            raise errors.below(call, "total", total, int(cu_seqlens[-1]))
    return cu_seqlens


def _one_packing(
    atom: Callable[[torch.Tensor, torch.Tensor | None], Mask],
    cu_seqlens: torch.Tensor,
    total: int | None,
) -> Mask:
    """Queries and keys packed alike, in `total` positions; None is as many as they have."""
    mask = atom(packed_ids(cu_seqlens, total), None)
    if total is None and cu_seqlens.ndim == 1:
        return mask
    end = nodes.read(
        Table("end", cu_seqlens[..., -1].contiguous()), *[BATCH][: cu_seqlens.ndim - 1]
    )
    return Mask(nodes.conjunction(mask.mask_node, nodes.gt(end, K)), SCORE, mask.label)


def packed_ids(cu_seqlens: torch.Tensor, length: int | None) -> torch.Tensor:
    """The document of each of `length` positions, int32, counted from 1; None is the last entry.

    `[length]`, or `[batch, length]` of cumulative lengths `[batch, documents + 1]`.
    """
    length = int(cu_seqlens[..., -1].max()) if length is None else length
    places = torch.arange(length, device=cu_seqlens.device, dtype=cu_seqlens.dtype)
    places = places.expand(*cu_seqlens.shape[:-1], length).contiguous()
    ids = torch.searchsorted(cu_seqlens, places, right=True).to(torch.int32)
    if not torch.compiler.is_compiling():
        note_documents(ids, cu_seqlens.shape[-1] - 1)
    return ids


document = _Document()
