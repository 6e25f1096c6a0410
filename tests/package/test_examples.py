"""Every file in `examples/` runs and prints what its docstring shows.

In a docstring the output is indented. A line that begins with `measured` depends on the machine or
on the version of Python: it is compared without its numbers, and a run of such lines as one.
"""

from __future__ import annotations

import ast
import os
import re
import runpy
import socket
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SHORT = {"train_language_model.py": ["--steps", "2"]}


@pytest.fixture(autouse=True)
def alone():
    """Examples seed torch; and threads of several test workers would wait for each other."""
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.set_rng_state(state)


def shown(example: Path) -> str:
    """The indented lines of a docstring."""
    text = ast.get_docstring(ast.parse(example.read_text(encoding="utf-8"))) or ""
    return "\n".join(line[4:] for line in text.splitlines() if line.startswith("    "))


def comparable(text: str) -> list[str]:
    lines = [
        re.sub(r"\d[\d.]*", "#", re.sub(" +", " ", line)) if line.startswith("measured") else line
        for line in map(str.rstrip, text.splitlines())
    ]
    return [line for line, _ in groupby(lines)]


@pytest.fixture
def no_network(monkeypatch):
    def refused(*arguments):
        raise AssertionError("an example asked for the network")

    monkeypatch.setattr(socket.socket, "connect", refused)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.usefixtures("no_network")
def test_example_prints_what_it_shows(example, capfd, monkeypatch):
    if "from transformers import" in example.read_text(encoding="utf-8"):
        pytest.importorskip("transformers")
    monkeypatch.setattr(sys, "argv", [str(example), *SHORT.get(example.name, [])])
    runpy.run_path(str(example), run_name="__main__")
    # What processes print that an example starts, too.
    assert comparable(capfd.readouterr().out) == comparable(shown(example))


def test_an_example_runs_as_a_command():
    example = ROOT / "examples" / "prefix_lm.py"
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, paths))
    result = subprocess.run(
        [sys.executable, str(example)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert comparable(result.stdout) == comparable(shown(example))


def test_examples_are_listed():
    listed = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert len(EXAMPLES) >= 14
    for example in EXAMPLES:
        assert f"({example.name})" in listed, example.name


def test_what_is_measured_is_compared_without_its_numbers():
    text = "a 1\nmeasured: 1.5 s\nmeasured:  12 s\nb"
    assert comparable(text) == ["a 1", "measured: # s", "b"]
    assert comparable(text) != comparable(text.replace("a 1", "a 2"))
