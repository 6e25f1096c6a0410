"""Messages of the verifier."""

from __future__ import annotations

from ..errors.kinds import MaskValueError, MissingPackageError


def no_z3() -> MissingPackageError:
    return MissingPackageError(
        'verifying a kernel needs z3, which is not installed. Write: pip install "maskalg[verify]"'
    )


def unknown_target(target: object, known: tuple[str, ...]) -> MaskValueError:
    return MaskValueError(f"target {target!r} is not known; choose from {', '.join(known)}.")


def no_table(name: str, known: list[str]) -> MaskValueError:
    names = f"those of this mask are {', '.join(known)}" if known else "this mask has none"
    return MaskValueError(f"check(dtypes=…): no table is called {name!r}; {names}.")


def other_kind(name: str, dtype: object, such_as: object) -> MaskValueError:
    return MaskValueError(
        f"check(dtypes=…): table {name!r} has entries of another kind than {dtype}; write a dtype "
        f"such as {such_as}."
    )


def not_a_prompt(q_len: int, kv_len: int) -> MaskValueError:
    return MaskValueError(
        f"vLLM takes masks of prompts, with as many queries as keys; this call has {q_len} queries "
        f"and {kv_len} keys."
    )


def not_a_length(length: object, most: int) -> MaskValueError:
    return MaskValueError(
        f"the length of a call that is computed pair by pair must be 1 to {most}, got {length!r}. "
        "For all lengths, leave it out: `verify(mask)`."
    )
