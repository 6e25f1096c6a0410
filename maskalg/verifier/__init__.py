"""The kernels of an expression proved. Each part is imported when first used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from ..engine.kernel_checks import KERNEL_CHECKS

if TYPE_CHECKING:
    from ..proof.proof import Proof
    from .report import Verification


def check(proof: Proof, dtypes: Mapping[str, torch.dtype]) -> Verification:
    """The kernels of a proof's mask."""
    from .report import verify_proof

    return verify_proof(proof, dtypes)


KERNEL_CHECKS.append(check)
