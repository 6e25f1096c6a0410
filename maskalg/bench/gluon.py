"""Compares the results of the Gluon kernels with those of the plain ones on a GPU.

`python -m maskalg.bench.gluon 0` compares them on the first GPU. `backends/triton/trust.py` runs it
with a version of Triton that was not tested.
"""

from __future__ import annotations

import os
import sys
from typing import Final

import torch

from ..attention import attention
from ..backends.triton import trust
from ..backends.triton.plan import backward_plan, structure_plan
from ..backends.triton.tuned import look_again
from ..formula.expression import Expression
from ..values.biases import softcap
from ..values.masks import causal, document, sliding
from .agreement import TOLERANCE, distance

_RESULTS: Final = ("the output", "dQ", "dK", "dV")
_CALLS: Final = {"causal": (16, 4096), "documents'": (4, 1000), "soft-capped": (4, 1000)}
"""Heads and lengths: long rows of many heads take one kernel for all gradients, others two."""


def main(device: int) -> int:
    """Compare the kernels on a device: 0 where they agree, else 1. Prints how far they differ."""
    torch.cuda.set_device(device)
    farthest = 0.0
    for dim in (64, 128):
        for kind, (heads, length) in _CALLS.items():
            of_tiers = [computed(switch, kind, dim, heads, length) for switch in ("0", "1")]
            for what, plain, gluon in zip(_RESULTS, *of_tiers, strict=True):
                far = distance((gluon,), (plain,))
                if not far < TOLERANCE[torch.bfloat16]:
                    of = f"{what} of {kind} rows of {dim} dimensions"
                    print(f"{of} differs from the plain kernels' by {far:.1e} of a row's norm")
                    return 1
                farthest = max(farthest, far)
    print(f"compared with the plain kernels on this GPU: rows within {farthest:.1e} of their norm")
    return 0


def computed(switch: str, kind: str, dim: int, heads: int, length: int) -> list[torch.Tensor]:
    """Output and gradients of a call with the plain kernels, or with those of Gluon, by switch."""
    os.environ[trust.SWITCH] = switch
    for cached in (trust.verdict, structure_plan, backward_plan):
        cached.cache_clear()
    look_again()  # launches remembered from earlier calls are those of the other tier
    window, ids = causal & sliding(200), torch.arange(length, device="cuda") // 300
    scores: dict[str, Expression] = {
        "causal": causal,
        "documents'": window & document(ids),
        "soft-capped": window + softcap(20.0),
    }
    torch.manual_seed(0)
    shape = (1, heads, length, dim)
    q, k, v, g = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    inputs = [tensor.requires_grad_() for tensor in (q, k, v)]
    out = attention(inputs[0], inputs[1], inputs[2], scores[kind])
    return [tensor.detach() for tensor in (out, *torch.autograd.grad(out, inputs, g))]


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
