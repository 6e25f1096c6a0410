"""Messages of the verifier."""

from __future__ import annotations

from ..errors.kinds import MissingPackageError


def no_z3() -> MissingPackageError:
    return MissingPackageError(
        'verifying a kernel needs z3, which is not installed. Write: pip install "maskalg[verify]"'
    )
