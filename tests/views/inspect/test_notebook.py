"""What Jupyter shows: well-formed SVG with the right blocks, the formula, and never an error."""

from __future__ import annotations

import re
from math import ceil
from xml.etree import ElementTree

import pytest
import torch

import maskalg as ma
from maskalg import alibi, causal, dense, document, padding, prefix, sliding, softcap
from maskalg.testing.catalogue import CATALOGUE
from maskalg.views.inspect.choice import Choice, one_entry
from maskalg.views.inspect.picture import evaluated, picture
from maskalg.views.notebook.notebook import lengths_to_show, pooled, pooled_segments
from maskalg.views.notebook.svg import SIDE, STYLE, blocks_svg

SPACE = "{http://www.w3.org/2000/svg}"
IDS = torch.arange(4).repeat_interleave(torch.tensor([70, 30, 64, 92]))


def svgs(html: str) -> list[ElementTree.Element]:
    """The pictures of a display, without the squares of its legend."""
    found = [ElementTree.fromstring(text) for text in re.findall(r"<svg xmlns.*?</svg>", html)]
    assert all(root.tag == f"{SPACE}svg" for root in found)
    return found


def covered(root: ElementTree.Element, kind: str, cells: tuple[float, float]) -> torch.Tensor:
    """The cells that the path of a label covers, read back from its coordinates.

    `cells` says how many cells the picture is high and wide; the last ones may be cut.
    """
    found = torch.zeros(ceil(cells[0]), ceil(cells[1]), dtype=torch.int64)
    width, height = float(root.get("width") or 0), float(root.get("height") or 0)
    for path in root.iter(f"{SPACE}path"):
        if path.get("class") != f"ma-{kind}":
            continue
        steps = re.findall(r"M([\d.]+) ([\d.]+)H([\d.]+)V([\d.]+)H([\d.]+)z", path.get("d") or "")
        for step in steps:
            left, top, right, bottom, _ = map(float, step)
            rows = slice(round(top * cells[0] / height), round(bottom * cells[0] / height + 0.49))
            columns = slice(round(left * cells[1] / width), round(right * cells[1] / width + 0.49))
            found[rows, columns] += 1
    assert found.max() <= 1
    return found == 1


