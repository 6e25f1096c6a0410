"""Launching a kernel a second time without Triton's binding of its arguments.

Triton looks at each of a kernel's eighty arguments at each call to find the variant it compiled,
which takes longer than all else on the host. Here the caller gives a key of what the variant
depends on; the variant found the first time is launched directly from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import torch
import triton
from triton.compiler import CompiledKernel

from .triton_descriptors import Encoder, encoder_of

_INT32_MAX: Final = 2**31 - 1


class Variant(NamedTuple):
    """A compiled kernel, its constants, and what encodes its descriptors."""

    compiled: CompiledKernel
    constants: tuple[Any, ...]
    encoder: Encoder | None


_VARIANTS: Final[dict[Hashable, Variant]] = {}
_TRIED: Final[set[Hashable]] = set()
"""Variants that were compiled beside another; those that failed are not tried so again."""


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


class Launch(NamedTuple):
    """A launch of a kernel, to be made on the current stream of the current device.

    Attributes:
        kernel: of Triton.
        programs: how many along the first axis and the second.
        key: the kernel's name, what its constants follow from, and what `variant_key` says.
        first: the runtime arguments, in order, and the constants and options, for Triton.
        again: the runtime arguments for a direct launch, descriptors as `Descriptor`.
        made: tensors among the arguments that are neither inputs nor results; what they hold before
            the launch, or before one made ahead of it, is of no matter.
        once: what it makes is the same for every call like this one.
    """

    kernel: Any
    programs: tuple[int, int]
    key: Hashable
    first: Callable[[], tuple[list[Any], dict[str, Any]]]
    again: Callable[[], list[Any]]
    made: tuple[torch.Tensor, ...] = ()
    once: bool = False

    def run(self) -> Launch:
        """Launch, and return this."""
        found = _VARIANTS.get(self.key)
        if found is None or watched():
            arguments, constants = self.first()
            compiled = self.kernel[self.programs](*arguments, **constants)
            if isinstance(compiled, CompiledKernel):  # the interpreter compiles nothing
                names = self.kernel.arg_names[len(arguments) :]
                rest = tuple([constants[name] for name in names])
                _VARIANTS[self.key] = Variant(compiled, rest, encoder_of(compiled))
            return self
        arguments = self.again()
        start(
            found, self.programs, found.encoder.encoded(arguments) if found.encoder else arguments
        )
        return self


def start(variant: Variant, programs: tuple[int, int], arguments: list[Any]) -> None:
    """Launch a variant on the current stream; descriptors are encoded where it has an encoder."""
    compiled, rest, encoder = variant
    driver = triton.runtime.driver.active
    stream = driver.get_current_stream(driver.get_current_device())
    metadata = (compiled.packed_metadata, None, None, None)
    if encoder is None:
        compiled.run(*programs, 1, stream, compiled.function, *metadata, *arguments, *rest)
        return
    handle = (compiled.function, *encoder.options)
    encoder.launch(*programs, 1, stream, *handle, *metadata, *arguments, *rest)


def variant_of(launch: Launch) -> Variant | None:
    """What a launch runs that ran before; None in the interpreter, which compiles nothing."""
    return _VARIANTS.get(launch.key)


def compile_together(launches: Sequence[Launch]) -> None:
    """Compile those kernels side by side whose variants were not launched before.

    Triton's compiler and NVIDIA's assembler run outside of Python's lock but for the first quarter
    of their time. What fails here is compiled, or fails again and is raised, at its own launch.
    """
    missing = [
        launch for launch in launches if launch.key not in _VARIANTS and launch.key not in _TRIED
    ]
    if len(missing) < 2 or triton.knobs.runtime.interpret or (mode := _aside()) is None:
        return
    _TRIED.update(launch.key for launch in missing)
    with ThreadPoolExecutor(len(missing)) as threads, mode(threads, ignore_errors=True):
        for launch in missing:
            arguments, constants = launch.first()
            launch.kernel.warmup(*arguments, grid=launch.programs, **constants)


def _aside() -> Any:
    """Triton's context in which threads compile, since 3.5; None where the caller is in one."""
    try:
        from triton.runtime._async_compile import active_mode
    except ImportError:
        return None
    return None if active_mode.get() is not None else triton.AsyncCompileMode


def watched() -> bool:
    """Whether a profiler wants to hear of launches."""
    knobs = triton.knobs.runtime
    return bool(knobs.launch_enter_hook.calls or knobs.launch_exit_hook.calls)
