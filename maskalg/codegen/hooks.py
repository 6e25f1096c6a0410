"""The hooks of an expression: what the kernel skeleton calls, as one small source file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

from ..normalform import Structure
from ..proof.proof import prove_structure
from .bounds_text import bounds_text
from .triton_text import Arguments, ScalarArgument, TableArgument, TritonText

_ELEMENT = "batch, head, q_idx, kv_idx, S, T"
_ROW = "j, q0, q1, batch, head, kv_len, S, T, BLOCK: tl.constexpr"

_HEADER = '''"""Rendered by maskalg for

mask  {mask}
bias  {bias}
"""

import triton
import triton.language as tl
from maskalg_kernels.integers import floor_div, floor_mod, inside, widened
from maskalg_kernels.reals import tanh
from maskalg_kernels.runs import run_from, tiles
'''


@dataclass(frozen=True)
class Hooks:
    """Source of the hooks of one structure, and the arguments they read.

    Attributes:
        source: a Python module with the JIT functions named below.
        digest: of the source; names its file.
        masked: whether the module has `kept`; without it every pair in range is kept.
        biased: whether the module has `biased`.
        scalars, tables: what `S` and `T` hold, in order.
    """

    source: str
    digest: str
    masked: bool
    biased: bool
    scalars: tuple[ScalarArgument, ...]
    tables: tuple[TableArgument, ...]


@lru_cache(maxsize=4096)
def hooks_of(structure: Structure, wide: bool = False) -> Hooks:
    """The hooks of a structure; `wide` computes indices in 64 bits, for numbers near 2**31."""
    from ..printing import formula_text

    arguments = Arguments()
    mask, bias = structure.mask, structure.bias
    functions: list[str] = []
    if mask.op != "const":
        text = TritonText(arguments, wide=wide)
        result = text(mask)
        functions.append(_function("kept", _ELEMENT, (*text.lines, f"return {result}")))
    if bias.op != "score":
        text = TritonText(arguments, wide=wide)
        result = text(bias)
        functions.append(
            _function("biased", f"score, {_ELEMENT}", (*text.lines, f"return {result}"))
        )
    runs = bounds_text(prove_structure(structure).forms, TritonText(arguments, wide=wide))
    functions.append(_function("next_run", _ROW, runs))
    header = _HEADER.format(mask=formula_text(mask), bias=formula_text(bias))
    source = header + "\n\n" + "\n\n\n".join(functions) + "\n"
    return Hooks(
        source=source,
        digest=hashlib.sha256(source.encode()).hexdigest()[:24],
        masked=mask.op != "const",
        biased=bias.op != "score",
        scalars=tuple(arguments.scalars),
        tables=tuple(arguments.tables),
    )


def _function(name: str, parameters: str, body: tuple[str, ...]) -> str:
    lines = [f"@triton.jit\ndef {name}({parameters}):", *(f"    {line}" for line in body)]
    return "\n".join(lines)
