"""Proofs that kernels compute an expression. Each part is imported when first used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from ..engine import KERNEL_CHECKS

if TYPE_CHECKING:
    from ..proof.proof import Proof
    from .report import Verification


def check(proof: Proof, dtypes: Mapping[str, torch.dtype]) -> Verification:
    """Claims about the kernels of the mask of a proof."""
    from .report import verify_proof

    return verify_proof(proof, dtypes)


KERNEL_CHECKS.append(check)
