"""A headless Chromium for the tests of pages, where there is one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser of playwright's; the tests are skipped where it, or playwright, is missing."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is on the path")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def tab(browser: Any) -> Any:
    """One tab for all tests; small, since what it draws is not looked at."""
    return browser.new_page(viewport={"width": 1000, "height": 640})


@pytest.fixture
def page(tab: Any) -> Iterator[Any]:
    """A page whose errors, refused scripts and requests fail the test."""
    problems: list[str] = []
    watchers = {
        "pageerror": lambda error: problems.append(str(error)),
        "console": lambda message: message.type == "error" and problems.append(message.text),
        "request": lambda made: made.url.startswith("file:") or problems.append(made.url),
    }
    for event, watcher in watchers.items():
        tab.on(event, watcher)
    yield tab
    for event, watcher in watchers.items():
        tab.remove_listener(event, watcher)
    assert not problems
