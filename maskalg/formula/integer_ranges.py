"""Interval arithmetic of integers: the least and the most an operation gives, by its arguments'."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

Interval = tuple[int, int]


def _add(parts: list[Interval]) -> Interval:
    return sum(low for low, _ in parts), sum(high for _, high in parts)


def _mul(parts: list[Interval]) -> Interval:
    low, high = 1, 1
    for a, b in parts:
        corners = (low * a, low * b, high * a, high * b)
        low, high = min(corners), max(corners)
    return low, high


def _floordiv(parts: list[Interval]) -> Interval | None:
    (a, b), (c, d) = parts
    if c < 1:
        return None
    corners = (a // c, a // d, b // c, b // d)
    return min(corners), max(corners)


def _mod(parts: list[Interval]) -> Interval | None:
    (a, b), (c, d) = parts
    if c < 1:
        return None
    return (a, b) if a >= 0 and b < c else (0, d - 1)


def _bitand(parts: list[Interval]) -> Interval | None:
    highs = [high for low, high in parts if low >= 0]
    return (0, min(highs)) if highs else None


RULES: Final[dict[str, Callable[[list[Interval]], Interval | None]]] = {
    "add": _add,
    "mul": _mul,
    "floordiv": _floordiv,
    "mod": _mod,
    "min": lambda parts: (min(a for a, _ in parts), min(b for _, b in parts)),
    "max": lambda parts: (max(a for a, _ in parts), max(b for _, b in parts)),
    "bitand": _bitand,
}
