"""What a page computes is what Python computes, in a real browser."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import maskalg as ma
from maskalg import causal, document, head, kv_idx, prefix, q_idx, sliding, table, where
from maskalg.formula.printing import named
from maskalg.values.algebra import Mask, Score
from maskalg.views.explore import explore
from maskalg.views.inspect.choice import Choice
from maskalg.views.inspect.heat import heat
from tests.views.explore.browser import browser, page, tab

__all__ = ["browser", "page", "tab"]

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
    "real entries": (lambda: table(torch.arange(60) * 0.7, "reach")[q_idx] > kv_idx * 1.1, []),
    "wide ids": (lambda: causal & document(IDS.long() + 2**40), []),
    "all": (lambda: ma.everything, []),
    "none": (lambda: ma.nothing, []),
}

BLOCKS = [[8, 8], [5, 16]]

LOOK = """async ({bindings, batches, heads, blocks, rows, columns}) => {
  await maskalg.ready;
  const found = [];
  for (const values of bindings) {
    maskalg.bind(values);
    for (let batch = 0; batch < batches; batch++) for (let head = 0; head < heads; head++) {
      maskalg.choose({batch, head});
      found.push({
        labels: blocks.map((block) => maskalg.labels(...block)),
        kept: rows.map((q) => columns.map((k) => maskalg.element(q, k))),
      });
    }
  }
  return found;
}"""


@pytest.mark.parametrize("name", CASES)
def test_elements_and_labels_agree(name: str, page: Any, tmp_path: Path) -> None:
    make, rebindings = CASES[name]
    mask = make()
    heads = 2 if name == "per head" else None
    bindings = [{}, *rebindings]
    bound = [mask.bind(values) for values in bindings]
    dense = [each.to_dense(Q, KV, heads=heads) for each in bound]
    page.goto(explore(mask, Q, KV, path=tmp_path / "mask.html", heads=heads).as_uri())
    look = {
        "bindings": bindings,
        "batches": dense[0].shape[0],
        "heads": dense[0].shape[1],
        "blocks": BLOCKS,
        "rows": list(range(Q)),
        "columns": list(range(KV)),
    }
    found = page.evaluate(LOOK, look)
    wanted = []
    for each, kept in zip(bound, dense, strict=True):
        maps = [each.blocks(Q, KV, block=(a, b), heads=heads).labels for a, b in BLOCKS]
        for b, h in [(b, h) for b in range(kept.shape[0]) for h in range(kept.shape[1])]:
            labels = [labels[b, h].tolist() for labels in maps]
            wanted.append({"labels": labels, "kept": kept[b, h].tolist()})
    assert found == wanted


RUNS = """async ({bindings, rows, columns}) => {
  await maskalg.ready;
  return bindings.map((values) => {
    maskalg.bind(values);
    return [rows.map((at) => maskalg.runs(...at)), columns.map((at) => maskalg.columnRuns(...at))];
  });
}"""


@pytest.mark.parametrize("name", ["sliding and prefix", "documents", "chunked", "flags", "shifted"])
def test_runs_are_the_segments(name: str, page: Any, tmp_path: Path) -> None:
    make, rebindings = CASES[name]
    mask = make()
    page.goto(explore(mask, Q, KV, path=tmp_path / "mask.html").as_uri())
    tiles = {
        side: [[at, min(at + 8, length) - 1, 8] for at in range(0, length, 8)]
        for side, length in (("rows", Q), ("columns", KV))
    }
    bindings = [{}, *rebindings]
    found = page.evaluate(RUNS, {"bindings": bindings, **tiles})
    for values, (by_rows, by_columns) in zip(bindings, found, strict=True):
        segments = mask.bind(values).segments(Q, KV, block=8)
        table = torch.stack([segments.first, segments.end, segments.label], dim=-1).tolist()
        starts = segments.row_start.tolist()
        assert by_rows == [table[a:b] for a, b in itertools.pairwise(starts)]
        labels = mask.bind(values).blocks(Q, KV, block=8).labels[0, 0]
        for column, runs in enumerate(by_columns):
            visited = {tile for first, end, _ in runs for tile in range(first, end)}
            assert set(labels[:, column].nonzero()[:, 0].tolist()) <= visited


CANVASES: dict[str, tuple[Callable[[], Mask], dict[str, int]]] = {
    "image": (lambda: ma.neighborhood((7, 100), (3, 5)), {"window_width": 9}),
    "image and past": (lambda: ma.neighborhood((7, 100), (3, 5)) | causal & prefix(90), {}),
    "image per head": (lambda: where(head % 2 == 0, ma.neighborhood((7, 100), 3), sliding(9)), {}),
}


@pytest.mark.parametrize("name", CANVASES)
def test_runs_of_a_canvas_are_the_segments(name: str, page: Any, tmp_path: Path) -> None:
    make, rebinding = CANVASES[name]
    mask, length = make(), 700
    heads = 2 if "head" in name else None
    page.goto(explore(mask, length, path=tmp_path / "mask.html", heads=heads).as_uri())
    for block in (32, 64, 256):
        tiles = [[at, min(at + block, length) - 1, block] for at in range(0, length, block)]
        look = {"bindings": [{}], "rows": tiles, "columns": tiles}
        segments = mask.segments(length, block=block, heads=heads)
        labels = mask.blocks(length, block=block, heads=heads).labels
        for h in range(heads or 1):
            page.evaluate(f"maskalg.ready.then(() => maskalg.choose({{head: {h}}}))")
            ((by_rows, by_columns),) = page.evaluate(RUNS, look)
            runs = [segments.row(0, h, i) for i in range(len(tiles))]
            assert by_rows == [[[r.first, r.end, r.label] for r in row] for row in runs]
            for column, found in enumerate(by_columns):
                row = [label for a, b, label in found for _ in range(b - a)]
                own = labels[0, h, :, column]
                assert row == own[own > 0].tolist()
    for values in filter(None, [rebinding]):
        ((by_rows, _),) = page.evaluate(RUNS, {**look, "bindings": [values]})
        labels = mask.bind(values).blocks(length, block=256).labels[0, 0]
        for row, runs in enumerate(by_rows):
            visited = {tile for first, end, _ in runs for tile in range(first, end)}
            assert set(labels[row].nonzero()[:, 0].tolist()) <= visited


SCORES: dict[str, Callable[[], Score]] = {
    "slopes": lambda: causal & sliding(20) + ma.alibi(torch.tensor([0.5, 0.0625])),
    "table": lambda: ma.relative(torch.arange(2 * 31).reshape(2, 31) * 0.37) + sliding(30),
    "buckets": lambda: causal + ma.t5(torch.linspace(-1, 1, 64).view(32, 2)),
    "logarithm": lambda: causal + ma.kerple_log(torch.tensor([1.0]), torch.tensor([0.2])),
    "documents": lambda: document(IDS) + ma.decay(torch.tensor([-0.05, -0.2])),
    "capped": lambda: ma.softcap(3.0) @ (causal + ma.alibi(torch.tensor([0.25]))),
}

VALUES = """async ({heads, rows, columns}) => {
  await maskalg.ready;
  return heads.map((head) => {
    maskalg.choose({head});
    return rows.map((q) => columns.map((k) => maskalg.bias(q, k)));
  });
}"""


@pytest.mark.parametrize("name", SCORES)
def test_values_of_a_bias_agree(name: str, page: Any, tmp_path: Path) -> None:
    score = SCORES[name]()
    page.goto(score.explore(Q, KV, path=tmp_path / "score.html").as_uri())
    heads = page.evaluate(
        "maskalg.ready.then(() => Number(document.getElementById('head').max) + 1)"
    )
    look = {"heads": list(range(heads)), "rows": list(range(Q)), "columns": list(range(KV))}
    found = torch.tensor(page.evaluate(VALUES, look), dtype=torch.float64)
    assert heads == {"logarithm": 1, "capped": 1}.get(name, 2)
    for h in range(heads):
        values = heat(score, Q, KV, cells=64, block=1, choice=Choice(head=h)).values
        torch.testing.assert_close(found[h], values, rtol=1e-5, atol=1e-6)


def test_a_bias_is_seen_and_read(page: Any, tmp_path: Path) -> None:
    score = causal + ma.alibi(torch.tensor([0.5]))
    page.goto(score.explore(512, path=tmp_path / "score.html").as_uri())
    page.evaluate("maskalg.ready")
    assert not page.locator("#legend-bias").is_visible()
    page.focus("#matrix")
    page.keyboard.press("b")
    wait_for(page, "!document.getElementById('legend-bias').hidden")
    assert page.locator("#bias-note").is_visible()
    page.fill("#go-q", "200")
    page.fill("#go-k", "191")
    page.click("#go button")
    assert page.locator("#bias-value").inner_text() == "−4.5"
    assert "(191 - 200)*0.5 + score" in page.locator("#why-body").inner_text()
    wait_for(page, "document.getElementById('bias-note').hidden")
    low, high = (page.locator(f"#bias-{end}").inner_text() for end in ("low", "high"))
    assert high and low == f"−{high}"
    page.fill("#go-k", "201")
    page.click("#go button")
    assert page.locator("#why-label").inner_text() == "dropped"
    assert page.locator("#bias-value").count() == 0
    page.goto(explore(causal, 64, path=tmp_path / "mask.html").as_uri())
    page.evaluate("maskalg.ready")
    assert not page.locator("#cells-field").is_visible()


def wait_for(page: Any, condition: str) -> None:
    """Wait until an expression holds; playwright's own way needs `eval`, which the page forbids."""
    for _ in range(400):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(25)
    raise AssertionError(f"never came: {condition}")


