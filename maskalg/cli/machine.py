"""Facts that `maskalg doctor` prints: versions, GPUs, optional libraries, the cache folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

import torch

from ..engine.cache import cache_dir
from ..tiles.tuned import store

_NOT_A_FEATURE: Final = "dev"  # the extra of people who work on maskalg itself


@dataclass(frozen=True)
class Triton:
    """The installed Triton: its version, None where it does not import, and whether its Gluon is
    one the Hopper kernels were tested with."""

    version: str | None
    note: str
    gluon: bool
    gluon_note: str


@dataclass(frozen=True)
class Gpu:
    """A GPU that torch can use; `architecture` as `maskalg.tiles.forward` names it."""

    name: str
    architecture: str
    memory_gib: int


@dataclass(frozen=True)
class Cache:
    """The folder of rendered kernels: `maskalg.cache_dir()`."""

    path: str
    files: int
    kilobytes: int
    writable: bool

    @property
    def note(self) -> str:
        if not self.writable:
            return f"{self.path} cannot be written: rendered kernels stay in memory"
        return f"{self.path}: {self.files} files, {self.kilobytes} KiB"


@dataclass(frozen=True)
class Tuned:
    """A file of `maskalg tune`: whether a GPU here uses it, and its contents or the reason."""

    path: str
    used: bool
    note: str


def triton() -> Triton:
    """Import the kernels' Triton, as the backend does."""
    try:
        from ..backends.triton import trust
    except ImportError as problem:
        why = f"does not import ({problem}): pip install triton (Linux)"
        return Triton(None, why, False, "needs Triton")
    version, found = trust.version(), trust.known()
    note = version
    if not trust.is_tested():
        tested = ", ".join(trust.TESTED)
        note += f", not one of those tested ({tested}): a call takes some 0.2 ms longer to launch"
    if found is None:
        return Triton(version, note, False, "compared with the plain kernels at the first call")
    return Triton(version, note, found.serves, found.why if found.serves else f"no: {found.why}")


def gpus() -> tuple[Gpu, ...]:
    """The GPUs that torch can use."""
    found = []
    for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        properties = torch.cuda.get_device_properties(i)
        if torch.version.hip is not None:
            architecture = properties.gcnArchName.split(":")[0]
        else:
            architecture = f"sm_{properties.major}{properties.minor}"
        found.append(Gpu(properties.name, architecture, round(properties.total_memory / 2**30)))
    return tuple(found)


def why_no_gpu() -> str:
    """The reason why torch sees no GPU."""
    driver = _driver()
    if torch.version.cuda is None and torch.version.hip is None:
        present = f" (the machine has driver {driver})" if driver else ""
        return f"torch {torch.__version__} is built without CUDA and ROCm{present}"
    if driver:
        return f"torch finds no device, driver {driver}: see torch.cuda.is_available()"
    return "torch finds no device, and there is no nvidia-smi"


def torch_build() -> str:
    """The version of torch, the platform it was built for, and the driver."""
    if torch.version.hip is not None:
        return f"{torch.__version__}, ROCm {torch.version.hip}"
    if torch.version.cuda is None:
        return f"{torch.__version__}, CPU only"
    return f"{torch.__version__}, CUDA {torch.version.cuda}, driver {_driver() or 'unknown'}"


def _driver() -> str | None:
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    query = [command, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.partition("\n")[0].strip() or None


def extras() -> dict[str, str]:
    """Each extra of the package: the version installed for it, or the command to install it."""
    try:
        about = metadata.metadata("maskalg")
    except metadata.PackageNotFoundError:
        return {}
    needed: dict[str, list[str]] = {
        name: [] for name in about.get_all("Provides-Extra") or [] if name != _NOT_A_FEATURE
    }
    for requirement in about.get_all("Requires-Dist") or []:
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", requirement)
        name = re.match(r"[\w.-]+", requirement)
        if extra and name and extra[1] in needed and name[0] != "maskalg":
            needed[extra[1]].append(name[0])
    return {extra: _installed(extra, names) for extra, names in needed.items()}


def _installed(extra: str, names: list[str]) -> str:
    versions = []
    for name in names:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            return f"no: {name} is missing: pip install 'maskalg[{extra}]'"
    return "yes: " + ", ".join(versions)


def cache() -> Cache:
    """The cache folder, which is not made where it is missing."""
    path = cache_dir()
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else []
    size = sum(file.stat().st_size for file in files)
    return Cache(str(path), len(files), size // 1024, _writable(path))


def tuned(triton: Triton, gpus: tuple[Gpu, ...]) -> tuple[Tuned, ...]:
    """Every file of `maskalg tune` in the cache folder."""
    here = [
        store.Machine(gpu.name, gpu.architecture, triton.version, store.kernels_digest())
        for gpu in dict.fromkeys(gpus)
        if triton.version is not None and store.files()
    ]
    return tuple(_tuned(path, here) for path in store.files())


def _tuned(path: Path, here: list[store.Machine]) -> Tuned:
    why = "no GPU of this machine could use it"
    # The machine of the file comes last, so that its reason is reported.
    for one in sorted(here, key=lambda machine: store.path_of(machine) == path):
        try:
            choices = store.read(path, one)
        except (store.Unusable, OSError) as problem:
            why = str(problem)
            continue
        dates = sorted(choice.measured[:10] for choice in choices.by_key.values())
        count = f"{len(dates)} tile{'s' if len(dates) != 1 else ''}"
        held = f"{one.device}: {count}" + (f", {dates[-1]}" if dates else "")
        if store.in_use():
            return Tuned(str(path), True, f"{held}; remove with maskalg tune --forget: {path}")
        return Tuned(str(path), False, f"set aside by {store.SWITCH}=0: {held}: {path}")
    return Tuned(str(path), False, f"ignored, {why}: {path}")


def _writable(path: Path) -> bool:
    while not path.exists() and path != path.parent:
        path = path.parent
    return path.is_dir() and os.access(path, os.W_OK | os.X_OK)
