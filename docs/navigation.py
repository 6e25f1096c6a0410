"""A hook of MkDocs: pages that `nav` in mkdocs.yml does not name stand at the end of "How to"."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Add them, so that a new page is never built and then not found."""
    named = set(_pages(config.nav))
    folder = Path(config.docs_dir)
    there = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.md"))
    (tasks,) = (section["How to"] for section in config.nav if "How to" in section)
    tasks += [page for page in there if page not in named]
    return config


def _pages(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    inner = entry.values() if isinstance(entry, dict) else entry
    return [page for part in inner for page in _pages(part)]
