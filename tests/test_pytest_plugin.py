"""`pytest --maskalg-pictures`: the smallest failing composition, and what is wrong with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from maskalg import causal, sliding
from maskalg.testing import MaskMismatch, assert_same_mask

ROOT = Path(__file__).parent.parent

WRONG_WINDOW = '''
from hypothesis import given, settings
from maskalg import causal, q_idx, kv_idx
from maskalg.testing import BATCH, HEADS, Case, assert_same_mask
from maskalg.testing.strategies import masks, shapes


def local(mask):
    """The last three keys of those that a mask keeps; written with <= for <."""
    return mask & (q_idx - kv_idx <= 3)


@settings(derandomize=True, max_examples=60, database=None, deadline=None)
@given(masks(depth=2), shapes())
def test_local(case, shape):
    recent = Case.of(causal, lambda b, h, q, k: q - k < 3)
    expected = (case & recent).dense(*shape.lengths)
    assert_same_mask(local(case.mask), expected, *shape.lengths, batch=BATCH, heads=HEADS)
'''

PICTURE = """
queries down, keys to the right; + kept wrongly, - dropped wrongly
expected  found   difference
┌────┐    ┌────┐  ┌────┐
│█···│    │█···│  │····│
│██··│    │██··│  │····│
│███·│    │███·│  │····│
│·███│    │████│  │+···│
└────┘    └────┘  └────┘
"""


@pytest.fixture
def run(pytester: pytest.Pytester):
    pytester.syspathinsert(ROOT)

    def run(*arguments: str) -> pytest.RunResult:
        return pytester.runpytest_inprocess("-p", "maskalg_pytest", "-q", *arguments)

    return run


def test_the_smallest_failing_composition_is_shown(pytester: pytest.Pytester, run) -> None:
    pytester.makepyfile(WRONG_WINDOW)
    result = run("--maskalg-pictures")
    result.assert_outcomes(failed=1)
    shown = result.stdout.str()
    # What was drawn has been shrunk to `causal`, and to the fewest positions that tell.
    assert "case=Case(causal)" in shown and "Shape(q_len=4, kv_len=4," in shown
    assert "causal & (3 >= q_idx - kv_idx) and the expected matrix differ" in shown
    assert PICTURE in shown


def test_nothing_is_shown_unless_asked(pytester: pytest.Pytester, run) -> None:
    pytester.makepyfile(
        """
        from maskalg import causal, sliding
        from maskalg.testing import assert_same_mask

        def test_one():
            assert_same_mask(causal, sliding(2), 5)

        def test_other():
            assert 1 == 2
        """
    )
    quiet = run()
    quiet.assert_outcomes(failed=2)
    assert "queries down" not in quiet.stdout.str()
    shown = run("--maskalg-pictures")
    assert shown.stdout.str().count("queries down") == 1


def test_every_failure_of_a_group_is_shown(pytester: pytest.Pytester, run) -> None:
    pytester.makepyfile(
        """
        import pytest
        from maskalg import causal, everything, nothing
        from maskalg.testing import MaskMismatch, assert_labels_exact, assert_same_mask

        class Several(Exception):
            exceptions = ()

        def test_two():
            found = []
            for other in (everything, nothing):
                try:
                    assert_same_mask(causal, other, 3)
                except MaskMismatch as error:
                    found.append(error)
            group = Several()
            group.exceptions = found
            raise ValueError("together") from group
        """
    )
    shown = run("--maskalg-pictures").stdout.str()
    assert shown.count("queries down") == 2 and "maskalg, failure 2" in shown


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
