"""The choice among several tiles: the first that Triton compiles and that fits the device.

Tables list the tiles that should fit each kind of GPU, so mostly one tile is compiled. They cannot
know how much an expression reads and computes beside the products, so other tiles are tried if one
fails. Failures are remembered for the same plan, and not tried again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable
from typing import Final, TypeVar

import triton

from ....errors import BackendError
from ....tiles.shapes import Tile
from ...call import Call
from .compiler import CompilerError
from .launch import Launch

T = TypeVar("T")

MOST_SPILLED: Final = 256
"""Bytes that a thread may spill if a tile that spills fewer is left. Measured on an H200: so few
cost less than a smaller tile."""

_NO_ROOM: Final = "it needs more shared memory or registers than the GPU has"
_MOST: Final = 4096
_FAILED: Final[dict[tuple[Hashable, Hashable], str]] = {}
_SPILLING: Final[dict[tuple[Hashable, Hashable], str]] = {}
"""Tiles that compile, and were passed over for one that spills less."""


def first_that_fits(candidates: Iterable[T], spilled: Callable[[T], int | None]) -> T | None:
    """The first candidate that spills at most `MOST_SPILLED`, else the one that spills least.

    `spilled` returns None for a candidate that fails; if all fail, the result is the last one.
    """
    least: tuple[int, T] | None = None
    last: T | None = None
    for candidate in candidates:
        last, bytes_spilled = candidate, spilled(candidate)
        if bytes_spilled is None:
            continue
        if bytes_spilled <= MOST_SPILLED:
            return candidate
        if least is None or bytes_spilled < least[0]:
            least = bytes_spilled, candidate
    return last if least is None else least[1]


def tried_for(kernel: str, plan: Hashable, call: Call) -> Hashable:
    """The key of trials of tiles: all inputs of a kernel's launches except the tile."""
    return kernel, plan, call.page_size, call.packed


def that_fits(plan: Hashable, launches: Iterable[Launch]) -> Launch | None:
    """The launch whose tile fits, not made yet; None if there is none to try.

    Args:
        plan: the kernel, and all inputs of its launches except the tile.
        launches: in the order to try.

    Raises:
        BackendError: Triton cannot compile any, or none fits the device.
    """
    if triton.knobs.runtime.interpret:
        return next(iter(launches), None)
    serving: dict[Hashable, int] = {}

    def spilled(launch: Launch) -> int | None:
        # A plain kernel replaces a Hopper kernel that fails, not one that spills.
        if isinstance(launch.tile, Tile) and not all(isinstance(tile, Tile) for tile in serving):
            return None
        of_launch = _spilled(plan, launch)
        if of_launch is not None:
            serving[launch.tile] = of_launch
        return of_launch

    found = first_that_fits(launches, spilled)
    if found is None:
        return None
    if (why := _FAILED.get((plan, found.tile))) is not None:
        raise BackendError(
            f"no kernel for this call compiles and fits this GPU: {why}. Write "
            'backend="reference" for a dense computation, and please report '
            "`maskalg.render(score)`, the shapes and `maskalg doctor`."
        )
    for tile, count in serving.items():
        if tile != found.tile:
            _note(_SPILLING, (plan, tile), f"it spills {count} bytes a thread")
    return found


def why_not(plan: Hashable, tile: Hashable) -> str | None:
    """Why a tile failed when tried; `plan` as in `that_fits`."""
    return _FAILED.get((plan, tile)) or _SPILLING.get((plan, tile))


def failed(plan: Hashable) -> bool:
    """Whether any tile failed; `plan` as in `that_fits`."""
    return any(of == plan for of, _ in _FAILED)


def _spilled(plan: Hashable, launch: Launch) -> int | None:
    """The bytes that a launch spills; None if it fails."""
    if (plan, launch.tile) in _FAILED:
        return None
    why = _NO_ROOM
    try:
        found = launch.spilled()
    except CompilerError as problem:
        found, why = None, next(iter(str(problem).strip().splitlines()), "")[:200]
        warnings.warn(
            f"Triton could not compile a kernel with {launch.tile} ({why}); what it printed is of "
            "no concern. The next tile serves, which may be slower: see maskalg.explain.",
            stacklevel=2,
        )
    if found is None:
        _note(_FAILED, (plan, launch.tile), why)
    return found


def _note(
    known: dict[tuple[Hashable, Hashable], str], at: tuple[Hashable, Hashable], why: str
) -> None:
    if len(known) >= _MOST:
        known.clear()
    known[at] = why
