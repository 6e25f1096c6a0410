"""Documents packed into one sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import numpy as np
import torch
from numpy.typing import ArrayLike

from .... import errors
from ....formula import nodes
from ....formula.derived import Documents, note_documents
from ....formula.entries import Entries, integers, is_listed, readable
from ....formula.nodes import BATCH, SCORE, K, Q
from ....formula.parameters import INTEGERS, Order, Table, plain_number
from ....formula.printing import called
from ....formula.watched import is_one_of_many
from ...algebra import Mask
from ...arguments import at, integer, positions
from ...by_hand import ENTRIES, IDS, Bools, MaskRows, looked_up, pairs, places, row
from ...helped import Ways

__all__ = ["document"]


class _Document(Ways, name="document"):
    """Queries keep the keys of their own document: `document(ids)`, from lengths or cu_seqlens."""

    __slots__ = ()

    def __call__(
        self, ids: Entries, kv_ids: Entries | None = None, *, order: Order | None = None
    ) -> Mask:
        """ids[q] = ids[k]: queries keep the keys of their own document.

        Args:
            ids: integer tensor `[length]` or `[batch, length]`, indexed by global position, at
                least as long as the sequences; any values, contiguous or not.
            kv_ids: the ids of the keys where they differ from those of the queries.
            order: "contiguous" declares that the tokens of each document lie next to each other,
                "ascending" also that the ids never descend; `from_lengths` and `from_cu_seqlens`
                declare it. Then blocks are exact, and kernels compare positions instead of ids;
                with `kv_ids` only "ascending" does that. Ids bound later must have the order too.
                Ids on the CPU are checked here, those on a GPU by an assertion on the device when
                attention reads them.

        Raises:
            TypeError: ids that are no integer tensor.
            ValueError: ids of another rank or, on the CPU, of another `order`; at the call, ids
                shorter than the sequences.

        Examples:
            >>> mask = causal & document([7, 7, 3])
            >>> mask.to_dense(3)[0, 0].int().tolist()
            [[1, 0, 0], [1, 1, 0], [0, 0, 1]]
        """
        q_table = positions("document", "ids", ids, order)
        if kv_ids is None:
            return Mask(
                nodes.eq(at(q_table, Q), at(q_table, K)), SCORE, called("document", q_table)
            )
        kv_table = positions("document", "kv_ids", kv_ids, order)
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
                `[batch, documents]` for one packing in each batch entry. Rows of a list may differ
                in length, and be tensors; rows of a tensor are filled up with zeros. Lengths on a
                GPU are not checked.
            total: length of the packed sequence if it is longer than the documents; positions past
                the last document keep nothing. By default the sum of the lengths, of the longest
                packing if there are several; it is read from the device if the lengths are there.
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
        total = packed_length(call, total)
        sizes, packings = _packings(call, lengths)
        # Not max(…, default=0), which torch.compile does not follow (torch 2.13).
        known = max(packings) if packings else 0
        if packings and total is not None and total < known:
            raise errors.below(call, "total", total, known)
        full = total is None and len(packings) > 0 and all(size == known for size in packings)
        total = known if packings and total is None else total
        cu_seqlens = torch.nn.functional.pad(sizes.cumsum(-1), (1, 0))
        if full:
            return self(packed_ids(cu_seqlens, total, device), order="ascending")
        return _one_packing(partial(self, order="ascending"), cu_seqlens, total, device)

    def from_cu_seqlens(
        self,
        cu_seqlens: Entries,
        kv_cu_seqlens: Entries | None = None,
        *,
        total: int | tuple[int, int] | None = None,
    ) -> Mask:
        """Documents between consecutive entries of `cu_seqlens` `[documents + 1]`.

        If queries and keys are cut differently, positions do not tell the order within a document:
        for `causal`, write `per_document.from_cu_seqlens(causal, cu_seqlens, kv_cu_seqlens)`.

        Args:
            cu_seqlens: cumulative lengths, starting at 0, as variable-length attention takes them.
            kv_cu_seqlens: cumulative lengths of the keys, of as many documents, if they differ from
                those of the queries.
            total: length of the packed sequence, or `(q_len, kv_len)`; by default the last entry
                (read from the device once, here). Positions past the last entry keep nothing.

        Raises:
            TypeError: cumulative lengths that are no integer tensor.
            ValueError: another number of documents for keys than for queries; on the CPU, entries
                that do not start at 0 or that descend, or a `total` less than the last entry.
                Entries on a GPU are not checked.

        Source: `cu_seqlens_q` and `cu_seqlens_k` of FlashAttention.

        Examples:
            >>> mask = document.from_cu_seqlens([0, 1, 3], [0, 2, 4])
            >>> mask.to_dense(3, 4)[0, 0].int().tolist()
            [[1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]
        """
        call = "document.from_cu_seqlens"
        return packed(call, partial(self, order="ascending"), cu_seqlens, kv_cu_seqlens, total)


def _packings(call: str, lengths: object) -> tuple[torch.Tensor, list[int]]:
    """Lengths `[documents]` or `[batch, documents]`, and their sums if they are on the CPU."""
    if isinstance(lengths, (list, tuple)) and lengths and all(map(is_listed, lengths)):
        rows, sums = zip(*[_sizes(call, row, "[documents]") for row in lengths], strict=True)
        sizes = torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
        return sizes, [size for row in sums for size in row] if all(sums) else []
    return _sizes(call, lengths, "[documents]", "[batch, documents]")


def _sizes(call: str, lengths: object, *wanted: str) -> tuple[torch.Tensor, list[int]]:
    """Lengths of one of the shapes `wanted`: of one dimension, of two."""
    if not isinstance(lengths, (torch.Tensor, np.ndarray)):
        if not isinstance(lengths, Iterable):
            raise errors.MaskTypeError(
                f"{call}: lengths must be a list or an integer tensor, the tokens of each "
                f"document, got {lengths!r} of type {type(lengths).__name__}. Write `{call}([3, "
                "5])`."
            )
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
    """The mask that `atom` makes of the ids; positions past the last document keep nothing."""
    q_total, kv_total = _totals(call, total)
    alike = kv_cu_seqlens is None or kv_cu_seqlens is cu_seqlens
    if total is None:
        q_total = _last(cu_seqlens)
        kv_total = q_total if alike else _last(kv_cu_seqlens)
    of_queries = cumulative(call, "cu_seqlens", cu_seqlens, q_total)
    if alike and q_total == kv_total:
        return _one_packing(atom, of_queries, q_total)
    given = of_queries if alike else kv_cu_seqlens
    of_keys = cumulative(call, "kv_cu_seqlens", given, kv_total)
    if of_keys.shape != of_queries.shape:
        wanted = f"{list(of_queries.shape)}, as cu_seqlens has"
        raise errors.tensor_shape(call, "kv_cu_seqlens", list(of_keys.shape), wanted)
    # Keys and queries past the last document must have different ids: keys get one document more.
    ids, kv_ids = (
        packed_ids(of_queries, q_total),
        packed_ids(torch.cat([of_keys, of_keys[-1:]]), kv_total),
    )
    return atom(ids, kv_ids)


def _totals(call: str, total: object) -> tuple[int | None, int | None]:
    """The lengths of the packed queries and keys; None where the last entry gives it."""
    both = total if isinstance(total, (tuple, list)) else (total, total)
    if len(both) != 2:
        raise errors.tensor_shape(call, "total", list(both), "(q_len, kv_len)")
    return packed_length(call, both[0]), packed_length(call, both[1])


def _last(cu_seqlens: object) -> int | None:
    """The last entry of a list of integers: a tensor's cannot be read in a compiled function."""
    if not isinstance(cu_seqlens, (list, tuple)) or not cu_seqlens:
        return None
    last = cu_seqlens[-1]
    return last if isinstance(last, INTEGERS) and not isinstance(last, bool) else None


def packed_length(call: str, total: object) -> int | None:
    """`total`, checked; None where it follows from the lengths."""
    total = plain_number(total)
    if total is not None and (isinstance(total, bool) or not isinstance(total, INTEGERS)):
        raise errors.not_an_integer(call, "total", total, 0)
    return total


def cumulative(call: str, name: str, cu_seqlens: object, total: int | None) -> torch.Tensor:
    """Cumulative lengths `[documents + 1]`, checked if reading them waits for no device."""
    cu_seqlens = integers(call, name, cu_seqlens)
    if cu_seqlens.ndim != 1 or cu_seqlens.numel() < 1:
        raise errors.tensor_shape(call, name, list(cu_seqlens.shape), "[documents + 1]")
    if readable(cu_seqlens):
        if int(cu_seqlens[0]) != 0 or bool((cu_seqlens.diff() < 0).any()):
            raise errors.MaskValueError(
                f"{call}: {name} must start at 0 and never descend, got {cu_seqlens.tolist()}. "
                "Write document.from_lengths(lengths) for the lengths of the documents."
            )
        if total is not None and total < int(cu_seqlens[-1]):
            raise errors.below(call, "total", total, int(cu_seqlens[-1]))
    return cu_seqlens


def _one_packing(
    atom: Callable[[torch.Tensor, torch.Tensor | None], Mask],
    cu_seqlens: torch.Tensor,
    total: int | None,
    device: torch.device | str | None = None,
) -> Mask:
    """Queries and keys packed alike in `total` positions, by default the sum of the lengths."""
    mask = atom(packed_ids(cu_seqlens, total, device), None)
    if total is None and cu_seqlens.ndim == 1:
        return mask
    last = cu_seqlens[..., -1].contiguous()
    table = Table("end", last if device is None else last.to(device))
    end = nodes.read(table, *[BATCH][: cu_seqlens.ndim - 1])
    return Mask(nodes.conjunction(mask.mask_node, nodes.gt(end, K)), SCORE, mask.label)


def packed_ids(
    cu_seqlens: torch.Tensor, length: int | None, device: torch.device | str | None = None
) -> torch.Tensor:
    """The document of each of `length` positions, int32, counted from 1.

    A `length` of None is the last entry. The result is `[length]`, or `[batch, length]` for
    cumulative lengths `[batch, documents + 1]`, on `device` or by default theirs. The ids ascend
    even if unchecked cumulative lengths do not.
    """
    length = total_of("document", cu_seqlens) if length is None else length
    known = None if torch.compiler.is_compiling() else _documents(cu_seqlens)
    cu_seqlens = cu_seqlens if device is None else cu_seqlens.to(device)
    cu_seqlens = cu_seqlens.cummax(dim=-1).values
    first = torch.zeros_like(cu_seqlens[..., :1])
    places = first + torch.arange(length, device=first.device, dtype=first.dtype)
    ids = torch.searchsorted(cu_seqlens, places, right=True, out_int32=True)
    if known is not None:
        note_documents(ids, *known)
    return ids


def total_of(call: str, cu_seqlens: torch.Tensor) -> int:
    """The number of positions of which cumulative lengths tell."""
    if is_one_of_many(cu_seqlens):
        raise errors.MaskValueError(
            f"{call}: within torch.vmap the number of positions cannot be read from lengths. Write "
            "total=…, which is the same for all members."
        )
    return int(cu_seqlens[..., -1].max())


def _documents(cu_seqlens: torch.Tensor) -> Documents:
    """What is known of documents: on a GPU, only how many there are."""
    count = cu_seqlens.shape[-1] - 1
    if not readable(cu_seqlens) or not cu_seqlens[..., 1:].numel():
        return Documents(count, None, None)
    lengths = cu_seqlens.diff().double()
    mean = float(lengths.square().sum() / lengths.sum().clamp(min=1))
    return Documents(count, mean, (int(lengths.max()), mean))


document = _Document()


# The second definition, and the rows of the catalogue.


def document_by_hand(ids: ArrayLike, kv_ids: ArrayLike | None = None, **at: int) -> Bools:
    """`ids[b, q] = kv_ids[b, k]`.

    Both are `[N]` or `[batch, N]`, indexed by global position; `kv_ids` is `ids` when None.
    """
    q, k = places(**at)
    of_queries, of_keys = (
        np.atleast_2d(given)[:, None] for given in (ids, ids if kv_ids is None else kv_ids)
    )
    keep: Bools = looked_up(of_queries, q) == looked_up(of_keys, k)
    return keep


def document_from_cu_seqlens_by_hand(cu: ArrayLike, **at: int) -> Bools:
    """Both positions in one `cu[d] ≤ x < cu[d + 1]`; `cu` is `[documents + 1]`, ascending.

    Positions outside all documents, those past `cu[−1]` among them, keep nothing.
    """
    q, k = places(**at)
    bounds = np.asarray(cu)
    keep: Bools = q != q
    for d in range(len(bounds) - 1):
        start, end = bounds[d], bounds[d + 1]
        keep = keep | ((start <= q) & (q < end) & (start <= k) & (k < end))
    return keep


def document_from_lengths_by_hand(lengths: ArrayLike, **at: int) -> Bools:
    """Documents of these `lengths`, `[documents]`, one after another from position 0."""
    owner = [d for d, length in enumerate(np.asarray(lengths)) for _ in range(int(length))]

    def keep(b: int, h: int, q: int, k: int) -> bool:
        return 0 <= q < len(owner) and 0 <= k < len(owner) and owner[q] == owner[k]

    return pairs(keep, **at)


def varlen_by_hand(
    inner: Callable[[int, int], bool], cu_seqlens: ArrayLike, kv_cu_seqlens: ArrayLike, **at: int
) -> Bools:
    """`inner(q, k)` in each document, with its last query at the position of its last key."""
    of_queries, of_keys = np.asarray(cu_seqlens), np.asarray(kv_cu_seqlens)

    def keep(b: int, h: int, q: int, k: int) -> bool:
        for d in range(len(of_queries) - 1):
            if of_queries[d] <= q < of_queries[d + 1] and of_keys[d] <= k < of_keys[d + 1]:
                from_last = int(of_queries[d + 1]) - q
                steps = int(of_keys[d + 1] - of_keys[d])
                return inner(steps - from_last, k - int(of_keys[d]))
        return False

    return pairs(keep, 1, **at)


CUTS: Final = ((0, 9, 9, 12, 30, 41, 60), (0, 14, 17, 17, 25, 50, 58))  # of queries and of keys


def rows() -> MaskRows:
    in_any_order = np.array([4, -2, 9, 0, 7, 3, 1])[IDS]
    recurring = np.random.default_rng(20).integers(-1, 3, ENTRIES)
    per_batch = np.stack([IDS, recurring])
    other = np.repeat(np.arange(7), (4, 9, 3, 15, 2, 20, 11))
    bounds, lengths = (0, 7, 7, 30, 41), (9, 0, 14, 22)
    return {
        "document": row(document, document_by_hand, IDS),
        "document in any order": row(document, document_by_hand, in_any_order),
        "document that recurs": row(document, document_by_hand, recurring),
        "document per batch": row(document, document_by_hand, per_batch),
        "document with ids of keys": row(document, document_by_hand, IDS, other),
        "document with ids of keys per batch": row(document, document_by_hand, IDS, per_batch),
        "document per batch with ids of keys": row(document, document_by_hand, per_batch, other),
        "document from cu_seqlens": (
            document.from_cu_seqlens(bounds, total=ENTRIES),
            partial(document_from_cu_seqlens_by_hand, bounds),
        ),
        "document from lengths": (
            document.from_lengths(lengths, total=ENTRIES),
            partial(document_from_lengths_by_hand, lengths),
        ),
        "documents of other keys": (
            document.from_cu_seqlens(*CUTS, total=ENTRIES),
            partial(varlen_by_hand, lambda q, k: True, *CUTS),
        ),
    }
