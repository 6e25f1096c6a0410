"""How the formulas of hooks are written, which the values of a call decide beside its machine."""

from __future__ import annotations

from dataclasses import dataclass

from .distance_tables import Tabled


@dataclass(frozen=True)
class Style:
    """How formulas are written.

    Attributes:
        wide: compute indices in 64 bits, for numbers near 2**31.
        limbs: of 64 bits, that products and sums of entries may take; beyond `long_integers.LIMBS`
            bounds that take more are left out.
        ptx: decide each element by inline assembly, for NVIDIA.
        long: a table may hold integers of 64 bits, which inline assembly does not compare.
        far: sums of positions and numbers may reach 2**22, and are converted to real numbers by
            the GPU's slow units.
        tabled: which parts of a bias that distances alone decide are read from tables: those that
            read a tensor, or all that cost to compute.
        grain: keys, and the rows of tables that are read key by key, are multiples of so many:
            as many as a thread may load at once.
        bits: which elements of partial tiles a mask keeps is looked up, where computing it costs
            more (`codegen/bits.py`).
        aligned: tiles begin where documents do: those of a loop are counted from the last number
            of `S`, and spans alone say which are visited.
    """

    wide: bool = False
    limbs: int = 1
    ptx: bool = False
    long: bool = False
    far: bool = False
    tabled: Tabled = "nothing"
    grain: int = 1
    bits: bool = False
    aligned: bool = False
