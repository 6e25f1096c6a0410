"""Compiling a kernel for a GPU that is not there: machine code, registers, shared memory."""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from .forward import SCALARS, forward


@dataclass(frozen=True)
class Compiled:
    """What a compilation gave.

    Attributes:
        target: "sm_90", "gfx942" and the like.
        shared: bytes of shared memory of a program.
        registers, spills: registers a thread, and bytes spilled; None off NVIDIA.
        assembly: PTX or AMD assembly.
    """

    target: str
    shared: int
    registers: int | None
    spills: int | None
    assembly: str


def target_of(name: str) -> GPUTarget:
    """ "sm_90" or "gfx942" as Triton's target."""
    if name.startswith("sm_"):
        return GPUTarget("cuda", int(name[3:]), 32)
    if name.startswith("gfx"):
        return GPUTarget("hip", name, 64)
    raise ValueError(f"target must look like sm_90 or gfx942, got {name!r}")


def compile_forward(name, constants, options, element, scalar_types, table_types, lse=True):
    """Compile `forward` for a target without a GPU.

    Args:
        name: the target, such as "sm_90".
        constants: the kernel's constants by name.
        options: `num_warps` and `num_stages`.
        element: Triton's name of the dtype of q, k, v: "fp16", "bf16" or "fp32".
        scalar_types: "i32" or "fp32" for each number in `S`.
        table_types: pointer types such as "*i64" of the tables in `T`.
        lse: whether the variant writes the lse.
    """
    types = {f"{p}_ptr": f"*{element}" for p in "qkvo"}
    types["lse_ptr"] = "*fp32"
    if constants.get("TMA"):
        block = f"1,1,{constants['BLOCK_N']}"
        types["k_ptr"] = f"tensordesc<{element}[{block},{constants['HEAD_PAD']}]>"
        types["v_ptr"] = f"tensordesc<{element}[{block},{constants['VALUE_PAD']}]>"
    types["scale"] = "fp32"
    types |= {n: "i32" for n in forward.arg_names if n.startswith("stride")}
    types |= dict.fromkeys(("q_len", "kv_len", "rows", "batch_heads", "heads", "group"), "i32")
    types |= dict(zip(SCALARS, scalar_types, strict=False))
    signature, fixed, aligned = {}, {}, {}
    for position, argument in enumerate(forward.arg_names):
        last_stride = argument in ("stride_qd", "stride_kd", "stride_vd", "stride_od")
        if argument == "T":
            signature[argument] = tuple(table_types)
        elif argument in constants or last_stride or argument not in types:
            signature[argument] = "constexpr"
            fixed[(position,)] = 1 if last_stride else constants.get(argument)
        elif argument == "lse_ptr" and not lse:
            signature[argument] = "constexpr"
            fixed[(position,)] = None
        else:
            signature[argument] = types[argument]
            described = signature[argument].startswith("tensordesc")
            if (argument.endswith("_ptr") and not described) or argument.startswith("stride"):
                aligned[(position,)] = [["tt.divisibility", 16]]
    source = ASTSource(forward, signature, fixed, aligned)
    target = target_of(name)
    compiled = triton.compile(source, target=target, options=options)
    assembly = compiled.asm.get("ptx") or compiled.asm.get("amdgcn")
    registers, spills = (None, None)
    if target.backend == "cuda":
        registers, spills = _resources(assembly, name)
    return Compiled(name, compiled.metadata.shared, registers, spills, assembly)


def _resources(ptx, name):
    """Registers and spilled bytes, as NVIDIA's assembler reports them."""
    suffix = "a" if int(name[3:]) >= 90 else ""
    ptxas = triton.knobs.nvidia.ptxas_blackwell if name == "sm_100" else triton.knobs.nvidia.ptxas
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ptx"
        path.write_text(ptx)
        command = [ptxas.path, "-v", f"--gpu-name={name}{suffix}", str(path), "-o", f"{path}.o"]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    registers = re.search(r"Used (\d+) registers", report)
    spills = re.search(r"(\d+) bytes spill stores", report)
    return int(registers.group(1)), int(spills.group(1))
