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


def unequal_shares(counts: list[int]) -> MaskValueError:
    return MaskValueError(
        f"load_balancer: torch gives each rank the same number of tokens, and the plan {counts}. "
        "Pad the sequence to a multiple of chunk * ranks, or plan with a chunk that divides it."
    )


def other_group(size: int, ranks: int) -> MaskValueError:
    return MaskValueError(
        f"parallel.attention: the group has {size} processes and the plan {ranks} ranks. Write "
        f"plan(mask, length, ranks={size})."
    )


def not_the_tokens(name: str, shape: tuple[int, ...], rank: int, held: int) -> MaskValueError:
    return MaskValueError(
        f"parallel.attention: {name} must be [batch, heads, {held}, dim], the {held} tokens that "
        f"rank {rank} holds, got {list(shape)}. Take them as x[:, :, plan.tokens({rank})]."
    )


def other_dtypes(key: object, value: object) -> MaskTypeError:
    return MaskTypeError(
        f"parallel.attention: key and value travel together and must have one dtype, got {key} "
        f"and {value}."
    )


def no_such_layer(layer: object, count: int) -> MaskValueError:
    return MaskValueError(
        f"parallel.attention: layer must be the number of a mask of the plan, 0 to {count - 1}, "
        f"got {layer!r}."
    )


def not_planned(mask: object, planned: object) -> MaskValueError:
    return MaskValueError(
        f"parallel.attention: the plan is for {planned} with its tensors, got {mask}: keys that it "
        "needs may be missing. Plan with the mask you pass, and with the same tensors."
    )


def no_softmax(weight: object) -> MaskValueError:
    return MaskValueError(
        f"parallel.attention: parts of the keys are merged by their lse, which {weight} has not. "
        "Pass softmax or softmax_with_sink, or gather the keys and call maskalg.attention."
    )


def unknown_method(method: object) -> MaskValueError:
    return MaskValueError(f'parallel.attention: method must be "gather" or "ring", got {method!r}.')
