"""The cache folder, and how files in it are written."""

from __future__ import annotations

import os
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
