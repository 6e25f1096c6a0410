"""The Python of a page: its fenced blocks in order, those of a comparison table two by two."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"

_TABLE = re.compile(r"<table>\n(.*?)</table>", re.DOTALL)
_FENCE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Snippet:
    """One block, or the two sides of a table; `line` is that of its first line in the page."""

    line: int
    parts: tuple[str, ...]


def snippets(page: str) -> list[Snippet]:
    text = (DOCS / page).read_text(encoding="utf-8")
    inside = [(found.start(), found.end()) for found in _TABLE.finditer(text)]
    groups: dict[int, list[tuple[int, str]]] = {}
    for fence in _FENCE.finditer(text):
        table = next((a for a, b in inside if a <= fence.start() < b), fence.start())
        line = text.count("\n", 0, fence.start(1)) + 1
        groups.setdefault(table, []).append((line, fence.group(1)))
    return [Snippet(blocks[0][0], tuple(code for _, code in blocks)) for blocks in groups.values()]


def run(code: str, names: dict[str, Any], page: str, line: int) -> None:
    """Execute a block; tracebacks name the page and the line."""
    compiled = compile("\n" * (line - 1) + code, str(DOCS / page), "exec")
    exec(compiled, names)


def last_name(code: str) -> str:
    """What the block defines last."""
    last = ast.parse(code).body[-1]
    if isinstance(last, ast.FunctionDef):
        return last.name
    assert isinstance(last, ast.Assign) and isinstance(last.targets[0], ast.Name), code
    return last.targets[0].id
