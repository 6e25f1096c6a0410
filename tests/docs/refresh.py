"""Writes into pages what their examples print now: `python tests/docs/refresh.py PAGE …`.

Look at the difference before you commit it: a wrong answer is written like a right one.
"""

from __future__ import annotations

import sys
from pathlib import Path

from session import Block, Session, blocks_of, examples_of, same


def refreshed(page: Path, session: Session) -> str:
    """The text of a page with what each example prints; `...` stays where it still fits."""
    lines = page.read_text(encoding="utf-8").splitlines()
    # From the last block to the first, so that numbers of lines stay what they are.
    written = [(block, _rerun(block, session)) for block in blocks_of(page)]
    for block, text in reversed(written):
        if text is not None:
            old = len(block.text.splitlines())
            lines[block.line - 1 : block.line - 1 + old] = text
    return "\n".join(lines) + "\n"


def _rerun(block: Block, session: Session) -> list[str] | None:
    if block.kind != "python":
        return None
    if ">>> " not in block.text:
        session.run(block)
        return None
    text: list[str] = []
    for example in examples_of(block.text):
        first, *rest = example.source.splitlines()
        printed = session.printed(example)
        if same(example.want, printed):
            printed = example.want
        text += [f">>> {first}", *(f"... {line}".rstrip() for line in rest)]
        text += [line.rstrip() for line in printed.rstrip("\n").split("\n") if printed.strip()]
    return text


def main() -> None:
    for page in map(Path, sys.argv[1:]):
        page.write_text(refreshed(page, Session(page.name)), encoding="utf-8")


if __name__ == "__main__":
    main()
