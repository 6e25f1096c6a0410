"""Of the arguments that atoms take."""

from __future__ import annotations

from .kinds import MaskTypeError, MaskValueError

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
    """A correction for a tensor whose dtype is of another kind, where it is not a guess."""
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
