"""Code of Markdown pages, found and run: each page is one session, its blocks in order.

As a script it runs pages in a process of its own: `python session.py PAGE …`.
"""

from __future__ import annotations

import doctest
import io
import re
import shlex
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

COMMANDS = ("$ ", "maskalg ", "make ", "python ", "pip ", "git ")
PYTHON = ("python", "pycon", "py")
SHOWN = ("text", "diff", "toml", "yaml", "json", "mermaid")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """Code of a page: what its fence says it is, its text, and the number of its first line."""

    info: str
    text: str
    line: int

    @property
    def first(self) -> str:
        return self.text.partition("\n")[0].strip()

    @property
    def kind(self) -> str:
        """ "python", "command", "shown" (printed by nothing on the page), or "unknown"."""
        if self.info in PYTHON or self.first.startswith(">>> "):
            return "python"
        if self.first.startswith(COMMANDS):
            return "command"
        return "shown" if self.info in SHOWN else "unknown"


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, and its indented blocks that are commands."""
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    i = 0
    while i < len(lines):
        fence = re.match(r"( *)```([\w+-]*)", lines[i])
        if fence:
            end = next(j for j in range(i + 1, len(lines)) if lines[j].strip() == "```")
            indent = len(fence[1])
            text = "\n".join(line[indent:] for line in lines[i + 1 : end])
            found.append(Block(fence[2], text + "\n", i + 2))
            i = end
        elif lines[i].startswith("    ") and lines[i].strip().startswith(COMMANDS):
            found.append(Block("", lines[i].strip() + "\n", i + 1))
        i += 1
    return found


def examples_of(text: str) -> list[doctest.Example]:
    """What stands after `>>> ` and `... `, each with all that is shown up to the next.

    Unlike doctest's own reading, a blank line ends nothing: a fence does.
    """
    found: list[tuple[list[str], list[str], int]] = []
    for i, line in enumerate(text.splitlines()):
        if line.startswith(">>> "):
            found.append(([line[4:]], [], i))
        elif found and line.startswith("...") and not found[-1][1] and line[3:4] in ("", " "):
            found[-1][0].append(line[4:])
        elif found:
            found[-1][1].append(line)
    return [
        doctest.Example("\n".join(source), "\n".join(shown).rstrip(), lineno=i)
        for source, shown, i in found
    ]


def commands_of(block: Block) -> list[tuple[str, str]]:
    """Each `$ command` and what is shown below it; without `$`, each line is a command."""
    if not block.first.startswith("$ "):
        return [(line, "") for line in block.text.splitlines() if line.strip()]
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in parts]


class Session:
    """Runs blocks one after the other in one module; raises AssertionError at what differs.

    Compilers look functions up by their module: it is one that can be found.
    """

    def __init__(self, page: str, given: dict[str, Any] | None = None) -> None:
        self.page = page
        module = ModuleType(re.sub(r"\W", "_", f"page_{page}"))
        self.namespace = module.__dict__
        self.namespace.update(given or {})
        sys.modules[module.__name__] = module

    def run(self, block: Block) -> None:
        if block.kind == "python":
            self._python(block)
        if block.kind == "command":
            self._commands(block)

    def _python(self, block: Block) -> None:
        name = f"<{self.page}:{block.line}>"
        if ">>> " not in block.text:
            with redirect_stdout(io.StringIO()):
                exec(compile("\n" * (block.line - 1) + block.text, name, "exec"), self.namespace)
            return
        for example in examples_of(block.text):
            self.example(example, block.line)

    def example(self, example: doctest.Example, line: int) -> None:
        """Run what stands after `>>>`, and compare what it prints with what is shown."""
        self._compare(example.want, self.printed(example), line + example.lineno)

    def printed(self, example: doctest.Example) -> str:
        """What an example prints: a value as Python shows it, an expected error as one line."""
        printed, hook = io.StringIO(), sys.displayhook
        sys.displayhook = sys.__displayhook__
        try:
            with redirect_stdout(printed):
                exec(compile(example.source, f"<{self.page}>", "single"), self.namespace)
        except Exception as problem:
            if not example.want:
                raise
            printed.write(f"{type(problem).__name__}: {problem}\n")
        finally:
            sys.displayhook = hook
        return printed.getvalue()

    def _commands(self, block: Block) -> None:
        """Run each command of `maskalg` and compare what it prints with what is shown below it."""
        from maskalg.cli import main

        for command, wanted in commands_of(block):
            program, *arguments = shlex.split(command, comments=True)
            if program != "maskalg":
                continue
            printed = io.StringIO()
            with redirect_stdout(printed), redirect_stderr(printed):
                status = main(arguments)
            if wanted:
                self._compare(wanted, printed.getvalue(), block.line)
            else:
                assert status == 0, f"{self.page}:{block.line}: {command}: {printed.getvalue()}"

    def _compare(self, wanted: str, got: str, line: int) -> None:
        message = f"{self.page}:{line}: expected\n{wanted}\nbut got\n{got}"
        assert same(wanted, got), message


def same(wanted: str, got: str) -> bool:
    """Whether what is shown is what is printed, but for how long a proof took and for `...`."""
    texts = [re.sub(r"\d+ ms, once", "… ms, once", text) for text in (wanted, got)]
    return doctest.OutputChecker().check_output(*texts, FLAGS)


def main() -> None:
    for page in map(Path, sys.argv[1:]):
        session = Session(page.name)
        for block in blocks_of(page):
            if block.kind == "python":
                session.run(block)


if __name__ == "__main__":
    main()
