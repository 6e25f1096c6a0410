"""`merge()`: attention over parts of the keys, joined."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Final

import torch
from torch.autograd import forward_ad

from ..errors import MaskTypeError, MaskValueError
from ..formula.watched import watched
from ..values.weights.weight import check_logit
from .results import with_sink

_OF_KERNEL: Final = (torch.float16, torch.bfloat16, torch.float32)
_MOST_COLUMNS: Final = 1024
_MOST_PARTS: Final = 64  # each is written out in the kernel


def merge(
    outs: Sequence[torch.Tensor],
    lses: Sequence[torch.Tensor],
    *,
    sink: float | torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention over all keys, from attention of the same queries over parts of them.

    No key may be in two parts. Parts are, for example, a prefix that requests share and the rest of
    each, or shards of a sequence. Each part is weighted by its lse. Parts are summed in the order
    given, in float32 (float64 for float64), so the same parts give the same bits. Gradients reach
    all of them. Give a sink here, and to no part, since an lse leaves it out.

    Args:
        outs: outputs `[..., value_dim]` of one shape, dtype and device; at least one.
        lses: the lse of each, `[...]`, as `attention(..., return_lse=True)` returns them.
        sink: the logits of `softmax_with_sink`, a number, or floating `[heads]` for outputs
            `[..., heads, q_len, value_dim]`; 0 for `softmax_plus_one`.

    Returns:
        The output, in the dtype of `outs`, and the lse, without the sink. A query that keeps no key
        in any part has output 0, lse -inf and gradients 0.

    Raises:
        TypeError, ValueError: parts that are not tensors, or do not fit together.

    Examples:
        >>> one = attention(q, k[:, :, :32], v[:, :, :32], causal, return_lse=True)
        >>> two = attention(q, k[:, :, 32:], v[:, :, 32:], causal.shift(kv=32), return_lse=True)
        >>> out, lse = merge(*zip(one, two))
        >>> torch.allclose(out, attention(q, k, v, causal), atol=1e-6)
        True
    """
    outs, lses = _listed(outs), _listed(lses)
    _check(outs, lses)
    check_logit("merge", "sink", sink)
    if isinstance(sink, torch.Tensor) and sink.shape != lses[0].shape[-2:-1]:
        raise MaskValueError(
            f"merge: sink must have a logit for each head of outputs {list(outs[0].shape)}, "
            f"{list(lses[0].shape[-2:-1])}, got {list(sink.shape)}."
        )
    if _fit_the_kernel(outs, lses):
        from .triton.merged import merged

        out, lse = merged(outs, lses)
    else:
        out, lse = _joined(outs, lses)
    return with_sink(out, lse, sink), lse


def merge_into(
    out: torch.Tensor, lse: torch.Tensor, parts: Sequence[tuple[torch.Tensor, torch.Tensor]]
) -> None:
    """`merge` of outputs and lses into `out`, which may be one of them, and `lse`.

    Outputs are `[batch, heads, length, value_dim]`, and their dtypes may differ. Nothing is checked
    or recorded.
    """
    outs, lses = zip(*parts, strict=True)
    if _fit_the_kernel(outs, lses):
        from .triton.merged import fill_merged

        fill_merged(outs, lses, out, lse)
        return
    for place, found in zip((out, lse), _joined(outs, lses), strict=True):
        place.copy_(found)


def _joined(
    outs: Sequence[torch.Tensor], lses: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Like `merge`, by operations of torch."""
    dtype = torch.float64 if outs[0].dtype == torch.float64 else torch.float32
    wide = [lse.to(dtype) for lse in lses]
    highest = wide[0].detach()
    for lse in wide[1:]:
        highest = torch.maximum(highest, lse.detach())
    highest = torch.where(highest == float("-inf"), 0.0, highest)
    total, out = torch.zeros_like(highest), torch.zeros_like(outs[0], dtype=dtype)
    for part, lse in zip(outs, wide, strict=True):
        # exp(-inf) is 0, but its gradient would read the contents of a part without keys.
        some = lse != float("-inf")
        share = torch.where(some, torch.exp(torch.where(some, lse - highest, 0.0)), 0.0)
        total = total + share
        kept = torch.where(some.unsqueeze(-1), part.to(dtype), 0.0)
        out = out + share.unsqueeze(-1) * kept
    empty = total == 0
    total = torch.where(empty, 1.0, total)
    lse = torch.where(empty, float("-inf"), highest + torch.log(total))
    return (out / total.unsqueeze(-1)).to(outs[0].dtype), lse


def _fit_the_kernel(outs: Sequence[torch.Tensor], lses: Sequence[torch.Tensor]) -> bool:
    """Whether the kernel serves: parts on a GPU, no gradients, no tracer or mode, and Triton."""
    out, every = outs[0], (*outs, *lses)
    if not out.is_cuda or out.dtype not in _OF_KERNEL or not out.numel() or watched(*every):
        return False
    wanted = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in every)
    dual = forward_ad._current_level >= 0
    small = out.shape[-1] <= _MOST_COLUMNS and len(outs) <= _MOST_PARTS
    return small and not wanted and not dual and _has_triton()


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def _listed(parts: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """An iterable of parts as a tuple; a single tensor, and anything else, unchanged."""
    listed = isinstance(parts, Iterable) and not isinstance(parts, torch.Tensor)
    return tuple(parts) if listed else parts


def _check(outs: Sequence[torch.Tensor], lses: Sequence[torch.Tensor]) -> None:
    for name, parts in (("outs", outs), ("lses", lses)):
        one = not isinstance(parts, tuple)
        kinds = [type(part) for part in ((parts,) if one else parts)]
        wrong = next((kind for kind in kinds if one or not issubclass(kind, torch.Tensor)), None)
        if wrong is not None:
            raise MaskTypeError(
                f"merge: {name} must be a list of tensors, one a part, got {wrong.__name__}. "
                "Write merge([one, two], [lse_of_one, lse_of_two])."
            )
    if not outs or len(outs) != len(lses):
        raise MaskValueError(
            f"merge: parts are an output and an lse each, got {len(outs)} outputs and {len(lses)} "
            "lses. Write merge([one, two], [lse_of_one, lse_of_two])."
        )
    for out, lse in zip(outs, lses, strict=True):
        like = outs[0]
        if (out.shape, out.dtype, out.device) != (like.shape, like.dtype, like.device):
            raise MaskValueError(
                "merge: outputs must share shape, dtype and device, got "
                f"{list(like.shape)} of {like.dtype} on {like.device} and "
                f"{list(out.shape)} of {out.dtype} on {out.device}."
            )
        if not lse.is_floating_point():
            raise MaskTypeError(
                f"merge: an lse must be a floating tensor, got {lse.dtype}. attention(..., "
                "return_lse=True) returns it."
            )
        if lse.shape != out.shape[:-1] or lse.device != out.device:
            raise MaskValueError(
                f"merge: the lse of outputs {list(out.shape)} on {out.device} has shape "
                f"{list(out.shape[:-1])}, got {list(lse.shape)} on {lse.device}. "
                "attention(..., return_lse=True) returns both."
            )
