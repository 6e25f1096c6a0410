"""The figures of the documentation are those that would be drawn today."""

import base64
import io
import re
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
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


@pytest.fixture
def catalogue_images(plot_images):
    sys.modules.pop("catalogue_images", None)
    import catalogue_images

    return catalogue_images


def parted(text):
    """The text of an SVG file without its images, and their pixels."""
    from PIL import Image

    image = re.compile(r'data:image/png;base64,([^"]*)')
    # Compressed bytes differ between builds of zlib, pixels do not.
    pixels = [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))) for data in image.findall(text)
    ]
    return image.sub("", text), pixels


def same_picture(name, drawn, images):
    """The file of this name, of so many images at least, is what was drawn."""
    assert PINNED is not None
    if metadata.version("matplotlib") != PINNED[1]:
        pytest.skip(f"the figures were drawn by matplotlib {PINNED[1]}")
    text, pixels = parted((IMAGES / name).read_text(encoding="utf-8"))
    drawn_text, drawn_pixels = parted(drawn.decode())
    assert len(pixels) == len(drawn_pixels) >= images
    for found, new in zip(pixels, drawn_pixels, strict=True):
        assert np.array_equal(found, new), f"{name} is old: run docs/make_images.py"
    assert text == drawn_text, f"{name} is old: run docs/make_images.py"


@pytest.mark.parametrize("name", ["parts.svg", "levels.svg"])
def test_figures_are_drawn_by_plot(plot_images, name):
    same_picture(name, plot_images.draw(name), 2)


def test_chart_of_speed_is_that_of_the_tables(plot_images):
    same_picture("speed.svg", plot_images.draw("speed.svg"), 0)


def test_readme_gives_the_ranges_of_the_tables(plot_images):
    from speed_chart import table

    said = (ROOT / "README.md").read_text(encoding="utf-8").replace("\n  ", " ")
    for peer in ("FlexAttention", "FlashAttention-4"):
        ranges = []
        for heading in ("Forward", "Backward"):
            rows = [times for case, times in table(heading).items() if case.startswith("D128 ")]
            ratios = [times[peer] / times["maskalg"] for times in rows if peer in times]
            ranges.append(f"{min(ratios):.2f} to {max(ratios):.2f} times")
        forward, backward = ranges
        assert f"Beside {peer}: {forward} as fast forward, {backward} backward." in said


@pytest.mark.parametrize("name", ["sinks", "document", "per_head", "tree", "dense"])
def test_pictures_of_the_catalogue_are_drawn_by_plot(catalogue_images, name):
    drawn = catalogue_images.draw(name, *catalogue_images.pictures()[name])
    same_picture(f"catalogue/{name}.svg", drawn, 1)


def test_every_picture_of_the_catalogue_is_there(catalogue_images):
    files = sorted(path.name for path in (IMAGES / "catalogue").iterdir())
    assert files == sorted(f"{name}.svg" for name in catalogue_images.pictures())


def test_every_figure_is_there_small_and_shown(plot_images):
    files = {path.name: path for path in IMAGES.iterdir() if path.is_file()}
    assert set(files) == set(plot_images.FIGURES) | PHOTOGRAPHS
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    for name, path in files.items():
        assert f"images/{name}" in text, f"no page shows {name}"
        assert path.stat().st_size < 200_000
    assert sum(path.stat().st_size for path in IMAGES.rglob("*") if path.is_file()) < 3_000_000
