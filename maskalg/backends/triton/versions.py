"""Releases of Triton that the kernels and their launches were tested with."""

from __future__ import annotations

from typing import Final

import triton

TESTED: Final = ("3.6", "3.7", "3.8", "3.9")


def version() -> str:
    """Of this Triton, as it says itself."""
    return str(triton.__version__)


def is_tested() -> bool:
    """Whether this Triton is one of them."""
    return ".".join(version().split(".")[:2]) in TESTED
