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
    for name in ("maskalg", ".ci", "docs/site_hooks.py", "docs/catalogue.md", "pyproject.toml"):
        source, place = ROOT / name, copy / name
        place.parent.mkdir(exist_ok=True)
        shutil.copytree(source, place, ignore=ignored) if source.is_dir() else shutil.copy(
            source, place
        )
    for diff in DIFFS:
        apply(diff, copy)
    run(copy, ".ci/stubs.py")
    return copy


def run(tree: Path, *command: str) -> str:
    """What Python prints in the patched copy."""
    result = subprocess.run(
        [sys.executable, *command],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "100"},
        text=True,
        capture_output=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_each_entry_is_a_file_and_a_backend_a_folder() -> None:
    rooms = [Path(path).parent.as_posix() for path in ADDED]
    values = [f"maskalg/values/{room}" for room in ("masks", "biases", "weights")]
    assert rooms == [*values, *["maskalg/backends/exact"] * 2]
    assert len(DIFFS) == 4
    for diff in DIFFS[:3]:
        assert diff.text.count("+++ ") == 1, "an entry of the catalogue is one file"


def test_what_is_added_works(tree: Path) -> None:
    """The page's own examples, in a process that imports the patched copy."""
    run(tree, str(Path(__file__).parent / "session.py"), str(PAGE))


CASES = """
import numpy as np, torch
import maskalg as ma
from maskalg.testing import assert_closed_forms_sound, assert_same_mask
from maskalg.testing.catalogue import CATALOGUE
from maskalg.testing.catalogue import BIASES
from maskalg.testing.catalogue import WEIGHTS
case = CATALOGUE["fixed pattern"]
assert_same_mask(case.mask, case.dense(37, 40), 37, 40)
assert_closed_forms_sound(case.mask, 37, 40, block_q=8)
x = torch.randn(1, 1, 12, 8, dtype=torch.float64)
case = BIASES["period of a week"]
scores = (x @ x.mT / 8**0.5).numpy()
_, lse = ma.attention(x, x, x, ma.everything + case.build(*case.tensors()), return_lse=True)
np.testing.assert_allclose(lse.detach(), np.log(np.exp(scores + case.matrix(12, 12)).sum(-1)))
case = WEIGHTS["elu_plus_one"]
out = ma.attention(x, x, x, ma.everything, weight=case.build())
np.testing.assert_allclose(out, case.weights(scores) @ x.numpy())
"""


def test_second_definitions_agree(tree: Path) -> None:
    run(tree, "-c", CASES)


PROGRAM = """
import torch
from typing_extensions import assert_type
from maskalg import Bias, Mask, Weight, causal, elu_plus_one, fixed, periodic
assert_type(causal & fixed(8, 2), Mask)
assert_type(periodic(torch.zeros(7)), Bias)
assert_type(elu_plus_one, Weight)
"""


def test_what_is_added_is_typed(tree: Path) -> None:
    (tree / "program.py").write_text(PROGRAM)
    if (ROOT / ".mypy_cache").is_dir():  # of `make lint`: what the diffs leave alone is not read
        shutil.copytree(ROOT / ".mypy_cache", tree / ".mypy_cache")
    run(tree, "-m", "mypy", *ADDED, "program.py")


def test_what_is_added_is_documented(tree: Path) -> None:
    pages = "open('docs/catalogue.md').read(), '::: in.the.reference\\n<!-- other masks -->'"
    first, second = run(
        tree,
        "-c",
        "import sys; sys.path.insert(0, 'docs'); from site_hooks import with_others\n"
        f"for page in ({pages}): print(with_others(page), end='\\0')",
    ).split("\0")[:2]
    for line in ("- `fixed(block", "- `periodic(table", "- `elu_plus_one`"):
        assert line in first
    assert "::: maskalg.values.masks.fixed.fixed\n" in second


def test_what_is_added_is_clean(tree: Path) -> None:
    for arguments in (["check"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--no-cache", *ADDED]
        result = subprocess.run(command, cwd=tree, text=True, capture_output=True)
        assert result.returncode == 0, result.stdout
