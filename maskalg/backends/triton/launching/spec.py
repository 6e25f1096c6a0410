"""Kernels as the host sees them: the role of each argument, by its name in the signature.

    q_ptr, q_desc     the tensor `q`: where it lies, or a descriptor of its blocks
    T, descales       several tensors: tables of the expression, factors of float8 inputs
    pages             likewise: the table of pages, and where packed queries begin
    scale, q_len, ... numbers that depend on the sizes of a call
    stride_qb, ...    the strides of the tensor `q`
    S0, S1, ...       numbers of the expression
    BLOCK_M, ...      constants

First and repeated launches, trials of tiles, and compilations for an absent GPU all give arguments
by these names. Their order is written in the kernel's signature and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from math import gcd
from typing import Any, Final, Literal, NamedTuple

import torch
import triton

OF_ALL: Final[dict[str, Any]] = {"enable_fp_fusion": True}
"""Options of every kernel. Triton 3.10 no longer fuses products and sums unless asked to: results
are the same on every release."""

_OF_GLUON: Final[dict[str, Any]] = {"sched4reg": True}
"""Options of Gluon kernels, where Triton has them (3.9). LLVM is told to order instructions for few
registers. Otherwise Triton 3.9 computes the descriptors of all operands of a product ahead of it:
more than uniform registers hold, so that NVIDIA's assembler spills."""

_OF_LAUNCHES: Final = ("num_warps", "num_stages", "maxnreg", "launch_pdl")
"""Options that stand among the constants of a tile."""

_INT32_MAX: Final = 2**31 - 1

Blocks = Mapping[str, tuple[int | str, ...]]
"""The shape of the blocks of each tensor that is described, in numbers and names of constants."""

KEYS_AND_VALUES: Final[Blocks] = {
    "k": (1, 1, "BLOCK_N", "HEAD_PAD"),
    "v": (1, 1, "BLOCK_N", "VALUE_PAD"),
}
"""The blocks of kernels that walk over keys."""


class Sizes(NamedTuple):
    """The parts of a launch that depend on the sizes of a call.

    Attributes:
        programs: how many.
        numbers: numbers by name, of the kernel or not.
        made: shapes and dtypes of the tensors that the launch makes, by name.
    """

    programs: int
    numbers: Mapping[str, float]
    made: Mapping[str, tuple[tuple[int, ...], torch.dtype]] = {}


class Signature(NamedTuple):
    """The arguments of a kernel by role, in order; each role but `strided` is contiguous.

    Attributes:
        tensors: names without `_ptr` and `_desc`.
        numbers: numbers from `Sizes`.
        strided: tensors whose strides are passed.
        scalars: numbers of the expression.
        constants: all others.
        specialised: places, among numbers and strides, for which Triton compiles variants: for 1
            and for multiples of 16.
        gluon: whether its tensors are descriptors throughout.
    """

    tensors: tuple[str, ...]
    numbers: tuple[str, ...]
    strided: tuple[str, ...]
    scalars: tuple[str, ...]
    constants: tuple[str, ...]
    specialised: tuple[int, ...]
    gluon: bool


