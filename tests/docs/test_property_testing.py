"""The guide to property tests: its tests pass, its wrong mask fails as the page shows."""

from __future__ import annotations

import re

import pytest
from snippets import DOCS, snippets

PAGE = "property_testing.md"
TEXT = (DOCS / PAGE).read_text(encoding="utf-8")


def test_the_tests_of_the_page_do_as_it_says(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent))
    right = "\n\n".join(part for snippet in snippets(PAGE) for part in snippet.parts)
    (wrong,) = re.findall(r"^```python title=\"test_local.py\"\n(.*?)^```$", TEXT, re.M | re.S)
    (shown,) = re.findall(r"^```text\n(.*?)^```$", TEXT, re.M | re.S)
    pytester.makepyfile(test_page=right, test_local=wrong)
    result = pytester.runpytest_subprocess("-q", "-p", "maskalg_pytest", "--maskalg-pictures")
    result.assert_outcomes(passed=6, failed=1)
    printed = re.sub(r"^E +", "E ", result.stdout.str(), flags=re.M)
    error, picture = re.sub(r"^E +", "E ", shown, flags=re.M).split("-" * 35 + " maskalg ")
    assert error in printed
    assert "-" * 35 + " maskalg " + picture in printed


def test_every_part_exists() -> None:
    import importlib

    import maskalg.testing

    table = TEXT[TEXT.index("## The parts") :]
    for name in re.findall(r"`(assert_\w+)`", table):
        assert callable(getattr(maskalg.testing, name))
    for name in re.findall(r"`maskalg\.testing\.(\w+)", table):
        assert importlib.import_module(f"maskalg.testing.{name}")
    strategies = importlib.import_module("maskalg.testing.strategies")
    scores = importlib.import_module("maskalg.testing.score_strategies")
    assert callable(strategies.masks) and callable(strategies.atoms) and callable(scores.additive)
