"""Operations of Gluon under one name each, where releases of Triton name them differently.

Triton 3.7 renamed `thread_barrier`, 3.8 the asynchronous copies. 3.8 also has a sum into a tensor
(`async_atomic_add`); before, it is built from the operation that it stands for.

Triton 3.8 and 3.9 put a barrier of their own ahead of every arrival at an mbarrier, 3.6 and 3.7
only where there is none. `barrier_to_arrive` stands before an arrival that all warps must have
reached, and gives one barrier with each of them.
"""

import triton
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.hopper import tma


@builtin
def _add_to_global(descriptor, coordinates, source, _semantic=None):
    """Add a block of shared memory to a tensor, by the tensor memory accelerator."""
    from triton._C.libtriton import ir

    places = _semantic._convert_to_ir_values(coordinates, require_i64=False)
    kind = ir.DESCRIPTOR_REDUCE_KIND.ADD
    _semantic.builder.create_async_tma_reduce(kind, descriptor.handle, places, source.handle)


@builtin
def _no_barrier(_semantic=None):
    """Nothing."""


if hasattr(gl, "barrier"):
    barrier = gl.barrier
else:  # Triton 3.6
    barrier = gl.thread_barrier
barrier_to_arrive = _no_barrier if triton.__version__.startswith(("3.8.", "3.9.")) else barrier

if hasattr(tma, "async_load"):
    copy_to_shared = tma.async_load
    copy_to_global = tma.async_store
    add_to_global = tma.async_atomic_add
else:  # Triton 3.6 and 3.7
    copy_to_shared = tma.async_copy_global_to_shared
    copy_to_global = tma.async_copy_shared_to_global
    add_to_global = _add_to_global
