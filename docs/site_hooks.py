"""What MkDocs does with pages besides what mkdocs.yml says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Pages that `nav` does not name stand at the end of "How to", so that none is lost."""
    named = set(_pages(config.nav))
    folder = Path(config.docs_dir)
    there = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.md"))
    (tasks,) = (section["How to"] for section in config.nav if "How to" in section)
    tasks += [page for page in there if page not in named]
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    r"""`a \| b` in a table: GitHub needs the backslash, Python-Markdown would print it."""
    return re.sub(r"`[^`\n]+`", lambda code: code[0].replace(r"\|", "|"), markdown)


def _pages(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    inner = entry.values() if isinstance(entry, dict) else entry
    return [page for part in inner for page in _pages(part)]
