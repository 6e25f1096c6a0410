"""What a page computes is what Python computes, in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import maskalg as ma
from maskalg import causal, document, head, kv_idx, prefix, q_idx, sliding, table, where
from maskalg.algebra import Mask
from maskalg.explore import explore

from .browser import browser, page

__all__ = ["browser", "page"]

Q, KV = 45, 39
IDS = torch.tensor([3] * 9 + [7] * 1 + [-2] * 20 + [5] * 30)
MIXED = torch.tensor([0, 0, 1, 1, 0, 2, 2, 1] * 8)
PER_BATCH = torch.stack([IDS, MIXED[:60]])
FLAGS = torch.rand(60, generator=torch.Generator().manual_seed(0)) < 0.3
RANKS = torch.randint(0, 30, (60,), generator=torch.Generator().manual_seed(1))
DENSE = torch.rand(Q, KV, generator=torch.Generator().manual_seed(2)) < 0.5

Rebinding = list[dict[str, int]]

CASES: dict[str, tuple[Callable[[], Mask], Rebinding]] = {
    "causal": (lambda: causal, []),
    "sliding and prefix": (
        lambda: causal & (sliding(6) | prefix(4)),
        [{"window": 1}, {"window": 17, "prefix": 0}, {"window": 2000, "prefix": 12}],
    ),
    "documents": (lambda: causal & sliding(9) & document(IDS), [{"window": 2}, {"window": 40}]),
    "documents in no order": (lambda: document(MIXED) | sliding(2), [{"window": 5}]),
    "documents per batch": (lambda: causal & document(PER_BATCH), []),
    "documents with keys of their own": (lambda: document(IDS, MIXED), []),
    "chunked": (lambda: causal & ma.chunked(6), [{"chunk": 1}, {"chunk": 11}]),
    "dilated": (
        lambda: sliding(9) & ma.dilated(2),
        [{"window": 30, "dilation": 3}, {"window": 12, "dilation": 1}],
    ),
    "remainders": (lambda: (kv_idx - q_idx + 1) % 3 == 2, []),
    "shifted": (lambda: (causal & sliding(12)).shift(q=15), [{"q_shift": 2, "window": 4}]),
    "flags": (lambda: causal & (table(FLAGS, "flags")[kv_idx] | sliding(3)), [{"window": 1}]),
    "flags of queries": (lambda: table(FLAGS, "flags")[q_idx] & causal, []),
    "ranks": (lambda: table(RANKS, "ranks")[q_idx] >= table(RANKS, "ranks")[kv_idx], []),
    "per head": (lambda: where(head % 2 == 0, sliding(3), causal), [{"window": 8}]),
    "prefix per batch": (lambda: causal | prefix(torch.tensor([5, 30])), []),
    "image": (lambda: ma.neighborhood((5, 9), (3, 5)), []),
    "dense": (lambda: causal & ma.dense(DENSE), []),
    "real numbers": (lambda: (q_idx - kv_idx) * 0.3 < ma.scalar(2.5, "reach"), []),
    "all": (lambda: ma.everything, []),
    "none": (lambda: ma.nothing, []),
}

LOOK = """([block, q_len, kv_len]) => ({
  labels: maskalg.labels(...block),
  kept: Array.from({length: q_len}, (_, q) =>
    Array.from({length: kv_len}, (_, k) => maskalg.element(q, k))),
})"""


@pytest.mark.parametrize("name", CASES)
def test_elements_and_labels_agree(name: str, page: Any, tmp_path: Path) -> None:
    make, rebindings = CASES[name]
    mask = make()
    heads = 2 if name == "per head" else None
    path = explore(mask, Q, KV, path=tmp_path / "mask.html", heads=heads)
    page.goto(path.as_uri())
    page.evaluate("maskalg.ready")
    for values in [{}, *rebindings]:
        bound = mask.bind(values)
        dense = bound.to_dense(Q, KV, heads=heads)
        page.evaluate("values => maskalg.bind(values)", values)
        for b, h in [(b, h) for b in range(dense.shape[0]) for h in range(dense.shape[1])]:
            page.evaluate("place => maskalg.choose(place)", {"batch": b, "head": h})
            for block in ((8, 8), (5, 16)):
                found = page.evaluate(LOOK, [block, Q, KV])
                assert found["kept"] == dense[b, h].tolist(), values
                labels = bound.blocks(Q, KV, block=block, heads=heads).labels
                assert found["labels"] == labels[b, h].tolist(), (values, block)


@pytest.mark.parametrize("name", ["sliding and prefix", "documents", "chunked", "flags", "shifted"])
def test_runs_are_the_segments(name: str, page: Any, tmp_path: Path) -> None:
    make, rebindings = CASES[name]
    mask = make()
    page.goto(explore(mask, Q, KV, path=tmp_path / "mask.html").as_uri())
    page.evaluate("maskalg.ready")
    for values in [{}, *rebindings]:
        page.evaluate("values => maskalg.bind(values)", values)
        found = mask.bind(values).segments(Q, KV, block=8)
        columns = mask.bind(values).blocks(Q, KV, block=8).labels[0, 0] != 0
        for row in range(-(-Q // 8)):
            here = slice(int(found.row_start[row]), int(found.row_start[row + 1]))
            runs = [list(map(int, run)) for run in zip(found.first[here], found.end[here], found.label[here], strict=True)]
            rows = [row * 8, min(row * 8 + 8, Q) - 1, 8]
            assert page.evaluate("rows => maskalg.runs(...rows)", rows) == runs
        for column in range(-(-KV // 8)):
            rows = [column * 8, min(column * 8 + 8, KV) - 1, 8]
            runs = page.evaluate("rows => maskalg.columnRuns(...rows)", rows)
            visited = {tile for first, end, _ in runs for tile in range(first, end)}
            assert set(columns[:, column].nonzero()[:, 0].tolist()) <= visited


def test_keys_and_sliders(page: Any, tmp_path: Path) -> None:
    ids = torch.arange(1 << 20) // 3000
    mask = causal & sliding(4096) & document(ids)
    page.goto(explore(mask, 1 << 20, path=tmp_path / "mask.html").as_uri())
    page.evaluate("maskalg.ready")
    level = page.locator("#level")
    whole = level.inner_text()
    assert "4,096" in whole
    page.focus("#matrix")
    for key in ("1", "ArrowLeft", "Shift+ArrowDown"):
        page.keyboard.press(key)
    page.wait_for_function("document.getElementById('level').textContent.endsWith('one element')")
    assert "query" in page.locator("#why-title").inner_text()
    assert page.locator("#why-label").inner_text() in ("kept", "dropped")
    assert "window" in page.locator("#why-body").inner_text()
    page.keyboard.press("0")
    page.wait_for_function("whole => document.getElementById('level').textContent === whole", arg=whole)
    page.locator("#parameter-1, #parameter-2, #parameter-0").first.fill("17")
    assert page.locator("#title").inner_text().startswith("causal & sliding(17) & document(")
    page.keyboard.press("Tab")
    page.click("#reset")
    assert "sliding(4096)" in page.locator("#title").inner_text()
    page.mouse.move(400, 400)
    assert "queries" in page.locator("#why-title").inner_text()


def test_refuses_what_python_refuses(page: Any, tmp_path: Path) -> None:
    page.goto(explore(causal & sliding(5), 64, path=tmp_path / "mask.html").as_uri())
    page.evaluate("maskalg.ready")
    for value in (0, -3, 2.5, 2**31):
        refused = page.evaluate(
            "value => { try { maskalg.bind({window: value}); return null } "
            "catch (problem) { return problem.message } }",
            value,
        )
        assert refused is not None, value


def test_names_are_text(page: Any, tmp_path: Path) -> None:
    evil = "</script><img src=x onerror=window.hit=1><script>window.hit=1</script>"
    mask = Mask((causal & sliding(5)).mask_node, ma.softcap(3.0).bias_node.args[0] if False else causal.bias_node, ma.printing.named(evil))
    page.goto(explore(mask, 64, path=tmp_path / "mask.html").as_uri())
    page.evaluate("maskalg.ready")
    assert page.locator("#title").inner_text() == evil
    assert page.evaluate("window.hit") is None
    assert page.locator("img").count() == 0
