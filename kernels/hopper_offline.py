"""Compiling the warp-specialised kernel for sm_90 without the GPU."""

import triton
from triton.experimental.gluon._runtime import GluonASTSource

from .forward import SCALARS
from .hopper_common import block_layout, byte_layout
from .hopper_forward import hopper_forward
from .hopper_gradients import hopper_gradients
from .hopper_keys import row_layout
from .hopper_shifts import shift_layout
from .hopper_sums import sum_layout
from .offline import ALIGNED, FLOAT8, OPTIONS, Compiled, resources, target_of

_NUMBERS = (
    "q_len",
    "kv_len",
    "padded",
    "rows",
    "batch_heads",
    "heads",
    "group",
    "tiles",
    "members",
    "together",
    "turned",
    "head_step",
    "row_step",
)


def compile_hopper_forward(constants, options, element, table_types, lse=True):
    """Compile `hopper_forward`; arguments as of `offline.compile_kernel`."""
    rows = {"q": 64, "k": constants["BLOCK_N"], "v": constants["BLOCK_N"], "o": 64}
    pads = {name: constants["HEAD_PAD" if name in "qk" else "VALUE_PAD"] for name in rows}
    types = _described(rows, pads, "bf16" if element == FLOAT8 else element)
    if element == FLOAT8:
        rows["v"], pads["v"] = pads["v"], rows["v"]
        types |= _described({n: rows[n] for n in "qkv"}, pads, element)
        types["descales"] = ("*fp32",) * 3
    types |= {"lse_ptr": "*fp32"} if lse else {}
    return _compile(hopper_forward, types, constants, options, table_types)


def compile_hopper_backward(kernel, constants, options, element, table_types):
    """Compile `hopper_backward_keys` or `hopper_backward_queries`; arguments likewise."""
    block = constants["BLOCK"]
    if kernel.fn.__name__ == "hopper_backward_keys":
        rows = {"q": block, "k": 64, "v": 64, "g": block, "dk": 64, "dv": 64}
        layout = f"tensordesc<fp32[{block}],{row_layout!r}>"
        types = {"statistic_desc": layout, "delta_desc": layout}
    else:
        rows = {"q": 64, "k": block, "v": block, "g": 64, "dq": 64}
        types = dict.fromkeys(("lse_ptr", "statistic_ptr", "delta_ptr"), "*fp32")
        types["o_ptr"] = f"*{element}"
    of_values = ("v", "g", "dv")
    pads = {name: constants["VALUE_PAD" if name in of_values else "HEAD_PAD"] for name in rows}
    types |= _described(rows, pads, element)
    return _compile(kernel, types, constants, options, table_types)


def compile_hopper_gradients(constants, options, element, table_types, parts=False):
    """Compile `hopper_gradients`; arguments likewise, `parts` for groups of heads in parts."""
    block, pad = constants["BLOCK"], constants["HEAD_PAD"]
    rows = {"q": block, "k": 64, "v": 64, "g": block, "dk": 64, "dv": 64}
    types = dict.fromkeys(("counter_ptr", "turn_ptr"), "*i32")
    types |= dict.fromkeys(("key_sum_ptr", "value_sum_ptr"), "*fp32") if parts else {}
    types |= {"part_counter_ptr": "*i32"} if parts else {}
    types["shift_desc"] = f"tensordesc<bf16[{block}, 16],{shift_layout!r}>"
    types["sum_desc"] = f"tensordesc<fp32[1, 1, 64, 32],{sum_layout!r}>"
    types |= _described(rows, dict.fromkeys(rows, pad), element)
    return _compile(hopper_gradients, types, constants, options, table_types)


def _described(rows, pads, element):
    """The types of descriptors of blocks of so many rows and padded dimensions."""
    layouts = {n: byte_layout(pads[n]) if element == FLOAT8 else block_layout for n in rows}
    return {
        f"{n}_desc": f"tensordesc<{element}[1, 1, {rows[n]}, {pads[n]}],{layouts[n]!r}>"
        for n in rows
    }


def _compile(kernel, types, constants, options, table_types):
    types["scale"] = "fp32"
    types |= dict.fromkeys(_NUMBERS, "i32")
    types |= dict.fromkeys(SCALARS, "i32")
    types["T"] = tuple(table_types)
    signature, fixed, aligned = {}, {}, {}
    for position, argument in enumerate(kernel.arg_names):
        signature[argument] = types.get(argument, "constexpr")
        if argument not in types:
            fixed[(position,)] = constants.get(argument)
        elif argument.endswith("_ptr"):
            aligned[(position,)] = ALIGNED
        elif argument == "T":
            aligned |= {(position, i): ALIGNED for i in range(len(table_types))}
    source = GluonASTSource(kernel, signature, fixed, aligned)
    options = options | OPTIONS
    target = target_of("sm_90")
    compiled = triton.compile(source, target=target, options=options)
    assembly = compiled.asm["ptx"]
    found = resources(assembly, target, options)
    return Compiled("sm_90", compiled.metadata.shared, assembly=assembly, **found)
