"""Of weight functions."""

from __future__ import annotations

from .kinds import MaskTypeError, MaskValueError
from .strangers import instead


def unsupported_weight(what: object) -> MaskTypeError:
    own = instead(what) if "not called" in instead(what) else ""
    named = "Write ma.softmax, ma.softmax_with_sink(logits), ma.sigmoid(bias), ma.relu or a Weight."
    return MaskTypeError(
        f"weight must be a weight function such as ma.softmax, got {what!r}. {own or named}"
    )


def no_lse_of(name: str) -> MaskValueError:
    return MaskValueError(
        f"return_lse=True: weight={name} has no logarithm of a sum of exponentials. Leave "
        "return_lse out, or use softmax weights."
    )
