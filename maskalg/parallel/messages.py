"""Messages of plans and of context parallelism."""

from __future__ import annotations

from ..errors import MaskTypeError, MaskValueError


def no_masks(found: object) -> MaskTypeError:
    return MaskTypeError(
        "plan: masks must be a mask, or pairs of a mask and the number of layers that have it, got "
        f"{found!r}. Write `plan([(causal & sliding(1024), 20), (causal, 4)], length, ranks)`."
    )


def too_many_ranks(ranks: int, length: int, chunk: int) -> MaskValueError:
    return MaskValueError(
        f"plan: {length} tokens in chunks of {chunk} are {-(-length // chunk)} chunks, and {ranks} "
        "ranks would leave some without one. Take fewer ranks, or a smaller chunk."
    )
