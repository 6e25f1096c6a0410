"""Of operators between masks, biases and scores."""

from __future__ import annotations

from .kinds import MaskTypeError


def used_as_bool(what: object) -> MaskTypeError:
    return MaskTypeError(
        f"{what!r} has no truth value: it was used with `and`, `or`, `not`, `if` or a chained "
        "comparison. Write `a & b`, `a | b`, `~a`, and `(x <= q_idx) & (q_idx < y)`."
    )


def or_with_bias(left: object, right: object) -> MaskTypeError:
    return MaskTypeError(
        f"`{left!r} | ({right!r})` has no meaning: a bias cannot belong to one side of `|`. "
        "Add it after choosing what is kept: `(a | b) + bias`. If you wrote `a | b + bias`, note "
        "that Python binds `+` tighter than `|`: write `(a | b) + bias`."
    )


def not_of_bias(what: object) -> MaskTypeError:
    return MaskTypeError(
        f"`~({what!r})` has no meaning: only a mask can be negated. Write `~mask + bias`."
    )


def mask_and_bias(mask: object, bias: object) -> MaskTypeError:
    return MaskTypeError(
        f"`{mask!r} & {bias!r}`: a bias adds to the score, it keeps or drops nothing. "
        f"Write `{mask!r} + {bias!r}`."
    )


def mask_plus_mask(left: object, right: object) -> MaskTypeError:
    return MaskTypeError(
        f"`{left!r} + {right!r}` adds two masks. Write `a & b` for what both keep or `a | b` "
        "for what either keeps; `+` is for a bias."
    )


def score_plus_score(left: object, right: object) -> MaskTypeError:
    return MaskTypeError(
        f"`({left!r}) + ({right!r})` adds two scores that both hold a mask. Write `a & b`: masks "
        "combine and biases add."
    )


def applied_to(outer: object, inner: object) -> MaskTypeError:
    return MaskTypeError(
        f"({outer!r}).of({inner!r}) takes the bias or score inside, got {type(inner).__name__}. "
        "Write `softcap(30).of(alibi(slopes))` for `softcap(30) @ alibi(slopes)`."
    )


def not_an_index(what: object) -> MaskTypeError:
    return MaskTypeError(
        f"expected an index expression (q_idx, kv_idx, batch, head or arithmetic on them) or a "
        f"number, got {what!r} of type {type(what).__name__}. Tensors enter through "
        "`ma.table(tensor)[index]`, named numbers through `ma.scalar(value)`."
    )


def real_index(what: object) -> MaskTypeError:
    return MaskTypeError(
        f"{what!r} is a real number; tables, `//` and `%` take integers. Write "
        "`ma.truncate(x)` for its integer part."
    )


def table_rank(name: str, shape: tuple[int, ...], given: int) -> MaskTypeError:
    return MaskTypeError(
        f"table {name} has shape {list(shape)} and takes {len(shape)} "
        f"{'index' if len(shape) == 1 else 'indices'}, {given} were given."
    )


def where_branches(then: object, otherwise: object) -> MaskTypeError:
    return MaskTypeError(
        f"ma.where chooses between two masks or two index expressions, got {type(then).__name__} "
        f"and {type(otherwise).__name__}."
    )
