"""Of functions that cannot be traced."""

from __future__ import annotations

from .kinds import BackendError, MaskTypeError, MaskValueError

_OPAQUE = "or pass opaque=True, which evaluates the function itself, element by element"


def not_a_function(call: str, found: object) -> MaskTypeError:
    arguments = "score, b, h, q_idx, kv_idx" if call == "score" else "b, h, q_idx, kv_idx"
    return MaskTypeError(
        f"ma.{call}: expected a function {call}_mod({arguments}), got {type(found).__name__}."
    )


def traced_control_flow(name: str, what: str) -> MaskTypeError:
    return MaskTypeError(
        f"the function uses a value that depends on {name} in {what}, which a formula cannot "
        "follow. Write torch.where(condition, a, b) for a choice, `&`, `|`, `~` for logic and "
        f"torch.minimum or torch.maximum for min and max, {_OPAQUE}."
    )


def untraceable(operation: str) -> MaskTypeError:
    return MaskTypeError(
        f"{operation} has no formula. Compute it before, and let the function capture the result "
        f"as a tensor, {_OPAQUE}."
    )


def traced_in_place(operation: str) -> MaskTypeError:
    return MaskTypeError(
        f"{operation}(…) changes a value in place. Write `x = x.{operation.rstrip('_')}(…)`."
    )


def traced_real_index() -> MaskTypeError:
    return MaskTypeError(
        "a tensor is indexed by a real number. Write `x.long()` for its integer part."
    )


def traced_rank(shape: tuple[int, ...], given: int) -> MaskTypeError:
    return MaskTypeError(f"a tensor of shape {list(shape)} is given {given} indices.")


def traced_row_too_long(shape: tuple[int, ...], limit: int) -> MaskValueError:
    return MaskValueError(
        f"a row of shape {list(shape)} is reduced, entry by entry, which is served up to {limit} "
        f"entries. Compute it before, {_OPAQUE}."
    )


def traced_divisor(divisor: str, why: str) -> MaskValueError:
    return MaskValueError(
        f"the function divides by {divisor}, and {why}. Divisors must be positive: write "
        "torch.clamp(divisor, min=1) if it always is."
    )


def traced_shape(name: str, shape: tuple[int, ...]) -> MaskTypeError:
    return MaskTypeError(
        f"{name} returns a row of shape {list(shape)} for single indices, expected one number. "
        "Index every dimension of the tensors it reads."
    )


def traced_result(call: str, wanted: str, found: str) -> MaskTypeError:
    return MaskTypeError(
        f"{call}: the function returns a value of kind {found}, expected {wanted}. Write "
        "`x != 0` for a truth value, torch.where(condition, 1.0, 0.0) for a number."
    )


def tracing_failed(name: str, reason: Exception) -> MaskTypeError:
    return MaskTypeError(
        f"{name} could not be traced: {type(reason).__name__}: {reason}. Write it with operators "
        f"and torch functions of its arguments, {_OPAQUE}."
    )


def opaque_on_gpu(name: str, is_mask: bool) -> BackendError:
    dense = "ma.dense(mask.to_dense(q_len, kv_len, batch=…, heads=…))"
    return BackendError(
        f"{name} was taken with opaque=True, and GPU kernels hold formulas alone. "
        + (f"Write {dense} for a tensor of its values" if is_mask else "Write it as a formula")
        + ", or use backend='reference'."
    )
