"""Messages of the commands."""

from __future__ import annotations

from ..errors import BackendError, MaskTypeError, MaskValueError


def bench_needs_gpu() -> BackendError:
    return BackendError(
        "no CUDA device was found (torch.cuda.is_available() is False). On a CPU, "
        "`maskalg demo` compares with scaled_dot_product_attention."
    )


def no_such_case(wanted: list[str], known: list[str]) -> MaskValueError:
    return MaskValueError(
        f"--cases {','.join(wanted)} names no case. The cases: {', '.join(known)}."
    )


def no_mask_in(expression: object) -> MaskTypeError:
    return MaskTypeError(
        f"{expression} is a bias, which keeps every pair: there is no mask to look at. Write a "
        "mask, or mask + bias."
    )


def needs_length(name: str, entries: int, shown: int) -> MaskValueError:
    return MaskValueError(
        f"{name} has {entries} entries, one a position, and {shown} positions are the default. "
        f"Write --len {entries}."
    )


def no_triton_to_compile() -> BackendError:
    return BackendError(
        "compiling needs Triton, which is not installed: pip install triton (Linux). Without "
        "--target the source is rendered all the same."
    )


def tune_needs_gpu() -> BackendError:
    return BackendError(
        "no GPU was found (torch.cuda.is_available() is False), and tiles are measured where they "
        "are used. `maskalg tune --forget` works without one; `maskalg doctor` says what is here."
    )


def tune_needs_triton(problem: object) -> BackendError:
    return BackendError(
        f"Triton does not import ({problem}), and it compiles what is measured: pip install triton "
        "(Linux)."
    )


def tuned_cannot_be_stored(path: object, problem: object) -> BackendError:
    return BackendError(
        f"{path} cannot be written ({problem}), so nothing would be kept. Set XDG_CACHE_HOME to a "
        "folder that can, or look without keeping: --dry-run."
    )


def layers_of_each(given: str, masks: int) -> MaskValueError:
    return MaskValueError(
        f"--layers {given}: {masks} expressions need {masks} numbers of layers, such as "
        f"--layers {','.join(['4'] * masks)}."
    )
