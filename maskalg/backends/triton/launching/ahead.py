"""Compiling a kernel for an absent GPU: machine code, registers, shared memory."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend

from ....engine.float8 import FLOAT8, QUANTISED
from .spec import KernelSpec, role_of, tensor_of

_TYPES: Final = {
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8",
    torch.uint32: "u32", torch.uint16: "u16", torch.uint8: "u8", torch.bool: "i1",
    torch.float64: "fp64", torch.float32: "fp32", torch.float16: "fp16",
    torch.bfloat16: "bf16", FLOAT8: "fp8e4nv",
}  # fmt: skip
_HELD: Final[dict[str, torch.dtype | None]] = {
    **dict.fromkeys(("lse", "statistic", "delta", "part", "sums", "sum"), torch.float32),
    **dict.fromkeys(("counter", "turn", "out", "list"), torch.int32),
    "shift": torch.bfloat16,
    **dict.fromkeys(("sink", "grad_lse", "unit", "packed")),
    **dict.fromkeys(("key_part", "value_part", "key_sum", "value_sum", "part_counter")),
}
"""Dtypes of tensors that differ from the inputs'; None for tensors that most calls lack."""

_ALIGNED: Final = [["tt.divisibility", 16]]
"""Triton's finding about addresses of tensors that torch made: multiples of 16."""


@dataclass(frozen=True)
class Compiled:
    """The result of a compilation.

    Attributes:
        shared: bytes of shared memory of a program.
        registers: registers of a thread; None off NVIDIA.
        spills: bytes that a thread's spill instructions store, counted once for each place in the
            kernel; None off NVIDIA.
        assembly: PTX or AMD assembly.
        stack: bytes of a thread's memory for spilled registers; None off NVIDIA.
        remarks: warnings of NVIDIA's assembler, such as matrix products that it serialises.
    """

    shared: int
    registers: int | None
    spills: int | None
    assembly: str
    stack: int | None = None
    remarks: str = ""


def target_of(name: str) -> GPUTarget:
    """Triton's target for "sm_90", "gfx942" and so on."""
    if name.startswith("sm_"):
        return GPUTarget("cuda", int(name[3:]), 32)
    if name.startswith("gfx"):
        return GPUTarget("hip", name, 64)
    raise ValueError(f"target must look like sm_90 or gfx942, got {name!r}")


def compile_kernel(
    spec: KernelSpec,
    target: str,
    constants: Mapping[str, Any],
    dtype: torch.dtype,
    tables: Sequence[torch.dtype],
    *,
    tma: bool = False,
    held: Mapping[str, torch.dtype | None] = MappingProxyType({}),
) -> Compiled:
    """Compile a kernel for a target without a GPU.

    Args:
        target: such as "sm_90".
        constants: the kernel's constants and options, and others.
        dtype: of q, k and v.
        tables: dtypes of the tables in `T`.
        tma: whether tiles are read by descriptor, for kernels that have the choice.
        held: dtypes of tensors that differ from most calls; None for an absent tensor. With
            "packed", queries of requests are packed.
    """
    known = spec.constants({**constants, "TMA": tma})
    held = {"o": torch.bfloat16 if dtype == FLOAT8 else dtype, **_HELD, **held}
    described = spec.described(tma=tma)
    signature: dict[str, Any] = {}
    fixed: dict[tuple[int, ...], Any] = {}
    aligned: dict[tuple[int, ...], Any] = {}
    for place, argument in enumerate(spec.kernel.arg_names):
        role, name = role_of(argument), tensor_of(argument)
        holds = held.get(name, dtype)
        if argument == "T":
            signature[argument] = tuple(f"*{_TYPES[table]}" for table in tables)
            aligned |= {(place, i): _ALIGNED for i in range(len(tables))}
        elif argument == "descales" and held.get("k", dtype) in QUANTISED:
            signature[argument] = ("*fp32",) * 3
        elif argument == "pages" and constants.get("PAGE"):
            count = 1 if held["packed"] is None else 2
            signature[argument] = ("*i32",) * count
            aligned |= {(place, i): _ALIGNED for i in range(count)}
        elif role == "constant" or argument in ("descales", "pages") or holds is None:
            signature[argument], fixed[(place,)] = "constexpr", known.get(argument)
        elif role == "stride" and argument.endswith("d"):
            signature[argument], fixed[(place,)] = "constexpr", 1
        elif role != "tensor":
            signature[argument] = "fp32" if argument == "scale" else "i32"
            if role == "stride":
                aligned[(place,)] = _ALIGNED
        elif name in described:
            block, layout = spec.block(name, holds, known)
            behind = "" if layout is None else f",{layout!r}"
            signature[argument] = f"tensordesc<{_TYPES[holds]}{block}{behind}>"
        else:
            signature[argument], aligned[(place,)] = f"*{_TYPES[holds]}", _ALIGNED
    if spec.signature.gluon:
        from triton.experimental.gluon._runtime import GluonASTSource

        source = GluonASTSource(spec.kernel, signature, fixed, aligned)
    else:
        source = ASTSource(spec.kernel, signature, fixed, aligned)
    own = {name: value for name, value in known.items() if role_of(name) != "constant"}
    return _compiled(source, target_of(target), own)


def _compiled(source: Any, target: GPUTarget, options: dict[str, Any]) -> Compiled:
    made = triton.compile(source, target=target, options=options)
    assembly = made.asm.get("ptx") or made.asm.get("amdgcn")
    found: dict[str, Any] = {"registers": None, "spills": None}
    if target.backend == "cuda":
        found = resources(assembly, target, options)
    return Compiled(made.metadata.shared, assembly=assembly, **found)


def resources(ptx: str, target: GPUTarget, options: dict[str, Any]) -> dict[str, Any]:
    """NVIDIA's assembler's report on PTX: `registers`, `spills`, `stack` and `remarks` by name.

    The assembler, and its options, differ by release of Triton and by architecture. So Triton's own
    step is run once more, with the assembler's report printed. This relies on the step's name,
    `make_cubin`, and on `knobs.nvidia.dump_ptxas_log`, which Triton 3.6 to 3.9 have.
    """
    backend = make_backend(target)
    report = io.StringIO()
    with triton.knobs.nvidia.scope(), contextlib.redirect_stdout(report):
        triton.knobs.nvidia.dump_ptxas_log = True
        backend.make_cubin(ptx, {}, backend.parse_options(options), target.arch)
    found = report.getvalue()
    numbers = {
        "registers": r"Used (\d+) registers",
        "spills": r"(\d+) bytes spill stores",
        "stack": r"(\d+) bytes stack frame",
    }
    told: dict[str, Any] = {
        name: int(re.findall(pattern, found)[0]) for name, pattern in numbers.items()
    }
    bad = ("warning", "performance loss")
    told["remarks"] = "\n".join(
        line for line in found.splitlines() if any(word in line.lower() for word in bad)
    )
    return told
