"""Launching a kernel a second time without Triton's binding of its arguments.

Triton looks at each of a kernel's eighty arguments at each call to find the variant it compiled,
which takes longer than all else on the host. Here the caller gives a key of what the variant
depends on; the variant found the first time is launched directly from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

import torch
import triton
from triton.compiler import CompiledKernel

_INT32_MAX: Final = 2**31 - 1

_VARIANTS: Final[dict[Hashable, tuple[CompiledKernel, tuple[Any, ...]]]] = {}


class Descriptor:
    """What Triton's launcher reads of a tensor descriptor, without checking it again.

    It stands for a `TensorDescriptor` of the same tensor and block at a second launch.
    """

    __slots__ = ("base", "padding", "shape", "strides")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.base, self.shape, self.strides = tensor, tensor.shape, tensor.stride()
        self.padding = "zero"


def variant_key(
    tensors: tuple[torch.Tensor | None, ...], numbers: tuple[int, ...], lengths: tuple[int, ...]
) -> Hashable:
    """What a compiled variant depends on, beside the kernel's constants.

    Args:
        tensors: passed as pointers or descriptors: their dtypes and alignment count.
        numbers: specialised by Triton: their values count.
        lengths: not specialised: that they fit 32 bits counts.
    """
    pointers = [None if t is None else (t.dtype, t.data_ptr() & 15) for t in tensors]
    return (*pointers, numbers, max(lengths, default=0) <= _INT32_MAX)


def launch(
    kernel: Any,
    programs: tuple[int, int],
    key: Hashable,
    first: Callable[[], tuple[list[Any], dict[str, Any]]],
    again: Callable[[], list[Any]],
) -> None:
    """Launch `kernel` on the current stream of the current device.

    Args:
        programs: how many along the first axis and the second.
        key: the kernel's name, what its constants follow from, and what `variant_key` says.
        first: the runtime arguments, in order, and the constants and options, for Triton.
        again: the runtime arguments for a direct launch, descriptors as `Descriptor`.
    """
    found = _VARIANTS.get(key)
    if found is None or _watched():
        arguments, constants = first()
        compiled = kernel[programs](*arguments, **constants)
        if isinstance(compiled, CompiledKernel):  # the interpreter compiles nothing
            rest = tuple([constants[name] for name in kernel.arg_names[len(arguments) :]])
            _VARIANTS[key] = compiled, rest
        return
    compiled, rest = found
    driver = triton.runtime.driver.active
    stream = driver.get_current_stream(driver.get_current_device())
    compiled.run(
        *programs, 1, stream, compiled.function, compiled.packed_metadata, None, None, None,
        *again(), *rest,
    )  # fmt: skip


def _watched() -> bool:
    """Whether a profiler wants to hear of launches."""
    knobs = triton.knobs.runtime
    return bool(knobs.launch_enter_hook.calls or knobs.launch_exit_hook.calls)
