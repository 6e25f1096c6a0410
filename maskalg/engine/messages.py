"""Messages about inputs and tables that do not fit a call, or look transposed."""

from __future__ import annotations

from ..errors import MaskValueError

# Tensors that masks make from their arguments, and the arguments that set their length.
_LENGTH_OF = {
    "end": (
        "Pass an entry for each position to tree's `parents` (or its `prompt` as a tensor, if keys "
        "follow the tree), or to shared_prefix's `ids`"
    ),
    "own_block": "Give drafts an anchor for each block, or a greater `length`: {needed} positions",
    "starts": "Write q_len={needed} where the slices were given",
    "slash": "Write length={needed} where the indices were given",
    "places": (
        "Windows of n = H * W tokens in a row are chunked(n) + relative_2d(table, (H, W)).at("
        "q=q_idx % n, kv=kv_idx % n). For one window pass a greater `window`, with a table for it"
    ),
}

# Tensors that are read at a distance from their middle, and the arguments that set their reach.
_DISTANCES_OF = {"curve": "a greater `length` in sandwich"}


TURN = "write query.transpose(1, 2), and key and value likewise."


def many_heads(query: tuple[int, ...], key: tuple[int, ...]) -> str:
    return (
        f"attention: query {list(query)} and key {list(key)} are read as {key[1]} heads of "
        f"{key[2]} keys, [batch, heads, length, dim]. If they are [batch, length, heads, dim], "
        f"{TURN}"
    )


def looks_turned(name: str, size: int, length: int) -> str:
    return (
        f"attention: {name} has {size} positions; the inputs, read as [batch, heads, length, dim], "
        f"have {size} heads of {length} tokens. If they are [batch, length, heads, dim], {TURN}"
    )


def past_the_keys(first: int, keys: tuple[int, int]) -> str:
    return (
        f"attention: the first query stands at position {first}, and the keys end at {keys[1]} "
        f"(they start at {keys[0]}), so no query meets its own key. Pass the keys up to those of "
        "the queries, write shift(kv=start) if the keys start later, or return_lse=True if they "
        "are one part of the keys, to be joined with others."
    )


def rounded(name: str, apart: float) -> str:
    return (
        f"attention: float64 entries of {name} are read as float32, which moves some by "
        f"{apart:.3g}, and their differences too. Pass ({name} - {name}.min()).float() where only "
        "differences count, or float64 inputs for biases."
    )


def not_a_key(key: object) -> MaskValueError:
    return MaskValueError(
        f"{key!r} is not the key of a structure. The operators of maskalg are called by "
        "ma.attention, which writes the key."
    )


def table_too_short(
    name: str, shape: tuple[int, ...], axis: int, needed: int, what: str, packed: bool
) -> MaskValueError:
    """`packed`: whether the entries are ids made of the lengths of documents."""
    write = f"Pass {name} with at least {needed} entries there, or shift less."
    if name == "ids" and len(shape) == 1:
        write += " Cumulative lengths go to document.from_cu_seqlens(tensor)."
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


def table_of_distances(name: str, shape: tuple[int, ...], what: str) -> MaskValueError:
    write = _DISTANCES_OF.get(name, f"a larger {name}")
    return MaskValueError(
        f"{name} of shape {list(shape)} holds fewer distances than {what} has. Write {write}, or "
        "shift less."
    )


def table_extent(
    name: str, shape: tuple[int, ...], axis: int, found: int, what: str
) -> MaskValueError:
    hint = " A query is [batch, heads, length, head_dim]." if what == "head" else ""
    wanted = "1 entry" if found == 1 else f"{found} entries, or 1 for all"
    if what == "head" and axis == 0 and len(shape) == 3:
        hint = f" One for each batch entry is {'tensor' if name == 'dense' else name}[:, None]."
    return MaskValueError(
        f"{name} of shape {list(shape)} has {shape[axis]} entries along dimension {axis}, which "
        f"stands for {what}, but {what} is {found}. Pass {wanted}.{hint}"
    )
