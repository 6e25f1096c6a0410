"""Finds the entries of the catalogue: the modules of a folder that have an `__all__`."""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module
from inspect import isfunction
from types import ModuleType
from typing import Any

from ..errors import told


def entries(package: str) -> list[ModuleType]:
    """The modules with an `__all__` in a package and in the rooms below it, by their paths."""
    found = pkgutil.walk_packages(sys.modules[package].__path__, f"{package}.")
    modules = [import_module(info.name) for info in found]
    return [module for module in modules if hasattr(module, "__all__")]


def public(package: str) -> dict[str, object]:
    """The public names of a package's entries; functions get errors for calls that do not fit."""
    found: dict[str, object] = {}
    for entry in entries(package):
        for name in entry.__all__:
            value = getattr(entry, name)
            if isfunction(value):
                setattr(entry, name, value := told(value))
            found[name] = value
    return found


def rows(package: str) -> dict[str, Any]:
    """The `rows()` of all entries of a package, by name."""
    return {
        name: row
        for entry in entries(package)
        if hasattr(entry, "rows")
        for name, row in entry.rows().items()
    }
