"""Draw the pictures of the documentation again: `python docs/make_images.py`.

Masks and biases are drawn by `plot`, the chart of speed from the tables of docs/performance.md.
Their bytes are those of the version of matplotlib in constraints.txt.
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
    for name, (title, mask) in catalogue_images.pictures().items():
        file = catalogue / f"{name}.svg"
        file.write_bytes(catalogue_images.draw(name, title, mask))
        print(file)


if __name__ == "__main__":
    main()
