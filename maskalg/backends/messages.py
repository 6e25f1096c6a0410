"""Messages of the backends: what none serves on this device or for this dtype."""

from __future__ import annotations

from ..errors import BackendError, MaskValueError


def unknown_backend(name: object, known: list[str]) -> MaskValueError:
    return MaskValueError(f"backend={name!r} is not known; choose one of {', '.join(known)}.")


def kernel_dtype(dtype: object) -> BackendError:
    return BackendError(
        f"the fused kernel serves float16, bfloat16, float32 and float8_e4m3fn, got {dtype}. "
        "backend='reference' serves float64."
    )


def no_gpu() -> BackendError:
    return BackendError(
        "backend='triton' needs tensors on a GPU, got CPU tensors. Leave backend out, or ask for "
        "backend='cpu'. (TRITON_INTERPRET=1 runs the kernel in Triton's interpreter, for tests.)"
    )


def interpreted_bfloat16() -> BackendError:
    return BackendError(
        "Triton's interpreter (TRITON_INTERPRET=1) computes bfloat16 wrongly. Pass float32 or "
        "float16 inputs, or unset the variable."
    )


def no_documents_to_align(mask: str) -> BackendError:
    return BackendError(
        f"backend='aligned' begins tiles where documents begin, and the mask {mask} is not joined "
        "by & to documents that are known to be contiguous, the same in all batch entries. Write "
        "`document.from_lengths(lengths) & …`, with lengths [documents], or leave backend out."
    )


def documents_not_counted() -> BackendError:
    return BackendError(
        "backend='aligned' counts the documents of ids that it did not make, or that were written "
        "to, and a CUDA graph is being captured, which cannot wait for that. Write "
        "`document.from_lengths(lengths)` or `document.from_cu_seqlens(cu_seqlens, total=…)`."
    )


def not_aligned_on_a_cpu(dtype: object) -> BackendError:
    return BackendError(
        "backend='aligned' needs the compiled kernel of a CPU with bounds of its own, which serves "
        "float32, bfloat16 and float16, softmax weights, masks with closed forms, and biases whose "
        "tensors want no gradient, where there is a C++ compiler. It does not serve this call of "
        f"{dtype}: leave backend out."
    )


def not_contiguous(shape: tuple[int, ...], stride: tuple[int, ...]) -> BackendError:
    return BackendError(
        f"a table of shape {list(shape)} and stride {list(stride)} is not contiguous, and too "
        "large to be copied at every call. Build the expression from `tensor.contiguous()`."
    )


def unknown_triton(version: str, serves: bool, why: str) -> str:
    """Told once, where a release of Triton is met that the Gluon kernels were not tested with."""
    chosen = "They are used" if serves else "The plain kernels are used, which are slower"
    return (
        f"maskalg's Gluon kernels were not tested with Triton {version}, so they were tried on "
        f"this GPU: {why}. {chosen}; MASKALG_GLUON=0 or 1 decides otherwise."
    )


def tile_not_compiled(tile: str, why: str) -> str:
    """Told once for a plan, as the tile that serves instead may be slower."""
    return (
        f"Triton could not compile a kernel with {tile} ({why}); what it printed is of no concern. "
        "The next tile serves, which may be slower: see maskalg.explain."
    )


def bits_not_compiled(why: str) -> str:
    """Told once for a mask, as its kernels then compute it for each element."""
    return (
        f"Triton could not compile the kernel that makes bits of a mask's pairs ({why}); what it "
        "printed is of no concern. The mask is computed at each element, which may be slower."
    )


def cxx_failed(compiler: str, why: str) -> str:
    """Told where torch's operations serve because a C++ compiler does not do its work."""
    last = why.splitlines()[-1] if why else "it says nothing"
    return (
        f"{compiler} could not compile an attention kernel for this CPU ({last}). torch's "
        "operations serve, which are slower: set CXX to a compiler that works, or MASKALG_NATIVE=0."
    )


def no_memory() -> str:
    return (
        "the machine gave the kernel no memory for a tile of each thread and, in the backward "
        "pass, for the runs of keys that each tile of queries sees. Use smaller heads, fewer "
        "separate runs a row or torch.set_num_threads, or set MASKALG_NATIVE=0."
    )


def no_tile_serves(why: str) -> BackendError:
    return BackendError(
        f"no kernel for this call compiles and fits this GPU: {why}. Write "
        'backend="reference" for a dense computation, and please report `maskalg.render(score)`, '
        "the shapes and `maskalg doctor`."
    )


def unknown_target(target: str, known: list[str]) -> BackendError:
    return BackendError(f"target {target!r} is not served. The targets: {', '.join(known)}.")


def compiler_failed(target: str, problem: Exception) -> BackendError:
    lines = str(problem).splitlines() or [""]
    return BackendError(f"compiling for {target} failed: {type(problem).__name__}: {lines[0]}")


def float8_architecture(arch: str) -> BackendError:
    return BackendError(
        f"the fused kernel reads float8 from sm_89 on, and this device is {arch}. Pass bfloat16: "
        "`(q8.float() * descale[:, :, None, None]).bfloat16()`."
    )


def no_nan_safe_pages() -> BackendError:
    return BackendError(
        "nan_safe=True copies keys and values, which pages are there to avoid. Leave it out: keys "
        "in pages that no query keeps change nothing, whatever they hold."
    )


def bias_hides_nan() -> BackendError:
    return BackendError(
        "nan_safe=True marks scores by NaN, and this score may turn NaN into a number: it compares "
        "the score, rounds it, or does not depend on it. Leave nan_safe out, and clean keys and "
        "values by torch.nan_to_num."
    )
