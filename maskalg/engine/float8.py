"""Inputs of float8 (e4m3), pages of int8 and float8, and their factors."""

from __future__ import annotations

from typing import Final

import torch

from .. import errors

FLOAT8: Final = torch.float8_e4m3fn
QUANTISED: Final = (torch.int8, FLOAT8)
"""Dtypes of keys and values in pages beside queries of a wider floating-point dtype."""

Descales = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Factors of the numbers of query, key and value: contiguous float32 `[batch, heads]`, of key and
value `[batch, kv_heads]`."""

_LARGEST: Final = torch.finfo(FLOAT8).max


def out_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of an output, from that of the query: bfloat16 for float8, else the same."""
    return torch.bfloat16 if dtype == FLOAT8 else dtype


def to_float8(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor in float8 with one factor for each head, as `attention` takes them.

    Args:
        tensor: `[batch, heads, length, dim]` of a floating-point dtype. The largest number of each
            head becomes 448, the largest of float8; all keep 4 significant bits.

    Returns:
        The numbers in `torch.float8_e4m3fn`, and the factor of each head, float32 `[batch, heads]`:
        a number times its factor is the value. A head of zeros has the factor 1.

    Raises:
        TypeError, ValueError: no floating-point tensor of four dimensions.

    Source: Micikevicius et al., FP8 Formats for Deep Learning (2022).

    Examples:
        >>> q8, q_descale = to_float8(torch.randn(1, 8, 128, 64))
        >>> q8.dtype, q_descale.shape
        (torch.float8_e4m3fn, torch.Size([1, 8]))
    """
    if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
        found = tensor.dtype if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise errors.MaskTypeError(
            f"to_float8: tensor must be a floating-point tensor, got {found}. Write "
            "to_float8(tensor.float()) for a query, a key or a value of numbers."
        )
    if tensor.dim() != 4:
        wanted = "[batch, heads, length, dim]"
        raise errors.tensor_shape("to_float8", "tensor", list(tensor.shape), wanted)
    wide = tensor.float()
    if not wide.numel():
        return wide.to(FLOAT8), wide.new_ones(wide.shape[:2])
    descale = wide.abs().amax(dim=(2, 3)) / _LARGEST
    descale = torch.where(descale == 0, 1.0, descale)
    # Division may round the largest number up, past the largest float8.
    scaled = (wide / descale[:, :, None, None]).clamp(-_LARGEST, _LARGEST)
    return scaled.to(FLOAT8), descale


def descales_of(
    descale: object, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> Descales:
    """The factors of query, key and value, each contiguous `[batch, heads]`; raises where they do
    not fit."""
    if query.dtype != FLOAT8 and key.dtype not in QUANTISED:
        raise errors.MaskTypeError(
            "attention: descale=… is for float8 inputs and pages of int8 or float8, and query is "
            f"of {query.dtype}, key of {key.dtype}. Leave it out, or make the inputs with "
            "ma.to_float8."
        )
    if not isinstance(descale, (tuple, list)) or len(descale) != 3:
        raise errors.MaskTypeError(
            "attention: descale must be three tensors, the factors of query, key and value, got "
            f"{type(descale).__name__}. ma.to_float8 makes one with each input."
        )
    found = []
    for name, factor, tensor in zip(
        ("query", "key", "value"), descale, (query, key, value), strict=True
    ):
        shape = tensor.shape[:2]
        if isinstance(factor, torch.Tensor) and factor.requires_grad and torch.is_grad_enabled():
            raise errors.float8_gradient()
        if not isinstance(factor, torch.Tensor) or factor.dtype != torch.float32:
            what = factor.dtype if isinstance(factor, torch.Tensor) else type(factor).__name__
            raise errors.MaskTypeError(
                f"attention: the descale of {name} must be a float32 tensor, got {what}."
            )
        if factor.device != query.device:
            raise errors.MaskValueError(
                f"attention: the descale of {name} lives on {factor.device}, query on "
                f"{query.device}. Move it there."
            )
        if factor.shape != shape:
            if factor.numel() == 1:
                factor = factor.reshape(1, 1)
            elif factor.dim() != 2 or not _broadcasts(factor.shape, shape):
                raise errors.MaskValueError(
                    f"attention: the descale of {name} must have shape {list(shape)}, one factor "
                    f"for each batch and head of {name}, or 1 in place of either, got "
                    f"{list(factor.shape)}."
                )
            factor = factor.expand(shape)
        found.append(factor.contiguous())
    return found[0], found[1], found[2]


def _broadcasts(shape: torch.Size, wanted: torch.Size) -> bool:
    pairs = zip(reversed(shape), reversed(wanted), strict=False)
    return all(size in (1, other) for size, other in pairs)
