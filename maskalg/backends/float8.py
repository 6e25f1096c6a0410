"""float8 inputs: the supported calls, and the computation for backends without float8 kernels."""

from __future__ import annotations

import torch

from .. import errors
from .call import SMALLEST_SCALE, Call, Result
from .choice import TRAITS, backend_of


def attend_float8(call: Call, backend: str) -> Result:
    """Output in bfloat16 and, if wanted, lse; without gradients."""
    if call.weight.formula is not None:
        raise errors.float8_weight(call.weight.name)
    if not SMALLEST_SCALE <= call.scale < float("inf"):
        raise errors.MaskValueError(
            f"attention: scale must be a positive number with float8 inputs, got {call.scale}. Its "
            "sign can be put into the query before it is made float8."
        )
    if call.differentiable():
        raise errors.float8_gradient()
    computing = backend_of(backend)
    if TRAITS[backend].float8:
        return computing.compute(call, call.return_lse)
    out, lse = computing.attend(dequantised(call, double=TRAITS[backend].wide))
    return out.to(call.out_dtype), None if lse is None else lse.float()


def dequantised(call: Call, *, double: bool) -> Call:
    """The call with the numbers that its 8-bit inputs represent."""
    dtype = torch.float64 if double else torch.float32
    query, key, value = (t.to(dtype) for t in (call.query, call.key, call.value))
    if call.descales is not None:
        of_query, of_key, of_value = (d.to(dtype)[:, :, None, None] for d in call.descales)
        # As in the kernels, a factor that is not positive makes the output NaN.
        query = query * torch.where(of_query > 0, of_query, torch.nan)
        key = key * torch.where(of_key > 0, of_key, torch.nan)
        value = value * of_value
    return call._replace(query=query, key=key, value=value, descales=None)
