"""C++ to functions: the only access to the machine's compiler, and to its libraries.

A library is compiled once for a text, a compiler and a processor, and kept in the cache folder with
a digest, so that a damaged file is compiled again instead of run. Inductor's `CppCodeCache` does
the same, but importing it takes longer than all of this.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Final

from ....engine.cache import cache_dir, keep, kept

_FLAGS: Final = (
    *("-std=c++17", "-O3", "-pthread", "-fPIC", "-shared"),
    *("-fno-math-errno", "-fno-trapping-math", "-fwrapv", "-w"),
)
_PATIENCE: Final = 120  # seconds for a compiler that hangs


class CompileError(Exception):
    """No compiler, or one that rejects the text: torch's operations compute instead."""


@lru_cache(maxsize=1)
def compiler() -> str | None:
    """The path of a C++ compiler: `$CXX`, else the first of c++, g++ and clang++ that is found."""
    if os.name != "posix":
        return None
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        found = shutil.which(name) if name else None
        if found is not None:
            return found
    return None


def library(source: str, *, fused: bool = False) -> ctypes.CDLL:
    """The library of a text, from the cache folder if it is there.

    Args:
        fused: whether products and sums may be rounded together, which is not allowed for masks.

    Raises:
        CompileError: there is no compiler, or it cannot compile the text.
    """
    cxx = compiler()
    if cxx is None:
        raise CompileError("no C++ compiler: neither $CXX nor c++, g++ or clang++")
    contract = f"-ffp-contract={'fast' if fused else 'off'}"
    native = [] if platform.machine() in ("arm64", "aarch64") else ["-march=native"]
    flags = (*_FLAGS, contract, *native)
    key = "\n".join([cxx, _stamp(cxx), *flags, _processor(), source])
    path = cache_dir() / "native" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.so"
    if kept(path) is not None:
        try:
            return ctypes.CDLL(str(path))
        except OSError:
            pass  # programs may not run from that folder
    return _compiled(cxx, flags, source, path)


def _compiled(cxx: str, flags: tuple[str, ...], source: str, path: Path) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="maskalg") as folder:
        text, binary = Path(folder, "kernel.cpp"), Path(folder, "kernel.so")
        text.write_text(source, encoding="utf-8")
        command = [cxx, *flags, "-o", str(binary), str(text)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE)
        except (OSError, subprocess.SubprocessError) as problem:
            raise CompileError(str(problem)) from problem
        if done.returncode or not binary.is_file():
            raise CompileError(done.stderr.strip() or f"{cxx} made no library")
        made = binary.read_bytes()
        try:
            keep(path, made)
            return ctypes.CDLL(str(path))
        except OSError:
            pass  # the folder cannot be written: the library lives as long as the process
        try:
            return ctypes.CDLL(str(binary))
        except OSError as problem:
            raise CompileError(str(problem)) from problem


def _stamp(cxx: str) -> str:
    """A text that changes if the compiler is replaced, found without running it."""
    status = os.stat(os.path.realpath(cxx))
    return f"{os.path.realpath(cxx)} {status.st_size} {status.st_mtime_ns}"


@lru_cache(maxsize=1)
def _processor() -> str:
    """The processor, on which `-march=native` depends: machines may share a cache folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("model name", "flags", "Features", "CPU part")
    first = [next((line for line in lines if line.startswith(name)), "") for name in wanted]
    return " ".join([platform.machine(), *first])
