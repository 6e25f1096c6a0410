"""How the formulas of hooks are written, which depends on the machine and on values of the call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from .distance_tables import Tabled

Bits: TypeAlias = Literal["", "rows", "tiles"]


@dataclass(frozen=True)
class Style:
    """How formulas are written.

    Attributes:
        wide: compute indices in 64 bits, for numbers near 2**31.
        limbs: limbs of 64 bits that products and sums of entries may need; bounds that need more
            than `long_integers.LIMBS` are left out.
        ptx: decide each element by inline assembly, for NVIDIA.
        long: a table may hold integers of 64 bits, which inline assembly does not compare.
        far: sums of positions and numbers may reach 2**22, and are converted to real numbers by
            the GPU's slow units.
        tabled: which parts of a bias that depend on distances alone are read from tables: those
            that read a tensor, or all costly ones.
        grain: the number of keys, and rows of tables read key by key, are multiples of it: as many
            entries as a thread may load at once.
        bits: look up the mask of partial tiles if it costs more to compute (`codegen/bits.py`):
            bits of whole "rows", or those of partial "tiles" alone; "" computes the mask.
        scattered: ids that the mask compares lie in no order, so that bounds do not decide it.
        few_tiles: the tiles are one row of so few that labelling them takes longer than it saves:
            spans alone choose tiles, also where they are inexact.
        aligned: tiles begin where documents do: a loop counts its tiles from the last number of
            `S`, and spans alone choose them.
    """

    wide: bool = False
    limbs: int = 1
    ptx: bool = False
    long: bool = False
    far: bool = False
    tabled: Tabled = "nothing"
    grain: int = 1
    bits: Bits = ""
    scattered: bool = False
    few_tiles: bool = False
    aligned: bool = False