def test_keys_and_sliders(page: Any, tmp_path: Path) -> None:
    ids = torch.arange(1 << 20) // 3000
    mask = causal & sliding(4096) & document(ids)
    page.goto(explore(mask, 1 << 20, path=tmp_path / "mask.html").as_uri())
    page.evaluate("maskalg.ready")
    wait_for(page, "document.getElementById('level').textContent !== ''")
    whole = page.locator("#level").inner_text()
    assert whole.startswith("one cell is ")
    page.focus("#matrix")
    for key in ("1", "ArrowLeft", "Shift+ArrowDown"):
        page.keyboard.press(key)
    wait_for(page, "document.getElementById('level').textContent.endsWith('is one element')")
    assert page.locator("#why-title").inner_text().startswith("query ")
    assert page.locator("#why-label").inner_text() in ("kept", "dropped")
    assert "window - 1 >= q_idx - kv_idx" in page.locator("#why-body").inner_text()
    page.keyboard.press("0")
    wait_for(page, f"document.getElementById('level').textContent === {whole!r}")
    assert page.locator("#why-title").inner_text().startswith("queries ")
    slide = page.locator("#sliders input[type=range]")
    before = slide.input_value()
    page.locator("#sliders input[type=number]").fill("17")
    assert slide.input_value() < before and slide.get_attribute("aria-valuetext") == "17"
    assert page.locator("#title").inner_text().startswith("causal & sliding(17) & document(")
    page.click("#reset")
    assert "sliding(4096)" in page.locator("#title").inner_text()


