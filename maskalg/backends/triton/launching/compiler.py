"""Failures of Triton's compiler, distinguished from others."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import triton


class CompilerError(Exception):
    """Triton's compiler failed on a kernel; the text says which, and what Triton said."""


@contextmanager
def naming_the_compiler(kernel: Any) -> Iterator[None]:
    """Raises errors of Triton's compiler, which have many types, as CompilerError."""
    try:
        yield
    except triton.runtime.errors.OutOfResources:
        raise
    except Exception as problem:
        if not _of_compiler(problem):
            raise
        raise CompilerError(f"{kernel.fn.__name__}: {problem}") from problem


def _of_compiler(problem: Exception) -> bool:
    """Whether an error was raised in Triton's compiler, and not while loading kernels."""
    frames = [frame.f_code for frame, _ in traceback.walk_tb(problem.__traceback__)]
    if any(code.co_name == "_init_handles" for code in frames):
        return False
    files = [code.co_filename.replace("\\", "/") for code in frames]
    return any("/triton/" in file and "compiler" in file for file in files)
