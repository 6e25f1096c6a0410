"""The hooks of an expression: what the kernel skeleton calls, as one small source file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

from ..node import Node
from ..normalform import Structure
from ..proof.proof import prove_structure
from .bounds_text import bounds_text
from .predicate_ptx import Unrenderable, masked_ptx
from .triton_text import Arguments, ScalarArgument, TableArgument, TritonText

_ELEMENT = "score, batch, head, q_idx, kv_idx, kv_len, S, T"
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
        biased: whether the module has `biased`.
        scalars, tables: what `S` and `T` hold, in order.
    """

    source: str
    digest: str
    biased: bool
    scalars: tuple[ScalarArgument, ...]
    tables: tuple[TableArgument, ...]


@lru_cache(maxsize=4096)
def hooks_of(structure: Structure, wide: bool = False, ptx: bool = False) -> Hooks:
    """The hooks of a structure.

    Args:
        wide: compute indices in 64 bits, for numbers near 2**31.
        ptx: decide each element by inline assembly, for NVIDIA; every table the mask reads must
            then hold at most 32 bits.
    """
    from ..printing import formula_text

    arguments = Arguments()
    mask, bias = structure.mask, structure.bias
    functions: list[str] = []
    functions.append(_function("masked", _ELEMENT, _masked(mask, arguments, wide, ptx)))
    if bias.op != "score":
        text = TritonText(arguments, wide=wide)
        result = text(bias)
        functions.append(_function("biased", _ELEMENT, (*text.lines, f"return {result}")))
    runs = bounds_text(prove_structure(structure).forms, TritonText(arguments, wide=wide))
    functions.append(_function("next_run", _ROW, runs))
    header = _HEADER.format(mask=formula_text(mask), bias=formula_text(bias))
    source = header + "\n\n" + "\n\n\n".join(functions) + "\n"
    return Hooks(
        source=source,
        digest=hashlib.sha256(source.encode()).hexdigest()[:24],
        biased=bias.op != "score",
        scalars=tuple(arguments.scalars),
        tables=tuple(arguments.tables),
    )


def _masked(mask: Node, arguments: Arguments, wide: bool, ptx: bool) -> tuple[str, ...]:
    if ptx and not wide:
        try:
            return masked_ptx(mask, TritonText(arguments, wide=wide))
        except Unrenderable:
            pass
    text = TritonText(arguments, wide=wide)
    result = "kv_idx < kv_len" if mask.op == "const" else f"(kv_idx < kv_len) & {text(mask)}"
    return (*text.lines, f'return tl.where({result}, score, float("-inf"))')


def _function(name: str, parameters: str, body: tuple[str, ...]) -> str:
    lines = [f"@triton.jit\ndef {name}({parameters}):", *(f"    {line}" for line in body)]
    return "\n".join(lines)
