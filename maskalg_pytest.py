"""The pytest plugin of maskalg: `pytest --maskalg-pictures`.

A failed comparison of masks, such as `maskalg.testing.assert_same_mask`, is followed by a picture
of what was expected, what was found, and where they differ. Under hypothesis it is the smallest
failing example that is shown.

It stands outside of the package so that pytest, which loads it wherever maskalg is installed,
imports neither maskalg nor torch for it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

OPTION = "--maskalg-pictures"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("maskalg").addoption(
        OPTION,
        action="store_true",
        help="show what was expected and found where masks differ (maskalg.testing)",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, Any]:
    report = yield
    if call.excinfo is not None and item.config.getoption(OPTION):
        for number, error in enumerate(errors_of(call.excinfo.value), 1):
            title = "maskalg" if number == 1 else f"maskalg, failure {number}"
            report.sections.append((title, error.maskalg_picture()))
    return report


def errors_of(error: BaseException) -> Iterator[Any]:
    """The errors with a picture in an error, in a group of them, or in what it was raised from."""
    if hasattr(error, "maskalg_picture"):
        yield error
    for inner in getattr(error, "exceptions", ()):
        yield from errors_of(inner)
    if error.__cause__ is not None:
        yield from errors_of(error.__cause__)
