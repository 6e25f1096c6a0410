"""Launching a kernel a second time, without Triton's binding of its arguments.

At each call, Triton inspects a kernel's eighty arguments to find the compiled variant, which takes
longer than everything else on the host. Here the caller gives a key that determines the variant;
after the first time, the variant is launched directly.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from typing import Any, Final, NamedTuple

import torch
import triton
from triton.compiler import CompiledKernel

from ....engine.recent import Recent
from ...call import Call
from ..arguments import Hooked
from ..trust import is_tested
from .compiler import naming_the_compiler
from .descriptors import Descriptor, Encoder, encoder_of
from .spec import KernelSpec, Sizes

_AMD: Final = torch.version.hip is not None  # where Triton looks at the size of storages


Prepared = tuple[Callable[..., None], tuple[Any, ...]]
"""A launcher, and all that it is passed."""


class Variant(NamedTuple):
    """A compiled kernel, its constants, and the encoder of its descriptors."""

    compiled: CompiledKernel
    constants: tuple[Any, ...]
    encoder: Encoder | None

    def prepared(self, programs: tuple[int, int], stream: int, arguments: list[Any]) -> Prepared:
        """A launch on the current device; descriptors are encoded if there is an encoder."""
        compiled, rest, encoder = self
        arguments += rest
        if encoder is not None:
            return encoder.launcher, encoder.passed(programs, stream, arguments)
        metadata = (compiled.packed_metadata, None, None, None)
        handle = (*programs, 1, stream, compiled.function)
        return compiled.run, (*handle, *metadata, *arguments)


_VARIANTS: Final[Recent[Hashable, Variant]] = Recent(4096)
_NOTHING_READ: Final = Hooked()
_TRIED: Final[Recent[Hashable, bool]] = Recent(4096)
"""Variants that were compiled beside another; those that failed are not tried so again."""
_SPILLED: Final[Recent[Hashable, int | None]] = Recent(4096)
"""Bytes of registers that variants spill, as `Launch.spilled` found."""


def kind_of_argument(argument: Any) -> Hashable:
    """The facts about a tensor, a descriptor, several, or None that determine a variant."""
    if argument is None:
        return None
    if isinstance(argument, tuple):
        return tuple([kind_of_argument(one) for one in argument])
    if type(argument) is Descriptor:
        return argument.base.dtype  # described tensors are aligned
    near = _AMD and argument.untyped_storage().nbytes() < 2**31  # reached by 32 bits
    return argument.dtype, argument.data_ptr() & 15, near


@dataclass(eq=False)
class Launch:
    """A launch of a kernel, to be made on the current stream of the current device.

    Attributes:
        spec: the kernel's spec.
        of: the key of the constants, without the tile.
        call: the call that gives the sizes.
        given: tensors by name, of the kernel or not: a tensor, several, or None. The launch makes
            the tensors that `sized` lists itself, uninitialised.
        sized: the sizes of a launch for a call like this one. It holds no tensor.
        constants: the kernel's constants and options, and others; made when it is compiled.
        hooked: numbers and tables of the expression.
        tma: whether the tensors that the spec describes are passed as descriptors; those of Gluon
            always are.
        once: its results are the same for every call of these sizes.
        tile: the kernel's tile, if others may be tried.
        tensors: the kernel's tensors, by name, in order.
        arguments: the same, with descriptors.
        sizes: the sizes of the launch.
        numbers, kind: the kernel's numbers in order, and the facts about them that determine a
            variant.
        key: the key of the compiled variant.
    """

    spec: KernelSpec
    of: Hashable
    call: InitVar[Call]
    given: InitVar[Mapping[str, Any]]
    sized: Callable[[Call], Sizes]
    constants: Callable[[], Mapping[str, Any]]
    hooked: Hooked = _NOTHING_READ
    tma: bool = False
    once: bool = False
    tile: Hashable = None
    tensors: dict[str, Any] = field(init=False)
    arguments: list[Any] = field(init=False)
    sizes: Sizes = field(init=False)
    numbers: list[float] = field(init=False)
    kind: Hashable = field(init=False)
    key: Hashable = field(init=False)

    def __post_init__(self, call: Call, given: Mapping[str, Any]) -> None:
        self.sizes = self.sized(call)
        known = {**given, "T": self.hooked.tables}
        for name, (shape, dtype) in self.sizes.made.items():
            known[name] = call.query.new_empty(shape, dtype=dtype)
        names, described = self.spec.signature, self.spec.described(tma=self.tma)
        self.tensors = {name: known[name] for name in names.tensors}
        self.arguments = [
            Descriptor(tensor) if name in described else tensor
            for name, tensor in self.tensors.items()
        ]
        self.numbers, self.kind = self.spec.numbers(self.sizes, self.strided)
        kinds = map(kind_of_argument, self.arguments)
        self.key = (self.spec.path, self.of, self.tile, *kinds, self.kind)

    @property
    def kernel(self) -> Any:
        return self.spec.kernel

    @property
    def programs(self) -> tuple[int, int]:
        return self.sizes.programs, 1

    @property
    def made(self) -> list[torch.Tensor]:
        """The tensors that the launch makes: neither inputs nor results."""
        return [self.tensors[name] for name in self.sizes.made]

    @property
    def strided(self) -> list[torch.Tensor]:
        """Tensors whose strides are passed."""
        return [self.tensors[name] for name in self.spec.signature.strided]

    @property
    def scalars(self) -> Sequence[int]:
        """The expression's numbers, if the kernel takes them."""
        return self.hooked.scalars if self.spec.signature.scalars else ()

    def first(self) -> tuple[list[Any], dict[str, Any]]:
        """The arguments, and the constants and options, for Triton."""
        constants = self.spec.constants({**self.constants(), "TMA": self.tma})
        tensors = [
            self.spec.descriptor(name, argument.base, constants)
            if type(argument) is Descriptor
            else argument
            for name, argument in zip(self.tensors, self.arguments, strict=True)
        ]
        return [*tensors, *self.numbers, *self.scalars], constants

    def again(self) -> list[Any]:
        """The arguments for a direct launch."""
        return [*self.arguments, *self.numbers, *self.scalars]

    def spilled(self) -> int | None:
        """The bytes of memory for each thread's spilled registers, found without a launch; None if
        the device lacks the shared memory or registers.

        Raises CompilerError if Triton cannot compile the kernel.

        This relies on Triton's `CompiledKernel`: reading `run` loads the kernel and sets
        `n_spills`, in words of four bytes. Without `n_spills`, nothing counts as spilled.
        """
        if self.key not in _SPILLED:
            arguments, constants = self.first()
            with naming_the_compiler(self.kernel):
                compiled = self.kernel.warmup(*arguments, grid=self.programs, **constants)
            try:
                compiled.run  # noqa: B018
            except triton.runtime.errors.OutOfResources:
                _SPILLED.keep(self.key, None)
                return None
            _SPILLED.keep(self.key, 4 * getattr(compiled, "n_spills", 0))
        return _SPILLED.recall(self.key)

    def run(self) -> Launch:
        """Launch, and return this."""
        launch(self.kernel, self.key, self.programs, self.again(), self.first)
        return self


