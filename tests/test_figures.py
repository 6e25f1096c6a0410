"""The figures of the documentation are those that `plot` draws today."""

import base64
import io
import re
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
PINNED = re.search(r"^matplotlib==([\d.]+)", (ROOT / "constraints.txt").read_text(), re.M)
PHOTOGRAPHS = {"notebook_light.png", "notebook_dark.png", "explore.png"}

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")


@pytest.fixture
def plot_images(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    sys.modules.pop("plot_images", None)
    import plot_images

    return plot_images


def parted(text):
    """The text of an SVG file without its images, and their pixels."""
    from PIL import Image

    image = re.compile(r'data:image/png;base64,([^"]*)')
    # Compressed bytes differ between builds of zlib, pixels do not.
    pixels = [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))) for data in image.findall(text)
    ]
    return image.sub("", text), pixels


@pytest.mark.parametrize("name", ["parts.svg", "levels.svg"])
def test_figures_are_drawn_by_plot(plot_images, name):
    assert PINNED is not None
    if metadata.version("matplotlib") != PINNED[1]:
        pytest.skip(f"the figures were drawn by matplotlib {PINNED[1]}")
    text, pixels = parted((IMAGES / name).read_text(encoding="utf-8"))
    drawn_text, drawn_pixels = parted(plot_images.draw(name).decode())
    assert len(pixels) == len(drawn_pixels) >= 2
    for found, drawn in zip(pixels, drawn_pixels, strict=True):
        assert np.array_equal(found, drawn), f"{name} is old: run docs/make_images.py"
    assert text == drawn_text, f"{name} is old: run docs/make_images.py"


def test_every_figure_is_there_small_and_shown(plot_images):
    files = {path.name: path for path in IMAGES.iterdir() if path.is_file()}
    assert set(files) == set(plot_images.FIGURES) | PHOTOGRAPHS
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    for name, path in files.items():
        assert f"images/{name}" in text, f"no page shows {name}"
        assert path.stat().st_size < 200_000
    assert sum(path.stat().st_size for path in IMAGES.rglob("*") if path.is_file()) < 3_000_000
