"""The argument list of rendered hooks: numbers in the tuple `S`, tables in the tuple `T`.

Kernels take the first `MOST_PASSED` numbers one by one. Further ones lie in a table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from ..formula.nodes import Node
from ..schedule.tiling import Of

MOST_PASSED: Final = 24
"""Numbers that the kernels take one by one."""

_LOAD: Final = "tl.load("


@dataclass(frozen=True)
class ScalarArgument:
    """A number: the value of a slot, or the size of its table along `axis`.

    With `kv_slot`, it is the larger of both tables' sizes along `axis`, the size of their step
    tables. A `real` number is passed as float32 bits in an integer: Triton compiles a launcher for
    the types of a kernel's arguments, and so needs only one for all expressions.
    """

    slot: int
    axis: int | None = None
    kv_slot: int | None = None
    real: bool = False


@dataclass(frozen=True)
class TableArgument:
    """A tensor: the one of a slot, or a step table (`first`, `last`, …) of two slots of ids."""

    slot: int
    step: str | None = None
    kv_slot: int | None = None


@dataclass(frozen=True)
class LayoutArgument:
    """A number of their layout."""

    of: Of
    number: Literal["grain_bits", "of_batch", "of_head"]


@dataclass(frozen=True)
class DivisorArgument:
    """Factors by which a kernel divides by a formula of numbers (`codegen/divisors.py`)."""

    divisor: Node
    part: Literal["factor", "shift"]


@dataclass(frozen=True)
class DistanceTable:
    """Values of a formula of distances, float32 `[heads, distances]`; `[distances]` for all heads
    alike (`backends/triton/arguments.py`)."""

    formula: Node


@dataclass(frozen=True)
class DistanceNumber:
    """A number of a distance table: the length of a `row`, or the place of distance `zero`."""

    number: Literal["row", "zero"]


@dataclass(frozen=True)
class Hooks:
    """Source of the hooks of one structure, and the arguments they read.

    Attributes:
        source: a Python module with the JIT functions named below.
        digest: digest of the source, and the name of its file.
        biased, sloped: whether the module has `biased`, and `slope`.
        additive: whether a bias, if any, is only added to the score.
        ahead: whether the module has `ahead` and `biased_ahead`.
        scalars, tables: the numbers, those of `S` first, and the tables of `T`, in order.
    """

    source: str
    digest: str
    biased: bool
    sloped: bool
    additive: bool
    ahead: bool
    scalars: tuple[Scalar, ...]
    tables: tuple[TableLike, ...]

    def looks_up(self, rows: Of) -> bool:
        """Whether a loop looks bits up: over keys for rows of queries, or the reverse."""
        return any(isinstance(table, BitsTable) and table.rows == rows for table in self.tables)


@dataclass(frozen=True)
class BitsTable:
    """A bit for each pair, computed by the `masked` of these hooks whose name ends with `suffix`
    (`codegen/bits.py`); `rows` are of queries or of keys, and whole unless the bits are `tiled`."""

    hooks: Hooks
    suffix: str
    rows: Of
    tiled: bool


@dataclass(frozen=True)
class MarksArgument:
    """The marked runs (`schedule/rung.py`) of tiles of queries or keys, labelled by any `bits`."""

    of: Of
    bits: BitsTable | None = None


@dataclass(frozen=True)
class BitsNumber:
    """A number of their layout (`backends/triton/kept.BitsLayout`)."""

    rows: Of
    tiled: bool
    number: Literal["step", "of_batch", "of_head"]


@dataclass(frozen=True)
class NumbersTable:
    """The numbers past `MOST_PASSED`, int32."""


Scalar = ScalarArgument | LayoutArgument | DivisorArgument | DistanceNumber | BitsNumber
TableLike = TableArgument | MarksArgument | DistanceTable | BitsTable | NumbersTable


@dataclass
class Arguments:
    """Arguments that the hooks of one expression read: the numbers of `S` and then those of their
    table, and the tables `T`, in order."""

    scalars: list[Scalar] = field(default_factory=list)
    tables: list[TableLike] = field(default_factory=list)

    def scalar(self, argument: Scalar) -> str:
        if argument not in self.scalars:
            self.scalars.append(argument)
        at = self.scalars.index(argument)
        if at < MOST_PASSED:
            return f"S[{at}]"
        return f"{_LOAD}{self.table(NumbersTable())} + {at - MOST_PASSED})"

    def table(self, argument: TableLike) -> str:
        if argument not in self.tables:
            self.tables.append(argument)
        return f"T[{self.tables.index(argument)}]"


def is_loaded(text: str) -> bool:
    """Whether a printed formula loads a number from the table of numbers."""
    return _LOAD in text
