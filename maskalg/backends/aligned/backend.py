"""The kernels of GPU and CPU with tiles that begin where documents do.

If the formula reads positions as distances or within documents, a document's output and gradients
have the same bits wherever it is packed, whatever is packed beside it, and in any batch. A call
without documents is refused.
"""

from __future__ import annotations

import os
from dataclasses import replace

import torch

from ...codegen.spans import packed_ids
from ...errors import BackendError
from ...formula.printing import formula_text
from ..call import Call, Result
from ..choice import Backend, backend_of
from ..traits import Explained


def attend(call: Call) -> Result:
    """Output `[batch, heads, q_len, value_dim]`, and lse `[batch, heads, q_len]` when wanted."""
    learned = call.differentiable() and any(table.requires_grad for table in call.form.tables)
    computing, aligned = _served(call, tables=learned)
    return computing.attend(aligned)


def compute(call: Call, lse_wanted: bool) -> Result:
    """Output and, where wanted, lse; see `attend`."""
    computing, aligned = _served(call)
    return computing.compute(aligned, lse_wanted)


def differentiate(
    call: Call,
    saved: tuple[torch.Tensor, torch.Tensor],
    change: tuple[torch.Tensor, torch.Tensor | None],
    tables: tuple[int, ...],
) -> list[torch.Tensor]:
    """Gradients of query, key and value, and of the tables in these slots, in their dtypes."""
    computing, aligned = _served(call, tables=bool(tables))
    return computing.differentiate(aligned, saved, change, tables)


def explain(call: Call) -> Explained:
    """The choices of the backend that computes the call."""
    computing, aligned = _served(call)
    found = computing.explain(aligned)
    return replace(found, tier=f"{found.tier}, tiles begin with documents")


def _served(call: Call, *, tables: bool = False) -> tuple[Backend, Call]:
    """The backend that computes a call, and the call in the form that it takes.

    Args:
        tables: whether tables of the bias need a gradient.
    """
    mask = call.form.structure.mask
    if packed_ids(mask) is None:
        raise BackendError(
            "backend='aligned' begins tiles where documents begin, and the mask "
            f"{formula_text(mask)} is not joined by & to documents that are known to be "
            "contiguous, the same in all batch entries. Write `document.from_lengths(lengths) & "
            "…`, with lengths [documents], or leave backend out."
        )
    if call.query.device.type == "cpu" and not _interpreted():
        _check_compiled(call, tables)
        return backend_of("cpu"), call
    return backend_of("triton"), call._replace(aligned=True)


def _check_compiled(call: Call, tables: bool) -> None:
    """Raise unless the compiled CPU kernel can compute the call: it begins tiles with documents."""
    from ..cpu.native.launch import kernel_for

    if not call.query.numel() or not call.value.numel():
        return
    kernel = kernel_for(call, tables=tables)
    if kernel is None or not kernel.bounds:
        raise BackendError(
            "backend='aligned' needs the compiled kernel of a CPU with bounds of its own, which "
            "serves float32, bfloat16 and float16, softmax weights, masks with closed forms, and "
            "biases whose tensors want no gradient, where there is a C++ compiler. It does not "
            f"serve this call of {call.query.dtype}: leave backend out."
        )


def _interpreted() -> bool:
    """Whether Triton's interpreter stands in for a GPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"
