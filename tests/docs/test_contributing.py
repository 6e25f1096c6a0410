"""The contributor's guide: its diffs apply to the tree as it is, and what they add works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .pages import ROOT
from .session import Block, blocks_of

PAGE = ROOT / "docs" / "contributing.md"
DIFFS = [block for block in blocks_of(PAGE) if block.info == "diff"]
ADDED = re.findall(r"^\+\+\+ b/(\S+)\n@@ -0,0 ", "\n".join(d.text for d in DIFFS), re.MULTILINE)


def apply(diff: Block, tree: Path) -> None:
    command = ["git", "apply", "--whitespace=error", "-"]
    result = subprocess.run(command, cwd=tree, input=diff.text, text=True, capture_output=True)
    assert result.returncode == 0, f"docs/contributing.md:{diff.line}: {result.stderr}"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with every diff applied."""
    copy = tmp_path_factory.mktemp("patched")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "maskalg", copy / "maskalg", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", copy)
    for diff in DIFFS:
        apply(diff, copy)
    return copy


def test_a_diff_for_each_kind_and_each_a_file() -> None:
    rooms = [Path(path).parent.as_posix() for path in ADDED]
    assert rooms == ["maskalg/masks", "maskalg/biases", "maskalg/weights", "maskalg/backends"]
    assert len(DIFFS) == len(rooms)


def test_what_is_added_works(tree: Path) -> None:
    """The page's own examples, in a process that imports the patched copy."""
    script = Path(__file__).parent / "session.py"
    result = subprocess.run(
        [sys.executable, str(script), str(PAGE)],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "100"},
        text=True,
        capture_output=True,
    )
    assert result.returncode == 0, result.stderr


def test_what_is_added_is_clean(tree: Path) -> None:
    for arguments in (["check"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--no-cache", *ADDED]
        result = subprocess.run(command, cwd=tree, text=True, capture_output=True)
        assert result.returncode == 0, result.stdout
