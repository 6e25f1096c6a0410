"""Messages of formulas that become kernels."""

from __future__ import annotations

from ..errors import BackendError, RecompilationWarning


def opaque_on_gpu(name: str, is_mask: bool) -> BackendError:
    dense = "ma.dense(mask.to_dense(q_len, kv_len, batch=…, heads=…))"
    return BackendError(
        f"{name} was taken with opaque=True, and GPU kernels hold formulas alone. "
        + (f"Write {dense} for a tensor of its values" if is_mask else "Write it as a formula")
        + ", or use backend='reference'."
    )


def recompiled(times: int, formula: str) -> RecompilationWarning:
    shown = formula if len(formula) <= 300 else f"{formula[:300]}…"
    return RecompilationWarning(
        f"kernels were compiled for {times} values of the constants in `{shown}`. Write a number "
        "that changes as ma.scalar(value), or capture it as a variable of a traced function, and "
        "no kernel is made for another value."
    )
