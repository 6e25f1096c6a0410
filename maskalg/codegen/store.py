"""Rendered hooks as importable modules, in the user's cache folder.

The source lies in a file, so that tracebacks, `inspect` and Triton find it. It is written under
another name and renamed, so that processes and threads never see half of it. Where nothing can be
written it lives in memory alone.
"""

from __future__ import annotations

import importlib.util
import linecache
import os
import tempfile
import threading
from pathlib import Path
from types import ModuleType
from typing import Final

from ..engine.recent import Recent

_LOADED: Final[Recent[str, ModuleType]] = Recent(4096)
_LOCK: Final = threading.Lock()


def cache_dir() -> Path:
    """Where rendered sources and tuned tiles are kept: `$XDG_CACHE_HOME/maskalg`, or
    `~/.cache/maskalg` where that variable is not set.

    Kernels that Triton compiled lie in its own cache: `$TRITON_CACHE_DIR`, or `~/.triton/cache`.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "maskalg"


def load(source: str, digest: str) -> ModuleType:
    """The module of a rendered source, loaded once a process."""
    with _LOCK:
        module = _LOADED.recall(digest)
        if module is None:
            module = _LOADED.keep(digest, _load(source, f"maskalg_hooks_{digest}"))
        return module


def _load(source: str, name: str) -> ModuleType:
    path = cache_dir() / "hooks" / f"{name}.py"
    try:
        if not path.is_file() or path.read_text() != source:
            replace(path, source)
    except OSError:
        return _in_memory(source, name)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def replace(path: Path, text: str) -> None:
    """Write a file whole or not at all, in place of what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, suffix=".tmp", delete=False, encoding="utf-8"
    ) as file:
        file.write(text)
    os.replace(file.name, path)


def _in_memory(source: str, name: str) -> ModuleType:
    filename = f"<{name}>"
    lines = source.splitlines(keepends=True)
    # Without a modification time the entry outlives `linecache.checkcache`.
    linecache.cache[filename] = (len(source), None, lines, filename)
    module = ModuleType(name)
    module.__file__ = filename
    exec(compile(source, filename, "exec"), module.__dict__)
    return module
