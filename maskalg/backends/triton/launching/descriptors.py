"""Tensor descriptors for a second launch, encoded once for a tensor's place in memory.

Triton encodes every descriptor at each launch, and checks all arguments in Python to find the
descriptors. An encoded descriptor depends on the tensor's address, shape and strides alone, so it
can be used again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from types import FunctionType
from typing import Any, Final, NamedTuple

import torch
from triton.compiler import CompiledKernel

_MOST: Final = 4096  # descriptors kept, of about 200 bytes
_ENCODED: Final[dict[Hashable, list[Any]]] = {}


class Descriptor:
    """The fields of a tensor descriptor that Triton's launcher reads, without checks.

    It stands for a `TensorDescriptor` of the same tensor and block at a second launch.
    """

    __slots__ = ("base", "padding", "round_f32_to_tf32", "shape", "strides")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.base, self.shape, self.strides = tensor, tensor.shape, tensor.stride()
        self.padding, self.round_f32_to_tf32 = "zero", False


class Encoder(NamedTuple):
    """The launcher in C that takes encoded descriptors, and the encoding of descriptors.

    Attributes:
        launcher: the function in C.
        passed: its arguments, from both counts of programs, the stream and the kernel's arguments
            with encoded descriptors.
        encode: encodes a descriptor with the layout of its blocks in shared memory.
        blocks: the layout of each descriptor's blocks in the order of arguments, and its text.
    """

    launcher: Callable[..., None]
    passed: Callable[[tuple[int, int], int, list[Any]], tuple[Any, ...]]
    encode: Callable[[Any, Any], list[Any]]
    blocks: list[tuple[Any, str]]

    def encoded(self, arguments: list[Any]) -> list[Any]:
        """The arguments with their descriptors encoded."""
        found: list[Any] = []
        blocks = iter(self.blocks)
        for argument in arguments:
            if type(argument) is not Descriptor:
                found.append(argument)
                continue
            block, text = next(blocks)
            key = (argument.base.data_ptr(), argument.shape, argument.strides, text)
            parts = _ENCODED.get(key)
            if parts is None:
                if len(_ENCODED) >= _MOST:
                    _ENCODED.clear()
                parts = _ENCODED[key] = self.encode(argument, block)
            found += parts
        return found


def encoder_of(compiled: CompiledKernel) -> Encoder | None:
    """The encoder of a kernel with descriptors; None if Triton's launcher is an unknown one.

    It relies on `CudaLauncher` of `triton/backends/nvidia/driver.py` as it is in the tested
    releases: `launch` is a closure over the `launcher` in C and over `tensordesc_meta`, a
    dictionary for each descriptor; `make_tensordesc_arg` encodes one. In Triton 3.6 the launcher in
    C takes the arguments one by one; since 3.7 it takes them as one list, behind a description of
    it. `tests/backends/triton/test_launches.py` compares the bytes that reach the driver with those
    of Triton's own launch.
    """
    launcher = compiled.run
    wrapper = getattr(launcher, "launch", None)
    if not isinstance(wrapper, FunctionType) or wrapper.__closure__ is None:
        return None
    cells = [cell.cell_contents for cell in wrapper.__closure__]
    free = dict(zip(wrapper.__code__.co_freevars, cells, strict=True))
    blocks, scratch = free.get("tensordesc_meta"), ("global_scratch_size", "profile_scratch_size")
    if (
        not callable(free.get("launcher"))
        or not blocks
        or not all(isinstance(block, dict) for block in blocks)
        or any(getattr(launcher, size, 1) for size in scratch)
        or getattr(launcher, "gsan_enabled", False)
    ):
        return None
    try:
        from triton.backends.nvidia.driver import make_tensordesc_arg

        passed = _passed_to_c(compiled, launcher)
    except (ImportError, AttributeError):
        return None
    encode = make_tensordesc_arg
    if encode.__code__.co_argcount == 3:  # since 3.8, of the launch, which it does not read
        encode = _without_launch(make_tensordesc_arg)
    told = [(block, sys.intern(str(sorted(block.items())))) for block in blocks]
    return Encoder(free["launcher"], passed, encode, told)


def _passed_to_c(
    compiled: CompiledKernel, launcher: Any
) -> Callable[[tuple[int, int], int, list[Any]], tuple[Any, ...]]:
    handle = (compiled.function, launcher.launch_cooperative_grid, launcher.launch_pdl)
    metadata = (compiled.packed_metadata, None, None, None)
    scratch = (None, None)
    if not hasattr(launcher, "arg_annotations"):  # 3.6

        def passed(programs: tuple[int, int], stream: int, arguments: list[Any]) -> tuple[Any, ...]:
            return (*programs, 1, stream, *handle, *scratch, *metadata, *arguments)

        return passed

    described = (launcher.arg_annotations, launcher.kernel_signature)

    def passed_together(
        programs: tuple[int, int], stream: int, arguments: list[Any]
    ) -> tuple[Any, ...]:
        return (*programs, 1, stream, *handle, *metadata, *scratch, *described, arguments)

    return passed_together


def _without_launch(encode: Callable[[Any, Any, Any], list[Any]]) -> Callable[..., list[Any]]:
    return lambda argument, block: encode(argument, block, None)
