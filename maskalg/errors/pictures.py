"""Of pictures."""

from __future__ import annotations

from .kinds import MaskTypeError, MaskValueError, MissingPackageError


def not_installed(call: str, package: str, extra: str) -> MissingPackageError:
    return MissingPackageError(
        f"{call} needs {package}, which is not installed: pip install 'maskalg[{extra}]'"
    )


def no_such_entry(call: str, name: str, value: int, count: int) -> MaskValueError:
    return MaskValueError(
        f"{call}: {name} must be below {count}, which the tensors bound to it have; got {value}."
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
