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


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page whose errors, refused scripts and requests fail the test."""
    made = browser.new_page(viewport={"width": 1280, "height": 800})
    problems: list[str] = []
    made.on("pageerror", lambda error: problems.append(str(error)))
    made.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    made.on("request", lambda r: None if r.url.startswith("file:") else problems.append(r.url))
    yield made
    made.close()
    assert not problems
