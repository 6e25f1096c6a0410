"""Tensors in the text of an expression: lists, `lengths`, `arange` and `load`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import torch

from .. import errors
from ..formula.parameters import whole_number

MOST_ENTRIES: Final = 2**26
MOST_LISTED: Final = 2**22
_INT32: Final = 2**31


class Listed(list[object]):
    """A list that counts its numbers, including those of inner lists."""

    def __init__(self, parts: list[object], numbers: int) -> None:
        if max(numbers, len(parts)) > MOST_LISTED:
            raise too_many_entries("a list", max(numbers, len(parts)), MOST_LISTED)
        super().__init__(parts)
        self.numbers = numbers


def listed(parts: list[object]) -> Listed:
    """Numbers and lists of them, `[[0, 1], [1, 1]]`."""
    return Listed(parts, sum(max(p.numbers, 1) if isinstance(p, Listed) else 1 for p in parts))


def joined(first: Listed, second: Listed) -> Listed:
    """`[0] + [1, 1]`, as in Python."""
    return Listed([*first, *second], first.numbers + second.numbers)


def tensor_of(entries: Listed) -> torch.Tensor:
    """A list as a tensor: Boolean, int32 (int64 for larger integers, or none) or float32."""
    kinds = set(_kinds_in(entries))
    if not kinds <= {bool, int, float} or (bool in kinds and len(kinds) > 1):
        raise errors.tensor_dtype("a list", "an entry", _kinds(kinds), "a number, or all are bool")
    try:
        dtype = torch.float32 if float in kinds else None if kinds else torch.int64
        made = torch.tensor(entries, dtype=dtype)
    except (ValueError, TypeError, RuntimeError, OverflowError) as problem:
        raise errors.tensor_shape("a list", "it", str(problem), "rows of one length") from None
    return _narrow(made)


def lengths(*tokens: int | torch.Tensor, total: int | None = None) -> torch.Tensor:
    """Ids of documents of the given lengths: `lengths(2, 3)` is `[0, 0, 1, 1, 1]`.

    Args:
        tokens: tokens of each document, >= 0; or one list of them.
        total: length of the sequence where it is longer; positions past the documents belong to
            none, which is a document of its own with id -1.
    """
    given: list[int] = []
    for part in tokens:
        if isinstance(part, torch.Tensor) and part.ndim == 1 and part.dtype == torch.int32:
            given += part.tolist()
        elif isinstance(part, int) and not isinstance(part, bool):
            given.append(part)
        else:
            raise errors.not_an_integer("lengths", "tokens", part, 0)
    for length in given:
        if length < 0:
            raise errors.below("lengths", "tokens", length, 0)
    length = sum(given)
    rest = 0 if total is None else whole_number("lengths", "total", total, 0) - length
    if rest < 0:
        raise errors.below("lengths", "total", length + rest, length)
    _check_count("lengths", length + rest)
    ids = torch.arange(len(given), dtype=torch.int32).repeat_interleave(torch.tensor(given).long())
    return torch.cat([ids, torch.full((rest,), -1, dtype=torch.int32)])


def arange(length: int) -> torch.Tensor:
    """The positions 0, 1, … `length` - 1; `arange(4096) // 512` are ids of eight documents."""
    _check_count("arange", whole_number("arange", "length", length, 0))
    return torch.arange(length, dtype=torch.int32)


def load(path: str) -> torch.Tensor:
    """The array of a .npy file, or the tensor of a .pt file (without running code in it)."""
    if not isinstance(path, str):
        raise unloadable(str(path), "the path must be a text in quotes.")
    if Path(path).suffix not in (".npy", ".pt"):
        raise unloadable(path, "an unknown kind of file.")
    try:
        if path.endswith(".npy"):
            return torch.from_numpy(np.load(path, allow_pickle=False))
        found = torch.load(path, weights_only=True)
    except Exception as problem:
        # Whatever the error of the file, report its name and the reason.
        said = "" if isinstance(problem, KeyError) else str(problem)
        reason = said.splitlines()[0] if said else "its content is not of that kind"
        raise unloadable(path, f"{reason.rstrip('.')}.") from None
    if not isinstance(found, torch.Tensor):
        raise unloadable(path, f"it holds a {type(found).__name__}, not a tensor.")
    if found.is_meta or found.layout != torch.strided:
        kind = "meta" if found.is_meta else found.layout
        raise unloadable(path, f"it holds a tensor without plain entries ({kind}).")
    return found


def repeated(entries: Listed, times: int) -> Listed:
    """`[512] * 4`, as in Python."""
    times = max(times, 0)
    most = max(entries.numbers, len(entries)) * times
    if most > MOST_LISTED:
        raise too_many_entries("a list", most, MOST_LISTED)
    return Listed(list(entries) * times, entries.numbers * times)


def _narrow(made: torch.Tensor) -> torch.Tensor:
    if made.dtype != torch.int64:
        return made
    fits = made.numel() == 0 or (int(made.min()) >= -_INT32 and int(made.max()) < _INT32)
    return made.int() if fits else made


def _kinds_in(entries: Listed) -> Iterator[type]:
    for entry in entries:
        if isinstance(entry, Listed):
            yield from _kinds_in(entry)
        else:
            yield type(entry)


def _kinds(kinds: set[type]) -> str:
    return " and ".join(sorted(kind.__name__ for kind in kinds))


def _check_count(call: str, count: int) -> None:
    if count > MOST_ENTRIES or not math.isfinite(count):
        raise too_many_entries(call, count, MOST_ENTRIES)


def unloadable(path: str, problem: str) -> errors.MaskValueError:
    return errors.MaskValueError(
        f"load({path!r}): {problem} It reads .npy files and tensors in .pt files."
    )


def too_many_entries(call: str, count: int, limit: int) -> errors.MaskValueError:
    return errors.MaskValueError(
        f"{call}: {count} entries, at most {limit} are made here. Save them to a file and write "
        "load('file.npy'), or write the mask in code and name it as file.py:name."
    )
