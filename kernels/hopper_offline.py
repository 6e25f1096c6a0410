"""Compiling the warp-specialised kernel for sm_90 without the GPU."""

import triton
from triton.experimental.gluon._runtime import GluonASTSource

from .forward import SCALARS
from .hopper_forward import block_layout, hopper_forward
from .offline import Compiled, resources, target_of


def compile_hopper_forward(constants, options, element, scalar_types, table_types, lse=True):
    """Compile `hopper_forward`; arguments as of `offline.compile_kernel`."""
    rows = {"q": 64, "k": constants["BLOCK_N"], "v": constants["BLOCK_N"], "o": 64}
    pads = {name: constants["HEAD_PAD" if name in "qk" else "VALUE_PAD"] for name in rows}
    types = {
        f"{n}_desc": f"tensordesc<{element}[1, 1, {rows[n]}, {pads[n]}],{block_layout!r}>"
        for n in rows
    }
    types["scale"] = "fp32"
    types |= {"lse_ptr": "*fp32"} if lse else {}
    types |= dict.fromkeys(("q_len", "kv_len", "rows", "batch_heads", "heads", "group"), "i32")
    types |= dict(zip(SCALARS, scalar_types, strict=False))
    types["T"] = tuple(table_types)
    signature, fixed = {}, {}
    for position, argument in enumerate(hopper_forward.arg_names):
        signature[argument] = types.get(argument, "constexpr")
        if argument not in types:
            fixed[(position,)] = constants.get(argument)
    source = GluonASTSource(hopper_forward, signature, fixed)
    compiled = triton.compile(source, target=target_of("sm_90"), options=options)
    assembly = compiled.asm["ptx"]
    registers, spills, remarks = resources(assembly, "sm_90")
    return Compiled("sm_90", compiled.metadata.shared, registers, spills, assembly, remarks)