def test_a_long_row_can_be_seen(page: Any, tmp_path: Path) -> None:
    mask = (causal & (sliding(4096) | prefix(64))).shift(q=1 << 19)
    page.goto(explore(mask, 64, 1 << 20, path=tmp_path / "mask.html").as_uri())
    page.evaluate("maskalg.ready")
    wait_for(page, "document.getElementById('level').textContent.startsWith('one cell is 1 ×')")
    page.focus("#matrix")
    page.keyboard.press("+")
    assert page.locator("#why-title").inner_text().startswith("queries 3")
    page.goto(explore(causal, 0, 5, path=tmp_path / "none.html").as_uri())
    page.evaluate("maskalg.ready")
    assert page.evaluate("maskalg.labels(4, 4)") == []
    page.click("#go button")
    assert page.locator("#why-title").inner_text() == "Point at the matrix"


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
    mask = Mask(causal.mask_node, causal.bias_node, named(evil))
    page.goto(explore(mask, 64, path=tmp_path / "mask.html").as_uri())
    page.evaluate("maskalg.ready")
    assert page.locator("#title").inner_text() == evil
    assert page.evaluate("window.hit") is None
    assert page.locator("img").count() == 0


def test_a_block_says_which_interval_it_meets(page: Any, tmp_path: Path) -> None:
    page.goto(explore(causal & sliding(100), 4096, path=tmp_path / "mask.html").as_uri())
    page.evaluate("maskalg.ready")
    page.mouse.move(130, 500)
    assert page.locator("#why-label").inner_text() == "empty"
    text = page.locator("#why-body").inner_text()
    assert "q0 + 1 - window <= k <= q1" in text
    assert "misses the block" in text
    assert "meets the block" not in text


