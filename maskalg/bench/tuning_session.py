"""A session of tuning on this machine's GPU: its cases, the searches of them, and their store.

For each kind of mask and score there are one or two cases that people train with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final

import torch

from ..attention import checked_call
from ..backends.triton.trial import Trial, kind_of
from ..engine.extents import Extents
from ..engine.normal_form import bound
from ..tiles.shapes import dims_of
from ..tiles.tuned.choices import NOTHING_TUNED, Choice, Choices, Kernel, Key, text
from ..tiles.tuned.store import Machine, Unusable, path_of, read, write
from ..values.biases import alibi
from ..values.masks import causal, document, shared_prefix, sliding
from .cases import Case, Shape, documents, rows
from .contenders import inputs_of
from .measure import interleaved
from .tuning import Finding, search

LENGTH: Final = 8192
_TAKEN: Final = (
    "full", "causal", "window", "document", "documents of 256",
    "document & window", "alibi", "softcap", "dense mask", "dense bias",
)  # fmt: skip


def tuning_cases(head_dim: int, device: str) -> dict[str, Case]:
    """The cases at a head dimension, by name; every pattern of `maskalg.tiles.patterns` is
    among them at 128, with a bias and without."""
    heads = max(4, 2048 // head_dim)
    shape = Shape(2, heads, heads, LENGTH, *dims_of(head_dim))
    known = rows(shape, device)
    slopes = torch.exp2(-8 * torch.arange(1, heads + 1, device=device) / heads)
    ids = document(documents(LENGTH, 1000, device))
    # Long enough at every head dimension: `LONG_DOCUMENT`.
    long = causal & document.from_lengths([7 * LENGTH // 8, LENGTH // 8], device=device)
    bias = alibi(slopes)
    starts = [0, *range(LENGTH // 4, LENGTH + 1, LENGTH // 8)]  # of a prompt and its answers
    rollouts = shared_prefix.from_cu_seqlens(starts, [-1] + [0] * (len(starts) - 2), device=device)
    return {name: known[name] for name in _TAKEN} | {
        "full + alibi": Case(shape, bias),
        "window + alibi": Case(shape, causal & sliding(1024) + bias),
        "document + alibi": Case(shape, causal & ids + bias),
        "long documents": Case(shape, long),
        "long documents + alibi": Case(shape, long + bias),
        "rollouts": Case(shape, rollouts),
        "rollouts + alibi": Case(shape, rollouts + bias),
        "document & window + alibi": Case(shape, causal & ids & sliding(1024) + bias),
    }


@dataclass(frozen=True)
class Wanted:
    """What a tuning session is asked to tune.

    Attributes:
        cases: names of `tuning_cases`; those of one kind of mask are tuned together.
        dims: head dimensions, each the largest of a size (`maskalg.tiles.shapes.SIZES`).
        dtype: dtype of the inputs.
        kernels: the kernels to tune.
        rounds: number of rounds of each final.
    """

    cases: tuple[str, ...]
    dims: tuple[int, ...]
    dtype: torch.dtype
    kernels: tuple[Kernel, ...]
    rounds: int

    def kinds(self, kernel: Kernel, dim: int) -> dict[tuple[str, bool], list[str]]:
        """The cases by pattern and by whether they change scores: one search for each."""
        found: dict[tuple[str, bool], list[str]] = {}
        extents = Extents(LENGTH, LENGTH, batch=1, heads=1)
        for name, case in tuning_cases(dim, "cpu").items():
            if name in self.cases:
                kind = kind_of(bound(case.expression), extents, kernel, dim)
                found.setdefault(kind, []).append(name)
        return found

    @property
    def searches(self) -> int:
        return sum(len(self.kinds(kernel, dim)) for dim in self.dims for kernel in self.kernels)


def findings(wanted: Wanted) -> Iterator[Finding]:
    """The finding of each search, as it ends."""
    for dim in wanted.dims:
        cases = tuning_cases(dim, "cuda")
        inputs = inputs_of(next(iter(cases.values())), wanted.dtype, gradients=False)
        q, k, v = inputs
        for kernel in wanted.kernels:
            together: dict[Key, list[Trial]] = {}
            for name in wanted.cases:
                trial = Trial(checked_call(q, k, v, cases[name].expression))
                together.setdefault(trial.key(kernel), []).append(trial)
            for key in list(together):
                yield search(key, [*together[key]], interleaved, wanted.rounds)
                del together[key]  # with the tensors of their forward passes
                torch.cuda.empty_cache()


def kept(finding: Finding, before: Choices) -> Choices:
    """The choices after a finding: its tile if that was faster, else none, so the table's again."""
    choices = dict(before.by_key)
    choices.pop(finding.key, None)
    if finding.kept:
        choices[finding.key] = Choice(
            finding.best,
            text(finding.default),
            round(finding.ratio, 4),
            (round(finding.spread[0], 4), round(finding.spread[1], 4)),
            datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )
    return Choices(choices)


def store(finding: Finding, machine: Machine) -> None:
    """Add a finding to the choices stored for the machine."""
    try:
        before = read(path_of(machine), machine)
    except (Unusable, FileNotFoundError):
        before = NOTHING_TUNED
    write(kept(finding, before), machine)
