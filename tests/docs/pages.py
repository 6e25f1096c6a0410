"""Which pages there are, what they take for granted, and what of them cannot be run, and why."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

SETUP = {
    "README.md": """
        import types, torch
        ids, flags = torch.arange(16) // 6, torch.arange(16) % 5 == 0
        slopes, self = torch.tensor([0.5, 0.25]), types.SimpleNamespace()
        q, k, v = (torch.randn(1, 2, 16, 8) for _ in range(3))
    """,
}
"""Names that a page leaves to its reader."""

ELSEWHERE = {"docs/contributing.md": "test_contributing.py runs it in a patched copy of the tree"}
"""Pages with a test of their own."""

_GPU = "needs a GPU"

NOT_RUN = {
    ("README.md", "time      memory"): "a timed run of `maskalg demo`, see tests/cli/test_demo.py",
    ("docs/performance.md", "maskalg bench --rounds 5 --markdown"): _GPU,
    (
        "docs/performance.md",
        "maskalg bench --backward --cases D128,D64 --rounds 5 --markdown",
    ): _GPU,
}
"""Blocks that are not run, by page and first line, and why.

Besides these, `make`, `pip install` and `python SCRIPT` are not run: CI and tests/test_examples.py
run what they name. Of every command that is not run, what it names is looked up (`commands.py`).
"""


def place(page: Path) -> str:
    """A page as it is listed here."""
    return page.relative_to(ROOT).as_posix()
