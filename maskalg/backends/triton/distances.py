"""Tables of what biases are at each distance, computed by torch (`codegen/distance_tables.py`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import torch

from ...codegen.arguments import DistanceNumber
from ...codegen.distance_tables import BEYOND
from ...codegen.hooks import Style
from ...engine.evaluate import Environment, evaluate
from ...engine.extents import Extents
from ...formula.node import Node
from ...schedule.memory import MEMORY
from ..call import Call

_FEWEST_PAIRS: Final = 1 << 24  # computing fewer takes less than the tables
_FEWEST_QUERIES: Final = 128  # steps of decoding have many distances for their pairs
_MOST_ENTRIES: Final = 1 << 25


def tables_are_worth(extents: Extents) -> bool:
    """Whether pairs are so many more than distances that tables take less than formulas."""
    pairs = extents.batch * extents.heads * extents.q_len * extents.kv_len
    entries = extents.heads * _distances(extents)
    few = pairs < _FEWEST_PAIRS or extents.q_len < _FEWEST_QUERIES
    return not few and entries <= _MOST_ENTRIES


def style_of_gradients(style: Style, head_pad: int) -> Style:
    """How formulas of gradients are written: of 128 dimensions, what reads nothing is computed.

    Measured on an H200: reading takes longer there than a logarithm, beside five products a tile.
    """
    wide = style.tabled == "costly" and head_pad > 64
    return replace(style, tabled="reads") if wide else style


def distance_number(argument: DistanceNumber, extents: Extents) -> int:
    """A number of the tables of a call."""
    return _distances(extents) if argument.number == "row" else extents.q_len - 1 + BEYOND


def distance_table(formula: Node, call: Call) -> torch.Tensor:
    """The table of a formula; remembered while the tensors it reads live unchanged."""
    extents, device = call.extents, call.query.device
    key = ("distances", extents.q_len, extents.kv_len, extents.heads, device)

    def table() -> torch.Tensor:
        zero = extents.q_len - 1 + BEYOND
        distance = torch.arange(_distances(extents), device=device) - zero
        distance = distance.clamp(1 - extents.q_len, extents.kv_len - 1)
        # Any pair at the distance stands for all of them.
        places = {
            "head": torch.arange(extents.heads, device=device)[:, None],
            "q_idx": (-distance).clamp(min=0),
            "kv_idx": distance.clamp(min=0),
        }
        with torch.no_grad():
            found = evaluate(formula, Environment(places, call.form.values))
        return found.to(torch.float32).contiguous()

    return MEMORY.recall(key, (formula,), call.form.values, table)


def _distances(extents: Extents) -> int:
    return extents.q_len + extents.kv_len - 1 + 2 * BEYOND
