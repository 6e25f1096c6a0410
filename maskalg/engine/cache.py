"""The cache folder, and how files in it are written."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import time
from pathlib import Path
from typing import Final

IMPORTED: Final = time.time()
"""When the package was imported: code that was written later is not running."""


def cache_dir() -> Path:
    """The folder of proofs, rendered sources and tuned tiles: `$XDG_CACHE_HOME/maskalg`, or
    `~/.cache/maskalg` if that variable is not set.

    Kernels that Triton compiled lie in its own cache: `$TRITON_CACHE_DIR`, or `~/.triton/cache`.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "maskalg"


def replace(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, replacing an older one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
        file.write(content)
    os.replace(file.name, path)


_DIGEST: Final = 32  # bytes at the end of a file that is checked


def keep(path: Path, content: bytes) -> None:
    """Write a file for `kept`, with a digest at its end."""
    replace(path, content + hashlib.sha256(content).digest())


def kept(path: Path) -> bytes | None:
    """The content of a file that `keep` wrote; None if it is missing or damaged, and unless this
    user owns it and nobody else may write it, which POSIX systems alone tell."""
    if os.name != "posix":
        return None
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return None
            whole = file.read()
    except OSError:
        return None
    content, digest = whole[:-_DIGEST], whole[-_DIGEST:]
    return content if hashlib.sha256(content).digest() == digest else None
