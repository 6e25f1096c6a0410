"""Messages of the tools for tests."""

from __future__ import annotations

from ..errors import MaskTypeError, entering


def needs_hypothesis(module: str) -> ImportError:
    return ImportError(f"{module} needs hypothesis: pip install 'maskalg[testing]'.")


def not_under_test(call: str, wanted: str, found: object) -> MaskTypeError:
    kind = type(found).__name__
    hint = "Write score.mask for its mask." if kind == "Score" else entering(found)
    return MaskTypeError(f"{call}: what is tested must be {wanted}, got {kind}. {hint}")


def not_an_expected_mask(found: object) -> MaskTypeError:
    return MaskTypeError(
        "assert_same_mask: expected must be a mask, a function mask_mod(b, h, q_idx, kv_idx), or a "
        f"Boolean matrix as a tensor, an array or a list, got {found}."
    )
