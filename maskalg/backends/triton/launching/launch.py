"""Launching a kernel a second time without Triton's binding of its arguments.

Triton looks at each of a kernel's eighty arguments at each call to find the variant it compiled,
which takes longer than all else on the host. Here the caller gives a key of what the variant
depends on; the variant found the first time is launched directly from then on.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import torch
import triton
from maskalg_kernels.offline import OPTIONS
from triton.compiler import CompiledKernel

from ....engine.recent import Recent
from ...call import Call
from ..versions import is_tested
from .descriptors import Descriptor, Encoder, encoder_of

_INT32_MAX: Final = 2**31 - 1
_AMD: Final = torch.version.hip is not None  # where Triton looks at the size of storages


class CompilerError(Exception):
    """Triton's compiler failed on a kernel; the text says which, and what Triton said."""


class Variant(NamedTuple):
    """A compiled kernel, its constants, and what encodes its descriptors."""

    compiled: CompiledKernel
    constants: tuple[Any, ...]
    encoder: Encoder | None


_VARIANTS: Final[Recent[Hashable, Variant]] = Recent(4096)
_TRIED: Final[Recent[Hashable, bool]] = Recent(4096)
"""Variants that were compiled beside another; those that failed are not tried so again."""
_SPILLED: Final[Recent[Hashable, int | None]] = Recent(4096)
"""What `Launch.spilled` found of variants."""


class Sizes(NamedTuple):
    """All of a launch that follows from the sizes of a call.

    Attributes:
        programs: how many.
        numbers: that are passed behind the tensors.
        specialised: those of them that Triton looks at: whether they are 1, or multiples of 16.
        made: shapes of the tensors that it makes.
    """

    programs: int
    numbers: tuple[float, ...]
    specialised: tuple[int, ...]
    made: tuple[tuple[int, ...], ...] = ()

    def kind(self) -> Hashable:
        """What a compiled variant depends on: never on the sizes themselves."""
        fit = None
        if max(self.numbers) > _INT32_MAX:
            fit = tuple([number <= _INT32_MAX for number in self.numbers])
        return fit, *[-1 if number == 1 else number & 15 == 0 for number in self.specialised]


def kind_of_argument(argument: Any) -> Hashable:
    """What a compiled variant depends on of a tensor, a descriptor, several of them, or None."""
    if argument is None:
        return None
    if isinstance(argument, tuple):
        return tuple([kind_of_argument(one) for one in argument])
    if type(argument) is Descriptor:
        return argument.base.dtype  # what is described is aligned
    near = _AMD and argument.untyped_storage().nbytes() < 2**31  # offsets of 32 bits reach it all
    return argument.dtype, argument.data_ptr() & 15, near


@dataclass(eq=False)
class Launch:
    """A launch of a kernel, to be made on the current stream of the current device.

    Attributes:
        kernel: of Triton.
        of: the kernel's name, and what its constants follow from.
        tensors: the first arguments: tensors, `Descriptor` of some, tuples of tensors, and None.
        sizes: what follows them.
        scalars: the last arguments, integers of 32 bits.
        constants: the kernel's constants and options, made when it is compiled.
        blocks: the descriptors among the tensors for Triton's own launch, likewise.
        made: tensors among the arguments that are neither inputs nor results, of the shapes that
            `sizes` say; what they hold before the launch, or before one made ahead of it, is of no
            matter.
        sized: the sizes of a launch for another call like this one, of the call and the strides of
            `strided`, in order. It holds no tensor.
        strided: tensors that are given to the call, or its results.
        once: what it makes is the same for every call of these sizes.
        tile: of the kernel, where others may be tried.
        key: of the compiled variant.
    """

    kernel: Any
    of: Hashable
    tensors: Sequence[Any]
    sizes: Sizes
    constants: Callable[[], dict[str, Any]]
    sized: Callable[[Call, list[int]], Sizes]
    scalars: Sequence[int] = ()
    strided: tuple[torch.Tensor, ...] = ()
    blocks: Callable[[], Sequence[Any]] = tuple
    made: tuple[torch.Tensor, ...] = ()
    once: bool = False
    tile: Hashable = None
    key: Hashable = field(init=False)

    def __post_init__(self) -> None:
        kinds = [kind_of_argument(argument) for argument in self.tensors]
        self.key = (self.of, *kinds, self.sizes.kind())

    @property
    def programs(self) -> tuple[int, int]:
        return self.sizes.programs, 1

    def first(self) -> tuple[list[Any], dict[str, Any]]:
        """The arguments, and the constants and options, for Triton."""
        described = [type(one) is Descriptor for one in self.tensors]
        blocks = iter(self.blocks() if any(described) else ())
        both = zip(self.tensors, described, strict=True)
        tensors = [next(blocks) if is_described else one for one, is_described in both]
        return [*tensors, *self.sizes.numbers, *self.scalars], self.constants()

    def again(self) -> list[Any]:
        """The arguments for a direct launch."""
        return [*self.tensors, *self.sizes.numbers, *self.scalars]

    def spilled(self) -> int | None:
        """Bytes of memory in which each thread keeps what registers do not hold, known without a
        launch; None where the device has not the shared memory or registers at all.

        Raises CompilerError where Triton cannot compile the kernel.

        It relies on `CompiledKernel` of Triton: `run`, once it is read, has loaded the kernel and
        set `n_spills`, which counts words of four bytes. Where that is not there, nothing spills.
        """
        if self.key not in _SPILLED:
            arguments, constants = self.first()
            with _naming_the_compiler(self.kernel):
                compiled = self.kernel.warmup(
                    *arguments, grid=self.programs, **constants, **OPTIONS
                )
            try:
                compiled.run  # noqa: B018
            except triton.runtime.errors.OutOfResources:
                _SPILLED.keep(self.key, None)
                return None
            _SPILLED.keep(self.key, 4 * getattr(compiled, "n_spills", 0))
        return _SPILLED.recall(self.key)

    def run(self) -> Launch:
        """Launch, and return this."""
        found = _VARIANTS.recall(self.key)
        arguments = self.again()
        if found is None or watched():
            passed, constants = self.first()
            with _naming_the_compiler(self.kernel):
                compiled = self.kernel[self.programs](*passed, **constants, **OPTIONS)
            names = self.kernel.arg_names[len(passed) :]
            variant = _variant(compiled, tuple([constants[name] for name in names]), arguments)
            if variant is not None:
                _VARIANTS.keep(self.key, variant)
            return self
        start(
            found, self.programs, found.encoder.encoded(arguments) if found.encoder else arguments
        )
        return self


