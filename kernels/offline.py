"""Compiling a kernel for a GPU that is not there: machine code, registers, shared memory."""

import contextlib
import io
import re
from dataclasses import dataclass

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend

from .forward import SCALARS


@dataclass(frozen=True)
class Compiled:
    """What a compilation gave.

    Attributes:
        target: "sm_90", "gfx942" and the like.
        shared: bytes of shared memory of a program.
        registers, spills: registers a thread, and bytes spilled; None off NVIDIA.
        assembly: PTX or AMD assembly.
        stack: bytes of memory of a thread's own, in which what is spilled lies; None off NVIDIA.
        remarks: what NVIDIA's assembler warned of, such as matrix products that it serialises.
    """

    target: str
    shared: int
    registers: int | None
    spills: int | None
    assembly: str
    stack: int | None = None
    remarks: str = ""


def target_of(name: str) -> GPUTarget:
    """ "sm_90" or "gfx942" as Triton's target."""
    if name.startswith("sm_"):
        return GPUTarget("cuda", int(name[3:]), 32)
    if name.startswith("gfx"):
        return GPUTarget("hip", name, 64)
    raise ValueError(f"target must look like sm_90 or gfx942, got {name!r}")


OPTIONS = {"enable_fp_fusion": True}
"""Options of every kernel. Triton 3.10 no longer fuses products and sums unless asked to: results
are the same on every release."""

FLOAT8 = "fp8e4nv"
"""Triton's name of float8 with four bits of exponent."""

ALIGNED = [["tt.divisibility", 16]]
"""What Triton finds of the addresses of tensors that torch made."""

_OF_INPUTS = ("q_ptr", "k_ptr", "v_ptr", "g_ptr", "o_ptr", "dq_ptr", "dk_ptr", "dv_ptr")
_OF_ROWS = ("lse_ptr", "statistic_ptr", "delta_ptr", "sums_ptr", "part_ptr")
_NUMBERS = (
    "q_len", "kv_len", "padded", "rows", "tiles", "splits", "batch_heads", "heads", "kv_heads",
    "group", "members", "head_step", "row_step",
)  # fmt: skip
# What a kernel's loop reads by descriptor: blocks of which side, padded to which constant.
_DESCRIBED = {
    "backward_keys": {"q_ptr": ("BLOCK_M", "HEAD_PAD"), "g_ptr": ("BLOCK_M", "VALUE_PAD")},
    None: {"k_ptr": ("BLOCK_N", "HEAD_PAD"), "v_ptr": ("BLOCK_N", "VALUE_PAD")},
}


def compile_kernel(kernel, name, constants, options, element, table_types):
    """Compile one of the attention kernels for a target without a GPU.

    Args:
        kernel: `forward`, `backward_queries`, `backward_keys` or `backward_entries`.
        name: the target, such as "sm_90".
        constants: the kernel's constants by name; a pointer named here with None is absent.
        options: `num_warps` and `num_stages`.
        element: Triton's name of the dtype of q, k, v: "fp16", "bf16" or "fp32".
        table_types: pointer types such as "*i64" of the tables in `T`.
    """
    types = dict.fromkeys(_OF_INPUTS, f"*{element}") | dict.fromkeys(_OF_ROWS, "*fp32")
    if element == FLOAT8:
        types["o_ptr"] = "*bf16"
        types["descales"] = ("*fp32",) * 3
    if constants.get("TMA"):
        described = _DESCRIBED.get(kernel.fn.__name__, _DESCRIBED[None])
        for pointer, (side, pad) in described.items():
            block = f"1,1,{constants[side]},{constants[pad]}"
            types[pointer] = f"tensordesc<{element}[{block}]>"
    types |= {"scale": "fp32"} | dict.fromkeys(_NUMBERS, "i32")
    types |= {n: "i32" for n in kernel.arg_names if n.startswith("stride")}
    types |= dict.fromkeys(SCALARS, "i32")
    if constants.get("MODE") not in (None, "rows", "largest"):
        types |= {"sums_ptr": "*i64", "unit_ptr": "*fp32"}
    signature, fixed, aligned = {}, {}, {}
    for position, argument in enumerate(kernel.arg_names):
        last_stride = argument.startswith("stride") and argument.endswith("d")
        if argument == "T":
            signature[argument] = tuple(table_types)
            aligned |= {(position, i): ALIGNED for i in range(len(table_types))}
        elif argument in constants or last_stride or argument not in types:
            signature[argument] = "constexpr"
            fixed[(position,)] = 1 if last_stride else constants.get(argument)
        else:
            signature[argument] = types[argument]
            described = str(signature[argument]).startswith("tensordesc")
            if (argument.endswith("_ptr") and not described) or argument.startswith("stride"):
                aligned[(position,)] = ALIGNED
    source = ASTSource(kernel, signature, fixed, aligned)
    options = options | OPTIONS
    target = target_of(name)
    compiled = triton.compile(source, target=target, options=options)
    assembly = compiled.asm.get("ptx") or compiled.asm.get("amdgcn")
    found = {"registers": None, "spills": None}
    if target.backend == "cuda":
        found = resources(assembly, target, options)
    return Compiled(name, compiled.metadata.shared, assembly=assembly, **found)


def resources(ptx, target, options):
    """What NVIDIA's assembler reports of PTX: `registers`, `spills`, `stack` and `remarks` by name.

    Triton knows which of the assemblers that it ships reads its PTX, and by which options, which
    differ from release to release and by architecture. So its own step is taken once more, and told
    to print the assembler's report, which it asks for in any case. This relies on the step's name,
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
    told = {name: int(re.search(pattern, found).group(1)) for name, pattern in numbers.items()}
    bad = ("warning", "performance loss")
    told["remarks"] = "\n".join(
        line for line in found.splitlines() if any(word in line.lower() for word in bad)
    )
    return told
