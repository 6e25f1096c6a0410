"""Keys and values in pages, and queries of several requests packed together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, cast

import torch

from .. import errors
from ..formula import nodes
from ..formula.expression import Expression
from ..formula.nodes import BATCH, K, Node, Q
from ..formula.parameters import Table, whole_number
from ..formula.printing import Label, called
from .extents import Extents

_INDICES: Final = (torch.int32, torch.int64)
_SHAPES: Final = {
    "table": "[requests, most_pages]",
    "lengths": "[requests]",
    "cu_seqlens_q": "[requests + 1]",
}


@dataclass(frozen=True, eq=False)
class Pages:
    """Where the keys and values of each request lie in pages, for `attention(..., pages=...)`.

    Key n of request b is row `n % page_size` of page `table[b, n // page_size]`. In the mask, n is
    `kv_idx`; the call itself drops the keys from `lengths[b]` on. The contents of other pages, and
    of keys that no query keeps, have no effect.

    The host reads nothing from a GPU, so these tensors may be rewritten in place between two
    replays of a CUDA graph, and numbers that name no page are clamped, not refused.

    Attributes:
        table: int32 or int64 `[requests, most_pages]`: pages of each request in order. Several
            requests may name one page. Entries past the last key are not read, and those of keys
            that no query keeps may be negative.
        lengths: int32 or int64 `[requests]`: keys of each request, at most `most_pages *
            page_size`.
        cu_seqlens_q: int32 or int64 `[requests + 1]`, or None. With it queries are packed: `query`
            is `[1, heads, queries, head_dim]`, and request b has the queries `cu_seqlens_q[b] <= n
            < cu_seqlens_q[b + 1]`. For the mask they are batch entry b, at positions from 0 on.
            Queries past the last request have output 0 and lse -inf.
        most_queries: the most queries of one packed request, if known; by default all of `query`.

    Raises:
        TypeError, ValueError: tensors of other dtypes, ranks or devices, or that do not fit each
            other.

    Source: block tables of vLLM (Kwon et al., Efficient Memory Management for Large Language Model
    Serving with PagedAttention, 2023); `cu_seqlens_q` of FlashAttention.

    Examples:
        >>> pages = Pages(torch.tensor([[3, 0]]), torch.tensor([20]))
        >>> q, pool = torch.randn(1, 4, 1, 32), torch.randn(2, 5, 16, 2, 32)
        >>> attention(q, pool[0], pool[1], causal.shift(q=19), pages=pages).shape
        torch.Size([1, 4, 1, 32])
    """

    table: torch.Tensor
    lengths: torch.Tensor
    cu_seqlens_q: torch.Tensor | None = None
    most_queries: int | None = None

    def __post_init__(self) -> None:
        named = {"table": (self.table, 2), "lengths": (self.lengths, 1)}
        if self.cu_seqlens_q is not None:
            named["cu_seqlens_q"] = (self.cu_seqlens_q, 1)
        for name, (tensor, rank) in named.items():
            if not isinstance(tensor, torch.Tensor) or tensor.dtype not in _INDICES:
                found = getattr(tensor, "dtype", type(tensor).__name__)
                raise errors.MaskTypeError(
                    f"Pages: {name} must be an int32 or int64 tensor, got {found}. Write "
                    "torch.tensor(…, dtype=torch.int32, device=query.device)."
                )
            if tensor.ndim != rank:
                raise errors.MaskValueError(
                    f"Pages: {name} must have shape {_SHAPES[name]}, got {list(tensor.shape)}."
                )
            if tensor.device != self.table.device:
                raise _other_device(name, tensor.device, self.table.device)
        requests = self.table.shape[0]
        for name, more in (("lengths", 0), ("cu_seqlens_q", 1)):
            if name in named and named[name][0].shape[0] != requests + more:
                raise errors.MaskValueError(
                    f"Pages: the table has {requests} rows, one per request, so {name} must have "
                    f"{requests + more} entries, got {list(named[name][0].shape)}."
                )
        if self.most_queries is not None:
            whole_number("Pages", "most_queries", self.most_queries, 1)
            if self.cu_seqlens_q is None:
                raise errors.MaskValueError(
                    "Pages: most_queries counts the queries of a packed request, and without "
                    "cu_seqlens_q none is packed. Pass cu_seqlens_q, or leave most_queries out."
                )

    @cached_property
    def remembered(self) -> dict[str, Any]:
        """Facts about the tensors that backends find once, by name."""
        return {}

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """The tensors that kernels read: the table and, for packed queries, `cu_seqlens_q`.

        A strided tensor is copied each time, so that the copy has the entries written since.
        """
        known = self.remembered.get("tensors")
        if known is None:
            table = self.table if self.table.stride(1) == 1 else self.table.contiguous()
            starts = () if self.cu_seqlens_q is None else (self.cu_seqlens_q.contiguous(),)
            known = (table, *starts)
            if table is self.table and all(each is self.cu_seqlens_q for each in starts):
                self.remembered["tensors"] = known
        return cast("tuple[torch.Tensor, ...]", known)

    def as_read(self) -> Pages:
        """These pages, with contiguous copies of a strided table and of strided `cu_seqlens_q`: all
        launches of a call read the same copy of the present entries."""
        table, *starts = found = self.tensors
        if found is self.remembered.get("tensors"):
            return self
        return replace(self, table=table, cu_seqlens_q=starts[0] if starts else None)

    def alike(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """`query`, `key` and `value` with a batch entry for each request, to check the shapes of
        float8 factors against; each `[batch, heads, …]`."""
        requests = self.table.shape[0]
        found = [t[:1].expand(requests, -1, -1, -1) if len(t) else t for t in (query, key, value)]
        return found[0], found[1], found[2]

    def extents(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> Extents:
        """The extents of a call: those of the longest request that the table has room for.

        Raises if shapes do not fit; values are checked on a CPU only. Layers of the same shapes
        share one check until the tensors are written to.
        """
        if torch.compiler.is_compiling():
            return self._extents(query, key, value)
        fits: object = (query.shape, key.shape, value.shape, query.device)
        if self.table.device.type == "cpu":
            fits = (fits, self._state())
        remembered: tuple[object, Extents] | None = self.__dict__.get("_fits")
        if remembered is None or remembered[0] != fits:
            remembered = self.__dict__["_fits"] = (fits, self._extents(query, key, value))
        return remembered[1]

    def _state(self) -> object:
        """A value that changes when the tensors are written to, or always if torch cannot tell."""
        tensors = (self.table, self.lengths, *self.tensors[1:])
        if any(tensor.is_inference() or type(tensor) is not torch.Tensor for tensor in tensors):
            return object()
        return [(tensor._version, tensor.data_ptr()) for tensor in tensors]

    def _extents(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> Extents:
        for name, tensor in (("query", query), ("key_pages", key), ("value_pages", value)):
            if tensor.ndim != 4:
                wanted = "[pages, page_size, kv_heads, dim]"
                if name == "query":
                    wanted = "[batch, heads, q_len, head_dim], packed [1, heads, queries, head_dim]"
                raise errors.MaskValueError(
                    f"attention: {name} must have shape {wanted}, got {list(tensor.shape)}."
                )
        (batch, heads, q_len, dim), (count, size, kv_heads, key_dim) = query.shape, key.shape
        requests, most = self.table.shape
        wrong = None
        if value.shape[:3] != key.shape[:3]:
            wrong = "key and value pages differ in number, size or heads"
        elif kv_heads == 0 or heads % kv_heads:
            wrong = f"{heads} query heads are no multiple of {kv_heads} key-value heads"
        elif dim != key_dim:
            wrong = "query and key pages have different head dimensions"
        elif size == 0 and count:
            wrong = "pages have no rows"
        elif self.cu_seqlens_q is None and batch != requests:
            wrong = f"the table has {requests} requests, the query {batch} batch entries"
        elif self.cu_seqlens_q is not None and batch != 1:
            wrong = "packed queries are one batch entry, [1, heads, queries, head_dim]"
        if wrong is not None:
            raise errors.MaskValueError(
                f"attention: {wrong}; got query {list(query.shape)} ([batch, heads, q_len, "
                f"head_dim]), key_pages {list(key.shape)} and value_pages {list(value.shape)} "
                "([pages, page_size, kv_heads, dim]). Pages in another order of axes enter as a "
                "transposed view."
            )
        if self.table.device != query.device:
            raise _other_device("pages", self.table.device, query.device)
        if self.cu_seqlens_q is not None:
            q_len = q_len if self.most_queries is None else min(self.most_queries, q_len)
        if self.table.device.type == "cpu" and not torch.compiler.is_compiling():
            self._check_values(count, size, query.shape[2])
        return Extents(q_len, most * size if count else 0, requests, heads)

    def _check_values(self, count: int, size: int, queries: int) -> None:
        """Check the numbers, if they can be read without waiting for a device."""
        if type(self.table) is not torch.Tensor or not len(self.table):
            return
        room = self.table.shape[1] * size
        least, most = (int(end) for end in self.lengths.aminmax())
        if least < 0 or most > room:
            raise errors.MaskValueError(
                f"Pages: lengths must lie between 0 and {room}, the rows of a request's pages, got "
                f"{least if least < 0 else most}."
            )
        slots = torch.arange(self.table.shape[1])
        used = slots * size < self.lengths[:, None]
        if bool((used & (self.table >= count)).any()):
            place = (used & (self.table >= count)).nonzero()[0].tolist()
            raise errors.MaskValueError(
                f"Pages: table{place} is {int(self.table[tuple(place)])}, and there are "
                + (f"{count} pages, 0 to {count - 1}." if count else "no pages.")
            )
        named = torch.where(used & (self.table >= 0), self.table, -1 - slots).sort(dim=1).values
        twice = (named[:, 1:] == named[:, :-1]).nonzero()
        if len(twice):
            request, place = twice[0].tolist()
            raise errors.MaskValueError(
                f"Pages: the table names page {int(named[request, place])} twice for request "
                f"{request}, whose keys would repeat. Two requests may share a page, but one "
                "request must not use a page twice: write -1 for pages that no query keeps any "
                "more, such as those behind a window."
            )
        if self.cu_seqlens_q is not None:
            starts = self.cu_seqlens_q
            rising = bool((starts.diff() >= 0).all())
            if int(starts[0]) != 0 or not rising or int(starts[-1]) > queries:
                raise errors.MaskValueError(
                    "Pages: cu_seqlens_q must begin with 0, not fall, and end at most at "
                    f"{queries}, the number of queries, got {starts.tolist()}."
                )
            longest = int(starts.diff().max())
            if self.most_queries is not None and longest > self.most_queries:
                raise errors.MaskValueError(
                    f"Pages: most_queries is {self.most_queries}, and a request has {longest} "
                    "queries."
                )

    def within(self, expression: Expression) -> Expression:
        """The expression, with only the keys and queries that each request has; remembered."""
        if torch.compiler.is_compiling():
            return self._within(expression)
        remembered = expression.__dict__.get("_within_pages")
        if (
            remembered is None
            or remembered[0] is not self.lengths
            or remembered[1] is not self.cu_seqlens_q
        ):
            remembered = (self.lengths, self.cu_seqlens_q, self._within(expression))
            expression.__dict__["_within_pages"] = remembered
        return remembered[2]

    def _within(self, expression: Expression) -> Expression:
        table = Table("lengths", self.lengths, low=0)
        kept = nodes.gt(nodes.read(table, BATCH), K)
        label = called("lengths", table)
        if self.cu_seqlens_q is not None:
            # Views, so that later writes to the tensor show.
            first = Table("first_query", self.cu_seqlens_q[:-1], low=0)
            end = Table("queries_end", self.cu_seqlens_q[1:], low=0)
            count: Node = nodes.subtract(nodes.read(end, BATCH), nodes.read(first, BATCH))
            kept = nodes.conjunction(kept, nodes.gt(count, Q))
        return Expression(
            nodes.conjunction(expression.mask_node, kept),
            expression.bias_node,
            Label("&", (expression.label, label)),
        )


def _other_device(name: str, found: object, wanted: object) -> errors.MaskValueError:
    return errors.MaskValueError(
        f"Pages: {name} lies on {found}, and not on {wanted}. Move it there once."
    )


def pages_gradient() -> errors.BackendError:
    return errors.BackendError(
        "attention: gradients are not built for keys and values in pages, and query, the pages or "
        "a tensor of the expression wants one. Call it under torch.no_grad()."
    )