@dataclass(frozen=True, eq=False)
class KernelSpec:
    """A kernel, with facts that its signature does not contain.

    Attributes:
        path: module and name, imported when needed, since Gluon may be missing.
        blocks: the blocks of its descriptors. Tensors `_ptr` among them may be passed as either.
        columns: the most columns that a Gluon kernel's descriptors of these tensors copy at once.
    """

    path: str
    blocks: Blocks = field(default_factory=dict)
    columns: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def kernel(self) -> Any:
        """The function of Triton."""
        module, _, name = self.path.rpartition(".")
        return getattr(import_module(module), name)

    @cached_property
    def signature(self) -> Signature:
        """The arguments by role.

        It relies on `arg_names` and `do_not_specialize` of Triton's functions, and in the
        interpreter on `kwargs`, as they are in the tested releases.
        """
        roles: dict[str, list[str]] = {}
        for name in self.kernel.arg_names:
            roles.setdefault(role_of(name), []).append(name)
        strides = roles.get("stride", [])
        interpreted = triton.knobs.runtime.interpret
        known = self.kernel.kwargs if interpreted else vars(self.kernel)
        unspecialised = known["do_not_specialize"] or ()
        specialised = [
            place
            for place, name in enumerate([*roles.get("number", []), *strides])
            if name not in unspecialised and name != "scale"
        ]
        return Signature(
            tensors=tuple(map(tensor_of, roles.get("tensor", []))),
            numbers=tuple(roles.get("number", [])),
            strided=tuple(dict.fromkeys(name[len("stride_")] for name in strides)),
            scalars=tuple(roles.get("scalar", [])),
            constants=tuple(roles.get("constant", [])),
            specialised=tuple(specialised),
            gluon=any(name.endswith("_desc") for name in roles.get("tensor", [])),
        )

    def described(self, *, tma: bool) -> Sequence[str]:
        """The tensors passed as descriptors; `tma` decides for kernels that have the choice."""
        return tuple(self.blocks) if tma or self.signature.gluon else ()

    def numbers(
        self, sizes: Sizes, strided: Iterable[torch.Tensor]
    ) -> tuple[list[float], Hashable]:
        """The numbers in order, strides last, and the facts about them that determine a variant,
        never the sizes themselves."""
        names = self.signature
        found = [sizes.numbers[name] for name in names.numbers]
        for tensor in strided:
            found += tensor.stride()
        fit = None
        if max(found, default=0) > _INT32_MAX:
            fit = tuple([number <= _INT32_MAX for number in found])
        kinds = [-1 if (n := found[i]) == 1 else int(n) & 15 == 0 for i in names.specialised]
        return found, (fit, *kinds)

    def constants(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """The kernel's constants and options, picked from all known ones."""
        found = {name: known[name] for name in self.signature.constants}
        return found | {name: known[name] for name in _OF_LAUNCHES if name in known} | self.options

    @cached_property
    def options(self) -> dict[str, Any]:
        """The options that do not depend on a tile."""
        if not self.signature.gluon:
            return OF_ALL
        from triton.backends.nvidia.compiler import CUDAOptions

        return OF_ALL | {name: _OF_GLUON[name] for name in _OF_GLUON if hasattr(CUDAOptions, name)}

    def block(
        self, name: str, dtype: torch.dtype, constants: Mapping[str, Any]
    ) -> tuple[list[int], Any]:
        """The block of a described tensor, and for Gluon its layout in shared memory."""
        block = [constants[n] if isinstance(n, str) else n for n in self.blocks[name]]
        if not self.signature.gluon:
            return block, None
        # Kernels copy a row of 160 elements in five pieces: blocks have sides of powers of two.
        block[-1] = gcd(block[-1], self.columns.get(name, 256))
        return block, _layout(block, dtype)

    def descriptor(self, name: str, tensor: torch.Tensor, constants: Mapping[str, Any]) -> Any:
        """The descriptor of a tensor, for Triton's own launch."""
        block, layout = self.block(name, tensor.dtype, constants)
        if layout is None:
            from triton.tools.tensor_descriptor import TensorDescriptor

            return TensorDescriptor(tensor, tensor.shape, tensor.stride(), block)
        from triton.experimental.gluon.nvidia import hopper

        return hopper.TensorDescriptor(tensor, tensor.shape, tensor.stride(), block, layout)


def role_of(argument: str) -> Literal["tensor", "number", "stride", "scalar", "constant"]:
    """The role of a kernel's argument, by its name."""
    if argument in ("T", "descales", "pages") or argument.endswith(("ptr", "desc")):
        return "tensor"
    if re.fullmatch(r"stride_\w\w", argument):
        return "stride"
    if re.fullmatch(r"S\d+", argument):
        return "scalar"
    return "constant" if argument.isupper() else "number"


def tensor_of(argument: str) -> str:
    """The name of the tensor that an argument passes."""
    return argument.removesuffix("_ptr").removesuffix("_desc")


def _layout(block: list[int], dtype: torch.dtype) -> Any:
    """How Gluon's descriptors lay blocks of a shape and dtype into shared memory."""
    from maskalg_kernels.hopper_common import block_layout, byte_layout
    from maskalg_kernels.hopper_keys import row_layout
    from maskalg_kernels.hopper_shifts import shift_layout
    from maskalg_kernels.hopper_sums import sum_layout

    if dtype.itemsize == 1:
        return byte_layout(block[-1])
    if len(block) == 4:
        return sum_layout if dtype == torch.float32 else block_layout(block[-1])
    return row_layout if len(block) == 1 else shift_layout
