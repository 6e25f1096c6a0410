"""Of what attention is called with, and of what no backend serves."""

from __future__ import annotations

from .kinds import BackendError, MaskTypeError, MaskValueError
from .strangers import entering, instead


def not_a_score(what: object) -> MaskTypeError:
    return MaskTypeError(
        f"attention: score must be a mask, a bias or `mask + bias`, got {type(what).__name__}. "
        f"{entering(what)}"
    )


def head_dim_unsupported(found: int) -> BackendError:
    return BackendError(
        f"the fused kernel serves head dimensions 8 to 256, got {found}. "
        "backend='reference' serves any."
    )


def not_positive(call: str, argument: str, value: float) -> MaskValueError:
    return MaskValueError(f"{call}: {argument} must be a positive finite number, got {value}.")


def not_a_tensor(name: str, what: object) -> MaskTypeError:
    return MaskTypeError(f"attention: {name} must be a torch.Tensor, got {type(what).__name__}.")


def no_double_backward() -> BackendError:
    return BackendError(
        "the gradient of a gradient is not built (backward was called with create_graph=True). "
        "backend='reference' differentiates twice."
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
        f"attention: float8 inputs are served with softmax weights, got weight={name}. Weights of "
        "other sizes would be rounded to few numbers: pass bfloat16 inputs."
    )


def float8_gradient() -> BackendError:
    return BackendError(
        "attention: gradients are not built for float8 inputs, and query, key, value or a tensor "
        "of the expression wants one. Call it under torch.no_grad(), or pass bfloat16 inputs."
    )


def unsupported_weight(what: object) -> MaskTypeError:
    own = instead(what) if "not called" in instead(what) else ""
    named = "Write ma.softmax, ma.softmax_with_sink(logits), ma.sigmoid(bias), ma.relu or a Weight."
    return MaskTypeError(
        f"weight must be a weight function such as ma.softmax, got {what!r}. {own or named}"
    )
