"""Of the commands and of the pictures they print."""

from __future__ import annotations

from .kinds import BackendError, MaskTypeError, MaskValueError


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


def unknown_target(target: str, known: list[str]) -> BackendError:
    return BackendError(f"target {target!r} is not served. The targets: {', '.join(known)}.")


def interpreter_compiles_nothing() -> BackendError:
    return BackendError("nothing is compiled under TRITON_INTERPRET=1: unset it.")


def compiler_failed(target: str, problem: Exception) -> BackendError:
    lines = str(problem).splitlines() or [""]
    return BackendError(f"compiling for {target} failed: {type(problem).__name__}: {lines[0]}")


def no_triton_to_compile() -> BackendError:
    return BackendError(
        "compiling needs Triton, which is not installed: pip install triton (Linux). Without "
        "--target the source is rendered all the same."
    )
