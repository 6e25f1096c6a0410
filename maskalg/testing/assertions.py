"""Assertions about masks, with messages that show the mask, the case and the first difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np
import torch
from numpy.typing import NDArray

from ..engine.extents import Lengths, resolve
from ..engine.normal_form import Bound, bound
from ..errors import MaskTypeError, entering
from ..formula.entries import Entries, as_tensor
from ..formula.expression import Expression
from ..proof.closed_forms import Span
from ..proof.proof import prove_structure
from ..schedule.block_map import BlockMap
from ..schedule.intervals.rung import Side, SideTiles, in_order
from ..schedule.tiling import Tiling, block_pair
from ..tracing.pointwise import pointwise
from ..tracing.trace import other_arguments
from ..values.algebra import Mask
from . import oracle
from .mismatch import mismatch

Bools = NDArray[np.bool_]

_NAMES: Final = ("EMPTY", "PARTIAL", "FULL")
_MOST_SHOWN: Final = 200


def describe(mask: Expression) -> str:
    """The mask or score as it prints, and under it each bound value (tensors that fit a line)."""
    lines = [repr(mask)]
    for name, value in mask.parameters.items():
        if isinstance(value, torch.Tensor):
            entries = value.tolist() if value.numel() <= _MOST_SHOWN else "…"
            lines.append(f"  {name} = {entries} {value.dtype} {list(value.shape)}")
        else:
            lines.append(f"  {name} = {value}")
    return "\n".join(lines)


def assert_same_mask(
    mask: Mask,
    expected: Mask | Entries | Callable[..., Any],
    q_len: int,
    kv_len: int | None = None,
    *,
    batch: int | None = None,
    heads: int | None = None,
) -> None:
    """`mask.to_dense` keeps exactly the pairs that `expected` keeps.

    Args:
        mask: the mask under test.
        expected: another mask; a FlexAttention `mask_mod(b, h, q_idx, kv_idx)`, called for every
            element; or a Boolean matrix `[batch, heads, q_len, kv_len]`, a tensor, an array or a
            list of rows. Sizes 1 are broadcast, and so are missing leading axes.
        q_len: number of queries.
        kv_len: number of keys; None means `q_len`.
        batch: batch size, where a mask depends on it and no tensor gives it. A function is called
            for this many entries, or for as many as the mask distinguishes.
        heads: number of heads, likewise.

    Raises:
        TypeError: `expected` is none of these, or `mask` no mask.
        MaskMismatch: an `AssertionError` that names the first pair that differs; under
            `pytest --maskalg-pictures` it is followed by a picture.
    """
    __tracebackhide__ = True
    if not isinstance(mask, Mask):
        raise not_under_test("assert_same_mask", "a mask", mask)
    expected = cast("Mask | torch.Tensor | Callable[..., Any]", as_tensor(expected))
    found = _numpy(mask.to_dense(q_len, kv_len, batch=batch, heads=heads))
    shape = (q_len, q_len if kv_len is None else kv_len)
    source = " and the expected matrix"
    if isinstance(expected, Mask):
        wanted = _numpy(expected.to_dense(q_len, kv_len, batch=batch, heads=heads))
        source = f"\nand\n{describe(expected)}"
    elif isinstance(expected, torch.Tensor):
        wanted = _numpy(expected)
    elif not callable(expected):
        raise not_an_expected_mask(type(expected).__name__)
    else:
        wanted = function_matrix(expected, batch or found.shape[0], heads or found.shape[1], *shape)
        source = f" and {getattr(expected, '__name__', expected)}"
    if wanted.dtype != np.bool_:
        raise not_an_expected_mask(f"one of {wanted.dtype}")
    if not found.shape[2:] == shape == wanted.shape[-2:]:
        raise AssertionError(
            f"{describe(mask)}{source}: shapes {found.shape} and {wanted.shape}, lengths {shape}"
        )
    place = _first_difference(found, wanted)
    if place is not None:
        message = (
            f"{describe(mask)}{source} differ for q_len={shape[0]}, kv_len={shape[1]} first at "
            f"[batch, head, q, k] = {place}: the mask "
            f"{'keeps' if _at(found, place) else 'drops'} that pair, the expected one does not"
        )
        raise mismatch(message, wanted, found, place)


def function_matrix(
    mask_mod: Callable[..., Any],
    batch: int,
    heads: int,
    q_len: int,
    kv_len: int,
    q_shift: int = 0,
    kv_shift: int = 0,
) -> Bools:
    """The pairs a function of four indices keeps, `[batch, heads, q_len, kv_len]`.

    A FlexAttention `mask_mod` is called once, with tensors. A function that takes no tensors,
    because it uses `and`, lists or arrays, is called for each element, with integers.
    """
    indices = (
        torch.arange(batch).view(-1, 1, 1, 1),
        torch.arange(heads).view(1, -1, 1, 1),
        (torch.arange(q_len) + q_shift).view(1, 1, -1, 1),
        (torch.arange(kv_len) + kv_shift).view(1, 1, 1, -1),
    )
    try:
        return _numpy(pointwise(mask_mod, *indices).bool())
    except MaskTypeError:
        raise
    except Exception as problem:
        misfit = other_arguments(mask_mod, scored=False)
        if misfit is not None:
            raise misfit from None
        try:
            return _by_element(mask_mod, *indices)
        except Exception:
            # If it fails with integers too, the error of the first call is the one to show.
            raise problem from None


def _by_element(mask_mod: Callable[..., Any], *indices: torch.Tensor) -> Bools:
    at = np.broadcast_arrays(*[index.numpy() for index in indices])
    kept = [bool(mask_mod(*place)) for place in zip(*[a.ravel().tolist() for a in at], strict=True)]
    return np.asarray(kept, dtype=np.bool_).reshape(at[0].shape)


def assert_labels_exact(
    mask: Mask,
    q_len: int,
    kv_len: int | None = None,
    block: int | tuple[int, int] = 128,
    *,
    batch: int | None = None,
    heads: int | None = None,
) -> BlockMap:
    """`mask.blocks` gives every block the label that follows from all its elements.

    A proof that claims to be exact must also leave no block open.

    Returns:
        The blocks, for further assertions.
    """
    __tracebackhide__ = True
    found = mask.blocks(q_len, kv_len, block=block, batch=batch, heads=heads)
    dense = _numpy(mask.to_dense(q_len, kv_len, batch=batch, heads=heads))
    pair = block_pair(block)
    case = f"{describe(mask)}\nq_len={found.q_len}, kv_len={found.kv_len}, block={pair}"
    wanted = oracle.labels(dense, *pair)
    labels = found.labels.cpu().numpy()
    assert labels.shape == wanted.shape, (
        f"{case}: labels of shape {labels.shape}, expected {wanted.shape}"
    )
    place = _first_difference(labels, wanted)
    if place is not None:
        message = (
            f"{case}: block [batch, head, row, column] = {place} is labelled "
            f"{_NAMES[_at(labels, place)]}, but is {_NAMES[_at(wanted, place)]}\n{mask.prove()}"
        )
        raise mismatch(message, wanted, labels, place)
    form = bound(mask)
    forms = prove_structure(form.structure).forms
    if all(_decided(span, form) for span in forms.spans):
        assert found.evaluated == 0, (
            f"{case}: the proof claims to be exact, yet {found.evaluated} blocks were left open\n"
            f"{mask.prove()}"
        )
    return found


def assert_closed_forms_sound(
    mask: Mask,
    q_len: int,
    kv_len: int | None = None,
    block_q: int = 128,
    *,
    batch: int | None = None,
    heads: int | None = None,
) -> None:
    """The closed forms alone, key by key, hold every key that is touched or not full.

    No block is evaluated here, so an unsound proof cannot hide. Where the proof claims to be
    exact, the closed forms must hold no other key.

    Args:
        mask: the mask whose proof is tested.
        q_len: number of queries; `kv_len`, `batch` and `heads` as `mask.blocks` takes them.
        block_q: queries of a tile.
    """
    block_q, _ = block_pair((block_q, 1))
    form = bound(mask)
    extents = resolve(form, Lengths(q_len, kv_len, batch, heads))
    kept = _numpy(mask.to_dense(q_len, kv_len, batch=batch, heads=heads))
    if 0 in kept.shape:
        return
    forms = prove_structure(form.structure).forms
    row_ends = range(0, extents.q_len, block_q)
    tiling = Tiling(form, extents, (block_q, 1))
    for name, spans, holds in (("touched", forms.touched, kept), ("not full", forms.unfull, ~kept)):
        parts = [holds[:, :, i : i + block_q].any(axis=2) for i in row_ends]
        wanted: Bools = np.stack(parts, axis=2)
        claimed = _claimed_keys(Side(spans, tiling).tiles())
        exact = all(_decided(span, form) for span in spans)
        wrong = claimed != wanted if exact else wanted & ~claimed
        place = _first_difference(wrong, np.zeros_like(wrong))
        assert place is None, (
            f"{describe(mask)}\nq_len={extents.q_len}, kv_len={extents.kv_len}, block_q={block_q}: "
            f"[batch, head, row, key] = {place} is{'' if _at(wanted, place) else ' not'} {name}, "
            f"the closed forms {'' if exact else '(not exact) '}say otherwise\n{mask.prove()}"
        )


def _claimed_keys(side: SideTiles) -> Bools:
    """The keys that some span holds, `[batch, heads, rows, keys]`: tiles one key wide."""
    met, perhaps = side.decided(side.maybe & ~side.surely)
    return _numpy(side.surely | met | perhaps)


def _decided(span: Span, form: Bound) -> bool:
    """Whether a span decides all tiles it may meet, so that none has to be evaluated."""
    return span.section is not None or (span.exact and in_order(span, form))


def _numpy(tensor: torch.Tensor) -> Bools:
    array: Bools = tensor.cpu().numpy()
    return array


def _first_difference(
    found: NDArray[np.generic], wanted: NDArray[np.generic]
) -> tuple[int, ...] | None:
    places = np.argwhere(np.not_equal(found, wanted))
    return tuple(int(i) for i in places[0]) if len(places) else None


def _at(array: NDArray[np.generic], place: tuple[int, ...]) -> int:
    """The entry at a place of the broadcast array."""
    own = place[len(place) - array.ndim :]
    inside = tuple(min(i, size - 1) for i, size in zip(own, array.shape, strict=True))
    return int(array[inside])


def not_under_test(call: str, wanted: str, found: object) -> MaskTypeError:
    kind = type(found).__name__
    hint = "Write score.mask for its mask." if kind == "Score" else entering(found)
    return MaskTypeError(f"{call}: the tested expression must be {wanted}, got {kind}. {hint}")


def not_an_expected_mask(found: object) -> MaskTypeError:
    return MaskTypeError(
        "assert_same_mask: expected must be a mask, a function mask_mod(b, h, q_idx, kv_idx), or a "
        f"Boolean matrix as a tensor, an array or a list, got {found}."
    )
