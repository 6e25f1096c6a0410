"""Closed forms that another process proved, read from the cache folder.

Importing SymPy takes most of a process's first call, and is not needed if the closed forms are
known. A file is used if only this user can write it, it is complete, and it was written for the
same structure by the same proving code and the same SymPy. Proofs by digits are not stored.
`mask.prove()` and `check()` read no file: they prove in this process.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from contextlib import suppress
from dataclasses import fields
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, cast

from ..engine.cache import IMPORTED, cache_dir, keep, kept
from ..engine.normal_form import Structure
from ..formula.nodes import Node
from ..formula.parameters import Slot
from .closed_forms import ClosedForms, Relation, Residue, Section, Span

enabled = os.name == "posix"  # other systems do not tell who owns a file

_ROOMS: Final = ("formula", "engine", "proof")  # the code of a proof, beside SymPy
_CLASSES: Final = (ClosedForms, Span, Residue, Section, Relation)


class _Other(Exception):
    """Closed forms that are not stored."""


def read(structure: Structure) -> ClosedForms | None:
    """The stored closed forms of a structure's mask; None without a valid file."""
    key = _key(structure)
    if key is None:
        return None
    text = kept(_path(key))
    if text is None:
        return None
    found_key, found = json.loads(text)
    return cast(ClosedForms, _value(found, structure.slots)) if found_key == key else None


def write(structure: Structure, forms: ClosedForms) -> None:
    """Store the closed forms of a structure's mask, if the folder can be written to."""
    key = _key(structure)
    if key is None:
        return
    try:
        text = json.dumps([key, _text(forms)])
    except _Other:
        return
    again = _value(json.loads(text)[1], structure.slots)
    same = again.bounds == forms.bounds and json.dumps([key, _text(again)]) == text
    if same and _code.__wrapped__() == _code():  # the code did not change meanwhile
        with suppress(OSError):
            keep(_path(key), text.encode())


def _key(structure: Structure) -> str | None:
    """The key of stored closed forms, from structure and proving code; None if not stored."""
    if not enabled or "opaque" in structure.mask.ops():
        return None
    try:
        cache_dir()
    except RuntimeError:  # a user without a home
        return None
    code = _code()
    return None if code is None else f"{code} {structure.mask_key}"


@lru_cache(maxsize=1)
def _code() -> str | None:
    """A digest of the proving code; None if a file cannot be read or is newer than this process."""
    package, sympy = Path(__file__).parents[1], find_spec("sympy")
    try:
        if sympy is None or sympy.origin is None:
            return None
        release = Path(sympy.origin).with_name("release.py")
        whole = hashlib.sha256(f"{sys.version} {release.stat().st_mtime_ns}".encode())
        own = sorted(path for room in _ROOMS for path in (package / room).rglob("*.py"))
        for path in (release, *own):
            content = path.read_bytes()
            if path.stat().st_mtime > IMPORTED:
                return None
            whole.update(f"{path.name} {len(content)} ".encode() + content)
    except OSError:
        return None
    return whole.hexdigest()


def _path(key: str) -> Path:
    return cache_dir() / "proofs" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _text(value: Any) -> Any:
    """A value as JSON: a formula, or a dataclass or tuple of formulas and slots."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return [_text(part) for part in value]
    if isinstance(value, Slot):
        return {"Slot": value.index}
    if isinstance(value, Node):
        parts = (value.op, value.kind, value.args, value.data, value.own)
        return {"Node": [_text(part) for part in parts]}
    if type(value) not in _CLASSES:
        raise _Other
    return {type(value).__name__: [_text(getattr(value, f.name)) for f in fields(value)]}


def _value(text: Any, slots: tuple[Slot, ...]) -> Any:
    """The value of a JSON text, with these slots."""
    if isinstance(text, list):
        return tuple([_value(part, slots) for part in text])
    if not isinstance(text, dict):
        return text
    ((name, parts),) = text.items()
    if name == "Slot":
        return slots[parts]
    made = next(one for one in (Node, *_CLASSES) if one.__name__ == name)
    return made(*[_value(part, slots) for part in parts])
