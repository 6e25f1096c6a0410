"""Draw the picture of `docs/explore.md` again: `python docs/make_explore_image.py`.

Needs playwright and a Chromium. The picture is one of a real page; its fonts are the machine's.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import torch

from maskalg import causal, document, prefix, sliding

TARGET = Path(__file__).parent / "images" / "explore.png"
TOKENS = 1 << 20


def main() -> None:
    from playwright.sync_api import sync_playwright

    lengths = torch.tensor([180_000, 60_000, 310_000, 25_000, 140_000, 90_000, 250_000])
    ids = torch.arange(len(lengths)).repeat_interleave(lengths)
    mask = causal & (sliding(65_536) | prefix(4096)) & document(ids)
    browser_path = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = mask.explore(TOKENS, path=Path(folder) / "mask.html")
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1360, "height": 860})
        page.goto(path.as_uri())
        page.evaluate("maskalg.ready")
        page.mouse.move(352, 300)
        page.wait_for_timeout(500)
        page.screenshot(path=TARGET)
        browser.close()
    print(TARGET, TARGET.stat().st_size)


if __name__ == "__main__":
    main()
