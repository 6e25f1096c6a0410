"""The reference has every public name, under the place where it is defined."""

from __future__ import annotations

import importlib
import re
import runpy
from functools import reduce
from typing import Any

import pytest

import maskalg as ma
from maskalg import testing
from maskalg.values import weights
from maskalg.values.helped import Ways

from .pages import ROOT

with_others = runpy.run_path(str(ROOT / "docs" / "site_hooks.py"))["with_others"]

SHOWN = {
    name: page.name
    for page in sorted((ROOT / "docs" / "reference").glob("*.md"))
    for name in re.findall(r"^::: ([\w.]+)$", with_others(page.read_text()), re.MULTILINE)
}


def found(path: str) -> Any:
    """What stands at a dotted path; its longest prefix that imports is the module."""
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        return reduce(getattr, parts[cut:], module)
    raise AssertionError(path)


VALUES = [found(path) for path in SHOWN]
PUBLIC = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (ma, ma.parallel, testing, weights)
    for name in module.__all__
}

MODULES = ("maskalg.nn", "maskalg.parallel")


@pytest.mark.parametrize("name", [n for n in PUBLIC if n not in MODULES])
def test_reference_has(name: str) -> None:
    value = PUBLIC[name]
    # `document` and its like are values of a private class of their own.
    kind = type(value) if isinstance(value, Ways) else None
    assert any(shown is value or shown is kind for shown in VALUES), (
        f"no page of docs/reference has {name}"
    )


def test_reference_has_the_module() -> None:
    assert any(shown is ma.nn.Attention for shown in VALUES)
