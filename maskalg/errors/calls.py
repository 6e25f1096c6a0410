"""Messages about the arguments of attention, masks and biases, and about unsupported calls."""

from __future__ import annotations

import torch

from .kinds import BackendError, MaskTypeError, MaskValueError
from .strangers import entering, instead


def not_a_score(what: object) -> MaskTypeError:
    return MaskTypeError(
        f"attention: score must be a mask, a bias or `mask + bias`, got {type(what).__name__}. "
        f"{entering(what)}"
    )


def not_a_mask(doing: str, what: object) -> MaskTypeError:
    """`doing` names the call and what it does with masks."""
    return MaskTypeError(
        f"{doing} masks, got {what!r} of type {type(what).__name__}. "
        f"{instead(what) or 'A score is given by its mask: score.mask.'}"
    )


def head_dim_unsupported(found: int) -> BackendError:
    return BackendError(
        f"the fused kernel serves head dimensions 8 to 256, got {found}. "
        "backend='reference' serves any."
    )


def not_positive(call: str, argument: str, value: float) -> MaskValueError:
    return MaskValueError(f"{call}: {argument} must be a positive finite number, got {value}.")


def not_a_tensor(name: str, what: object) -> MaskTypeError:
    if type(what).__module__ == "torch.fx.proxy":
        return MaskTypeError(
            f"attention: {name} is a Proxy of torch.fx.symbolic_trace, which maskalg does not "
            "support. torch.compile, torch.export and make_fx trace it."
        )
    says = f"attention: {name} must be a torch.Tensor, got {type(what).__name__}. "
    if type(what).__name__ in ("Mask", "Bias", "Score"):
        return MaskTypeError(says + "Write attention(query, key, value, mask): it comes fourth.")
    return MaskTypeError(says + "Write torch.as_tensor(…) of an array or a list.")


def no_double_backward() -> BackendError:
    return BackendError(
        "the gradient of a gradient is not built (backward was called with create_graph=True). "
        "ma.attention(…, backend='reference') differentiates twice."
    )


def no_batched_gradients() -> BackendError:
    return BackendError(
        "several gradients at once of one call (is_grads_batched=True, jacobian(vectorize=True)) "
        "are not built. Write torch.func.jacrev(function), where the function calls ma.attention, "
        "or backend='reference'."
    )


def no_dropout(found: object) -> BackendError:
    return BackendError(
        f"attention: dropout_p={found!r}, and dropout of attention weights is not built. "
        "Leave it out; torch.nn.functional.dropout serves the output."
    )


def interpreter_compiles_nothing() -> BackendError:
    return BackendError("nothing is compiled under TRITON_INTERPRET=1: unset it.")


def float8_weight(name: str) -> MaskTypeError:
    return MaskTypeError(
        f"attention: float8 inputs need softmax weights, got weight={name}, which float8 would "
        "round too coarsely. Pass bfloat16 inputs."
    )


def float8_gradient() -> BackendError:
    return BackendError(
        "attention: gradients are not built for float8 inputs, and query, key, value or a tensor "
        "of the expression requires one. Call it under torch.no_grad(), or pass bfloat16 inputs."
    )


def unsupported_weight(what: object) -> MaskTypeError:
    own = instead(what) if "not called" in instead(what) else ""
    named = "Write ma.softmax, ma.softmax_with_sink(logits), ma.sigmoid(bias), ma.relu or a Weight."
    return MaskTypeError(
        f"weight must be a weight function such as ma.softmax, got {what!r}. {own or named}"
    )


FROM_MASK = (
    "An attention mask [batch, kv_len], Boolean or of 0 and 1, enters as "
    "ma.padding.from_mask(attention_mask)."
)


def not_an_integer(call: str, argument: str, value: object, low: int) -> MaskTypeError:
    write = " Write its .item()." if getattr(value, "shape", None) == () else ""
    return MaskTypeError(
        f"{call}: {argument} must be an integer >= {low}, got {value!r} of type "
        f"{type(value).__name__}.{write}"
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
        f"{formula} may take integers of {bits} bits, and at most {most} are computed. Leave out "
        "factors that no sequence reaches, and pass tensors whose entries fit as table.int()."
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
    if "bool" in wanted and "torch.int" in found:
        return (
            f" Write True or False for each; torch.isin(torch.arange(length), torch.tensor("
            f"{argument})) where they are positions."
        )
    if "int" in wanted and (whole or found.startswith(("torch.float", "torch.bfloat"))):
        return f" Write {argument}.long()."
    return ""


def sparse_table(name: str, layout: object) -> MaskTypeError:
    return MaskTypeError(
        f"{name} is a tensor of layout {layout}, and entries are read at positions. Write "
        f"{name}.to_dense()."
    )


def table_dtype(name: str, dtype: torch.dtype) -> MaskTypeError:
    """A table whose dtype no kernel reads."""
    if dtype.is_complex:
        write = f"{name}.real or {name}.abs()"
    elif dtype.is_floating_point:
        write = f"{name}.float()"
    else:
        write = f"{name}.long()" + (" if no entry is 2**63 or more" * (dtype == torch.uint64))
    return MaskTypeError(
        f"{name} is a tensor of dtype {dtype}. Tables hold bool, uint8, uint16, uint32, int8, "
        f"int16, int32, int64, float16, bfloat16, float32 or float64. Write {write}."
    )


def tensor_shape(call: str, argument: str, found: object, wanted: str) -> MaskValueError:
    return MaskValueError(f"{call}: {argument} must have shape {wanted}, got {found}.")