@pytest.mark.parametrize(
    ("mask", "length"),
    [
        (causal & sliding(64), 256),
        (causal & (sliding(256) | prefix(4)), 1024),
        (causal & document(IDS), 256),
        (~causal, 256),
        (ma.nothing, 256),
        (ma.everything, 256),
    ],
    ids=str,
)
def test_the_picture_of_a_mask_has_its_blocks(mask: ma.Mask, length: int) -> None:
    html = mask._repr_html_()
    assert html is not None
    (root,) = svgs(html)
    blocks = mask.blocks(length, block=length // 64)
    assert covered(root, "partial", (64, 64)).equal(blocks.labels[0, 0] == 1)
    assert covered(root, "full", (64, 64)).equal(blocks.labels[0, 0] == 2)
    for name, count in zip(("empty", "partial", "full"), blocks.counts(), strict=True):
        assert f"> {name} {count}" in html


def test_the_display_says_what_it_shows() -> None:
    html = (causal & sliding(256))._repr_html_() or ""
    assert "causal &amp; sliding(256)" in html
    assert r"\(\lvert q - k \rvert \lt 256 \land q \ge k\)" in html
    assert "1024 queries, 1024 keys, 64 x 64 blocks of 16 x 16" in html
    assert (causal & sliding(256))._repr_latex_() == (
        r"$\displaystyle \lvert q - k \rvert \lt 256 \land q \ge k$"
    )


def test_light_dark_and_the_themes_of_notebooks() -> None:
    html = causal._repr_html_() or ""
    assert STYLE in html
    for part in (
        "prefers-color-scheme:dark",
        '[data-jp-theme-light="true"]',
        '[data-jp-theme-light="false"]',
        "--jp-content-font-color1",
    ):
        assert part in STYLE
    # Every rule is held to the display: a notebook shares one page.
    for selector in re.findall(r"(?:^|\}|\n)([^{}@]+)\{", STYLE):
        assert all(".maskalg" in one for one in selector.split(",")), selector
    assert "<script" not in html and "href" not in html


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_mask_of_the_catalogue_is_shown(name: str) -> None:
    mask = CATALOGUE[name].mask
    html = mask._repr_html_()
    assert html is not None and html.count("<div") == html.count("</div>")
    assert mask._repr_latex_() is not None
    assert len(svgs(html)) == 1


@pytest.mark.parametrize(
    ("expression", "lengths"),
    [
        (causal, (256, 256)),
        (causal & sliding(300), (2048, 2048)),
        (ma.chunked(30), (1024, 1024)),
        (document(IDS), (256, 256)),
        (dense(torch.ones(30, 50, dtype=torch.bool)), (30, 50)),
        (document(torch.arange(10), torch.arange(7)), (10, 7)),
        (ma.block_table(torch.ones(4, 6, dtype=torch.bool), 32), (128, 192)),
        (causal & ma.table(torch.ones(99, dtype=torch.bool))[ma.kv_idx], (99, 99)),
        (causal.shift(q=4) & document(torch.arange(100)).shift(q=10), (90, 100)),
        (document(IDS[:0]), None),
        (causal & document(torch.arange(1 << 21)), (1 << 21, 1 << 21)),
    ],
    ids=str,
)
def test_lengths_come_from_the_tensors(
    expression: ma.Mask, lengths: tuple[int, int] | None
) -> None:
    assert lengths_to_show(expression, Choice()) == lengths


def test_a_bias_is_a_heat_map_and_a_score_leaves_out_what_it_drops() -> None:
    values = torch.zeros(8, 8)
    values[2, 3], values[5, 5] = 4.0, -4.0
    (root,) = svgs(ma.dense_bias(values)._repr_html_() or "")
    fills = {path.get("fill"): path.get("d") for path in root.iter(f"{SPACE}path")}
    cell = SIDE / 8
    assert fills["#123a80"] == f"M{3 * cell:.0f} {2 * cell:.0f}H{4 * cell:.0f}V75H75z"
    assert fills["#7a3a05"] == "M125 125H150V150H125z"
    score = causal + ma.dense_bias(values)
    html = score._repr_html_() or ""
    (root,) = svgs(html)
    assert "#123a80" not in {path.get("fill") for path in root.iter(f"{SPACE}path")}
    assert "values from -4 to 0" in html
    assert not svgs(softcap(30)._repr_html_() or "")


def test_the_first_of_several_is_shown_and_said() -> None:
    html = padding(torch.tensor([100, 50]))._repr_html_() or ""
    assert "batch entry 0 of 2" in html
    assert "head 0 of 3" in ((causal + alibi(torch.ones(3)))._repr_html_() or "")


def test_text_is_escaped() -> None:
    opaque = ma.mask(lambda b, h, q, k: q >= k, opaque=True)
    html = opaque._repr_html_() or ""
    assert "<lambda>" not in html
    labels = ma.table(IDS, "x_lt")
    assert r"\mathrm{x\_lt}" in ((labels[ma.q_idx] <= 2)._repr_html_() or "")


def test_what_cannot_be_drawn_is_still_shown() -> None:
    empty = document(IDS[:0])
    html = empty._repr_html_() or ""
    assert "document(ids[0])" in html and not svgs(html)
    elsewhere = causal & document(IDS.to("meta"))
    html = elsewhere._repr_html_() or ""
    assert "causal &amp; document" in html and not svgs(html)
    huge = causal
    for step in range(200):
        huge = huge & ~(ma.q_idx == step * 3)
    html = huge._repr_html_() or ""
    assert svgs(html) and "ma-formula" not in html.split("</style>")[1]
    assert huge._repr_latex_() is None


def test_long_ones_are_proved_and_not_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = torch.arange(1 << 20) // 3000
    html = (causal & sliding(1000) & document(ids))._repr_html_() or ""
    assert "1048576 queries" in html and len(html) < 40_000
    # What a proof would take too long for shows its beginning.
    monkeypatch.setattr("maskalg.views.notebook.notebook._LONGEST_FORMULA", 10)
    html = (causal & sliding(1000) & document(ids))._repr_html_() or ""
    assert "512 queries" in html


def test_what_takes_long_to_decide_is_shown_by_its_runs() -> None:
    flags = torch.rand(1 << 20, generator=torch.Generator().manual_seed(0)) < 1e-4
    mask = ma.vertical_slash(flags, flags)
    shown = picture(mask, 1 << 20, None, cells=32)
    assert "partial blocks may be empty or full" in shown.notes[0]
    # Every block above the diagonal is empty, and no block is full.
    assert shown.labels.triu(1).count_nonzero() == 0
    assert shown.counts()[2] == 0


@pytest.mark.parametrize("mask", [causal & sliding(9), ~document(IDS), prefix(30) | ~causal])
@pytest.mark.parametrize(("q_len", "kv_len", "cells"), [(100, 77, 13), (64, 200, 16), (1, 5, 3)])
def test_evaluation_and_proof_draw_the_same(
    mask: ma.Mask, q_len: int, kv_len: int, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maskalg.views.inspect.picture._AT_ONCE", 1000)
    proved = mask.blocks(q_len, kv_len, block=picture(mask, q_len, kv_len, cells=cells).block)
    shown = evaluated(mask, q_len, kv_len, cells=cells, choice=Choice())
    assert shown.labels.equal(proved.labels[0, 0])


def test_a_choice_of_batch_and_head() -> None:
    windows = torch.tensor([[3, 9, 20], [1, 30, 2]])
    mask = causal & sliding(windows) & padding(torch.tensor([50, 30]))
    labels = mask.blocks(64, block=8).labels
    for batch in range(2):
        for head in range(3):
            choice = Choice(batch, head)
            shown = picture(mask, 64, None, cells=8, choice=choice)
            assert shown.labels.equal(labels[batch, head])
            assert shown.notes == (f"batch entry {batch} of 2", f"head {head} of 3")
            assert evaluated(mask, 64, 64, cells=8, choice=choice).labels.equal(labels[batch, head])
    bare = ma.where(ma.head % 2 == 0, causal, causal & sliding(windows[0]))
    labels = bare.blocks(64, block=8).labels
    for head in range(3):
        assert picture(bare, 64, None, cells=8, choice=Choice(0, head)).labels.equal(
            labels[0, head]
        )
    untold = ma.where(ma.head % 2 == 0, causal, ~causal)
    assert picture(untold, 64, None, cells=8, choice=Choice(head=5)).labels.equal(
        (~causal).blocks(64, block=8).labels[0, 0]
    )


def test_another_head_of_a_tensor_with_one_entry_for_all() -> None:
    width = ma.table(torch.tensor([3]), "width")[ma.head]
    mask = causal & (ma.q_idx - ma.kv_idx < width) & (ma.head >= 1)
    labels = mask.blocks(8, block=2, heads=3).labels[0]
    for head in range(3):
        choice = Choice(0, head)
        assert picture(mask, 8, None, cells=8, block=2, choice=choice).labels.equal(labels[head])
        assert one_entry(mask, choice).to_dense(8)[0, 0].equal(mask.to_dense(8, heads=3)[0, head])


def test_block_maps_and_segments() -> None:
    mask = causal & sliding(torch.tensor([8, 64]))
    for found in (mask.blocks(500, block=(16, 32)), mask.segments(500, block=(16, 32))):
        html = found._repr_html_() or ""
        first, second = svgs(html)
        for root, labels in zip(
            (first, second), mask.blocks(500, block=(16, 32)).labels[0], strict=True
        ):
            assert covered(root, "partial", (500 / 16, 500 / 32)).equal(labels == 1)
            assert covered(root, "full", (500 / 16, 500 / 32)).equal(labels == 2)
        for name, count in zip(("empty", "partial", "full"), found.counts(), strict=True):
            assert f"> {name} {count}" in html


def test_pooled_labels_keep_what_they_say() -> None:
    torch.manual_seed(0)
    labels = torch.randint(0, 3, (50, 37)).clamp(min=0).to(torch.uint8)
    labels[:20, :20], labels[30:, 10:] = 0, 2
    small, times = pooled(labels, 10)
    assert times == 5 and small.shape == (10, 8)
    for row in range(10):
        for column in range(8):
            part = labels[5 * row : 5 * row + 5, 5 * column : 5 * column + 5]
            same = bool((part == part[0, 0]).all()) and int(part[0, 0]) != 1
            assert int(small[row, column]) == (int(part[0, 0]) if same else 1)
    assert pooled(labels, 50)[0] is labels


def test_pooled_segments_are_pooled_blocks() -> None:
    mask = causal & (sliding(70) | prefix(9)) & document(IDS)
    for cells in (7, 10, 64):
        found, times = pooled_segments(mask.segments(250, 256, block=4), 0, cells)
        expected, same = pooled(mask.blocks(250, 256, block=4).labels[0, 0], cells)
        assert times == same and found.equal(expected)


def test_a_proof_is_typeset_and_printed() -> None:
    html = (causal & sliding(256)).prove()._repr_html_() or ""
    assert r"\(\lvert q - k \rvert \lt \mathrm{window} \land q \ge k\)" in html
    assert "touched   q0 - window + 1 &lt;= k &lt;= q1" in html


def test_extreme_lengths_are_drawn() -> None:
    one = torch.ones(1, 1, dtype=torch.uint8)
    assert svgs(blocks_svg(one, (4096, 1), 4096, 1))
    html = dense(torch.ones(1, 5000, dtype=torch.bool))._repr_html_() or ""
    assert len(svgs(html)) == 1


NOTEBOOK = """
import torch, maskalg as ma
mask = ma.causal & ma.sliding(64)
---
mask
---
mask + ma.alibi(torch.ones(2))
---
mask.blocks(256, block=16)
---
mask.segments(256, block=16)
---
mask.prove()
"""


def test_a_notebook_shows_them() -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    cells = [nbformat.v4.new_code_cell(text.strip()) for text in NOTEBOOK.split("---")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=120).execute()
    shown = [[output["data"] for output in cell["outputs"]] for cell in notebook.cells]
    assert shown[0] == []
    for (data,), label in zip(shown[1:], (r"\(\lvert", r"\(s \mapsto", "BlockMap", "Segments",
                                           "touched"), strict=True):  # fmt: skip
        assert label in data["text/html"]
        assert "text/plain" in data
    assert shown[1][0]["text/latex"].startswith(r"$\displaystyle \lvert q - k \rvert \lt 64")
    assert shown[1][0]["text/plain"] == "causal & sliding(64)"


@pytest.mark.parametrize(("q_len", "kv_len"), [(0, 0), (0, 9), (9, 0)])
def test_no_elements(q_len: int, kv_len: int) -> None:
    undecided = ma.q_idx * ma.kv_idx >= 5
    assert not picture(undecided, q_len, kv_len, cells=8).labels.numel()
