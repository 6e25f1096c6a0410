"""Photograph what a notebook shows: `python docs/notebook_images.py tex-mml-chtml.js`.

The argument is MathJax's script, which Jupyter brings along (`npm pack mathjax@3.2.2` has it). The
pictures depend on the fonts and the browser of the machine, so no test compares them.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

import torch
from playwright.sync_api import sync_playwright

import maskalg as ma
from maskalg import causal, document, prefix, sliding

IMAGES: Final = Path(__file__).parent / "images"
LENGTHS: Final = (700, 260, 1010, 130, 480, 820, 696)
GROUNDS: Final = {"light": "#ffffff", "dark": "#111418"}


def page(mathjax: Path) -> str:
    ids = torch.arange(len(LENGTHS)).repeat_interleave(torch.tensor(LENGTHS))
    mask = causal & (sliding(512) | prefix(64)) & document(ids)
    shown = [mask, causal & sliding(128) + ma.alibi(torch.tensor([0.0625]))]
    setting = "MathJax = {tex: {inlineMath: [['\\\\(', '\\\\)']]}}"
    scripts = f'<script>{setting}</script><script src="{mathjax.resolve().as_uri()}"></script>'
    displays = "<br>".join(expression._repr_html_() or "" for expression in shown)
    return f"<!doctype html><meta charset=utf-8>{scripts}<body>{displays}</body>"


def main(mathjax: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "page.html"
        file.write_text(page(mathjax), encoding="utf-8")
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        for scheme, ground in GROUNDS.items():
            tab = browser.new_page(
                viewport={"width": 760, "height": 450},
                color_scheme=scheme,  # type: ignore[arg-type]
            )
            tab.goto(file.as_uri())
            tab.add_style_tag(content=f"body{{background:{ground};margin:12px}}")
            tab.wait_for_selector("mjx-container")
            tab.screenshot(path=IMAGES / f"notebook_{scheme}.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
