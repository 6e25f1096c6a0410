"""Messages of what attention is called with."""

from __future__ import annotations

import torch

from ..errors import BackendError, MaskTypeError, MaskValueError

_LEARNED = (
    "Multiply the query by a scale that is a tensor: ma.attention(query * scale, key, value, "
    "score, scale=1.0)."
)


def devices_differ(*found: object) -> MaskTypeError:
    return MaskTypeError(
        "attention: query, key and value must share one device, got "
        f"{', '.join(map(str, found))}. Write key.to(query.device), value.to(query.device)."
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


def most_queries_unknown(problem: MaskValueError, queries: int) -> MaskValueError:
    """Of packed queries, whose tensors would do for a request with few of them."""
    return MaskValueError(
        f"{problem} One request may have all {queries} packed queries, as far as is known: write "
        "Pages(…, most_queries=n) where none has more than n."
    )


def sparse_tensor(name: str, layout: object) -> MaskTypeError:
    return MaskTypeError(
        f"attention: {name} is a tensor of layout {layout}. Write {name}.to_dense(): what is "
        "skipped follows from the mask, not from zeros of the inputs."
    )


def unsupported_dtype(dtype: object) -> MaskTypeError:
    return MaskTypeError(
        f"attention: float16, bfloat16, float32, float8_e4m3fn (and float64 off the GPU kernels) "
        f"are served, got {dtype}. Convert query, key and value to one of them: query.float()."
    )


def wrong_device(name: str, found: object, wanted: object) -> MaskValueError:
    return MaskValueError(
        f"{name} lives on {found}, query on {wanted}. Move the expression once: "
        f"`mask = mask.to({str(wanted)!r})`."
    )


def scale_type(found: object) -> MaskTypeError:
    return MaskTypeError(
        f"attention: scale must be a number, got {found!r} of type {type(found).__name__}. Write "
        "a float such as 0.125, or leave scale out for 1 / sqrt(head_dim)."
    )


def scale_tensor(shape: tuple[int, ...], device: object, learned: bool) -> MaskTypeError:
    lost = " that requires a gradient, which it would not get" if learned else ""
    return MaskTypeError(
        f"attention: scale must be a number, got a tensor of shape {list(shape)} on {device}{lost}."
        f" {_LEARNED}"
    )


def scale_not_finite(found: float) -> MaskValueError:
    return MaskValueError(
        f"attention: scale must be finite, got {found}. Leave it out for 1 / sqrt(head_dim)."
    )


def no_head_dim(query: object) -> MaskValueError:
    return MaskValueError(
        f"attention: the head dimension of query and key is 0, got query {list(query)}. "  # type: ignore[call-overload]
        "Write at least one entry along the last dimension."
    )


def no_forward_mode() -> BackendError:
    return BackendError(
        "forward-mode differentiation (torch.func.jvp, jacfwd, hessian; torch.autograd.forward_ad) "
        "is not built. backend='reference' differentiates so; torch.func.vjp and jacrev run here."
    )


def nested_tensor(name: str) -> MaskTypeError:
    return MaskTypeError(
        f"attention: {name} is a nested tensor, which is not built. Pack the sequences into one of "
        "shape [1, heads, total, head_dim] and add document.from_lengths(lengths) to the mask."
    )


def distributed_tensor(name: str) -> MaskTypeError:
    return MaskTypeError(
        f"attention: {name} is a DTensor; a call takes the tensors of its own process. Wrap the "
        "call in torch.distributed.tensor.experimental.local_map, with the heads or the batch as "
        f"what is divided, or pass {name}.to_local()."
    )


def operands_differ(key: str, wanted: tuple[int, ...], found: tuple[int, ...]) -> MaskValueError:
    return MaskValueError(
        f"the structure {key!r} takes {wanted[0]} tensors, {wanted[1]} integers and {wanted[2]} "
        f"real numbers, got {found[0]}, {found[1]} and {found[2]}. The operators of maskalg are "
        "called by ma.attention, which passes them."
    )


def no_lse_of(name: str) -> MaskValueError:
    return MaskValueError(
        f"return_lse=True: weight={name} has no logarithm of a sum of exponentials. Leave "
        "return_lse out, or use softmax weights."
    )


def no_pages(found: object) -> MaskTypeError:
    return MaskTypeError(
        f"attention: pages must be ma.Pages(table, lengths), got {type(found).__name__}."
    )