def test_a_finger_that_scrolls_leaves_what_it_pointed_at(page: Any, tmp_path: Path) -> None:
    page.goto(explore(causal & sliding(100), 4096, path=tmp_path / "mask.html").as_uri())
    page.evaluate("maskalg.ready")
    title = page.locator("#why-title")
    page.evaluate(TOUCH, {"places": [[200, 300]], "end": "pointerup"})
    tapped = title.inner_text()
    assert tapped.startswith("queries ")
    page.evaluate(TOUCH, {"places": [[350, 420]], "end": "pointercancel"})
    assert title.inner_text() == tapped
    page.evaluate(TOUCH, {"places": [[350, 420]], "end": "pointerup"})
    assert title.inner_text() != tapped
    page.evaluate(TOUCH, {"places": [[350, 420], [400, 460]], "end": "pointerup"})
    assert title.inner_text() in ("Point at the matrix", "Touch the matrix")


TOUCH = """({places, end}) => {
  const canvas = document.getElementById("matrix");
  const box = canvas.getBoundingClientRect();
  canvas.setPointerCapture = () => {};
  const tell = (type) => places.forEach(([x, y], pointerId) => canvas.dispatchEvent(
    new PointerEvent(type, {pointerId, clientX: box.left + x, clientY: box.top + y})));
  tell("pointerdown");
  tell(end);
}"""


SWEEP = """() => {
  const canvas = document.getElementById("matrix");
  const box = canvas.getBoundingClientRect();
  const title = document.getElementById("why-title");
  const found = [];
  for (let at = 0; at < 1; at += 1 / 512) {
    for (const [x, y] of [[0.5, at], [at, 0.45]]) {
      const place = {clientX: box.left + x * box.width, clientY: box.top + y * box.height};
      canvas.dispatchEvent(new PointerEvent("pointermove", place));
      found.push(title.textContent);
    }
  }
  return [document.documentElement.scrollWidth, found.join(" ")];
}"""


@pytest.mark.parametrize("size", [(740, 320), (390, 844), (320, 480)], ids=str)
def test_the_whole_matrix_is_seen_on_a_phone(
    size: tuple[int, int], page: Any, tmp_path: Path
) -> None:
    before = page.viewport_size
    page.set_viewport_size({"width": size[0], "height": size[1]})
    try:
        page.goto(explore(causal & sliding(1000), 8192, path=tmp_path / "mask.html").as_uri())
        page.evaluate("maskalg.ready")
        wait_for(page, "document.getElementById('level').textContent !== ''")
        width, titles = page.evaluate(SWEEP)
        assert width <= size[0]
        assert re.search("queries [0-9,]+ – 8,191", titles)
        assert re.search("keys [0-9,]+ – 8,191", titles)
    finally:
        page.set_viewport_size(before)
