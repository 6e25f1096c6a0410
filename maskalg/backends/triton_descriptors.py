"""Tensor descriptors at a second launch, encoded once for a tensor's place in memory.

Triton encodes every descriptor anew at each launch, and looks at all other arguments in Python to
find the descriptors among them. An encoded descriptor says where a tensor lies and how, nothing
else, so one of the same place and shape is the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from types import FunctionType
from typing import Any, Final, NamedTuple

import torch
from triton.compiler import CompiledKernel
from triton.tools.tensor_descriptor import TensorDescriptor

_MOST: Final = 4096  # descriptors kept, of about 200 bytes
_ENCODED: Final[dict[Hashable, list[Any]]] = {}


class Descriptor:
    """What Triton's launcher reads of a tensor descriptor, without checking it again.

    It stands for a `TensorDescriptor` of the same tensor and block at a second launch.
    """

    __slots__ = ("base", "padding", "shape", "strides")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.base, self.shape, self.strides = tensor, tensor.shape, tensor.stride()
        self.padding = "zero"


def blocks_of_keys(
    key: torch.Tensor, value: torch.Tensor, rows: int, constants: dict[str, Any]
) -> tuple[TensorDescriptor, TensorDescriptor]:
    """Descriptors of keys and values in blocks of so many rows, for Triton's own launch."""
    described = [
        TensorDescriptor(t, t.shape, t.stride(), [1, 1, rows, constants[pad]])
        for t, pad in ((key, "HEAD_PAD"), (value, "VALUE_PAD"))
    ]
    return described[0], described[1]


class Encoder(NamedTuple):
    """The launcher below the one that encodes descriptors, and what encodes them.

    Attributes:
        launch: in C; takes what Triton's launcher does, descriptors encoded.
        options: of the kernel, that follow its handle.
        encode: a descriptor, and how its blocks lie in shared memory.
        blocks: that of each descriptor in the order of the arguments, and its text.
    """

    launch: Callable[..., None]
    options: tuple[Any, ...]
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
    """The encoder of a kernel, or None where Triton's launcher is not what it is in 3.6."""
    launcher = compiled.run
    wrapper = getattr(launcher, "launch", None)
    if not isinstance(wrapper, FunctionType) or wrapper.__closure__ is None:
        return None
    cells = [cell.cell_contents for cell in wrapper.__closure__]
    free = dict(zip(wrapper.__code__.co_freevars, cells, strict=True))
    blocks = free.get("tensordesc_meta")
    scratch = ("global_scratch_size", "profile_scratch_size")
    if (
        not callable(free.get("launcher"))
        or not blocks
        or not all(isinstance(block, dict) for block in blocks)
        or any(getattr(launcher, size, 1) for size in scratch)
    ):
        return None
    try:
        from triton.backends.nvidia.driver import make_tensordesc_arg

        options = (launcher.launch_cooperative_grid, launcher.launch_pdl, None, None)
    except (ImportError, AttributeError):
        return None
    told = [(block, sys.intern(str(sorted(block.items())))) for block in blocks]
    return Encoder(free["launcher"], options, make_tensordesc_arg, told)
