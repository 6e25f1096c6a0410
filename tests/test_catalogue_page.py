"""The page of the catalogue names everything there is, and its pictures are drawn by the code."""

import re
import sys
from pathlib import Path

import pytest

from maskalg import biases, masks, weights

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "catalogue.md").read_text(encoding="utf-8")
PICTURES = re.findall(r'src="(images/catalogue/(\w+)\.svg)"', PAGE)


@pytest.mark.parametrize("name", [*masks.__all__, *biases.__all__, *weights.__all__])
def test_page_names(name):
    assert re.search(rf"`[^`]*\b{name}\b", PAGE), f"docs/catalogue.md does not name {name}"


def test_pictures_are_drawn_by_the_code(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    sys.modules.pop("catalogue_images", None)
    from catalogue_images import draw

    drawn = draw()
    assert sorted(f"{name}.svg" for _, name in PICTURES) == sorted(drawn)
    for place, name in PICTURES:
        text = (DOCS / place).read_text(encoding="utf-8")
        assert len(text.encode()) < 30_000
        assert text == drawn[f"{name}.svg"], f"{place} is old: run docs/make_images.py"
