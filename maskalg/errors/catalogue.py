"""Of what single masks of the catalogue ask of their tensors."""

from __future__ import annotations

from .kinds import MaskTypeError, MaskValueError


def entries_outside(
    call: str, argument: str, found: tuple[int, int], wanted: tuple[int, int]
) -> MaskValueError:
    return MaskValueError(
        f"{call}: entries of {argument} must lie in {wanted[0]} … {wanted[1]}, got entries from "
        f"{found[0]} to {found[1]}."
    )


def lengths_differ(call: str, left: str, right: str, found: tuple[int, int]) -> MaskValueError:
    return MaskValueError(
        f"{call}: {left} and {right} must have equally many entries, got {found[0]} and {found[1]}."
    )


def not_ascending(call: str, argument: str) -> MaskValueError:
    return MaskValueError(
        f"{call}: entries of {argument} must ascend. Sort them, or give both ends of each interval."
    )


def not_cumulative(call: str, argument: str, found: list[int]) -> MaskValueError:
    return MaskValueError(
        f"{call}: {argument} must start at 0 and never descend, got {found}. Write "
        "document.from_lengths(lengths) for the lengths of the documents."
    )


def not_lengths(call: str, found: object) -> MaskTypeError:
    return MaskTypeError(
        f"{call}: lengths must be a list or an integer tensor, the tokens of each document, got "
        f"{found!r} of type {type(found).__name__}. Write `{call}([3, 5])`."
    )


def parent_outside(call: str, node: int, parent: int, count: int) -> MaskValueError:
    return MaskValueError(
        f"{call}: the parent of node {node} must be one of 0 … {count - 1}, or negative for a "
        f"root, got {parent}."
    )


def not_a_forest(call: str, node: int) -> MaskValueError:
    return MaskValueError(
        f"{call}: following the parents of node {node} leads back to it. Give roots a negative "
        "parent."
    )


def table_in_document(call: str, name: str) -> MaskValueError:
    return MaskValueError(
        f"{call}: the inner mask reads {name} at positions, of which a document may have more than "
        f"{name} has entries. Inside documents use masks of distances, lengths and chunks; combine "
        f"masks on tensors outside: {call} & other."
    )


def range_reversed(call: str, argument: str, found: tuple[int, int]) -> MaskValueError:
    return MaskValueError(
        f"{call}: a range of {argument} must be (start, end) with 0 <= start <= end, got {found}."
    )


def unknown_kind(call: str, found: object, known: list[str]) -> MaskValueError:
    return MaskValueError(
        f"{call}: a kind must be one of {', '.join(known)}, or its number from 0, got {found!r}."
    )


def unknown_alignment(call: str, found: object, known: list[str]) -> MaskValueError:
    return MaskValueError(
        f"{call}: align must be one of {', '.join(map(repr, known))}, got {found!r}. Of a document "
        "whose queries and keys differ in number, it says which of them stand side by side."
    )


def not_column_intervals(key: int, batch: int, head: int, count: int) -> MaskValueError:
    return MaskValueError(
        f"to_flashmask: key {key} (batch {batch}, head {head}) is hidden from {count} separate "
        "ranges of queries, and FlashMask's format holds two. Export a coarser mask, or use "
        "to_attention_slices or BlockMask instead."
    )


def one_mask_only(call: str, batch: int, heads: int) -> MaskValueError:
    return MaskValueError(
        f"{call}: the format holds one mask for the whole batch and all heads, this one differs "
        f"between {batch} batch entries and {heads} heads. Export each on its own, with the "
        "tensors of one entry."
    )


def window_table(call: str, window: object, wanted: int, found: int) -> MaskValueError:
    return MaskValueError(
        f"{call}: a window of {window} has {wanted} relative places, but table has {found} entries "
        "along dimension 0."
    )
