"""Writes what type checkers see of masks, biases and weights: `make stubs`.

At run time each of these rooms finds its entries (`maskalg/values/discovery.py`); a type checker
looks into `__init__.pyi`, which has a line for each. `--check` says whether they are up to date.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
ROOMS = ("masks", "biases", "weights")


def stub(room: str) -> str:
    """The text of a room's `__init__.pyi`."""
    from maskalg.values.discovery import entries

    package = f"maskalg.values.{room}"
    import_module(package)
    names = sorted(entry.__name__.removeprefix(package) for entry in entries(package))
    lines = [f"from {name} import *" for name in names]
    return "\n".join(["# Written by `make stubs`.", *lines, ""])


def main() -> None:
    for room in ROOMS:
        path, text = ROOT / "maskalg" / "values" / room / "__init__.pyi", stub(room)
        if "--check" in sys.argv and (not path.exists() or path.read_text() != text):
            sys.exit(f"{path.relative_to(ROOT)} is out of date: run `make stubs`.")
        path.write_text(text)


if __name__ == "__main__":
    main()
