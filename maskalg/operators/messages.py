"""Messages of what attention is called with."""

from __future__ import annotations

import torch

from ..errors import BackendError, MaskTypeError, MaskValueError

_LEARNED = (
    "Multiply the query by a scale that is a tensor: ma.attention(query * scale, key, value, "
    "score, scale=1.0)."
)


def dtypes_differ(*found: torch.dtype) -> MaskTypeError:
    """Dtypes of query, key and value."""
    write = "key.to(query.dtype), value.to(query.dtype)."
    if not all(dtype.is_floating_point for dtype in found):
        write = (
            "key.to(query.dtype) * scale, with the scale that the integers were made with, and "
            "value likewise; ma.to_float8 makes inputs of 8 bits that attention takes, and both "
            "keys and values in pages may be int8, with descale=(of_query, of_key, of_value)."
        )
    return MaskTypeError(
        "attention: query, key and value must share one dtype, got "
        f"{', '.join(map(str, found))}. Write {write}"
    )


def wrong_device(name: str, found: object, wanted: object) -> MaskValueError:
    return MaskValueError(
        f"{name} lives on {found}, query on {wanted}. Move the expression once: "
        f"`mask = mask.to({str(wanted)!r})`."
    )


def scale_tensor(shape: tuple[int, ...], device: object, learned: bool) -> MaskTypeError:
    lost = " that requires a gradient, which it would not get" if learned else ""
    return MaskTypeError(
        f"attention: scale must be a number, got a tensor of shape {list(shape)} on {device}{lost}."
        f" {_LEARNED}"
    )


def no_forward_mode() -> BackendError:
    return BackendError(
        "forward-mode differentiation (torch.func.jvp, jacfwd, hessian; torch.autograd.forward_ad) "
        "is not built. backend='reference' differentiates so; torch.func.vjp and jacrev run here."
    )


def distributed_tensor(name: str) -> MaskTypeError:
    return MaskTypeError(
        f"attention: {name} is a DTensor; a call takes the tensors of its own process. Wrap the "
        "call in torch.distributed.tensor.experimental.local_map, with the heads or the batch as "
        f"what is divided, or pass {name}.to_local()."
    )
