"""Messages of lengths, shapes and tensors that do not fit a call, and of float8 factors."""

from __future__ import annotations

from ..errors import BackendError, MaskTypeError, MaskValueError

# Tensors that masks make of others, and what says how long they are.
_LENGTH_OF = {
    "end": "Pass an entry for each position to tree's `parents`, or to shared_prefix's `ids`",
    "own_block": "Give drafts an anchor for each block, or a greater `length`: {needed} positions",
    "starts": "Write q_len={needed} where the slices were given",
    "slash": "Write length={needed} where the indices were given",
}

# Tensors that are read from their middle, by a distance, and what says how far they reach.
_DISTANCES_OF = {
    "curve": "a greater `length` in sandwich",
    "table": "a greater `window` in relative_2d, with a table for it",
}


def length(name: str, value: object) -> MaskValueError:
    return MaskValueError(f"{name} must be an integer >= 0, got {value!r}.")


def needs_count(index: str) -> MaskValueError:
    given = "heads" if index == "head" else index
    return MaskValueError(
        f"the expression depends on `{index}`, and no table tells how many: pass {given}=…."
    )


_TURN = "write query.transpose(1, 2), and key and value likewise."


def shapes_do_not_fit(
    what: str,
    query: tuple[int, ...],
    key: tuple[int, ...],
    value: tuple[int, ...],
    turned: bool,
) -> MaskValueError:
    """`turned` says that they fit as [batch, length, heads, dim]."""
    hint = f" They fit as [batch, length, heads, dim]: {_TURN}" if turned else ""
    return MaskValueError(
        f"attention: {what}; got query {list(query)}, key {list(key)}, value {list(value)}.{hint}"
    )


def many_heads(query: tuple[int, ...], key: tuple[int, ...]) -> str:
    return (
        f"attention: query {list(query)} and key {list(key)} are read as {key[1]} heads of "
        f"{key[2]} keys, [batch, heads, length, dim]. If they are [batch, length, heads, dim], "
        f"{_TURN}"
    )


def looks_turned(name: str, size: int, length: int) -> str:
    return (
        f"attention: {name} has {size} positions, the inputs {size} heads of {length} tokens, as "
        f"they are read: [batch, heads, length, dim]. If they are [batch, length, heads, dim], "
        f"{_TURN}"
    )


def past_the_keys(first: int, keys: tuple[int, int]) -> str:
    return (
        f"attention: the first query stands at position {first}, and the keys end at {keys[1]} "
        f"(they start at {keys[0]}), so no query meets its own key. Pass the keys up to the "
        "queries', write shift(kv=start) where they start later, or return_lse=True for a part "
        "of the keys that is joined with others."
    )


def not_a_key(key: object) -> MaskValueError:
    return MaskValueError(
        f"{key!r} is not the key of a structure. The operators of maskalg are called by "
        "ma.attention, which writes the key."
    )


def table_too_short(
    name: str, shape: tuple[int, ...], axis: int, needed: int, what: str, packed: bool
) -> MaskValueError:
    """`packed` says that the entries are ids made of lengths of documents."""
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


def pages_dtype(name: str, found: object) -> MaskTypeError:
    what = getattr(found, "dtype", type(found).__name__)
    return MaskTypeError(
        f"Pages: {name} must be an int32 or int64 tensor, got {what}. Write torch.tensor(…, "
        "dtype=torch.int32, device=query.device)."
    )


def pages_rank(name: str, shape: tuple[int, ...]) -> MaskValueError:
    wanted = {"table": "[requests, most_pages]", "lengths": "[requests]"}
    return MaskValueError(
        f"Pages: {name} must have shape {wanted.get(name, '[requests + 1]')}, got {list(shape)}."
    )


def pages_device(name: str, found: object, wanted: object) -> MaskValueError:
    return MaskValueError(
        f"Pages: {name} lies on {found}, and not on {wanted}. Move it there once."
    )


def pages_requests(name: str, shape: tuple[int, ...], wanted: int, requests: int) -> MaskValueError:
    return MaskValueError(
        f"Pages: the table has {requests} rows, one a request, so {name} must have {wanted} "
        f"entries, got {list(shape)}."
    )


def pages_not_4d(name: str, shape: tuple[int, ...]) -> MaskValueError:
    wanted = "[pages, page_size, kv_heads, dim]"
    if name == "query":
        wanted = "[batch, heads, q_len, head_dim], packed [1, heads, queries, head_dim]"
    return MaskValueError(f"attention: {name} must have shape {wanted}, got {list(shape)}.")


def pages_gradient() -> BackendError:
    return BackendError(
        "attention: gradients are not built for keys and values in pages, and query, the pages or "
        "a tensor of the expression wants one. Call it under torch.no_grad()."
    )
