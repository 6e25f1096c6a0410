"""Keys and values in pages, copied in order for backends that do not read pages."""

from __future__ import annotations

import dataclasses
from typing import cast

import torch

from ..engine.extents import Extents
from ..engine.float8 import FLOAT8, QUANTISED
from ..engine.pages import Pages, pages_gradient
from ..errors import BackendError, MaskValueError
from .call import Call, Result
from .choice import TRAITS, backend_of
from .float8 import attend_float8, dequantised
from .reference.backend import kept
from .results import empty_result


def attend_pages(call: Call, backend: str) -> Result:
    """Output and, if wanted, lse of a call whose keys lie in pages; without gradients."""
    if call.differentiable():
        raise pages_gradient()
    if call.nan_safe:
        raise BackendError(
            "nan_safe=True copies keys and values, which pages are there to avoid. Leave it out: "
            "keys in pages that no query keeps change nothing, whatever they hold."
        )
    if TRAITS[backend].pages:
        return _served(call, backend)
    pages = cast(Pages, call.pages)
    with torch.no_grad():
        out, lse = _served(_in_order(call, pages), backend)
        if pages.cu_seqlens_q is None:
            return out, lse
        return _packed(call, pages.cu_seqlens_q, out, lse)


def _served(call: Call, backend: str) -> Result:
    if call.query.dtype == FLOAT8:
        return attend_float8(call, backend)
    if call.key.dtype not in QUANTISED or TRAITS[backend].float8:
        return backend_of(backend).attend(call)
    double = call.query.dtype == torch.float64
    found = dequantised(call, double=double or TRAITS[backend].wide)
    out, lse = backend_of(backend).attend(found)
    # Operators promise this dtype of the lse to those who compile them.
    of_lse = torch.float64 if double else torch.float32
    return out.to(call.out_dtype), None if lse is None else lse.to(of_lse)


def _in_order(call: Call, pages: Pages) -> Call:
    """The call with keys in order in one tensor, and a batch entry for each request."""
    extents, table, size = call.extents, pages.table, call.key.shape[2]
    on_cpu = table.device.type == "cpu"
    query = call.query
    if pages.cu_seqlens_q is not None:
        starts, q_len = pages.cu_seqlens_q.long(), extents.q_len
        if on_cpu:
            q_len = int(starts.diff().max()) if len(starts) > 1 else 0
        rows = starts[:-1, None] + torch.arange(q_len, device=table.device)
        last = max(query.shape[2] - 1, 0)
        query = query[0][:, rows.clamp(max=last)].transpose(0, 1)
        extents = dataclasses.replace(extents, q_len=q_len)
    if not extents.kv_len:
        table = table[:, :0]
    elif on_cpu:
        longest = int(pages.lengths.max()) if len(pages.lengths) else 0
        table = table[:, : -(-longest // size)]
        extents = dataclasses.replace(extents, kv_len=table.shape[1] * size)
    places = table.long().clamp(0, max(call.key.shape[0] - 1, 0))
    key, value = (_rows(t, places, extents) for t in (call.key, call.value))
    own = call._replace(query=query, key=key, value=value, extents=extents, pages=None, alone=True)
    written = torch.arange(extents.kv_len, device=table.device) < pages.lengths[:, None]
    named = (table >= 0).repeat_interleave(size, dim=1) | ~written
    whole = bool(named.all()) and all(bool(_finite(t, written)) for t in (key, value))
    if not whole:
        pairs = kept(own)
        pairs = pairs.reshape((*[1] * (4 - pairs.dim()), *pairs.shape))
        used = pairs.any(dim=2).any(dim=1)
        used = used.expand(extents.batch, extents.kv_len)
        if on_cpu and bool((used & ~named).any()):
            raise MaskValueError(
                "Pages: the table has no page (a negative number) for keys of request "
                f"{int((used & ~named).nonzero()[0, 0])} that the mask keeps."
            )
        written = used
    dropped = ~written[:, None, :, None]
    key, value = (_without(t, dropped) for t in (key, value))
    return own._replace(key=key, value=value)


def _rows(pages: torch.Tensor, places: torch.Tensor, extents: Extents) -> torch.Tensor:
    """Rows of `[pages, heads, page_size, dim]` in order, `[batch, heads, kv_len, dim]`."""
    _, heads, _, dim = pages.shape
    shape = (extents.batch, heads, extents.kv_len, dim)
    if not extents.kv_len:
        return pages.new_empty(shape)
    bits = pages.view(torch.uint8) if pages.dtype == FLOAT8 else pages
    found = bits[places].transpose(1, 2).reshape(shape)
    return found.view(pages.dtype)


def _finite(rows: torch.Tensor, written: torch.Tensor) -> torch.Tensor:
    wide = rows.float() if rows.dtype == FLOAT8 else rows
    return (wide.isfinite() | ~written[:, None, :, None]).all()


def _without(rows: torch.Tensor, dropped: torch.Tensor) -> torch.Tensor:
    bits = rows.view(torch.uint8) if rows.dtype == FLOAT8 else rows
    return bits.masked_fill(dropped, 0).view(rows.dtype)


def _packed(
    call: Call, starts: torch.Tensor, out: torch.Tensor, lse: torch.Tensor | None
) -> Result:
    """Results of requests, packed like their queries."""
    query = call.query
    n = torch.arange(query.shape[2], device=query.device, dtype=starts.dtype)
    request = torch.searchsorted(starts, n, right=True) - 1
    belongs = request < call.extents.batch
    request = request.clamp(max=max(call.extents.batch - 1, 0))
    place = (n - starts[request]).clamp(max=max(out.shape[2] - 1, 0))
    packed = empty_result(query, out.shape[-1], out.dtype).zero_()
    packed_lse = None
    if out.shape[2]:
        rows = torch.where(belongs[:, None, None], out[request, :, place], 0.0)
        packed[0] = rows.transpose(0, 1)
    if lse is not None:
        packed_lse = lse.new_full((1, lse.shape[1], len(n)), float("-inf"))
        if out.shape[2]:
            own = torch.where(belongs[:, None], lse[request, :, place], float("-inf"))
            packed_lse[0] = own.T
    return packed, packed_lse
