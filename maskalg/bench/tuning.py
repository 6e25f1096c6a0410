"""The search for a tile: a climb from the tables' tiles, and a final against the table's own.

Launching and timing are passed in as functions, so that tests need no clock.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

import torch

from ..errors import BackendError
from ..tiles.tuned.candidates import first_candidates, neighbours
from ..tiles.tuned.choices import Configuration, Kernel, Key, text
from .agreement import TOLERANCE, distance

Result = tuple[torch.Tensor, ...]
Run = Callable[[], Result]
Measure = Callable[[dict[str, Run], int], dict[str, list[float]]]
"""Milliseconds of each function in each round, for a number of rounds."""

LEAST_GAIN: Final = 0.02
"""A tile replaces the table's if it is faster by more than this, and by more than the noise."""

_FINALISTS: Final = 4
_SCREENING_ROUNDS: Final = 3
_AGAIN: Final = "the table's again"


class Trials(Protocol):
    """One call, whose kernels run with tiles of one's choice; `backends/triton/trial.py`."""

    @property
    def architecture(self) -> str: ...

    def table(self, kernel: Kernel) -> tuple[Configuration, ...]: ...

    def serves(self, tile: Configuration) -> bool: ...

    def run(self, kernel: Kernel, tile: Configuration) -> Run: ...

    def attempt(self, run: Run) -> Result | str: ...


@dataclass(frozen=True)
class Finding:
    """The outcome of tuning for a key.

    Attributes:
        key: what a tile is chosen by.
        default: the table's tile.
        best: the fastest, which may be the table's.
        ratio: time of the table's tile over that of `best`: the median over rounds, and the
            geometric mean over cases.
        spread: the smallest and the largest ratio of a round.
        noise: the relative difference between two runs of the table's tile in the same rounds.
        kept: whether `best` is worth replacing the table's.
        tried: how many tiles were timed.
        left_out: tiles that were not timed, and why.
    """

    key: Key
    default: Configuration
    best: Configuration
    ratio: float
    spread: tuple[float, float]
    noise: float
    kept: bool
    tried: int
    left_out: dict[Configuration, str]


def search(key: Key, cases: list[Trials], measure: Measure, rounds: int) -> Finding:
    """Find the fastest tile for the key that all cases share.

    The first case alone decides which tiles reach the final. There all cases count, and the table's
    tile runs twice, which shows how much of a difference is noise.
    """
    field_of = _Field(key, cases[0], measure)
    field_of.climb()
    finalists = field_of.fastest(_FINALISTS)
    default, left_out = field_of.default, dict(field_of.left_out)
    ratios: dict[Configuration, list[list[float]]] = {tile: [] for tile in finalists}
    noise = 0.0
    for i, case in enumerate(cases):
        entrants = _Entrants(key, case, default)
        runs = {text(default): entrants.of_default}
        for tile in finalists:
            found = field_of.runs[tile] if i == 0 else entrants.admitted(tile)
            if isinstance(found, str):
                left_out[tile] = found
                ratios.pop(tile, None)
            else:
                runs[text(tile)] = found
        times = measure({**runs, _AGAIN: entrants.of_default}, rounds)
        base = times[text(default)]
        noise = max(noise, abs(statistics.median(_paired(base, times[_AGAIN])) - 1))
        for tile in ratios:
            ratios[tile].append(_paired(base, times[text(tile)]))
    return _verdict(key, default, ratios, noise, len(field_of.ratios), left_out)


class _Entrants:
    """The tiles of a case that compute the same result as the table's tile."""

    def __init__(self, key: Key, case: Trials, default: Configuration) -> None:
        self._kernel, self._case = key.kernel, case
        self.of_default = case.run(key.kernel, default)
        wanted = case.attempt(self.of_default)
        if isinstance(wanted, str):
            raise no_tile_runs(key, {text(default): wanted})
        self._wanted = wanted

    def admitted(self, tile: Configuration) -> Run | str:
        """The function that computes with `tile`, or why it is left out."""
        run = self._case.run(self._kernel, tile)
        found = self._case.attempt(run)
        if isinstance(found, str):
            return found
        apart, most = distance(found, self._wanted), TOLERANCE[self._wanted[0].dtype]
        return run if apart <= most else f"its result is {apart:.1e} from the table's"


