"""The plugin of pytest, and the pictures it shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from maskalg import causal, sliding
from maskalg.testing import MaskMismatch, assert_same_mask

ROOT = Path(__file__).parents[2]

# An error with a picture, as light as the plugin itself; docs/property_testing.md shows a real one.
ERRORS = """
import pytest

class Wrong(AssertionError):
    def maskalg_picture(self):
        return f"picture of {self}"

class Several(Exception):
    exceptions = [Wrong("three"), ValueError("four"), Wrong("five")]

def test_wrong():
    raise Wrong("one")

def test_cause():
    try:
        raise Wrong("two")
    except Wrong as error:
        raise ValueError("other") from error

def test_group():
    raise Several

def test_other():
    assert 1 == 2

def test_right():
    assert 1 == 1
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """A process of its own: what a run in this one imports would be imported once more later."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(ERRORS)

    def run(*arguments: str) -> str:
        result = pytester.runpytest_subprocess("-p", "maskalg_pytest", *arguments)
        result.assert_outcomes(failed=4, passed=1)
        return result.stdout.str()

    return run


def test_every_picture_is_shown(run) -> None:
    shown = run("--maskalg-pictures")
    titles = re.findall(r"^-+ (maskalg.*?) -+\n(.*)$", shown, re.MULTILINE)
    assert titles == [
        ("maskalg", "picture of one"),
        ("maskalg", "picture of two"),
        ("maskalg", "picture of three"),
        ("maskalg, failure 2", "picture of five"),
    ]


def test_nothing_is_shown_unless_asked(run) -> None:
    assert "picture of one" not in run()


def test_the_plugin_imports_neither_torch_nor_maskalg() -> None:
    code = (
        "import sys, pytest\nbefore = set(sys.modules)\nimport maskalg_pytest\n"
        "print(*sorted(m for m in set(sys.modules) - before))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["maskalg_pytest"]


def picture_of(call) -> str:
    with pytest.raises(MaskMismatch) as caught:
        call()
    return caught.value.maskalg_picture()


def test_pictures_of_long_and_of_wide_masks() -> None:
    wide = picture_of(lambda: assert_same_mask(causal, sliding(40), 40))
    assert len(wide.splitlines()) == 1 + 3 * (40 + 3)  # one under the other
    assert max(map(len, wide.splitlines()[1:])) == 42
    matrix = np.tri(200, dtype=np.bool_)
    matrix[199, 3] = False
    long = picture_of(lambda: assert_same_mask(causal, matrix, 200))
    assert "each character stands for 4 x 4 of them" in long
    assert long.count("+") == 1 + 1  # one of them in the legend


def test_pictures_of_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    from maskalg.testing import assert_labels_exact, oracle

    right = oracle.labels
    monkeypatch.setattr(oracle, "labels", lambda dense, *block: right(dense, *block) * 0 + 2)
    shown = picture_of(lambda: assert_labels_exact(causal, 8, block=4))
    assert shown.splitlines()[3:5] == ["│██│      │▒·│   │--│", "│██│      │█▒│   │·-│"]
