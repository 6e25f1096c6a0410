"""The rung of digits with numbers put in: every tile is decided by boxes of keys.

Kernels look runs of digits up. They follow from numbers and lengths; made on the host, they stay on
the device for all streams.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import torch

from ...engine.extents import Extents
from ...engine.normal_form import Bound
from ...engine.recent import Recent
from ...proof.digits.forms import DigitForms
from ..summaries.labels import MOST_TILES, summary_marks
from ..tile_runs import TileRuns, marks_of
from ..tiling import Of, Tiling
from .counts import digit_counts
from .runs import digit_runs

MOST_BY_DIGITS: Final = 1 << 24  # tiles; what is known of each takes 8 bytes

_KNOWN: Final[Recent[Any, torch.Tensor]] = Recent(64)
_OF_GRAPHS: Final[dict[Any, torch.Tensor]] = {}
"""Runs that a captured graph reads. They are never lost, since nothing tells when a graph ends: one
for each mask and lengths that were captured, however often they were."""


@dataclass(frozen=True)
class DigitRung:
    """Tiles by digits; see `schedule.rung.Rung`."""

    forms: DigitForms
    reads_tensors: bool

    on_host: Final = "digits"
    by_position: Final = False

    @property
    def in_kernel(self) -> Literal["digits", "summaries"]:
        # Digits that tensors have a say in would be looked up anew for each tensor.
        return "summaries" if self.reads_tensors else "digits"

    @property
    def most_marks(self) -> int:
        return MOST_TILES if self.reads_tensors else MOST_BY_DIGITS

    def runs(self, tiling: Tiling) -> TileRuns:
        return digit_runs(self.forms, tiling)

    def labels(self, tiling: Tiling) -> tuple[torch.Tensor, torch.Tensor]:
        nowhere = torch.zeros((0, 4), dtype=torch.int64, device=tiling.device)
        return digit_runs(self.forms, tiling).to(tiling.device).labels(tiling.shape[3]), nowhere

    def decides_every_tile(self, form: Bound) -> bool:
        return True

    def leaves_none_open(self, form: Bound) -> bool:
        return True

    def kept_keys(
        self, form: Bound, extents: Extents, most_spans: int | None = None
    ) -> torch.Tensor | None:
        return digit_counts(self.forms, form, extents) if most_spans is None else None

    def marks(self, tiling: Tiling, of: Of) -> torch.Tensor:
        if self.reads_tensors or math.prod(tiling.shape) > MOST_BY_DIGITS:
            return summary_marks(tiling, of)
        numbers = tuple([v for v in tiling.form.values if not isinstance(v, torch.Tensor)])
        key = (tiling.form.structure, numbers, of, tiling.key)
        capturing = tiling.device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        found = _KNOWN.recall(key)
        if not capturing:
            return _KNOWN.keep(key, self._made(tiling, of)) if found is None else found
        # A graph that is captured before any call made them labels its tiles by itself.
        return summary_marks(tiling, of) if found is None else _OF_GRAPHS.setdefault(key, found)

    def _made(self, tiling: Tiling, of: Of) -> torch.Tensor:
        runs = digit_runs(self.forms, replace(tiling, on=torch.device("cpu")))
        labels = runs.to(tiling.device).labels(tiling.shape[3])
        made = marks_of(labels, of, tiling)
        if made.is_cuda:
            torch.cuda.current_stream(made.device).synchronize()  # other streams will read them
        return made
