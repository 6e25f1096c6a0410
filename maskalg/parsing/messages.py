"""Messages of expressions given as text, and of code they are loaded from."""

from __future__ import annotations

from ..errors import MaskalgError, MaskValueError

_AROUND = 32
OF_TENSORS = (
    " Tensors are written as lists, [0, 0, 1], or read by load('ids.npy'); what is in code is "
    "named as file.py:name."
)


def unreadable(text: str, column: int, problem: str) -> MaskValueError:
    """`column` counts characters from 1."""
    return MaskValueError(f"{_excerpt(text, column)} column {column}: {problem}")


def not_an_expression(what: str) -> str:
    return f"this is {what}, not a mask, a bias or a score."


def no_such_place(place: str, problem: str) -> MaskValueError:
    return MaskValueError(
        f"{place!r}: {problem} Write package.module:name or path/to/file.py:name."
    )


def code_refused(place: str, problem: MaskalgError) -> MaskalgError:
    """The error of a mask within the user's code, with the place it was read from."""
    return type(problem)(f"{place!r}: {problem}")


def unloadable(path: str, problem: str) -> MaskValueError:
    return MaskValueError(
        f"load({path!r}): {problem} It reads .npy files and tensors in .pt files."
    )


def too_many_entries(call: str, count: int, limit: int) -> MaskValueError:
    return MaskValueError(
        f"{call}: {count} entries, at most {limit} are made here. Save them to a file and write "
        "load('file.npy'), or write the mask in code and name it as file.py:name."
    )


def _excerpt(text: str, column: int) -> str:
    if len(text) <= 2 * _AROUND:
        return repr(text)
    first, last = max(0, column - 1 - _AROUND), column - 1 + _AROUND
    cut = text[first:last]
    return repr(("…" if first else "") + cut + ("…" if last < len(text) else ""))
