"""The guide's snippets run, one after the other."""

import re
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("diffusers", reason="needs diffusers")

PAGE = Path(__file__).parents[2] / "docs" / "transformers.md"


def test_snippets_run(capsys):
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(snippets) == 4
    scope: dict[str, object] = {}
    for snippet in snippets:
        exec(compile(snippet, str(PAGE), "exec"), scope)
    assert "proof     exact if equal entries" in capsys.readouterr().out
    assert scope["loss"].isfinite() and scope["out"].sample.shape == (1, 16, 4)
