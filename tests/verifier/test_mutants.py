"""A sample of the mutants; `mutants.py` says how to put all of them to the verifier."""

import os
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("z3")
pytest.importorskip("triton", reason="runs mutants in Triton's interpreter")
pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")


def test_no_mutant_is_accepted_that_answers_otherwise():
    command = [sys.executable, "-W", "ignore", "-m", "tests.verifier.mutants", "--count", "16"]
    command += ["--masks", "causal sliding,quotients of entries", "--seed", "3"]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    refuted = found.stdout.splitlines()[-2].split()[1]
    assert int(refuted) >= 6, found.stdout
