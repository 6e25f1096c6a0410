"""What tests replace is there: tests for GPUs, which do not run here, would only fail there."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PLACES = [*(TESTS / "gpu").glob("*.py"), *(TESTS / "cases").glob("*.py")]


def replaced(text):
    """The names that calls of `setattr(object, name, value)` replace, as (module, object, name)."""
    tree = ast.parse(text)
    imported = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("maskalg")
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "setattr":
            owner, name = node.args[:2]
            if (
                isinstance(owner, ast.Name)
                and owner.id in imported
                and isinstance(name, ast.Constant)
            ):
                yield *imported[owner.id], name.value


def found(module, name):
    try:
        return getattr(import_module(module), name)
    except AttributeError:
        return import_module(f"{module}.{name}")


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.stem)
def test_replaced_names_exist(place):
    for module, owner, name in replaced(place.read_text()):
        assert hasattr(found(module, owner), name), f"{module}.{owner} has no {name}"


def test_a_name_that_moved_is_found():
    text = 'from maskalg.backends.triton import backend\npatch.setattr(backend, "ready_for", None)'
    ((module, owner, name),) = replaced(text)
    assert (module, owner, name) == ("maskalg.backends.triton", "backend", "ready_for")
    assert not hasattr(found(module, owner), name)
