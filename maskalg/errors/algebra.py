"""Of operators between masks, biases and scores."""

from __future__ import annotations

from .kinds import MaskTypeError, MaskValueError
from .strangers import instead


def used_as_bool(what: object) -> MaskTypeError:
    return MaskTypeError(
        f"{what!r} has no truth value: it was used with `and`, `or`, `not`, `if` or a chained "
        "comparison. Write `a & b`, `a | b`, `~a`, and `(x <= q_idx) & (q_idx < y)`."
    )


def comparison_as_bool(what: object) -> MaskTypeError:
    return MaskTypeError(
        f"{used_as_bool(what)} Write ma.maximum(x, y), ma.minimum(x, y) for `max` and `min` of "
        "index expressions."
    )


def unparenthesised(left: object, sign: str, right: object) -> MaskTypeError:
    return MaskTypeError(
        f"`{left!r} {sign} {right!r}`: `{sign}` joins masks, and an index expression is none. "
        f"Comparisons need parentheses, for Python binds `{sign}` tighter: write "
        f"`(q_idx >= kv_idx) {sign} (kv_idx < 3)`. Integers that stand for flags are `x != 0`."
    )


def not_of_index(what: object) -> MaskTypeError:
    return MaskTypeError(
        f"`~({what!r})` has no meaning: an index expression is a number, and only a mask can be "
        "negated. Write `x == 0` for integers that stand for flags, `~(a == b)` for a comparison."
    )


def unread_table(name: str, shape: list[int]) -> MaskTypeError:
    return MaskTypeError(
        f"table({name}) of shape {shape} was compared without an index for each dimension. Write "
        f"`ma.table(tensor)[q_idx] == ma.table(tensor)[kv_idx]`."
    )


def flag_for_mask(mask: object, sign: str, flag: bool) -> MaskTypeError:
    return MaskTypeError(
        f"`{mask!r} {sign} {flag}`: {flag} is no mask. Write `ma.everything` for a mask that keeps "
        "every pair, `ma.nothing` for one that keeps none. `a == b` of two masks asks whether they "
        "are one expression; pairs at which both hold or neither does are (a & b) | (~a & ~b)."
    )


def _entries(what: object) -> tuple[str, str]:
    """A tensor, an array or a list: what it is, and what is found in it."""
    kind = {"Tensor": "tensor", "ndarray": "array"}.get(type(what).__name__, type(what).__name__)
    if not hasattr(what, "dtype"):
        return kind, f"a {kind}"
    return kind, f"a {what.dtype} {kind} of shape {list(getattr(what, 'shape', ()))}"


def tensor_for_mask(mask: object, sign: str, what: object) -> MaskTypeError:
    kind, found = _entries(what)
    return MaskTypeError(
        f"`{mask!r} {sign} {kind}`: {found} is no mask. Write "
        "`ma.dense(tensor)` for flags of queries and keys, `ma.padding.from_mask(tensor)` for an "
        "attention mask [batch, kv_len], `ma.table(tensor)[kv_idx]` for flags of keys."
    )


def tensor_for_bias(left: object, sign: str, what: object) -> MaskTypeError:
    kind, found = _entries(what)
    return MaskTypeError(
        f"`{left!r} {sign} {kind}`: {found} is no bias. Write "
        "`ma.dense_bias(tensor)` for numbers of queries and keys, `ma.key_bias(tensor)` for those "
        "of keys, `mask & ma.dense(tensor)` for a Boolean tensor."
    )


def tensor_for_factor(bias: object, factor: object) -> MaskTypeError:
    return MaskTypeError(
        f"`{bias!r} * {type(factor).__name__}`: a bias takes a number as its factor. Write "
        "`ma.bias(ma.table(tensor)[head] * (kv_idx - q_idx))` for one of each head, "
        "`ma.where(condition, bias, 0)` for a bias of some pairs only."
    )


def exclusive_or(left: object, right: object) -> MaskTypeError:
    return MaskTypeError(
        f"`{left!r} ^ {right!r}` is not built. Write `(a & ~b) | (b & ~a)` for what one of two "
        "masks keeps alone."
    )


def minus_mask(left: object, right: object) -> MaskTypeError:
    return MaskTypeError(
        f"`{left!r} - {right!r}` takes a mask away. Write `a & ~b` for what a keeps and b does not."
    )


def mask_minus_bias(mask: object, bias: object) -> MaskTypeError:
    return MaskTypeError(f"`{mask!r} - {bias!r}` takes a bias from a mask. Write `mask + (-bias)`.")


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


def mask_plus_number(left: object, sign: str, number: object) -> MaskTypeError:
    return MaskTypeError(
        f"`{left!r} {sign} {number!r}`: a number that is added to each score is a bias. Write "
        f"`ma.bias({number!r})`; a softmax is the same without it."
    )


def times_mask(left: object, sign: str, right: object) -> MaskTypeError:
    return MaskTypeError(
        f"`{_operand(left)} {sign} {_operand(right)}`: a mask is no number. Multiply the bias, "
        "`mask & 2 * bias`, or write `ma.where(mask, bias, 0)` for a bias of some pairs only."
    )


def divided_by_zero(bias: object) -> MaskValueError:
    return MaskValueError(f"`{_operand(bias)} / 0`: a bias is divided by a number that is not 0.")


def minus_of_mask(mask: object) -> MaskTypeError:
    return MaskTypeError(f"`-({mask!r})`: a mask is no number. Write `~mask` for all it drops.")


def nested_mask(left: object, right: object) -> MaskTypeError:
    return MaskTypeError(
        f"`{_operand(left)} @ {_operand(right)}`: `@` applies a bias to what another bias, or a "
        "score, makes of the scores. Write `a & b` for what two masks keep."
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


def complex_table(name: str, dtype: object) -> MaskTypeError:
    return MaskTypeError(
        f"table {name} holds {dtype}; tables hold flags, integers or real numbers. Write "
        "`ma.table(tensor.real)`."
    )


def table_rank(name: str, shape: tuple[int, ...], given: int) -> MaskTypeError:
    return MaskTypeError(
        f"table {name} has shape {list(shape)} and takes {len(shape)} "
        f"{'index' if len(shape) == 1 else 'indices'}, {given} were given."
    )


def where_branches(then: object, otherwise: object) -> MaskTypeError:
    kinds = {type(then).__name__, type(otherwise).__name__}
    hint = instead(then) or instead(otherwise)
    if "Score" in kinds or kinds == {"Mask", "Bias"}:
        hint = "Write `ma.where(c, mask, other_mask) + ma.where(c, bias, other_bias)`."
    elif "Mask" in kinds and kinds & {"int", "bool", "NoneType"}:
        hint = "Write `ma.nothing` for a mask that drops every pair, `ma.everything` for all."
    elif kinds == {"Bias", "NoneType"}:
        hint = "Write 0 for no bias."
    elif "Tensor" in kinds or "ndarray" in kinds:
        hint = "A tensor enters as `ma.table(tensor)[index]`, one without dimensions with [()]."
    elif kinds == {"Bias", "Index"}:
        hint = "Write `ma.bias(x)` for an index expression that is added to the score."
    return MaskTypeError(
        "ma.where chooses between two masks, two biases or two index expressions, got "
        f"{type(then).__name__} and {type(otherwise).__name__}. {hint}".rstrip()
    )


def _operand(value: object) -> str:
    text = repr(value)
    return f"({text})" if " " in text else text
