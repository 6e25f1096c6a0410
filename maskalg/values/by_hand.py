"""Second definitions of the catalogue's entries: loops over pairs, sizes, and the types of rows.

Beside its formula each entry has a second definition in plain numpy, `NAME_by_hand`, to be read
against the formula. It shares no code with the rest of the package: it exists to disagree with it.

For a mask it returns a Boolean array `[batch, heads, q_len, kv_len]`, True where the key is kept;
batch and heads are 1 where the formula does not depend on them. Entry `[b, h, i, j]` is the mask at
the global positions `q = i + q_shift` and `k = j + kv_shift`. A position outside of a given array
raises `IndexError`; negative positions never wrap around. For a bias it returns the numbers added
to the scores, float64 of such a shape. For a weight function it turns scores `[…, kv_len]`, -inf
where a key is dropped, into the factors of the values.

`rows()` of an entry names examples of it for the catalogue, each with its second definition.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from .algebra import Bias, Mask
    from .weights.weight import Weight

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MaskRow = tuple["Mask", Callable[..., Bools]]
"""A mask, and its second definition, which takes `q_len`, `kv_len` and shifts by name."""

BiasRow = tuple[Callable[..., "Bias"], Callable[..., Floats], tuple[Any, ...]]
"""A bias as a function of learned tables; its second definition as a function of them and of
`q_len` and `kv_len`; and the tables: float64 arrays for calls of up to `WINDOWED` positions."""

WeightRow = tuple[Callable[..., "Weight"], Callable[..., Floats], tuple[Any, ...]]
"""A weight function made of learned tables; its second definition as a function of the scores and
of the tables; and the tables: float64 arrays."""

MaskRows = dict[str, MaskRow]
BiasRows = dict[str, BiasRow]
WeightRows = dict[str, WeightRow]

BATCH_SIZE: Final = 2
HEADS: Final = 3
LONGEST: Final = 40
FARTHEST_SHIFT: Final = 6
ENTRIES: Final = LONGEST + 4 * FARTHEST_SHIFT  # of a tensor over positions

WINDOW: Final = (3, 5)
WINDOWED: Final = WINDOW[0] * WINDOW[1]

IDS: Final = np.repeat(np.arange(7), (9, 5, 1, 14, 8, 16, 11))  # seven packed documents


def row(
    build: Callable[..., Mask], by_hand: Callable[..., Bools], *given: Any, **named: Any
) -> MaskRow:
    """The mask of these arguments, and its second definition with the same ones."""
    return build(*given, **named), partial(by_hand, *given, **named)


def pairs(
    keep: Callable[[int, int, int, int], object], batch: int = 1, heads: int = 1, **at: int
) -> Bools:
    """`keep(b, h, q, k)` at every element, Boolean `[batch, heads, q_len, kv_len]`."""
    found = numbers(lambda *place: bool(keep(*place)), batch, heads, **at)
    return found.astype(np.bool_)


def numbers(
    value: Callable[[int, int, int, int], float],
    batch: int = 1,
    heads: int = 1,
    *,
    q_len: int,
    kv_len: int,
    q_shift: int = 0,
    kv_shift: int = 0,
) -> Floats:
    """`value(b, h, q, k)` at every element, float64 `[batch, heads, q_len, kv_len]`."""
    result = np.zeros((batch, heads, q_len, kv_len))
    for b, h, i, j in np.ndindex(*result.shape):
        result[b, h, i, j] = value(b, h, i + q_shift, j + kv_shift)
    return result


def places(q_len: int, kv_len: int, q_shift: int = 0, kv_shift: int = 0) -> tuple[Ints, Ints]:
    """Global query and key position of every element, each `[1, 1, q_len, kv_len]`."""
    _, _, q, k = np.indices((1, 1, q_len, kv_len))
    return q + q_shift, k + kv_shift


def looked_up(values: NDArray[Any], *at: Ints) -> NDArray[Any]:
    """`values[…, at]`, the last axes at places `[1, 1, q_len, kv_len]`; others are an error."""
    for place, size in zip(at, values.shape[-len(at) :], strict=True):
        if ((place < 0) | (place >= size)).any():
            raise IndexError(f"a position is outside an array of shape {values.shape}")
    return values[(..., *[place[0, 0] for place in at])]


def entry(values: ArrayLike, *at: int) -> float:
    """`values[at]`; axes of size 1 are broadcast, other places outside are an error."""
    array = np.asarray(values)
    inside = []
    for place, size in zip(at, array.shape, strict=True):
        if size != 1 and not 0 <= place < size:
            raise IndexError(f"{at} is outside an array of shape {array.shape}")
        inside.append(0 if size == 1 else place)
    return array[tuple(inside)].item()  # type: ignore[no-any-return]


def padded(values: ArrayLike, axes: int) -> NDArray[np.generic]:
    """The array with axes of size 1 added in front, up to `axes` of them in all."""
    array = np.asarray(values)
    return array.reshape((1,) * (axes - array.ndim) + array.shape)