@dataclass
class _Field:
    """The tiles of one case that were timed so far, and how they compare with the table's."""

    key: Key
    case: Trials
    measure: Measure
    ratios: dict[Configuration, float] = field(default_factory=dict)
    runs: dict[Configuration, Run] = field(default_factory=dict)
    left_out: dict[Configuration, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.default = self._default()
        self._entrants = _Entrants(self.key, self.case, self.default)

    def _default(self) -> Configuration:
        """The first tile of the table that fits, as the launcher would take it."""
        for tile in self.case.table(self.key.kernel):
            result = self.case.attempt(self.case.run(self.key.kernel, tile))
            if not isinstance(result, str):
                return tile
            self.left_out[tile] = result
        why = {text(tile): reason for tile, reason in self.left_out.items()}
        raise no_tile_runs(self.key, why)

    def climb(self) -> None:
        """Time the first candidates, then neighbours of the fastest, until none is faster."""
        candidates = first_candidates(self.case.architecture, self.key)
        best = 1.0
        while self._time(candidates):
            fastest = self.fastest(1)
            if not fastest or self.ratios[fastest[0]] <= best:
                return
            best = self.ratios[fastest[0]]
            candidates = neighbours(self.case.architecture, self.key, fastest[0])

    def fastest(self, count: int) -> list[Configuration]:
        """The tiles with the greatest ratios, without the table's tile."""
        return sorted(self.ratios, key=lambda tile: -self.ratios[tile])[:count]

    def _time(self, candidates: tuple[Configuration, ...]) -> bool:
        """Time those that are new; returns whether there were any."""
        seen = {self.default, *self.ratios, *self.left_out}
        for tile in candidates:
            if tile in seen or not self.case.serves(tile):
                continue
            found = self._entrants.admitted(tile)
            if isinstance(found, str):
                self.left_out[tile] = found
            else:
                self.runs[tile] = found
        new = [tile for tile in self.runs if tile not in self.ratios]
        if new:
            runs = {text(self.default): self._entrants.of_default}
            runs |= {text(tile): self.runs[tile] for tile in new}
            times = self.measure(runs, _SCREENING_ROUNDS)
            base = times[text(self.default)]
            for tile in new:
                self.ratios[tile] = statistics.median(_paired(base, times[text(tile)]))
        return bool(new)


def _paired(base: list[float], times: list[float]) -> list[float]:
    """How many times as fast as `base`, round by round."""
    return [b / t for b, t in zip(base, times, strict=True)]


def _verdict(
    key: Key,
    default: Configuration,
    ratios: dict[Configuration, list[list[float]]],
    noise: float,
    tried: int,
    left_out: dict[Configuration, str],
) -> Finding:
    """The fastest finalist, if no case loses by it, and whether it is faster by more than noise."""
    margin = max(LEAST_GAIN, noise)
    best, ratio, spread = default, 1.0, (1.0, 1.0)
    for tile, of_cases in ratios.items():
        medians = [statistics.median(rounds) for rounds in of_cases]
        mean = statistics.geometric_mean(medians)
        if mean > ratio and min(medians) >= 1 - margin:
            every = [r for rounds in of_cases for r in rounds]
            best, ratio, spread = tile, mean, (min(every), max(every))
    return Finding(key, default, best, ratio, spread, noise, ratio > 1 + margin, tried, left_out)


def no_tile_runs(key: object, why: dict[str, str]) -> BackendError:
    each = "; ".join(f"{tile}: {reason}" for tile, reason in why.items())
    return BackendError(
        f"no tile of the table runs here for {key} ({each}). Leave that out: see --cases, --dim, "
        "--dtype, --forward and --backward."
    )
