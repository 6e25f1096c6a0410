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


def logit_shape(call: str, name: str, found: list[int]) -> MaskValueError:
    one = f" Write {name}.expand(heads) for one of all heads." if found in ([], [1]) else ""
    return MaskValueError(f"{call}: {name} must have shape [heads], got {found}.{one}")


def weight_formula(name: str, found: object) -> MaskTypeError:
    return MaskTypeError(
        f"Weight({name!r}, formula): the formula is a bias, a function of the score such as "
        f"ma.score(lambda s, b, h, q, k: s * s), got {type(found).__name__}."
    )


def weight_unnormalised_exp(name: str) -> MaskValueError:
    return MaskValueError(
        f"Weight({name!r}, normalised=False) without a formula would be exp of any score, which "
        "overflows. Give a formula, or leave normalised=True."
    )


def weight_sink_of_formula(name: str) -> MaskValueError:
    return MaskValueError(
        f"Weight({name!r}, formula, sink=…): a sink is a logit, so it needs w = exp. Leave the "
        "formula out."
    )


def not_a_logit(call: str, argument: str) -> MaskValueError:
    return MaskValueError(f"{call}: {argument} must be a number, got nan.")


def no_lse_of(name: str) -> MaskValueError:
    return MaskValueError(
        f"return_lse=True: weight={name} has no logarithm of a sum of exponentials. Leave "
        "return_lse out, or use softmax weights."
    )
