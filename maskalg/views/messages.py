"""Messages of pictures and pages."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import MaskTypeError, MaskValueError, MissingPackageError


def not_explorable(what: object) -> MaskTypeError:
    return MaskTypeError(
        f"explore shows masks, biases and scores, got {what!r} of type {type(what).__name__}."
    )


def same_everywhere(bias: object) -> MaskTypeError:
    return MaskTypeError(
        f"{bias} is the same for every query and key, so there is nothing to look into. Its curve "
        "is drawn by bias.plot(q_len); explore shows it beside a mask: mask + bias."
    )


def not_in_a_page(what: str) -> MaskValueError:
    return MaskValueError(
        f"The page computes the mask itself, and there is no formula for {what!r} there. "
        "Show its elements instead: maskalg.dense(mask.to_dense(q_len)), for lengths of a few "
        "thousand."
    )


def page_integers(table: str) -> MaskValueError:
    return MaskValueError(
        f"The page computes with integers of 53 bits, bitwise with 32, and {table} needs more. "
        "Where equality is all that counts, number the entries anew: "
        f"{table}.unique(return_inverse=True)[1]."
    )


def page_formula(formula: str) -> MaskValueError:
    return MaskValueError(
        f"The page computes with integers of 53 bits, bitwise with 32, and {formula} may need "
        "more. Write smaller numbers, or entries that no sequence exceeds: "
        "tensor.clamp(max=length)."
    )


def page_real(table: str, dtype: object) -> MaskValueError:
    return MaskValueError(
        f"The page computes real numbers in float32, and {table} is {dtype}: pass {table}.float()."
    )


def page_not_written(path: object, why: str) -> MaskValueError:
    return MaskValueError(f"{str(path)!r} cannot be written: {why}.")


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


def not_installed(call: str, package: str, extra: str) -> MissingPackageError:
    return MissingPackageError(
        f"{call} needs {package}, which is not installed: pip install 'maskalg[{extra}]'"
    )


def no_such_entry(call: str, name: str, value: int, count: int) -> MaskValueError:
    return MaskValueError(
        f"{call}: {name} must be below {count}, which the tensors bound to it have; got {value}."
    )


def page_too_long(most: int) -> MaskValueError:
    return MaskValueError(
        f"explore: a page of an image or a video holds the tiles that each row visits, up to "
        f"{most:,} positions. Give a smaller canvas; `show` takes any length."
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


def nothing_to_plot() -> MaskValueError:
    return MaskValueError("plot was given nothing to draw: pass an expression or a list of them.")


def titles_do_not_fit(titles: int, panels: int) -> MaskValueError:
    return MaskValueError(f"plot: {titles} titles were given for {panels} pictures.")
