"""`maskalg doctor`: what this machine can run, and why it cannot run the rest."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
from dataclasses import dataclass
from typing import Final

import torch

from .. import __version__
from ..backends.choice import TRAITS
from . import machine
from .machine import Cache, Gpu, Triton, Tuned

HELP: Final = "what this machine can run, and what the rest needs"
DESCRIPTION: Final = (
    "Versions, GPUs, backends, kernel tiers, optional libraries, tuned tiles and "
    "the cache of rendered kernels: what can be used on this machine, and what to do about the "
    "rest."
)


@dataclass(frozen=True)
class Backend:
    """A backend of `attention`: whether it runs here, and how, or why not."""

    name: str
    runs: bool
    note: str


@dataclass(frozen=True)
class Tier:
    """A family of GPU kernels: whether a GPU of this machine would run it, and why."""

    name: str
    used: bool
    note: str


@dataclass(frozen=True)
class Report:
    """Findings, in the order in which they are printed."""

    maskalg: str
    python: str
    platform: str
    torch: str
    triton: Triton
    cpu_threads: int
    gpus: tuple[Gpu, ...]
    backends: tuple[Backend, ...]
    tiers: tuple[Tier, ...]
    extras: dict[str, str]
    tuned: tuple[Tuned, ...]
    cache: Cache

    def __str__(self) -> str:
        gpus = [f"{gpu.name}, {gpu.architecture}, {gpu.memory_gib} GiB" for gpu in self.gpus]
        rows = [
            ("maskalg", self.maskalg),
            ("Python", f"{self.python} on {self.platform}"),
            ("torch", self.torch),
            ("Triton", self.triton.note),
            ("Gluon", self.triton.gluon_note),
            ("CPU", f"torch uses {self.cpu_threads} of {os.cpu_count()} processors"),
            *(("GPU", gpu) for gpu in gpus or [machine.why_no_gpu()]),
            *(("backend", _line(b.name, b.runs, b.note)) for b in self.backends),
            *(("tier", _line(t.name, t.used, t.note)) for t in self.tiers),
            *(("extra", f"{name:<16} {note}") for name, note in self.extras.items()),
            *(("tuned", note) for note in self._tuned()),
            ("cache", self.cache.note),
        ]
        return "\n".join(f"{name:<9} {text}" for name, text in rows)

    def _tuned(self) -> list[str]:
        nothing = "nothing: tiles are those of the package's tables, see maskalg tune --help"
        return [tuned.note for tuned in self.tuned] or [nothing]


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Print the report; the exit status is 0 whatever was found."""
    report = examine()
    print(json.dumps(dataclasses.asdict(report), indent=2) if options.json else report)
    return 0


def examine() -> Report:
    """Look at this machine. Nothing is compiled, and nothing is left behind."""
    triton, gpus = machine.triton(), machine.gpus()
    return Report(
        maskalg=__version__,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        torch=machine.torch_build(),
        triton=triton,
        cpu_threads=torch.get_num_threads(),
        gpus=gpus,
        backends=backends(triton, gpus),
        tiers=tiers(triton, gpus),
        extras=machine.extras(),
        tuned=machine.tuned(triton, gpus),
        cache=machine.cache(),
    )


def backends(triton: Triton, gpus: tuple[Gpu, ...]) -> tuple[Backend, ...]:
    """Whether each backend runs, from the findings."""
    if triton.version is None:
        kernels = Backend("triton", False, triton.note)
    elif not gpus:
        note = f"{machine.why_no_gpu()}; TRITON_INTERPRET=1 runs small calls on the CPU"
        kernels = Backend("triton", False, note)
    else:
        kernels = Backend("triton", True, ", ".join(sorted({gpu.architecture for gpu in gpus})))
    others = [(name, traits.where) for name, traits in TRAITS.items() if traits.where is not None]
    return kernels, *(
        Backend(n, True, where() if callable(where) else where) for n, where in others
    )


def tiers(triton: Triton, gpus: tuple[Gpu, ...]) -> tuple[Tier, ...]:
    """Which kernels the GPUs would run: see `maskalg.explain` for one call."""
    from ..tiles.forward import hopper_tile_for

    why = triton.note if triton.version is None else None if gpus else "no GPU that torch can use"
    if why is not None:
        return Tier("plain Triton", False, why), Tier("Gluon on Hopper", False, why)
    hopper = [
        gpu.architecture
        for gpu in gpus
        if hopper_tile_for(gpu.architecture, 128, 2, "dense", biased=False) is not None
    ]
    plain = Tier("plain Triton", True, "every call that no other tier serves")
    if not hopper:
        found = ", ".join(sorted({gpu.architecture for gpu in gpus}))
        return plain, Tier("Gluon on Hopper", False, f"needs sm_90, found {found}")
    if not triton.gluon:
        return plain, Tier("Gluon on Hopper", False, triton.gluon_note)
    return plain, Tier(
        "Gluon on Hopper", True, "half precision, where maskalg.tiles.forward says so"
    )


def _line(name: str, holds: bool, note: str) -> str:
    return f"{name:<16} {'yes' if holds else 'no':<4} {note}"
