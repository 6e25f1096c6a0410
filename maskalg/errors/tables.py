"""Of tensors in an expression that do not fit the call."""

from __future__ import annotations

from .kinds import MaskValueError

# Tensors that masks make of others, and what says how long they are.
_LENGTH_OF = {
    "end": "Pass an entry for each position to tree's `parents`, or to shared_prefix's `ids`",
    "starts": "Write q_len={needed} where the slices were given",
    "slash": "Write length={needed} where the indices were given",
}


def table_too_short(
    name: str, shape: tuple[int, ...], axis: int, needed: int, what: str, packed: bool
) -> MaskValueError:
    """`packed` says that the entries are ids made of lengths of documents."""
    write = f"Pass {name} with at least {needed} entries there, or shift less."
    if name == "dense" and len(shape) == 2:
        write += " A mask [batch, kv_len] enters as ma.padding.from_mask(tensor)."
    if name in _LENGTH_OF:
        write = f"{_LENGTH_OF[name].format(needed=needed)}, or shift less."
    if packed:
        write = (
            f"They were made of lengths of documents: write total={needed} there for a longer "
            "sequence, whose rest keeps nothing, or shift less."
        )
    return MaskValueError(
        f"{name} of shape {list(shape)} has {shape[axis]} entries along dimension {axis}, but "
        f"{what} reads {needed}. {write}"
    )


def negative_index(name: str, index: str, lowest: int) -> MaskValueError:
    return MaskValueError(
        f"{name} would be read at {index} = {lowest}, before its first entry. Indices are global "
        "and start at 0: shift by no less, or pass a longer tensor and shift it."
    )


def table_extent(
    name: str, shape: tuple[int, ...], axis: int, found: int, what: str
) -> MaskValueError:
    hint = " A query is [batch, heads, length, head_dim]." if what == "head" else ""
    if what == "head" and axis == 0 and len(shape) == 3:
        hint = f" One for each batch entry is {'tensor' if name == 'dense' else name}[:, None]."
    return MaskValueError(
        f"{name} of shape {list(shape)} has {shape[axis]} entries along dimension {axis}, which "
        f"stands for {what}, but {what} is {found}. Pass {found} entries, or 1 for all.{hint}"
    )