def launch(
    kernel: Any,
    key: Hashable,
    programs: tuple[int, int],
    arguments: list[Any],
    first: Callable[[], tuple[list[Any], dict[str, Any]]],
) -> None:
    """Launch a kernel on the current stream of the current device.

    Args:
        kernel: the function of Triton.
        key: determines the compiled variant.
        programs: along both axes.
        arguments: all but constants, with a `Descriptor` for each descriptor.
        first: returns the arguments for Triton: constants in order, and options.
    """
    found = _VARIANTS.recall(key)
    if found is None or watched():
        passed, constants = first()
        with naming_the_compiler(kernel):
            compiled = kernel[programs](*passed, **constants)
        in_order = tuple([constants[name] for name in kernel.arg_names if name in constants])
        variant = _variant(compiled, in_order, arguments)
        if variant is not None:
            _VARIANTS.keep(key, variant)
        return
    if found.encoder is not None:
        arguments = found.encoder.encoded(arguments)
    driver = triton.runtime.driver.active
    stream = driver.get_current_stream(driver.get_current_device())
    launcher, passed_again = found.prepared(programs, stream, arguments)
    launcher(*passed_again)


def _variant(compiled: Any, constants: tuple[Any, ...], again: list[Any]) -> Variant | None:
    """The launch of a compiled kernel without Triton's binding; None to let Triton do it.

    It relies on `CompiledKernel.run` as it is in the tested releases of Triton; for descriptors,
    see `encoder_of`.
    """
    if not isinstance(compiled, CompiledKernel) or not is_tested():  # interpreted, or unknown
        return None
    encoder = encoder_of(compiled)
    if encoder is None and any(type(argument) is Descriptor for argument in again):
        return None
    return Variant(compiled, constants, encoder)


def variant_of(launch: Launch) -> Variant | None:
    """The variant of a launch that ran before; None in the interpreter, which does not compile."""
    return _VARIANTS.recall(launch.key)


def compile_together(launches: Sequence[Launch]) -> None:
    """Compile kernels without a launched variant side by side.

    After the first quarter of their time, Triton's compiler and NVIDIA's assembler run outside of
    Python's lock. A kernel that fails here is compiled again at its launch, which raises its error.
    """
    missing = [
        launch for launch in launches if launch.key not in _VARIANTS and launch.key not in _TRIED
    ]
    if len(missing) < 2 or triton.knobs.runtime.interpret:
        return
    for launch in missing:
        _TRIED.keep(launch.key, True)
    driver = triton.runtime.driver.active
    device = driver.get_current_device()

    def compile_one(launch: Launch) -> None:
        driver.set_current_device(device)  # a thread begins with the first
        arguments, constants = launch.first()
        # Python 3.11's parser may fail where several threads parse.
        with suppress(Exception):
            launch.kernel.warmup(*arguments, grid=launch.programs, **constants)

    with ThreadPoolExecutor(min(len(missing), os.cpu_count() or 1)) as threads:
        list(threads.map(compile_one, missing))


def watched() -> bool:
    """Whether a profiler listens to launches."""
    knobs = triton.knobs.runtime
    return bool(knobs.launch_enter_hook.calls or knobs.launch_exit_hook.calls)


def elsewhere(device: torch.device) -> bool:
    """Whether a GPU is not the current one, as in a model on several GPUs.

    Kernels are launched on the current device, which need not be that of the inputs.
    """
    return device.type == "cuda" and device.index != torch.cuda.current_device()
