"""Expressions from the user's own code: `module:name` and `path/to/file.py:name`.

This imports the module, that is, it runs the user's file, as `python file.py` would.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from .. import errors, tracing
from ..formula.expression import Expression
from ..values.algebra import Bias, Mask, Score
from .reader import parse

# The text of an expression has no colon outside of quotes, since it has no slices.
_PLACE: Final = re.compile(r"(?P<module>[^'\"()\[\]]+):(?P<name>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)")
_OF_MASK_MOD: Final = 4
_OF_SCORE_MOD: Final = 5


def is_place(text: str) -> bool:
    """Whether a text names code, such as `module:name`, and is not an expression."""
    return _PLACE.fullmatch(text.strip()) is not None


def read(text: str) -> Mask | Bias | Score:
    """The expression of a text, or of the code that the text names.

    See `parse` for texts, which run no code, and `loaded` for places such as
    `models/masks.py:packed`, which run that file.
    """
    return loaded(text) if isinstance(text, str) and is_place(text) else parse(text)


def loaded(place: str) -> Mask | Bias | Score:
    """The expression at `module:name` or `path/to/file.py:name`; imports (runs) the module.

    The name is an expression; a function without arguments that returns one; or a FlexAttention
    function, `mask_mod(b, h, q_idx, kv_idx)` or `score_mod(score, b, h, q_idx, kv_idx)`, which is
    traced. Modules are looked for in the current folder, too.
    """
    found = _PLACE.fullmatch(place.strip())
    if found is None:
        raise no_such_place(place, "this names no code.")
    module = _module(place, found["module"])
    value: Any = module
    for part in found["name"].split("."):
        names = [name for name in dir(value) if not name.startswith("_")]
        try:
            value = getattr(value, part)
        except AttributeError:
            hint = errors.near(part, names)
            raise no_such_place(place, f"it holds no {part!r}.{hint}") from None
    if callable(value) and not isinstance(value, Expression):
        value = _made(place, value)
    if not isinstance(value, (Mask, Bias, Score)):
        kind = type(value).__name__
        what = f"it holds a value of type {kind}, not a mask, a bias, a score or a function."
        raise no_such_place(place, what)
    return value


def _module(place: str, name: str) -> ModuleType:
    path = Path(name).expanduser()
    if path.suffix == ".py":
        if not path.is_file():
            raise no_such_place(place, f"there is no file {str(path)!r}.")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        loader = spec.loader
        assert loader is not None
        module = importlib.util.module_from_spec(spec)
        # As for `python file.py`: neighbours can be imported, and classes find their module.
        sys.path.insert(0, str(path.resolve().parent))
        sys.modules.setdefault(path.stem, module)
        _running(place, lambda: loader.exec_module(module))
        return module
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        importlib.invalidate_caches()
        missing = importlib.util.find_spec(name) is None
    except (ImportError, ValueError):
        missing = True
    if missing:
        raise no_such_place(place, f"there is no module {name!r}.")
    module = _running(place, lambda: importlib.import_module(name))
    assert isinstance(module, ModuleType)
    return module


def _made(place: str, function: Callable[..., Any]) -> Any:
    """The expression of a function: its result, or its trace."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise no_such_place(place, "it holds a function without a signature.") from None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in parameters if p.default is p.empty and p.kind in kinds]
    if not needed:
        return _running(place, function)
    if len(needed) == _OF_MASK_MOD:
        return tracing.mask(function)
    if len(needed) == _OF_SCORE_MOD:
        return tracing.score(function)
    names = ", ".join(p.name for p in needed)
    what = (
        f"its function needs ({names}); it may need nothing and return a mask, or be a "
        "mask_mod(b, h, q_idx, kv_idx) or a score_mod(score, b, h, q_idx, kv_idx)."
    )
    raise no_such_place(place, what)


def _running(place: str, run: Callable[[], Any]) -> Any:
    """The result of the user's code; its errors are reported as one line."""
    try:
        return run()
    except errors.MaskalgError as problem:
        raise code_refused(place, problem) from problem
    except (Exception, SystemExit) as problem:
        raise errors.MaskValueError(
            f"{place!r}: running it raised {type(problem).__name__}: {problem}"
        ) from problem


def no_such_place(place: str, problem: str) -> errors.MaskValueError:
    return errors.MaskValueError(
        f"{place!r}: {problem} Write package.module:name or path/to/file.py:name."
    )


def code_refused(place: str, problem: errors.MaskalgError) -> errors.MaskalgError:
    """The error for a mask in the user's code, with the place it was read from."""
    return type(problem)(f"{place!r}: {problem}")
