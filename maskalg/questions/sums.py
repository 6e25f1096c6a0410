"""Kept elements as a signed sum over the clauses of a mask, each counted without its elements."""

from __future__ import annotations

import torch

from ..engine.extents import Extents, dependence
from ..engine.normal_form import Bound
from ..proof.closed_forms import Section
from ..proof.terms import signed_sum
from ..schedule.intervals.intervals import rows_of
from ..schedule.positions.sections import section_over
from ..schedule.tiling import Tiling


def summed(form: Bound, extents: Extents) -> int | None:
    """How many elements are kept, of the batch entries and heads that the mask tells apart.

    None where a clause cannot be counted.
    """
    found = signed_sum(form.structure)
    if found is None:
        return None
    sizes = dependence(form.structure.mask, form, extents)
    total = 0
    for term in found.terms:
        # Bounds alone are counted fastest.
        sections = [section for section in (term.keys, term.queries) if section is not None]
        count = _counted(min(sections, key=lambda section: len(section.order)), form, extents)
        if count is None:
            return None
        total += term.sign * int(count.sum())
    whole = sizes.batch * sizes.heads * extents.q_len * extents.kv_len
    return whole - total if found.dropped else total


def summed_by_row(form: Bound, extents: Extents) -> torch.Tensor | None:
    """The number of keys each query keeps, int64 `[batch, heads, q_len]`.

    None where a clause cannot be counted query by query.
    """
    found = signed_sum(form.structure)
    if found is None:
        return None
    sizes = dependence(form.structure.mask, form, extents)
    total = torch.zeros(sizes.batch, sizes.heads, extents.q_len, dtype=torch.int64)
    for term in found.terms:
        count = None if term.keys is None else _counted(term.keys, form, extents)
        if count is None:
            return None
        total += term.sign * count.cpu()
    return extents.kv_len - total if found.dropped else total


def _counted(section: Section, form: Bound, extents: Extents) -> torch.Tensor | None:
    """How many own positions each other position takes, `[batch, heads, other positions]`."""
    sizes = dependence(form.structure.mask, form, extents)
    told = (sizes.batch, sizes.heads)
    lengths = (extents.q_len, extents.kv_len)
    if section.own == "kv_idx":
        lengths = lengths[::-1]
    if 0 in lengths:
        return torch.zeros((*told, lengths[1]), dtype=torch.int64)
    rows = rows_of(Tiling(form, extents, (extents.q_len, extents.kv_len)))
    prepared = section_over(section, lengths, 1, rows.environment)
    return None if prepared is None else prepared.counts(*told)
