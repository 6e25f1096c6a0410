"""Closed forms as the text of the kernel's loop bounds.

Each interval of keys becomes one pair of tile numbers, computed from the tile of queries; the
kernel library walks the runs between them (`maskalg_kernels.runs`).
"""

from __future__ import annotations

from ..formula.nodes import Node
from ..proof.closed_forms import ClosedForms, Span, in_kernels
from .text import long_integers
from .text.triton import TritonText


def bounds_text(
    forms: ClosedForms, text: TritonText, found: str, origin: str = ""
) -> tuple[str, ...]:
    """The body of a hook for a mask with these closed forms: its intervals, and `return found`.

    Tiles are counted from `origin`, if any.

    If forms are `simplified`, every tile is visited and masked: sound, and `explain` says so.
    """
    if forms.simplified:
        touched = unfull = [_counted("0", "kv_len - 1", "True", origin)]
    else:
        touched = [_tiles(span, text, origin) for span in forms.touched]
        unfull = [_tiles(span, text, origin) for span in forms.unfull]
    return (
        *text.lines,
        *_tuple("touched", touched),
        *_tuple("unfull", unfull),
        f"return {found}",
    )


def _tuple(name: str, members: list[str]) -> list[str]:
    if not members:
        return [f"{name} = ()"]
    return [f"{name} = (", *(f"    {member}," for member in members), ")"]


def _tiles(span: Span, text: TritonText, origin: str) -> str:
    """One interval, without bounds that kernels do not get."""
    lows, highs, guards = (
        [bound for bound in bounds if in_kernels(bound) and not _too_long(bound, text)]
        for bounds in (span.lows, span.highs, span.guards)
    )
    low = _extreme("tl.maximum", lows, "0", text)
    high = _extreme("tl.minimum", highs, "kv_len - 1", text)
    held = " & ".join([f"({text(guard)} >= 0)" for guard in guards])
    return _counted(low, high, held or "True", origin)


def _counted(low: str, high: str, held: str, origin: str) -> str:
    """The tiles of an interval."""
    if not origin:
        return f"tiles({low}, {high}, {held}, kv_len, BLOCK)"
    low, high, length = (f"({bound}) - {origin}" for bound in (low, high, "kv_len"))
    return f"tiles({low}, {high}, {held}, {length}, BLOCK)"


def _extreme(function: str, bounds: list[Node], default: str, text: TritonText) -> str:
    if not bounds:
        return default
    result = text(bounds[0])
    for bound in bounds[1:]:
        result = f"{function}({result}, {text(bound)})"
    return result


def _too_long(bound: Node, text: TritonText) -> bool:
    """Whether a bound may need more bits than kernels compute."""
    return text.limbs > long_integers.LIMBS and long_integers.is_long(bound, wide=text.wide)
