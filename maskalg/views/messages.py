"""Messages of pictures and pages."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import MaskTypeError, MaskValueError


def not_in_a_page(what: str) -> MaskValueError:
    return MaskValueError(
        f"The page computes the mask itself, and there is no formula for {what!r} there. "
        "Show its elements instead: maskalg.dense(mask.to_dense(q_len)), for lengths of a few "
        "thousand."
    )


def page_too_large(size: int, most: int, tables: Mapping[str, int]) -> MaskValueError:
    if not tables:
        cause = "The formula of the mask is too long."
    else:
        name = max(tables, key=lambda table: tables[table])
        cause = (
            f"{name} takes {tables[name] / 1e6:.1f} MB after run-length coding and compression: "
            "its entries have too little order. Take fewer positions, or a part of the mask that "
            "does not read it."
        )
    return MaskValueError(
        f"The page would have {size / 1e6:.1f} MB, more than {most / 1e6:.0f} MB. {cause}"
    )


def one_for_all(call: str, name: str, value: int, what: object) -> MaskValueError:
    of = "head" if name == "head" else "batch entry"
    return MaskValueError(
        f"{call}({name}={value}): {what!r} is the same for every {of}. Leave {name} out."
    )


def not_to_plot(what: object) -> MaskTypeError:
    return MaskTypeError(
        f"plot draws masks, biases and scores, got {what!r} of type {type(what).__name__}. A "
        "comparison of index expressions is a mask, `ma.bias(expression)` a bias."
    )
