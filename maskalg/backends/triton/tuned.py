"""Tiles tuned on this device, read once a process; they precede the tables' tiles."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeVar

import torch
import triton

from ...tiles.shapes import HopperBackwardTile, HopperTile, Tile
from ...tiles.tuned.choices import NOTHING_TUNED, Choices, Key
from ...tiles.tuned.store import Machine, choices_on, kernels_digest
from .constants import architecture

generation = 0
"""How often choices were looked up anew."""

_Hopper = TypeVar("_Hopper", HopperTile, HopperBackwardTile)


@lru_cache(maxsize=64)
def machine_of(device: torch.device) -> tuple[str, Choices]:
    """The architecture of a device, and the choices stored for devices of its name."""
    arch = architecture(device)
    if device.type == "cpu":
        return arch, NOTHING_TUNED
    return arch, choices_on(torch.cuda.get_device_name(device), arch, triton.__version__)


def this_machine(device: torch.device) -> Machine:
    """The facts about this machine that times on its GPU depend on."""
    name = torch.cuda.get_device_name(device)
    return Machine(name, architecture(device), triton.__version__, kernels_digest())


def look_again() -> None:
    """Forget looked-up choices, because some were stored or deleted."""
    global generation
    generation += 1
    machine_of.cache_clear()


def preferred(
    key: Key,
    tuned: Choices,
    hopper: _Hopper | None,
    tiles: tuple[Tile, ...],
    kind: type[_Hopper],
    *,
    served: bool,
) -> tuple[_Hopper | None, tuple[Tile, ...]]:
    """The tile of the warp-specialised kernel and those of the plain one, with a choice first.

    The tables' plain tiles come after it, since a choice may not fit another mask.

    Args:
        key: the plan's key.
        tuned: the choices of the device.
        hopper: the table's tile for the warp-specialised kernel, or None.
        tiles: the table's tiles for the plain kernel.
        kind: the class of tiles of that warp-specialised kernel.
        served: whether that kernel supports the plan at all.
    """
    choice = tuned.tile(key)
    if isinstance(choice, Tile):
        return None, (choice, *tiles)
    if served and isinstance(choice, kind):
        return choice, tiles
    return hopper, tiles
