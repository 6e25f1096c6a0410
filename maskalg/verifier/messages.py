"""Messages of the verifier."""

from __future__ import annotations

from ..errors.kinds import MaskValueError, MissingPackageError


def no_z3() -> MissingPackageError:
    return MissingPackageError(
        'verifying a kernel needs z3, which is not installed. Write: pip install "maskalg[verify]"'
    )


def unknown_target(target: object, known: tuple[str, ...]) -> MaskValueError:
    return MaskValueError(f"target {target!r} is not known; choose of {', '.join(known)}.")


def not_a_length(length: object, most: int) -> MaskValueError:
    return MaskValueError(
        f"length {length!r} of a call that is computed pair by pair must be 1 to {most}. For all "
        "lengths, leave it out: `verify(mask)`."
    )
