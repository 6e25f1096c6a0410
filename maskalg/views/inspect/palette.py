"""The colours of all pictures; people with any colour vision can tell orange from blue."""

from __future__ import annotations

from typing import Final

NAMES: Final = ("empty", "partial", "full")
LIGHT: Final = ("#edf0f4", "#e8963a", "#2f6fd6")
DARK: Final = ("#1d242e", "#f0a54e", "#5b95f5")

# From below zero through zero to above it.
DIVERGING: Final = (
    "#7a3a05",
    "#c46a12",
    "#e8963a",
    "#f6cf9f",
    "#fcfbf9",
    "#b7cdf2",
    "#5b95f5",
    "#2f6fd6",
    "#123a80",
)
DROPPED: Final = "#ccd3dc"
"""The colour of dropped pairs in a heat map, told apart from zero."""
