"""What mypy says of a program that composes masks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = "tests/package/typed_program.py"


def test_types_of_expressions() -> None:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--no-pretty", PROGRAM]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    lines = (ROOT / PROGRAM).read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    refused = {int(found) for found in re.findall(rf"^{PROGRAM}:(\d+): error", said, re.MULTILINE)}
    assert refused == wrong, said
