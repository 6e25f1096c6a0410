"""Draw the pictures of the documentation again: `python docs/make_images.py`.

The documents are sources of Python's standard library; the pictures in the repository were made
with Python 3.11. Another version draws other document boundaries.
"""

from __future__ import annotations

from pathlib import Path

import torch
from catalogue_images import draw

from maskalg import causal, document, sliding
from maskalg.cli.corpus import read_corpus
from maskalg.inspect.svg import svg

IMAGES = Path(__file__).parent / "images"


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    tokens = 4096
    lengths = torch.tensor(read_corpus((), tokens).lengths)
    ids = torch.arange(len(lengths)).repeat_interleave(lengths)
    mask = causal & sliding(512) & document(ids)
    title = "causal & sliding(512) & document(ids)"
    target = IMAGES / "causal_sliding_document.svg"
    target.write_text(svg(mask, tokens, block=32, title=title), encoding="utf-8")
    print(target)
    (IMAGES / "catalogue").mkdir(exist_ok=True)
    for name, text in draw().items():
        target = IMAGES / "catalogue" / name
        target.write_text(text, encoding="utf-8")
        print(target)


if __name__ == "__main__":
    main()
