"""The bound form of an expression (structure and values), and its evaluation with torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import torch

    from ..proof.proof import Proof
    from ..verifier.report import Verification

KERNEL_CHECKS: Final[list[Callable[[Proof, Mapping[str, torch.dtype]], Verification]]] = []
"""`check(proof, dtypes)`, as `Proof.check` describes it: a later room, `verifier`, puts it here."""
