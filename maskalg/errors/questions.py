"""Of questions about masks."""

from __future__ import annotations

from .kinds import MaskTypeError, MaskValueError
from .strangers import instead


def not_a_mask(call: str, what: object) -> MaskTypeError:
    return MaskTypeError(
        f"{call} asks about masks, got {what!r} of type {type(what).__name__}. "
        f"{instead(what) or 'A score is asked about by its mask: score.mask.'}"
    )


def kv_len_alone(kv_len: int) -> MaskValueError:
    return MaskValueError(
        f"kv_len={kv_len!r} was given without q_len: pass both, or neither for every position."
    )


def too_many_to_count(q_len: int, kv_len: int, most: int) -> MaskValueError:
    return MaskValueError(
        f"cost(q_len={q_len}, kv_len={kv_len}) would have to evaluate more than {most} elements of "
        "this mask, which no sum over its clauses counts: ask for shorter lengths, or count its "
        "blocks alone by mask.segments(q_len, kv_len).counts()."
    )
