"""Cells of a matrix as the steps of an SVG path."""

from __future__ import annotations

from collections.abc import Iterator

import torch


def stretches(marked: torch.Tensor) -> Iterator[tuple[int, tuple[int, int]]]:
    """The row, and first and one past the last column, of each stretch of True."""
    for row, flags in enumerate(marked.tolist()):
        first = None
        for column, flag in enumerate([*flags, False]):
            if flag and first is None:
                first = column
            elif not flag and first is not None:
                yield row, (first, column)
                first = None


def number(value: float) -> str:
    """A coordinate with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
