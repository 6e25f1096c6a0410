"""The SVG picture: well-formed, self-contained, and each path covers what it stands for."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
import torch

import maskalg as ma
from maskalg import causal, document, padding, prefix, sliding
from maskalg.inspect.svg import svg

SPACE = "{http://www.w3.org/2000/svg}"
SIDE = 480


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SPACE}text")]


def drawn(
    root: ElementTree.Element, kind: str, block: int, q_len: int, kv_len: int
) -> torch.Tensor:
    """The blocks a path covers, read back from its coordinates."""
    covered = torch.zeros(-(-q_len // block), -(-kv_len // block), dtype=torch.bool)
    scale = SIDE / max(q_len, kv_len)
    (path,) = [p for p in root.iter(f"{SPACE}path") if p.get("class") == kind]
    for step in re.findall(r"M([\d.]+) ([\d.]+)H([\d.]+)V([\d.]+)H([\d.]+)z", path.get("d") or ""):
        left, top, right, bottom, back = (float(number) / scale / block for number in step)
        assert left == back
        rows = slice(round(top), round(bottom + 0.49))
        columns = slice(round(left), round(right + 0.49))
        assert not covered[rows, columns].any()
        covered[rows, columns] = True
    return covered


@pytest.mark.parametrize(
    ("mask", "q_len", "kv_len"),
    [
        (causal & sliding(64), 512, 512),
        (causal & (sliding(20) | prefix(4)), 300, 200),
        (document(torch.arange(256) // 60), 256, 256),
        (~causal, 100, 250),
    ],
    ids=str,
)
def test_paths_cover_their_blocks(mask: ma.Mask, q_len: int, kv_len: int) -> None:
    root = parsed(svg(mask, q_len, kv_len, block=16))
    labels = mask.blocks(q_len, kv_len, block=16).labels[0, 0]
    assert drawn(root, "partial", 16, q_len, kv_len).equal(labels == 1)
    assert drawn(root, "full", 16, q_len, kv_len).equal(labels == 2)


def test_title_axes_and_legend() -> None:
    root = parsed(svg(causal & sliding(512), 4096, block=128))
    found = texts(root)
    assert found[0] == "causal & sliding(512)"
    assert found[1] == "4096 queries, 4096 keys, 32 x 32 blocks of 128 x 128: 85.4 % empty"
    assert {"key position", "query position", "0", "1024", "2048", "3072", "4096"} <= set(found)
    empty, partial, full = (causal & sliding(512)).blocks(4096).counts()
    assert found[-3:] == [f"empty {empty}", f"partial {partial}", f"full {full}"]


def test_block_fits_the_cells() -> None:
    assert "64 x 64 blocks of 16 x 16" in svg(causal, 1024, cells=64)
    assert "63 x 63 blocks of 16 x 16" in svg(causal, 1000, cells=64)


def test_light_and_dark_and_no_outside() -> None:
    text = svg(causal, 64)
    assert "@media (prefers-color-scheme: dark)" in text
    assert re.findall(r"https?://\S+?(?=\")", text) == ["http://www.w3.org/2000/svg"]
    assert "<script" not in text
    assert "href" not in text


def test_titles_are_escaped() -> None:
    root = parsed(svg(causal, 64, title='a < b & "c"'))
    assert texts(root)[0] == 'a < b & "c"'


def test_the_same_call_draws_the_same() -> None:
    assert svg(causal & sliding(9), 100) == svg(causal & sliding(9), 100)


def test_notes_are_in_the_description() -> None:
    (description,) = parsed(svg(padding(torch.tensor([3, 5])), 8)).iter(f"{SPACE}desc")
    assert description.text is not None
    assert description.text.endswith("batch entry 0 of 2")


@pytest.mark.parametrize(("q_len", "kv_len"), [(0, 0), (0, 8), (1, 4096), (4096, 1), (1, 1)])
def test_extreme_lengths(q_len: int, kv_len: int) -> None:
    assert parsed(svg(causal, q_len, kv_len)).get("role") == "img"


def test_a_million_positions_stay_small() -> None:
    assert len(svg(causal & (sliding(1000) | prefix(4)), 1 << 20)) < 100_000


def test_errors() -> None:
    with pytest.raises(ValueError, match="svg: cells must be an integer >= 1, got 0"):
        svg(causal, 16, cells=0)
    with pytest.raises(ValueError, match="block must be an integer >= 1"):
        svg(causal, 16, block=0)
