"""Choices in the cache folder: a file for each device, version of Triton and state of the kernels.

A file that cannot be read, or that was measured with something else, is left alone and not used.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from ...engine.cache import cache_dir, replace
from ..patterns import PATTERNS
from ..shapes import SIZES, HopperBackwardTile, HopperTile, Tile
from .choices import KERNELS, NOTHING_TUNED, Choice, Choices, Configuration, Key, legal

SWITCH: Final = "MASKALG_TUNED"
"""The environment variable that, set to 0, turns the choices off."""

_TILES: Final[dict[str, type[Configuration]]] = {
    "plain": Tile,
    "hopper": HopperTile,
    "hopper backward": HopperBackwardTile,
}


@dataclass(frozen=True)
class Machine:
    """The machine that times belong to: the device's name and architecture, the Triton that
    compiles, and the kernels (by a digest of their source and of the tables)."""

    device: str
    architecture: str
    triton: str
    kernels: str


class Unusable(ValueError):
    """Why a file is not used, in a few words."""


def folder() -> Path:
    """The folder of the files."""
    return cache_dir() / "tiles"


def path_of(of: Machine) -> Path:
    """The path of a machine's file, which need not exist."""
    return folder() / file_name(of)


def file_name(of: Machine) -> str:
    """The name of a file that is about one machine."""
    name = re.sub(r"[^a-z0-9]+", "-", of.device.lower()).strip("-")
    return f"{name}-{of.architecture}-triton-{of.triton}-{of.kernels}.json"


def in_use() -> bool:
    """Whether choices are used: unless MASKALG_TUNED is 0."""
    return os.environ.get(SWITCH) != "0"


def choices_on(device: str, architecture: str, triton: str) -> Choices:
    """The stored choices of a machine with these kernels, or none; never raises."""
    if not in_use() or not files():
        return NOTHING_TUNED
    try:
        here = Machine(device, architecture, triton, kernels_digest())
        return read(path_of(here), here)
    except (Unusable, OSError):
        return NOTHING_TUNED


def read(path: Path, of: Machine | None = None) -> Choices:
    """The choices of a file.

    Args:
        path: the file.
        of: the machine it must have been measured on; None is any.

    Raises:
        Unusable: it is not a file of choices, or one of another machine.
        OSError: it cannot be read.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as problem:
        raise Unusable("not JSON") from problem
    if not isinstance(data, dict) or not isinstance(data.get("choices"), list):
        raise Unusable("not a file of maskalg tune")
    for name, wanted in asdict(of).items() if of is not None else ():
        if data.get(name) != wanted:
            what = {"kernels": "other kernels"}.get(name, f"{name} {data.get(name)!s:.40}")
            raise Unusable(f"measured with {what}")
    return Choices(dict(_entry(entry) for entry in data["choices"]))


def write(choices: Choices, of: Machine) -> Path:
    """Store the choices of a machine, whole or not at all, replacing older ones."""
    entries = [
        {
            **asdict(key),
            "tier": next(name for name, kind in _TILES.items() if type(choice.tile) is kind),
            **asdict(choice),
        }
        for key, choice in sorted(choices.by_key.items(), key=lambda item: str(item[0]))
    ]
    path = path_of(of)
    text = json.dumps({**asdict(of), "choices": entries}, indent=2) + "\n"
    replace(path, text.encode())
    return path


def files() -> list[Path]:
    """All files of choices, of any machine."""
    return sorted(folder().glob("*.json")) if folder().is_dir() else []


def forget() -> list[Path]:
    """Delete all files of choices; returns their paths."""
    found = files()
    for path in found:
        path.unlink(missing_ok=True)
    return found


@lru_cache(maxsize=1)
def kernels_digest() -> str:
    """A digest of the kernels' sources and of the tables they were compared with."""
    kernels = importlib.util.find_spec("maskalg_kernels")
    places = [Path(p) for p in (kernels.submodule_search_locations or ())] if kernels else []
    sources = [path for place in places for path in sorted(place.glob("*.py"))]
    here = Path(__file__).parents[1]
    tables = [here / "forward.py", here / "backward.py", *sorted(here.glob("patterns/*.py"))]
    whole = hashlib.sha256()
    for path in (*sources, *tables):
        whole.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return whole.hexdigest()[:12]


def _entry(entry: Any) -> tuple[Key, Choice]:
    if not isinstance(entry, dict):
        raise Unusable("a choice that is not an object")
    key = Key(
        _one_of(entry, "kernel", KERNELS),
        _one_of(entry, "size", SIZES),
        _one_of(entry, "element_bytes", (2, 4)),
        _one_of(entry, "pattern", tuple(PATTERNS)),
        _one_of(entry, "biased", (False, True)),
    )
    tile = _tile(_TILES[_one_of(entry, "tier", tuple(_TILES))], entry.get("tile"))
    if not legal(key, tile):
        raise Unusable(f"a tile that {key} cannot have")
    spread = entry.get("spread")
    numbers = [entry.get("ratio"), *(spread if isinstance(spread, list) else [])]
    instead_of, measured = entry.get("instead_of"), entry.get("measured")
    if len(numbers) != 3 or not all(type(n) is float for n in numbers):
        raise Unusable("a choice without its ratio")
    if not isinstance(instead_of, str) or not isinstance(measured, str):
        raise Unusable("a choice without what it was compared with")
    return key, Choice(tile, instead_of, numbers[0], (numbers[1], numbers[2]), measured)


def _one_of(entry: dict[str, Any], name: str, known: tuple[Any, ...]) -> Any:
    value = entry.get(name)
    for one in known:
        if type(value) is type(one) and value == one:
            return one
    raise Unusable(f"{name} {value!s:.40} is not known")


def _tile(kind: type[Configuration], fields: Any) -> Configuration:
    """A tile from its fields, which must be complete and of the right types."""
    types = {name: f.type for name, f in kind.__dataclass_fields__.items()}
    if not isinstance(fields, dict) or set(fields) != set(types):
        raise Unusable("a tile of other fields")
    for name, value in fields.items():
        if type(value).__name__ != types[name]:
            raise Unusable(f"a tile whose {name} is {value!s:.40}")
    return kind(**fields)
