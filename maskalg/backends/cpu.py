"""The CPU backend: attention by tiles of queries over the pieces of keys the schedule names.

Empty tiles are not visited and full ones not masked. Scores exist for one tile at a time, forward
and backward, so memory is linear in the lengths: besides inputs and outputs, float32 copies of
key and value where these are of half precision, and at most some tens of MiB.
"""

from __future__ import annotations

from .call import Call, Result
from .cpu_forward import forward


def attend(call: Call) -> Result:
    """Output `[batch, heads, q_len, value_dim]`, and lse `[batch, heads, q_len]` when wanted.

    Accumulated in float32 (float64 for float64 inputs), which is also the dtype of lse. Gradients
    go to query, key, value and floating-point tables of the bias, and come through lse too; the
    same inputs give the same bits.
    """
    if call.differentiable():
        tables = [t for _, t in call.form.tensors() if t.dtype.is_floating_point]
        out, lse = _Attention.apply(call, call.query, call.key, call.value, *tables)
    else:
        out, lse = forward(call)
    return out, lse if call.return_lse else None
