"""Of the tools for tests."""

from __future__ import annotations

from .kinds import MaskTypeError


def needs_hypothesis(module: str) -> ImportError:
    return ImportError(f"{module} needs hypothesis: pip install 'maskalg[testing]'.")


def not_an_expected_mask(found: object) -> MaskTypeError:
    return MaskTypeError(
        "assert_same_mask: expected must be a mask, a function mask_mod(b, h, q_idx, kv_idx), or a "
        f"Boolean matrix as a tensor or an array, got {found}."
    )
