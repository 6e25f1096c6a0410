"""Of questions about masks."""

from __future__ import annotations

from .kinds import MaskTypeError, MaskValueError


def not_a_mask(call: str, what: object) -> MaskTypeError:
    return MaskTypeError(
        f"{call} asks about masks, got {what!r} of type {type(what).__name__}. A score is asked "
        "about by the mask it was built from."
    )


def kv_len_alone(kv_len: int) -> MaskValueError:
    return MaskValueError(
        f"kv_len={kv_len!r} was given without q_len: pass both, or neither for every position."
    )
