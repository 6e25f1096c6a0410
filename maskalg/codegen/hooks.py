"""The hooks of an expression: what the kernel skeleton calls, as one small source file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from ..node import Node
from ..normalform import Structure, transposed
from ..printing import formula_text
from ..proof.proof import prove_structure
from .bounds_text import bounds_text
from .derivative import derivative
from .predicate_ptx import Unrenderable, masked_ptx
from .triton_text import Arguments, ScalarArgument, TableArgument, TritonText

HookText = tuple[str, str, tuple[str, ...]]  # name, parameters, body

ELEMENT = "score, batch, head, q_idx, kv_idx, kv_len, S, T"
_ROW = "j, q0, q1, batch, head, kv_len, S, T, BLOCK: tl.constexpr"

_HEADER = '''"""Rendered by maskalg for

mask  {mask}
bias  {bias}
"""

import triton
import triton.language as tl
from maskalg_kernels.integers import floor_div, floor_mod, inside, widened
from maskalg_kernels.reals import expm1, log1p, power, tan, {tanh}
from maskalg_kernels.runs import run_from, tiles
'''


@dataclass(frozen=True)
class Hooks:
    """Source of the hooks of one structure, and the arguments they read.

    Attributes:
        source: a Python module with the JIT functions named below.
        digest: of the source; names its file.
        biased, sloped: whether the module has `biased`, and `slope`.
        scalars, tables: what `S` and `T` hold, in order.
    """

    source: str
    digest: str
    biased: bool
    sloped: bool
    scalars: tuple[ScalarArgument, ...]
    tables: tuple[TableArgument, ...]


@lru_cache(maxsize=4096)
def hooks_of(
    structure: Structure, wide: bool = False, ptx: bool = False, backward: bool = False
) -> Hooks:
    """The hooks of a structure.

    Args:
        wide: compute indices in 64 bits, for numbers near 2**31.
        ptx: decide each element by inline assembly, for NVIDIA; every table the mask reads must
            then hold at most 32 bits.
        backward: add `slope`, the derivative of a bias that is not additive, and
            `next_query_run`, which tiles of queries a tile of keys is visited by.
    """
    arguments = Arguments()

    def text() -> TritonText:
        return TritonText(arguments, wide=wide)

    more: list[HookText] = []
    sloped = False
    if backward:
        slope = derivative(structure.bias)
        sloped = slope.op != "const" or slope.data != 1
        if sloped:
            more.append(("slope", ELEMENT, value_text(slope, text())))
        # The same text with the roles exchanged: q0..q1 are keys, kv_len is the number of queries.
        more.append(("next_query_run", _ROW, _runs(transposed(structure), text())))
    return replace(rendered(structure, wide, ptx, arguments, more), sloped=sloped)


def rendered(
    structure: Structure, wide: bool, ptx: bool, arguments: Arguments, more: list[HookText]
) -> Hooks:
    """What every kernel calls, and `more` hooks whose text read their numbers from `arguments`."""

    def text() -> TritonText:
        return TritonText(arguments, wide=wide)

    mask, bias = structure.mask, structure.bias
    biased = bias.op != "score"
    parts = [("masked", ELEMENT, _masked(mask, text, ptx and not wide))]
    if biased:
        parts.append(("biased", ELEMENT, value_text(bias, text())))
    parts.append(("next_run", _ROW, _runs(structure, text())))
    functions = [_function(*part) for part in parts + more]
    tanh = "tanh_ptx as tanh" if ptx else "tanh"
    header = _HEADER.format(mask=formula_text(mask), bias=formula_text(bias), tanh=tanh)
    source = header + "\n\n" + "\n\n\n".join(functions) + "\n"
    return Hooks(
        source=source,
        digest=hashlib.sha256(source.encode()).hexdigest()[:24],
        biased=biased,
        sloped=False,
        scalars=tuple(arguments.scalars),
        tables=tuple(arguments.tables),
    )


def _runs(structure: Structure, text: TritonText) -> tuple[str, ...]:
    return bounds_text(prove_structure(structure).forms, text)


def value_text(node: Node, text: TritonText) -> tuple[str, ...]:
    """The body of a hook that returns a formula."""
    result = text(node)
    if not any(part.op == "score" for part in node.walk()):
        # The kernel takes a tile, whatever the formula depends on.
        every = "tl.where(score == score, value, value)"
        return (*text.lines, f"value = {result}", f"return {every}")
    return (*text.lines, f"return {result}")


def _masked(mask: Node, text: Callable[[], TritonText], ptx: bool) -> tuple[str, ...]:
    if ptx:
        try:
            return masked_ptx(mask, text())
        except Unrenderable:
            pass
    natural = text()
    result = "kv_idx < kv_len" if mask.op == "const" else f"(kv_idx < kv_len) & {natural(mask)}"
    return (*natural.lines, f'return tl.where({result}, score, float("-inf"))')


def _function(name: str, parameters: str, body: tuple[str, ...]) -> str:
    lines = [f"@triton.jit\ndef {name}({parameters}):", *(f"    {line}" for line in body)]
    return "\n".join(lines)
