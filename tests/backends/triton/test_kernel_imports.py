"""What functions import of the kernels when they are called, most of them on a GPU only."""

import ast
import importlib
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="needs Triton")
from maskalg.backends.triton.trust import has_gluon

ROOT = Path(__file__).parents[3] / "maskalg"


def imported():
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "maskalg_kernels"
            ):
                for alias in node.names:
                    yield node.module, alias.name


def test_every_name_is_there():
    names = set(imported())
    assert ("maskalg_kernels.hopper_shifts", "shift_layout") in names
    for module, name in names:
        if has_gluon() or "hopper" not in module:
            found = importlib.import_module(module)
            if not hasattr(found, name):  # a module
                importlib.import_module(f"{module}.{name}")
