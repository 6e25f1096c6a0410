"""Whether the Gluon kernels can be used here: Gluon is experimental and changes.

Tested releases of Triton are trusted. With any other release, the kernels are compiled and compared
with the plain ones on the user's GPU, once for a device, a release and a version of the kernels, in
a process of its own, so that kernels that hang or fault do no harm. The verdict is kept in the
cache folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import torch
import triton

from ...engine.cache import cache_dir, replace
from ...tiles.tuned.store import file_name
from .constants import architecture
from .tuned import this_machine

TESTED: Final = ("3.6", "3.7", "3.8", "3.9")
"""Releases of Triton that the kernels and their launches were tested with."""

SWITCH: Final = "MASKALG_GLUON"
"""The environment variable that decides it: 0 for the plain kernels, 1 for trust."""

_LONGEST: Final = 600  # seconds of the comparison; Triton compiles some twenty kernels
_COMPARISON: Final = "maskalg.bench.gluon"  # the program, of a later stage than this


class Verdict(NamedTuple):
    """Whether the kernels can be used, and why."""

    serves: bool
    why: str


def version() -> str:
    """The version of this Triton, as it reports it."""
    return str(triton.__version__)


def is_tested() -> bool:
    """Whether this Triton is one of those tested."""
    return ".".join(version().split(".")[:2]) in TESTED


@lru_cache(maxsize=1)
def verdict() -> Verdict:
    """The verdict for this process; a comparison is made where there is none yet."""
    found = known()
    if found is None:
        found = _compared()
        chosen = "They are used" if found.serves else "The plain kernels are used, which are slower"
        warnings.warn(
            f"maskalg's Gluon kernels were not tested with Triton {version()}, so they were tried "
            f"on this GPU: {found.why}. {chosen}; MASKALG_GLUON=0 or 1 decides otherwise.",
            stacklevel=2,
        )
    return found


def has_gluon() -> bool:
    """Whether the Gluon kernels serve."""
    return verdict().serves


def known() -> Verdict | None:
    """The verdict, if it needs no comparison; else None."""
    try:
        import maskalg_kernels.hopper_forward  # noqa: F401
    except (ImportError, AttributeError) as problem:
        return Verdict(False, f"Gluon of Triton {version()} lacks what is used: {problem}")
    switch = os.environ.get(SWITCH)
    if switch in ("0", "1"):
        return Verdict(switch == "1", f"{SWITCH}={switch}")
    if is_tested():
        return Verdict(True, f"tested with Triton {version()}")
    if not torch.cuda.is_available() or architecture(_device()) != "sm_90":
        return Verdict(True, "compiled only: there is no GPU that runs it")
    try:
        stored = json.loads(_place().read_text(encoding="utf-8"))
        return Verdict(bool(stored["serves"]), str(stored["why"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _place() -> Path:
    return cache_dir() / "gluon" / file_name(this_machine(_device()))


def _device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())


def _compared() -> Verdict:
    """The verdict of a comparison, kept in the cache folder."""
    command = [sys.executable, "-m", _COMPARISON, str(torch.cuda.current_device())]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST)
    except subprocess.TimeoutExpired:
        found = Verdict(False, f"the comparison did not end in {_LONGEST} s")
    except OSError as problem:
        return Verdict(False, f"no process could be started: {problem}")
    else:
        lines = ended.stdout.splitlines() or ["ended without a word"]
        if ended.returncode == 0:
            found = Verdict(True, lines[-1])
        else:
            said = lines if ended.returncode == 1 else ended.stderr.splitlines() or lines
            found = Verdict(False, said[-1][:200])
    with suppress(OSError):
        replace(_place(), json.dumps(found._asdict()).encode())
    return found
