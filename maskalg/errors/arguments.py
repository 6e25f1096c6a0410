"""Of the arguments that atoms take."""

from __future__ import annotations

from .kinds import MaskTypeError, MaskValueError
from .strangers import instead

FROM_MASK = (
    "An attention mask [batch, kv_len], Boolean or of 0 and 1, enters as "
    "ma.padding.from_mask(attention_mask)."
)


def not_an_integer(call: str, argument: str, value: object, low: int) -> MaskTypeError:
    return MaskTypeError(
        f"{call}: {argument} must be an integer >= {low}, got {value!r} of type "
        f"{type(value).__name__}."
    )


def below(call: str, argument: str, value: int | float, low: int) -> MaskValueError:
    kind = "a number" if isinstance(value, float) else "an integer"
    return MaskValueError(f"{call}: {argument} must be {kind} >= {low}, got {value}.")


def not_a_number(call: str) -> MaskValueError:
    return MaskValueError(
        f"{call}: nan is no number. Write a finite one; what a query must not see is dropped by a "
        "mask: `mask + bias`."
    )


def not_a_scalar(value: object, name: str, low: int | None) -> MaskTypeError:
    least = "" if low is None else f" >= {low}"
    hint = "Tensors enter through ma.table(tensor)[index], masks as they are."
    return MaskTypeError(
        f"scalar({value!r}): {name} must be a number{least}, got {value!r} of type "
        f"{type(value).__name__}. {hint}"
    )


def not_a_table(value: object) -> MaskTypeError:
    kind = type(value).__name__
    hint = "Numbers in a list lie in rows of one length; True and False do not mix with them."
    if kind not in ("list", "tuple", "ndarray"):
        hint = instead(value) or "A number by name enters as ma.scalar(value)."
    return MaskTypeError(
        "table: tensor must be a tensor, or a list or an array of its entries, got "
        f"{value!r} of type {kind}. {hint}"
    )


def above_int32(call: str, argument: str, value: int) -> MaskValueError:
    return MaskValueError(
        f"{call}: {argument} must fit a 32-bit integer, got {value}. Leave out a limit that "
        "never binds (None in window(left, right)), or write a smaller one."
    )


def integer_too_long(formula: str, bits: int, most: int) -> MaskValueError:
    formula = formula if len(formula) <= 120 else f"{formula[:117]}..."
    return MaskValueError(
        f"Integers of {most} bits are computed, and {formula} may take {bits}. Leave out factors "
        "that no sequence reaches, and pass tensors whose entries fit as table.int()."
    )


def tensor_dtype(call: str, argument: str, found: object, wanted: str) -> MaskTypeError:
    hint = _converted(argument, str(found), wanted)
    if found in ("list", "tuple", "ndarray") and "tensor" in wanted:
        hint = " A list or an array holds numbers alone or flags alone, in rows of one length."
    return MaskTypeError(f"{call}: {argument} must be {wanted}, got {found}.{hint}")


def _converted(argument: str, found: str, wanted: str) -> str:
    """What to write for a tensor whose dtype is of another kind, where that is not a guess."""
    whole = found.startswith(("torch.int", "torch.uint"))
    if found in ("Embedding", "Linear"):
        return f" Write {argument}.weight."
    if argument == "tensor" and "floating" in wanted and (whole or found == "torch.bool"):
        return f" {FROM_MASK} Write tensor.float() for numbers that are added."
    if "floating" in wanted and whole:
        return f" Write {argument}.float()."
    if "bool" in wanted and found.startswith(("torch.float", "torch.bfloat")):
        return (
            f" Write {argument} != 0 where 1 keeps and 0 drops, {argument} == 0 where 0 keeps and "
            "-inf drops."
        )
    if "bool" in wanted and whole:
        return f" Write {argument} != 0."
    if "int" in wanted and (whole or found.startswith(("torch.float", "torch.bfloat"))):
        return f" Write {argument}.long()."
    return ""


def tensor_shape(call: str, argument: str, found: object, wanted: str) -> MaskValueError:
    return MaskValueError(f"{call}: {argument} must have shape {wanted}, got {found}.")


def unknown_parameter(name: str, known: list[str]) -> MaskTypeError:
    have = ", ".join(known) if known else "none"
    return MaskTypeError(
        f"bind({name}=…): this expression has no parameter {name!r}; it has {have}."
    )


def bound_tensor(name: str, wanted: tuple[str, int], found: tuple[object, int]) -> MaskValueError:
    return MaskValueError(
        f"bind({name}=…): expected a tensor of kind {wanted[0]} and rank {wanted[1]}, as it was "
        f"built with, got {found[0]} and rank {found[1]}. Another kind or rank is another "
        "structure: build a new expression."
    )


def to_dtype(found: object) -> MaskTypeError:
    return MaskTypeError(
        f"to({found}): an expression moves to a device, and its tensors keep their dtypes. Write "
        "mask.to('cuda'); convert a tensor before it enters: alibi(slopes.bfloat16())."
    )


def bound_by_position(found: object) -> MaskTypeError:
    return MaskTypeError(
        f"bind({found!r}): values are bound by name. Write mask.bind(window=512), or "
        "mask.bind({'window': 512})."
    )


def bound_type(name: str, value: object, wanted: str) -> MaskTypeError:
    return MaskTypeError(
        f"bind({name}=…): expected {wanted}, as it was built with, got {type(value).__name__}. "
        "Another kind of value is another structure: build a new expression."
    )
