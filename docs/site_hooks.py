"""What MkDocs does with pages besides what mkdocs.yml says."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

# Where a page puts the masks, biases or weights that it does not name, new ones that is.
_OTHERS = re.compile(r"^<!-- other (masks|biases|weights) -->$", re.MULTILINE)


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
    markdown = with_others(markdown)
    return re.sub(r"`[^`\n]+`", lambda code: code[0].replace(r"\|", "|"), markdown)


def with_others(markdown: str) -> str:
    """The page with a line for each entry of the catalogue that it does not name itself.

    A page of the reference gets all that docstrings say, another one the first line.
    """
    return _OTHERS.sub(lambda mark: "\n\n".join(_lines(mark[1], markdown)), markdown)


def _lines(room: str, markdown: str) -> list[str]:
    from maskalg.values.discovery import entries

    package = import_module(f"maskalg.values.{room}")
    named = [
        (f"{entry.__name__}.{name}", name, getattr(entry, name))
        for entry in entries(package.__name__)
        for name in entry.__all__
    ]
    if re.search("^::: ", markdown, re.MULTILINE):
        shown = r"^::: \S+\.{0}$|^ +heading: {0}$"
        return [f"::: {path}" for path, name, _ in named if _lacks(markdown, shown, name)]
    return [
        f"- `{name}{inspect.signature(value)}`: {(inspect.getdoc(value) or '').splitlines()[0]}"
        if inspect.isfunction(value)
        else f"- `{name}`"
        for _, name, value in named
        if _lacks(markdown, r"`[^`]*\b{0}\b", name)
    ]


def _lacks(markdown: str, pattern: str, name: str) -> bool:
    return not re.search(pattern.format(name), markdown, re.MULTILINE)


def _pages(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    inner = entry.values() if isinstance(entry, dict) else entry
    return [page for part in inner for page in _pages(part)]
