"""How a notebook shows values and what they answer with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# One function that makes HTML of any `Shown`, or None of what cannot be drawn. Pictures stand above
# everything they draw, so the package puts it here (`maskalg/__init__.py`).
HTML: Final[list[Callable[[Shown], str | None]]] = []


class Shown:
    """Base of masks, biases, scores, proofs, block maps and segments."""

    def _repr_html_(self) -> str | None:
        """HTML for Jupyter; None where nothing can be drawn."""
        return HTML[0](self) if HTML else None
