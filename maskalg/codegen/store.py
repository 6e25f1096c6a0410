"""Rendered hooks as modules, whose sources lie in the user's cache folder.

The files are for people and debuggers: the rendered text runs, never a file. A file is written
under another name and renamed, so that processes and threads never see half of it. Formulas that
are compiled again and again with other constants are counted, and a warning names them.
"""

from __future__ import annotations

import linecache
import re
import threading
import warnings
from types import ModuleType
from typing import Final

from ..engine.cache import cache_dir, replace
from ..engine.normal_form import Structure
from ..engine.recent import Recent
from ..errors import RecompilationWarning
from ..formula.printing import formula_text

_LOADED: Final[Recent[str, ModuleType]] = Recent(4096)
_LOCK: Final = threading.Lock()


def load(source: str, digest: str) -> ModuleType:
    """The module of a rendered source, loaded once a process."""
    with _LOCK:
        module = _LOADED.recall(digest)
        if module is None:
            module = _LOADED.keep(digest, _load(source, f"maskalg_hooks_{digest}"))
        return module


def _load(source: str, name: str) -> ModuleType:
    path = cache_dir() / "hooks" / f"{name}.py"
    filename = str(path)
    try:
        if not path.is_file() or path.read_bytes() != source.encode():
            replace(path, source.encode())
    except OSError:
        filename = f"<{name}>"
    # The rendered text runs, whatever the folder holds, and `inspect` and tracebacks show it:
    # without a modification time an entry of linecache is not read again from its file.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    module = ModuleType(name)
    module.__file__ = filename
    exec(compile(source, filename, "exec"), module.__dict__)
    return module


MANY: Final = 16
_NUMBER: Final = re.compile(r"\b\d+(\.\d+)?(e[+-]?\d+)?\b")
_SEEN: Final[Recent[str, set[str]]] = Recent(1024)


def count(structure: Structure) -> None:
    """Warn, once, when a formula has come with `MANY` values of its constants."""
    formula = f"mask {formula_text(structure.mask)}, bias {formula_text(structure.bias)}"
    others = _SEEN.keep(_NUMBER.sub("#", formula), set())
    if len(others) < MANY and formula not in others:
        others.add(formula)
        if len(others) == MANY:
            warnings.warn(recompiled(MANY, formula), stacklevel=2)


def recompiled(times: int, formula: str) -> RecompilationWarning:
    shown = formula if len(formula) <= 300 else f"{formula[:300]}…"
    return RecompilationWarning(
        f"kernels were compiled for {times} values of the constants in `{shown}`. Write a number "
        "that changes as ma.scalar(value), or capture it as a variable of a traced function, and "
        "no kernel is made for another value."
    )
