"""Draw the pictures of the documentation again: `python docs/make_images.py`.

The figures are drawn by `plot`; their bytes are those of the version of matplotlib in
constraints.txt. The small pictures of the catalogue are drawn by the package's own SVG writer,
whose colours follow the reader's light or dark page.
"""

from __future__ import annotations

from pathlib import Path

import catalogue_images
import plot_images

IMAGES = Path(__file__).parent / "images"


def main() -> None:
    catalogue = IMAGES / "catalogue"
    catalogue.mkdir(parents=True, exist_ok=True)
    for name in plot_images.FIGURES:
        (IMAGES / name).write_bytes(plot_images.draw(name))
        print(IMAGES / name)
    for name, text in catalogue_images.draw().items():
        (catalogue / name).write_text(text, encoding="utf-8")
        print(catalogue / name)


if __name__ == "__main__":
    main()
