"""Checks that query, key, value and the tensors of an expression fit together."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from math import inf, isfinite
from numbers import Real
from typing import Any, cast

import torch
from torch.autograd import forward_ad

from .. import errors
from ..engine import messages as engine_messages
from ..engine.extents import Extents, check, fitting
from ..engine.float8 import FLOAT8, QUANTISED
from ..engine.memory import MEMORY
from ..engine.normal_form import Bound
from ..engine.pages import Pages
from ..formula.entries import readable
from ..formula.nodes import K, Q
from ..formula.parameters import INTEGERS
from ..values.weights import Weight

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, FLOAT8)
_MOST_APART = 1e-3  # of a score, by which weights change by a thousandth
_KEPT = (torch.float64, FLOAT8)  # dtypes that autocast leaves as they are


def extents_of(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, pages: object = None
) -> Extents:
    """The extents of a call; raises where shapes, dtypes or devices do not fit."""
    check_tensor("query", query)
    check_tensor("key", key)
    check_tensor("value", value)
    shape = query.shape
    if pages is None:
        extents = fitting(shape, key.shape, value.shape)
    elif isinstance(pages, Pages):
        extents = pages.extents(query, key, value)
    else:
        raise errors.MaskTypeError(
            f"attention: pages must be ma.Pages(table, lengths), got {type(pages).__name__}."
        )
    if shape[3] == 0:
        raise errors.MaskValueError(
            f"attention: the head dimension of query and key is 0, got query {list(shape)}. Write "
            "at least one entry along the last dimension."
        )
    dtype, device = query.dtype, query.device
    if dtype not in _DTYPES:
        raise errors.MaskTypeError(
            "attention: query, key and value must be float16, bfloat16, float32, float8_e4m3fn "
            f"(or float64 without GPU kernels), got {dtype}. Convert them: "
            f"query.{'real' if dtype.is_complex else 'float()'}."
        )
    quantised = pages is not None and dtype != FLOAT8 and key.dtype in QUANTISED
    if key.dtype != value.dtype or (key.dtype != dtype and not quantised):
        raise _dtypes_differ(dtype, key.dtype, value.dtype)
    if not device == key.device == value.device:
        raise errors.MaskTypeError(
            "attention: query, key and value must share one device, got "
            f"{', '.join(map(str, (device, key.device, value.device)))}. Write "
            "key.to(query.device), value.to(query.device)."
        )
    return extents


def check_tensor(name: str, tensor: object) -> None:
    """Refuse a value that is no tensor, a nested tensor, or one on several devices."""
    if not isinstance(tensor, torch.Tensor):
        raise errors.not_a_tensor(name, tensor)
    if tensor.is_nested:
        raise errors.MaskTypeError(
            f"attention: {name} is a nested tensor, which is not supported. Pack the sequences "
            "into one of shape [1, heads, total, head_dim] and add document.from_lengths(lengths) "
            "to the mask."
        )
    if tensor.layout != torch.strided:
        raise errors.MaskTypeError(
            f"attention: {name} is a tensor of layout {tensor.layout}. Write {name}.to_dense(): "
            "the mask decides which pairs are skipped, not zeros of the inputs."
        )
    if type(tensor) is not torch.Tensor and hasattr(tensor, "device_mesh"):
        raise _distributed_tensor(name)


def no_tangents(tensors: Iterable[object]) -> None:
    """Refuse tensors that forward-mode differentiation follows: results would carry no tangent."""
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and forward_ad.unpack_dual(tensor).tangent is not None:
            raise no_forward_mode()


def checked_scale(scale: object) -> float | None:
    """The factor of q . k as a Python number; refuses other values, and infinite ones."""
    if type(scale) is float and -inf < scale < inf:
        return scale
    if scale is None or isinstance(scale, torch.SymFloat):
        return cast("float | None", scale)
    if isinstance(scale, torch.Tensor):
        on_cpu = scale.device.type == "cpu" and not torch.compiler.is_compiling()
        if scale.requires_grad or scale.numel() != 1 or not on_cpu or scale.is_complex():
            lost = " that requires a gradient, which it would not get" * scale.requires_grad
            raise errors.MaskTypeError(
                f"attention: scale must be a number, got a tensor of shape {list(scale.shape)} on "
                f"{scale.device}{lost}. Multiply the query by a scale that is a tensor: "
                "ma.attention(query * scale, key, value, score, scale=1.0)."
            )
    elif isinstance(scale, bool) or not isinstance(scale, (*INTEGERS, Real)):
        raise errors.MaskTypeError(
            f"attention: scale must be a number, got {scale!r} of type {type(scale).__name__}. "
            "Write a float such as 0.125, or leave scale out for 1 / sqrt(head_dim)."
        )
    found = float(cast(float, scale))
    if not torch.compiler.is_compiling() and not isfinite(found):
        raise errors.MaskValueError(
            f"attention: scale must be finite, got {found}. Leave it out for 1 / sqrt(head_dim)."
        )
    return found


def check_tables(
    form: Bound, extents: Extents, device: torch.device, pages: Pages | None = None
) -> None:
    """Check the tensors of an expression against a call: their device and their shapes."""
    for slot, tensor in form.tensors():
        if type(tensor) is not torch.Tensor and hasattr(tensor, "device_mesh"):
            raise _distributed_tensor(slot.name)
        if tensor.device != device:
            raise _wrong_device(slot.name, tensor.device, device)
    problem = _misfit(form, extents)
    if problem is None:
        return
    unknown = pages and pages.cu_seqlens_q is not None and pages.most_queries is None
    if unknown and _misfit(form, replace(extents, q_len=1)) is None:
        raise errors.MaskValueError(
            f"{problem} One request may have all {extents.q_len} packed queries, as far as is "
            "known: write Pages(…, most_queries=n) where none has more than n."
        )
    raise problem


def _misfit(form: Bound, extents: Extents) -> errors.MaskValueError | None:
    try:
        check(form, extents)
    except errors.MaskValueError as problem:
        return problem
    return None


def note_rounded(form: Bound, dtype: torch.dtype) -> None:
    """Warn of float64 tensors on the CPU if float32 moves an entry by more than a score may move.

    Differences of large entries, such as times in seconds, are off by as much. Inputs in float64
    have biases in float64, but masks are computed in float32.
    """
    for slot, tensor in form.tensors():
        rounded = tensor.dtype == torch.float64 and readable(tensor)
        if rounded and (dtype != torch.float64 or slot in form.structure.mask.params):
            apart = MEMORY.of_tensors(("rounded",), (tensor,), partial(_apart, tensor.detach()))
            if apart > _MOST_APART:
                warnings.warn(engine_messages.rounded(slot.name, apart), stacklevel=4)


def _apart(entries: torch.Tensor) -> float:
    """How far float32 moves an entry, at most; entries of -1e9 and less are fill values."""
    if not entries.numel():
        return 0.0
    apart = (entries.float() - entries).abs()
    return float(apart.where(entries > -1e9, 0).nan_to_num(0, 0).max())


def note_turned(form: Bound, extents: Extents) -> None:
    """Warn if a tensor has as many positions as the inputs have heads, instead of tokens."""
    lengths = {Q: extents.q_len, K: extents.kv_len}
    short = {index: length for index, length in lengths.items() if 1 < length < extents.heads}
    if not short:
        return
    for slot, axis, index in form.structure.table_indices:
        size = cast(torch.Tensor, form.values[slot.index]).shape[axis]
        length = short.get(index)
        if length is not None and size == extents.heads:
            warnings.warn(engine_messages.looks_turned(slot.name, size, length), stacklevel=4)
            return


def note_past_keys(form: Bound, extents: Extents) -> None:
    """Warn where `shift` puts all queries behind the last key."""
    moves, values = form.structure.moves, form.values
    assert moves is not None
    first: Any = values[moves[0]]  # of any type for speed: a cast is a call
    start: Any = 0 if moves[1] is None else values[moves[1]]
    if first >= start + extents.kv_len > start and extents.q_len:
        keys = start, start + extents.kv_len - 1
        warnings.warn(engine_messages.past_the_keys(first, keys), stacklevel=4)


def check_weight(weight: object, query: torch.Tensor, return_lse: bool) -> None:
    """Refuse a value that is no weight function, or one that does not fit the call."""
    if not isinstance(weight, Weight):
        raise errors.unsupported_weight(weight)
    if return_lse and weight.formula is not None:
        raise errors.MaskValueError(
            f"return_lse=True: weight={weight.name} has no logarithm of a sum of exponentials. "
            "Leave return_lse out, or use softmax weights."
        )
    sink = weight.sink
    if isinstance(sink, torch.Tensor):
        if sink.shape[0] != query.shape[1]:
            raise errors.tensor_shape(weight.name, "sink", list(sink.shape), f"[{query.shape[1]}]")
        if sink.device != query.device:
            raise _wrong_device("sink", sink.device, query.device)


def as_autocast_wants(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The inputs in the dtype of the surrounding `torch.autocast`, as torch's attention takes them.

    float64 stays, as it does there, and so does float8. Tensors of the expression stay too, because
    scores are accumulated in float32 for all inputs.
    """
    dtype = torch.get_autocast_dtype(query.device.type)
    query, key, value = (
        t.to(dtype) if t.is_floating_point() and t.dtype not in _KEPT else t
        for t in (query, key, value)
    )
    return query, key, value


