"""Messages of functions that cannot be traced."""

from __future__ import annotations

from ..errors import MaskalgError, MaskTypeError, MaskValueError

OPAQUE = "or pass opaque=True, which evaluates the function itself, element by element"
TAKES = {"mask": "b, h, q_idx, kv_idx", "score": "score, b, h, q_idx, kv_idx"}
_NO_FUNCTION = (
    "An expression stands as it is, without ma.mask; a BlockMask enters as ma.mask(block_mask), a "
    "tensor as ma.dense(tensor)."
)


def not_a_function(call: str, found: object) -> MaskTypeError:
    return MaskTypeError(
        f"ma.{call}: expected a function {call}_mod({TAKES[call]}), got {type(found).__name__}. "
        f"{_NO_FUNCTION}"
    )


def expression_within(found: object) -> MaskTypeError:
    return MaskTypeError(
        f"the function computes with `{found!r}`, which is an expression already. A function "
        "computes with its arguments and with tensors and numbers; compose expressions outside of "
        "it: `causal & ma.mask(function)`."
    )


def other_function(name: str, scored: bool) -> MaskTypeError:
    """The error for a `mask_mod` given as a `score_mod` (`scored`), or the other way round."""
    if scored:
        return MaskTypeError(
            f"ma.score: {name} takes the arguments of a mask_mod(b, h, q_idx, kv_idx). Write "
            f"ma.mask({name}), or give a function of (score, b, h, q_idx, kv_idx)."
        )
    return MaskTypeError(
        f"ma.mask: {name} takes the arguments of a score_mod(score, b, h, q_idx, kv_idx). Write "
        f"ma.score({name}), or give a function of (b, h, q_idx, kv_idx)."
    )


def of_score(error: MaskalgError) -> MaskalgError:
    """The same error; where it advises opaque=True, it also names the cost for a score."""
    costs = f"{OPAQUE}, without gradients of the tensors it captures"
    error.args = tuple([str(text).replace(OPAQUE, costs) for text in error.args])
    return error


def untraceable(operation: str) -> MaskTypeError:
    return MaskTypeError(
        f"{operation} has no formula. Compute it before, and let the function capture the result "
        f"as a tensor, {OPAQUE}."
    )


def traced_power(what: str) -> MaskTypeError:
    return MaskTypeError(
        f"{what} of an integer has no exact formula. Use a constant exponent from 0 to 16, or a "
        f"base of 1, 2, 4, 8 and so on. Write `x.float() ** y` for a real power, {OPAQUE}."
    )


def traced_narrow(sign: str, name: str, dtype: object) -> MaskTypeError:
    return MaskTypeError(
        f"`{sign}` of entries of {name} wraps in {dtype}, which no formula does. Capture "
        f"{name}.long() instead, {OPAQUE}."
    )


def traced_number(number: int, name: str, dtype: object) -> MaskTypeError:
    return MaskTypeError(
        f"{number} does not fit {dtype}, the dtype of {name}: torch wraps it, a formula does not. "
        f"Write {name}.long(), {OPAQUE}."
    )


def traced_random(operation: str) -> MaskTypeError:
    return MaskTypeError(
        f"{operation}(…) draws new numbers at each call; a formula would keep the first ones. "
        "Draw them before, for all positions, and let the function capture the tensor: "
        "`noise = torch.rand(q_len)`, then `noise[q_idx]`."
    )


def traced_in_place(operation: str) -> MaskTypeError:
    return MaskTypeError(
        f"{operation}(…) changes a value in place. Write `x = x.{operation.rstrip('_')}(…)`."
    )


def traced_place(name: str, shape: tuple[int, ...], index: str, entry: int) -> MaskValueError:
    return MaskValueError(
        f"the function reads {name} of shape {list(shape)} at {index}, of which an entry is "
        f"{entry}. Capture indices that lie in {name}, or a longer {name}."
    )


def traced_float64(name: str) -> MaskValueError:
    return MaskValueError(
        f"the function compares float64 entries of {name}, and is computed in float32, which "
        f"rounds some of them: close numbers would be equal. Capture ({name} - {name}.min())"
        f".float(), or integers: ({name} * 1000).round().long()."
    )


def traced_divisor(divisor: str, value: int | None) -> MaskValueError:
    """`value` is that of the divisor, None where it is not known."""
    if value is None:
        why = "nothing shows that it is positive"
        write = "write torch.clamp(divisor, min=1) if it always is"
    else:
        why = f"it is {value}"
        write = "for a negative d, `x // d` is `-x // -d`, and `x % d` is `-(-x % -d)`"
    return MaskValueError(
        f"the function divides by {divisor}, and {why}. Divisors must be positive: {write}."
    )
