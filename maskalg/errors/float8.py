"""Of float8 inputs and their factors."""

from __future__ import annotations

from .kinds import BackendError, MaskTypeError, MaskValueError


def descale_without_float8(dtype: object) -> MaskTypeError:
    return MaskTypeError(
        f"attention: descale=… is for float8 inputs, and query is of {dtype}. Leave it out, or "
        "make the inputs with ma.to_float8."
    )


def not_three_descales(found: object) -> MaskTypeError:
    return MaskTypeError(
        "attention: descale must be three tensors, the factors of query, key and value, got "
        f"{type(found).__name__}. ma.to_float8 makes one with each input."
    )


def descale_dtype(name: str, found: object) -> MaskTypeError:
    return MaskTypeError(f"attention: the descale of {name} must be a float32 tensor, got {found}.")


def descale_device(name: str, found: object, wanted: object) -> MaskValueError:
    return MaskValueError(
        f"attention: the descale of {name} lives on {found}, query on {wanted}. Move it there."
    )


def descale_shape(name: str, found: list[int], wanted: list[int]) -> MaskValueError:
    return MaskValueError(
        f"attention: the descale of {name} must have shape {wanted}, one factor for each batch and "
        f"head of {name}, or 1 in place of either, got {found}."
    )


def float8_weight(name: str) -> MaskTypeError:
    return MaskTypeError(
        f"attention: float8 inputs are served with softmax weights, got weight={name}. Weights of "
        "other sizes would be rounded to few numbers: pass bfloat16 inputs."
    )


def float8_scale(scale: float) -> MaskValueError:
    return MaskValueError(
        f"attention: scale must be a positive number with float8 inputs, got {scale}. Its sign can "
        "be put into the query before it is made float8."
    )


def float8_gradient() -> BackendError:
    return BackendError(
        "attention: gradients are not built for float8 inputs, and query, key, value or a tensor "
        "of the expression wants one. Call it under torch.no_grad(), or pass bfloat16 inputs."
    )


def float8_architecture(arch: str) -> BackendError:
    return BackendError(
        f"the fused kernel reads float8 from sm_89 on, and this device is {arch}. Pass bfloat16: "
        "`(q8.float() * descale[:, :, None, None]).bfloat16()`."
    )
