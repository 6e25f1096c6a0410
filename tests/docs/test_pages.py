"""Every command and snippet of the README and of the documentation runs and prints what it says."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from maskalg.backends.cpu.native.compile import compiler

from .commands import check
from .pages import ELSEWHERE, NOT_RUN, PAGES, ROOT, SETUP, place
from .session import Block, Session, blocks_of, commands_of


def runnable(page: Path) -> list[Block]:
    return [
        block
        for block in blocks_of(page)
        if block.kind != "shown" and (place(page), block.first) not in NOT_RUN
    ]


RUN = [page for page in PAGES if place(page) not in ELSEWHERE and runnable(page)]


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("page", RUN, ids=place)
def test_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "one kernel compiled from the expression" in page.read_text() and compiler() is None:
        pytest.skip("shows what a machine with a C++ compiler chooses")
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    session = Session(place(page))
    exec(textwrap.dedent(SETUP.get(place(page), "")), session.namespace)
    for block in runnable(page):
        assert block.kind != "unknown", (
            f"{place(page)}:{block.line}: say what this block is (python, text, …), "
            "or list it in tests/docs/pages.py"
        )
        session.run(block)


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/howto/migrate.md"])
def test_first_block_stands_alone(page: str) -> None:
    """It runs as it is pasted: nothing is taken for granted."""
    Session(page).run(runnable(ROOT / page)[0])


def test_lists_name_what_there_is() -> None:
    blocks = {(place(page), block.first) for page in PAGES for block in blocks_of(page)}
    assert not set(NOT_RUN) - blocks
    assert not set(ELSEWHERE) - {place(page) for page in PAGES}


def test_navigation_names_each_page_once() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = re.findall(r"\S+\.md$", navigation, re.MULTILINE)
    assert len(named) == len(set(named)) > 20


COMMANDS = [
    pytest.param(command, id=f"{place(page)}:{block.line}")
    for page in PAGES
    for block in blocks_of(page)
    if block.kind == "command"
    for command, _ in commands_of(block)
]


@pytest.mark.parametrize("command", COMMANDS)
def test_command_exists(command: str) -> None:
    check(command)


@pytest.mark.parametrize(
    "command", ["maskalg tea", "make tea", "python tea.py", "pip install 'maskalg[tea]'", "tea"]
)
def test_other_commands_are_found(command: str) -> None:
    with pytest.raises(AssertionError, match="tea"):
        check(command)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\n>>> 1 + 1\n3\n```\n", "expected\n3\n\nbut got\n2"),
        ("```\n$ maskalg --version\nmaskalg 0.0\n```\n", "expected\nmaskalg 0.0"),
        ("```\nmaskalg demo --tokens none\n```\n", "expected a positive integer"),
        ("```python\nassert False, 'no'\n```\n", "no"),
    ],
)
def test_what_differs_is_found(text: str, message: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(AssertionError) as caught:
        for block in blocks_of(page):
            Session("page.md").run(block)
    assert message in str(caught.value)


def test_refresh_writes_what_is_printed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    block = ">>> for i in range(2):\n...     print(i)\n0\n1\n>>> 1 / 0\nZero...\n"
    right = f"# One\n\n```python\n{block}```\n"
    page.write_text(right.replace("\n1\n", "\n7\n8\n") + "\nEnd.\n")
    script = Path(__file__).parent / "refresh.py"
    subprocess.run([sys.executable, str(script), str(page)], check=True)
    assert page.read_text() == right + "\nEnd.\n"