def _dtypes_differ(*found: torch.dtype) -> errors.MaskTypeError:
    """The error for query, key and value of these dtypes."""
    write = "key.to(query.dtype), value.to(query.dtype)."
    if any(dtype.itemsize == 1 for dtype in found):
        write = (
            "key.to(query.dtype) * scale, with the scale that its numbers were made with, and "
            "value likewise. 8 bits are read if all three are float8_e4m3fn, as ma.to_float8 makes "
            "them, or beside a wider query if key and value are pages, both int8 or both "
            "float8_e4m3fn; with descale=(of_query, of_key, of_value)."
        )
    return errors.MaskTypeError(
        "attention: query, key and value must share one dtype, got "
        f"{', '.join(map(str, found))}. Write {write}"
    )


def _wrong_device(name: str, found: object, wanted: object) -> errors.MaskValueError:
    if str(found) == "meta":
        return errors.MaskValueError(
            f"{name} lives on meta, query on {wanted}. A tensor on meta has no entries: build the "
            f"expression anew on {wanted}."
        )
    return errors.MaskValueError(
        f"{name} lives on {found}, query on {wanted}. Move the expression once: "
        f"`mask = mask.to({str(wanted)!r})`."
    )


def no_forward_mode() -> errors.BackendError:
    return errors.BackendError(
        "forward-mode differentiation (torch.func.jvp, jacfwd, hessian; torch.autograd.forward_ad) "
        "is not supported here. backend='reference' supports it; torch.func.vjp and jacrev work "
        "here too."
    )


def _distributed_tensor(name: str) -> errors.MaskTypeError:
    return errors.MaskTypeError(
        f"attention: {name} is a DTensor; a call takes the tensors of its own process. Wrap the "
        "call in torch.distributed.tensor.experimental.local_map, divided by heads or by batch, or "
        f"pass {name}.to_local()."
    )
