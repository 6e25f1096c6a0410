"""Messages of operators between masks, biases, scores and index expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import torch

from ..errors import MaskAttributeError, MaskTypeError, MaskValueError, entering, instead, own_name
from ..formula.entries import is_listed
from ..formula.expression import Expression
from ..formula.parameters import plain_number


def refusing(
    error: Callable[[Any, str, Any], Exception | None], sign: str
) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """An operator that is refused, and its reflection.

    `error(left, sign, right)` is raised; operands for which it is None are left to Python.
    """

    def refused(self: object, other: object) -> object:
        return raised(error(self, sign, other))

    def reflected(self: object, other: object) -> object:
        return raised(error(other, sign, self))

    return refused, reflected


def raised(error: Exception | None) -> NoReturn:
    """Raise the error; without one, `NotImplemented` leaves the operands to Python."""
    if error is None:
        return NotImplemented  # type: ignore[misc]
    raise error


def unparenthesised(left: object, sign: str, right: object) -> MaskTypeError:
    return MaskTypeError(
        f"`{left!r} {sign} {right!r}`: `{sign}` joins masks, and an index expression is none. "
        f"Comparisons need parentheses, for Python binds `{sign}` tighter: write "
        f"`(q_idx >= kv_idx) {sign} (kv_idx < 3)`. Integers that stand for flags are `x != 0`."
    )


def _entries(what: object) -> tuple[str, str]:
    """The kind of a tensor, an array or a list, and a description of it."""
    kind = {"Tensor": "tensor", "ndarray": "array"}.get(type(what).__name__, type(what).__name__)
    if not hasattr(what, "dtype"):
        return kind, f"a {kind}"
    return kind, f"a {what.dtype} {kind} of shape {list(getattr(what, 'shape', ()))}"


def no_mask(
    left: object, sign: str, right: object, other: object, kind: str
) -> MaskTypeError | None:
    """The error for an operand `other` that is no mask; None for a foreign type."""
    if is_listed(other):
        shown, found = _entries(other)
        says = (
            f"{found} is no mask. Write `ma.dense(tensor)` for flags of queries and keys, "
            "`ma.padding.from_mask(tensor)` for an attention mask [batch, kv_len], "
            "`ma.table(tensor)[kv_idx]` for flags of keys."
        )
    elif isinstance(other, (bool, np.bool_)):
        shown = str(other)
        says = (
            f"{other} is no mask. Write `ma.everything` for a mask that keeps every pair, "
            "`ma.nothing` for one that keeps none. `a == b` of two masks asks whether they are one "
            "expression; pairs at which both hold or neither does are ~(a ^ b). `mask == number` "
            "is False: a Boolean table is a mask as it is, `~mask` where it is False."
        )
    elif isinstance(plain_number(other), (int, float)):
        shown = str(other)
        joint = "+" if kind == "bias" else sign
        write = f"{_operand(left)} {joint} ({other} <= q_idx)"
        if left is other:
            write = f"(q_idx - kv_idx < {other}) {joint} {_operand(right)}"
        says = (
            f"{other} is no mask. Comparisons need parentheses, for Python binds `{sign}` tighter: "
            f"write `{write}`."
        )
    elif instead(other):
        shown, says = _shown(other), f"`{sign}` joins masks. {instead(other)}"
    else:
        return None
    if kind != "mask" and sign != "&":
        return joined_with_bias(left, sign, right)
    if kind == "bias":
        says = f"{says} A bias adds to the scores of what a mask keeps: `mask + bias`."
    sides = [shown if side is other else _operand(side) for side in (left, right)]
    return MaskTypeError(f"`{sides[0]} {sign} {sides[1]}`: {says}")


def tensor_for_bias(left: object, sign: str, what: object) -> MaskTypeError:
    kind, found = _entries(what)
    return MaskTypeError(
        f"`{left!r} {sign} {kind}`: {found} is no bias. Write "
        "`ma.dense_bias(tensor)` for numbers of queries and keys, `ma.key_bias(tensor)` for those "
        "of keys, `mask & ma.dense(tensor)` for a Boolean tensor."
    )


def joined_with_bias(left: object, sign: str, right: object) -> MaskTypeError:
    return MaskTypeError(
        f"`{_operand(left)} {sign} {_operand(right)}` has no meaning: a bias cannot belong to one "
        f"side of `{sign}`. Add it after choosing what is kept: `(a {sign} b) + bias`. If you "
        f"wrote `a {sign} b + bias`, note that Python binds `+` tighter than `{sign}`: write `(a "
        f"{sign} b) + bias`."
    )


def not_of_bias(what: object) -> MaskTypeError:
    return MaskTypeError(
        f"`~({what!r})` has no meaning: only a mask can be negated. Write `~mask + bias`."
    )


def mask_and_bias(left: object, right: object) -> MaskTypeError:
    return MaskTypeError(
        f"`{_operand(left)} & {_operand(right)}`: a bias adds to the score, it keeps or drops "
        f"nothing. Write `{_operand(left)} + {_operand(right)}`."
    )


def times_mask(left: object, sign: str, right: object) -> MaskTypeError:
    says = (
        "Multiply the bias, `mask + 2 * bias`, or write `ma.where(mask, bias, 0)` for a bias of "
        "some pairs only."
    )
    if sign in ("%", "//", "**"):
        says = f"Compute with indices, and compare: `q_idx {sign} 2 == 0` is a mask."
    return MaskTypeError(
        f"`{_operand(left)} {sign} {_operand(right)}`: a mask is no number. {says}"
    )


def compared(left: Expression, sign: str, right: object) -> MaskTypeError:
    kind = left.kind
    says = "Write it as it is, or `~mask`; ma.implies(a, b) asks whether b keeps all that a keeps."
    if kind == "bias":
        says = "Compare the index expression that it adds: `x >= 0` is a mask, `ma.bias(x)` a bias."
    return MaskTypeError(
        f"`{_operand(left)} {sign} {_operand(right)}`: a {kind} is no number. {says}"
    )


def divided_by_zero(bias: object) -> MaskValueError:
    return MaskValueError(f"`{_operand(bias)} / 0`: a bias is divided by a number that is not 0.")


def nested_mask(left: object, sign: str, right: object) -> MaskTypeError:
    write = "Write `a & b` for what two masks keep."
    if hasattr(left, "mask"):
        write = "Its left side holds a mask: write `a.mask + a.bias @ b`."
    return MaskTypeError(
        f"`{_operand(left)} {sign} {_operand(right)}`: `@` applies a bias to the result of another "
        f"bias or score. {write}"
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
        hint = "A tensor enters as `ma.table(tensor)[index]`, a 0-d one as `ma.table(tensor)[()]`."
    elif kinds == {"Bias", "Index"}:
        hint = "Write `ma.bias(x)` for an index expression that is added to the score."
    return MaskTypeError(
        "ma.where chooses between two masks, two biases or two index expressions, got "
        f"{type(then).__name__} and {type(otherwise).__name__}. {hint}".rstrip()
    )


def _operand(value: object) -> str:
    text = _entries(value)[0] if hasattr(value, "dtype") else repr(value)
    return f"({text})" if " " in text else text


def no_index(value: object) -> MaskTypeError:
    found = f"{value!r} of type {type(value).__name__}"
    if is_listed(value) and hasattr(value, "dtype"):
        found = _entries(value)[1]
    says = (
        "Tensors enter through `ma.table(tensor)[index]`, named numbers through "
        "`ma.scalar(value)`. An index expression is added to scores as `ma.bias(x)`, and `x >= 0` "
        "is a mask."
    )
    return MaskTypeError(
        "expected an index expression (q_idx, kv_idx, batch, head or arithmetic on them) or a "
        f"number, got {found}. {(value is not None and instead(value)) or says}"
    )


def no_number(index: object) -> MaskTypeError:
    return MaskTypeError(
        f"`{index!r}` is a formula, and no number for Python. Write `ma.table(list)[index]` to "
        "read a list at it, ma.log(x) for math.log(x), ma.truncate(x) for int(x)."
    )


def no_attribute_of_index(name: str) -> MaskAttributeError:
    text = f"an index expression has no attribute {name!r}."
    if hasattr(torch.Tensor, name) and not name.startswith("_"):
        text += (
            " It is a formula, no tensor: write abs(x), and functions of maskalg such as ma.log(x) "
            "and ma.maximum(x, 0). In a function, ma.mask(lambda b, h, q_idx, kv_idx: …), indices "
            "have the methods of tensors."
        )
    return MaskAttributeError(text)


def not_a_scalar(value: object, name: str, low: int | None) -> MaskTypeError:
    least = "" if low is None else f" >= {low}"
    hint = "Tensors enter through ma.table(tensor)[index], masks as they are."
    return MaskTypeError(
        f"scalar({value!r}): {name} must be a number{least}, got {value!r} of type "
        f"{type(value).__name__}. {hint}"
    )


def not_a_table(value: object) -> MaskTypeError:
    kind = type(value).__name__
    hint = "A list holds numbers alone or True and False alone, in rows of one length."
    if kind not in ("list", "tuple", "ndarray"):
        hint = instead(value) or "A named number enters as ma.scalar(value)."
    return MaskTypeError(
        "table: tensor must be a tensor, or a list or an array of its entries, got "
        f"{value!r} of type {kind}. {hint}"
    )


def where_condition(found: object) -> MaskTypeError:
    return MaskTypeError(
        f"ma.where(condition, …): the condition must be a mask, such as `head % 2 == 0`, got "
        f"{type(found).__name__}. {entering(found)}"
    )


def _shown(what: object) -> str:
    if what is None or isinstance(what, str):
        return repr(what)
    name = getattr(what, "__name__", "")
    return (isinstance(name, str) and name) or own_name(what) or type(what).__name__


def stranger_for_bias(left: object, sign: str, what: object) -> MaskTypeError:
    return MaskTypeError(
        f"`{left!r} {sign} {_shown(what)}`: `{sign}` takes a bias. "
        f"{'Leave it out.' if what is None else instead(what)}"
    )


def unknown_form(call: str, form: object, forms: tuple[str, ...]) -> MaskValueError:
    named = [f'"{one}"' for one in forms]
    wanted = f"{', '.join(named[:-1])} or {named[-1]}"
    return MaskValueError(f"{call}: form must be {wanted}, got {form!r}.")
