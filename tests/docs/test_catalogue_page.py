"""The page of the catalogue names everything there is, and its pictures are drawn by the code."""

import re
import runpy
from pathlib import Path

import pytest

from maskalg.values import biases, masks, weights

DOCS = Path(__file__).parents[2] / "docs"
with_others = runpy.run_path(str(DOCS / "site_hooks.py"))["with_others"]
PAGE = with_others((DOCS / "catalogue.md").read_text(encoding="utf-8"))
PICTURES = re.findall(r'src="(images/catalogue/(\w+)\.svg)"', PAGE)


@pytest.mark.parametrize("name", [*masks.__all__, *biases.__all__, *weights.__all__])
def test_page_names(name):
    assert re.search(rf"`[^`]*\b{name}\b", PAGE), f"docs/catalogue.md does not name {name}"


def test_every_picture_is_there_and_small():
    files = {path.name: path for path in (DOCS / "images" / "catalogue").iterdir()}
    assert sorted(f"{name}.svg" for _, name in PICTURES) == sorted(files)
    assert all(path.stat().st_size < 30_000 for path in files.values())
