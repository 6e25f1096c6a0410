"""The operator `maskalg::attention_pages`: forward attention to keys and values in pages."""

from __future__ import annotations

from typing import Any, Final

import torch

from ..backends.call import Call
from ..backends.pages import attend_pages
from ..backends.results import empty_result, in_order_of
from ..engine.float8 import descales_of
from ..engine.pages import Pages
from .define import Operands, Tensors

PAGES_FORWARD: Final = "maskalg::attention_pages"

torch.library.define(
    PAGES_FORWARD,
    "(Tensor[] pages, int? most_queries, Tensor[] descale, Tensor query, Tensor key, Tensor value, "
    "Tensor[] tables, str structure, SymInt[] integers, float[] reals, float? scale, str weights, "
    "bool lse_wanted, str backend) -> (Tensor, Tensor)",
)


def _call(pages: Tensors, most_queries: int | None, descale: Tensors, found: Operands) -> Call:
    query, key, value = found.inputs
    starts = pages[2] if len(pages) > 2 else None
    where = Pages(pages[0], pages[1], starts, most_queries)
    # Factors have a batch entry for each request, and heads as the pages have them.
    heads = (query, key.transpose(1, 2), value.transpose(1, 2))
    descales = descales_of(descale, *where.alike(*heads)) if descale else None
    return found.call(lse_wanted=found.lse_wanted, descales=descales, pages=where)


def _forward(
    pages: Tensors, most_queries: int | None, descale: Tensors, *operands: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `maskalg::attention_forward`; `pages` are table, lengths and, of packed queries, where
    requests begin; `descale` has three tensors, or none. A structure drops what requests have not.
    """
    found = Operands(*operands)
    out, lse = attend_pages(_call(pages, most_queries, descale, found), found.backend)
    out = in_order_of(found.query, out)
    return out, out.new_empty(0, dtype=torch.float32) if lse is None else lse


def _forward_fake(
    pages: Tensors, most_queries: int | None, descale: Tensors, *operands: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    found = Operands(*operands)
    query = found.query
    call = _call(pages, most_queries, descale, found)
    out = empty_result(query, found.value.shape[-1], call.out_dtype)
    dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
    return out, query.new_empty(query.shape[:3] if found.lse_wanted else 0, dtype=dtype)


torch.library.impl(PAGES_FORWARD, "CompositeExplicitAutograd", _forward)
torch.library.register_fake(PAGES_FORWARD, _forward_fake)