@contextmanager
def _naming_the_compiler(kernel: Any) -> Iterator[None]:
    """Errors of Triton's compiler, which have many types, as CompilerError."""
    try:
        yield
    except triton.runtime.errors.OutOfResources:
        raise
    except Exception as problem:
        if not _of_compiler(problem):
            raise
        raise CompilerError(f"{kernel.fn.__name__}: {problem}") from problem


def _of_compiler(problem: Exception) -> bool:
    """Whether an error was raised within Triton's compiler, and not where kernels are loaded."""
    frames = [frame.f_code for frame, _ in traceback.walk_tb(problem.__traceback__)]
    if any(code.co_name == "_init_handles" for code in frames):
        return False
    files = [code.co_filename.replace("\\", "/") for code in frames]
    return any("/triton/" in file and "compiler" in file for file in files)


def sized_now(
    sized: Callable[[Call, list[int]], Sizes], call: Call, strided: Sequence[torch.Tensor] = ()
) -> Sizes:
    """The sizes of a launch for this call."""
    return sized(call, [stride for tensor in strided for stride in tensor.stride()])


def _variant(compiled: Any, constants: tuple[Any, ...], again: list[Any]) -> Variant | None:
    """What launches a compiled kernel without Triton's binding; None where Triton is to do it.

    It relies on `CompiledKernel.run` as it is in the tested releases of Triton, and for descriptors
    on what `encoder_of` says.
    """
    if not isinstance(compiled, CompiledKernel) or not is_tested():  # interpreted, or unknown
        return None
    encoder = encoder_of(compiled)
    if encoder is None and any(type(argument) is Descriptor for argument in again):
        return None
    return Variant(compiled, constants, encoder)


def start(variant: Variant, programs: tuple[int, int], arguments: list[Any]) -> None:
    """Launch a variant on the current stream; descriptors are encoded where it has an encoder."""
    compiled, rest, encoder = variant
    driver = triton.runtime.driver.active
    stream = driver.get_current_stream(driver.get_current_device())
    if encoder is not None:
        encoder.launch(programs, stream, [*arguments, *rest])
        return
    metadata = (compiled.packed_metadata, None, None, None)
    compiled.run(*programs, 1, stream, compiled.function, *metadata, *arguments, *rest)


def variant_of(launch: Launch) -> Variant | None:
    """What a launch runs that ran before; None in the interpreter, which compiles nothing."""
    return _VARIANTS.recall(launch.key)


def compile_together(launches: Sequence[Launch]) -> None:
    """Compile those kernels side by side whose variants were not launched before.

    Triton's compiler and NVIDIA's assembler run outside of Python's lock but for the first quarter
    of their time. What fails here is compiled, or fails again and is raised, at its own launch.
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
            launch.kernel.warmup(*arguments, grid=launch.programs, **constants, **OPTIONS)

    with ThreadPoolExecutor(len(missing)) as threads:
        list(threads.map(compile_one, missing))


def watched() -> bool:
    """Whether a profiler wants to hear of launches."""
    knobs = triton.knobs.runtime
    return bool(knobs.launch_enter_hook.calls or knobs.launch_exit_hook.calls)
