"""Tensors on their way into a page: runs of equal entries, or the entries, compressed.

Documents, lengths and flags shrink to nearly nothing; what has no structure stays as large as it
is, and a page that would outgrow its limit is refused.
"""

from __future__ import annotations

import base64
import zlib
from typing import Final

import numpy as np
import torch

from .. import messages

Record = dict[str, object]

_EXACT: Final = 2**53  # integers up to it are exact as doubles
_RUNS_PAY: Final = 4  # entries a run must stand for, on average


def table_record(name: str, tensor: torch.Tensor) -> Record:
    """A tensor as what the page rebuilds it from: shape, type, coding, and text in base64.

    Codings: "runs", the lengths of runs and then their differences, as int32 (`length` of each);
    "bits", eight Boolean entries a byte; "plain", differences of int32, or float32 entries, or
    float64 ones for integers beyond 32 bits.

    Raises:
        MaskValueError: entries whose arithmetic a page cannot do as torch does.
    """
    if tensor.is_floating_point() and tensor.dtype != torch.float32:
        raise messages.page_real(name, tensor.dtype)
    array = tensor.detach().cpu().contiguous().flatten()
    if array.dtype == torch.int64 and bool(((array > _EXACT) | (array < -_EXACT)).any()):
        raise messages.page_integers(name)
    record: Record = {"name": name, "shape": list(tensor.shape), "type": _type(array)}
    if record["type"] in ("float32", "float64"):
        wide = torch.float32 if record["type"] == "float32" else torch.float64
        return {**record, "coding": "plain", "data": _packed(array.to(wide).numpy())}
    entries = array.to(torch.uint8 if record["type"] == "bool" else torch.int64).numpy()
    changes = np.flatnonzero(entries[1:] != entries[:-1]) + 1
    starts = np.concatenate([np.zeros(min(len(entries), 1), dtype=np.int64), changes])
    if len(starts) * _RUNS_PAY <= len(entries):
        lengths = np.diff(starts, append=len(entries))
        both = np.concatenate([lengths, _differences(entries[starts])])
        return {**record, "coding": "runs", "data": _packed(both.astype("<i4"))}
    if record["type"] == "bool":
        bits = np.packbits(entries, bitorder="little")
        return {**record, "coding": "bits", "data": _packed(bits)}
    return {**record, "coding": "plain", "data": _packed(_differences(entries))}


def _type(array: torch.Tensor) -> str:
    if array.dtype == torch.bool:
        return "bool"
    if array.dtype.is_floating_point:
        return "float32"
    limits = (int(array.min()), int(array.max())) if array.numel() else (0, 0)
    return "int32" if limits[0] >= -(2**31) and limits[1] < 2**31 else "float64"


def _differences(entries: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """Each entry less the one before, wrapped to 32 bits, which adding up undoes."""
    return np.diff(entries.astype(np.int64), prepend=0).astype(np.uint32).view("<i4")


def _packed(array: np.ndarray) -> str:  # type: ignore[type-arg]
    """The bytes of an array, those of one place together, so that small numbers shrink.

    At zlib's usual level: its last one takes thirty times the time on differences without order,
    for two per cent.
    """
    size = array.itemsize
    planes = array.reshape(-1).view(np.uint8).reshape(-1, size).T
    return base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode()
