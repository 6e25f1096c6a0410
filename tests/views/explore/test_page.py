"""The page without a browser: its parts, what it may do, its size, and what is refused."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import maskalg as ma
from maskalg import causal, document, head, kv_idx, prefix, q_idx, sliding, table, where
from maskalg.cli import main
from maskalg.engine.extents import Lengths
from maskalg.errors import MaskTypeError, MaskValueError
from maskalg.formula.printing import named
from maskalg.testing.case import BATCH, HEADS
from maskalg.testing.catalogue import CATALOGUE
from maskalg.values.algebra import Mask
from maskalg.views.explore import explore, html
from maskalg.views.explore.page import MOST_BYTES, SCRIPTS
from maskalg.views.explore.payload import payload, table_record

STATIC = Path(ma.__file__).parent / "views" / "explore" / "static"


class Page(HTMLParser):
    """Tags with their attributes, the text of scripts and styles, and labels of controls."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": []}
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in self.texts:
            self.texts[self._inside].append(data)

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.texts["script"][0])
        return found


def test_nothing_is_loaded_and_only_its_own_script_may_run() -> None:
    page = Page(html(causal & (sliding(256) | prefix(4)), 4096))
    for tag, attributes in page.tags:
        assert tag != "link"
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
    (policy,) = [a["content"] for _, a in page.tags if "http-equiv" in a]
    assert policy is not None and policy.startswith("default-src 'none'")
    for kind, text in (("script", page.texts["script"][1]), ("style", page.texts["style"][0])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_controls_have_names() -> None:
    text = html(causal & sliding(5), 64)
    labelled = set(re.findall(r'<label for="([^"]+)"', text))
    for tag, attributes in Page(text).tags:
        if tag == "input" and attributes["type"] == "number":
            assert attributes["id"] in labelled | {"go-q", "go-k"}
        if tag in ("canvas", "section"):
            assert attributes.get("aria-label") or attributes.get("aria-hidden")


def test_every_static_file_is_part_of_the_page() -> None:
    assert {path.name for path in STATIC.iterdir()} == {
        *SCRIPTS,
        "explorer.html",
        "explorer.css",
    }
    pyproject = (STATIC.parents[3] / "pyproject.toml").read_text()
    assert '"maskalg.views.explore" = ["static/*"]' in pyproject


def test_names_cannot_leave_the_data() -> None:
    evil = "</script><script>alert(1)</script><!-- {{SCRIPT}} \u2028"
    page = Page(html(Mask(causal.mask_node, causal.bias_node, named(evil)), 64))
    assert page.data["title"] == evil
    assert [tag for tag, _ in page.tags].count("script") == 2


def test_the_title_follows_the_numbers() -> None:
    page = Page(html(causal & (sliding(256) | prefix(4)).shift(q=3), 64))
    filled = re.sub(
        r"⟦(\d+)⟧",
        lambda at: next(str(s["value"]) for s in page.data["scalars"] if s["slot"] == int(at[1])),
        page.data["title"],
    )
    assert filled == "causal & (sliding(256) | prefix(4)).shift(q=3)"
    assert {(s["name"], s["low"]) for s in page.data["scalars"]} == {
        ("window", 1),
        ("prefix", 0),
        ("q_shift", None),
    }


@pytest.mark.parametrize("name", list(CATALOGUE)[::3])
def test_every_third_mask_of_the_catalogue_has_a_page(name: str) -> None:
    page = Page(html(CATALOGUE[name].mask, 36, batch=BATCH, heads=HEADS))
    assert page.data["q_len"] == page.data["kv_len"] == 36


def test_a_million_tokens_of_documents_are_small() -> None:
    ids = torch.arange(1 << 20) // 777
    assert len(html(causal & sliding(4096) & document(ids), 1 << 20)) < 150_000


def test_segments_travel_with_a_canvas_only() -> None:
    assert Page(html(causal & sliding(5), 4096)).data["visits"] is None
    for side, block in ((64, 32), (300, 128)):
        mask = ma.neighborhood((side, side), 7)
        page = html(mask, side * side)
        visits = Page(page).data["visits"]
        assert visits["block"] == block and len(page) < 150_000
        segments = mask.segments(side * side, block=block)
        assert visits["rows"]["shape"] == list(segments.shape)
        assert sum(unpacked(visits["rows"]["count"])) == len(segments.first)
        assert unpacked(visits["rows"]["first"]) == segments.first.tolist()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(50) // 7,
        torch.tensor([-(2**31), 2**31 - 1, 0, -5, 2**31 - 1]),
        torch.tensor([True, False, False, True] * 9 + [True]),
        torch.tensor([True] * 90 + [False]),
        torch.zeros(0, dtype=torch.int32),
        torch.tensor(9),
        torch.arange(24).view(2, 3, 4) % 5,
        torch.tensor([2**40, -(2**50), 3]),
        torch.tensor([0.5, -1.25]),
    ],
)
def test_tensors_survive_the_way(tensor: torch.Tensor) -> None:
    record = table_record("table", tensor)
    assert record["shape"] == list(tensor.shape)
    assert unpacked(record) == tensor.flatten().tolist()


def unpacked(record: dict[str, Any]) -> list[float]:
    """What `static/tables.js` does, by hand."""
    raw = zlib.decompress(base64.b64decode(record["data"]))
    if record["coding"] == "bits":
        size = int(np.prod(record["shape"]))
        return [bool(raw[i >> 3] >> (i & 7) & 1) for i in range(size)]
    width = 8 if record["type"] == "float64" else 4
    count = len(raw) // width
    rows = np.frombuffer(raw, np.uint8).reshape(width, count).T.copy()
    if record["type"] in ("float64", "float32"):
        return [float(x) for x in rows.view(record["type"]).flatten()]
    numbers = rows.view("<i4").flatten().astype(np.int64)
    if record["coding"] == "plain":
        return [_wrapped(x) for x in numbers.cumsum()]
    lengths, steps = numbers[: count // 2], numbers[count // 2 :]
    entries = [_wrapped(x) for x in steps.cumsum()]
    return [x for x, n in zip(entries, lengths, strict=True) for _ in range(n)]


def _wrapped(value: int) -> int:
    return (int(value) + 2**31) % 2**32 - 2**31


def test_what_does_not_shrink_is_refused_by_name() -> None:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 2**31 - 1, (1 << 20,), generator=generator)
    with pytest.raises(MaskValueError, match=r"The page would have 5\.\d MB.*ids takes 5\.\d MB"):
        html(document(ids), 1 << 20)
    assert MOST_BYTES == 5_000_000


def test_what_a_page_cannot_compute_is_refused() -> None:
    def strange(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (q - k).abs() < 3

    with pytest.raises(MaskValueError, match=r"no formula for .* there\. Show its elements"):
        html(ma.mask(strange, opaque=True), 64, batch=1, heads=1)
    entries = ([2**52, 1], [2**52 - 1, 0], [-(2**52), -1])  # two of them leave doubles, not all
    parts = [ma.table(torch.tensor(each))[ma.q_idx] for each in entries]
    with pytest.raises(MaskValueError, match=r"53 bits"):
        html(parts[0] + parts[1] + parts[2] >= ma.kv_idx, 2, batch=1, heads=1)
    with pytest.raises(MaskValueError, match=r"53 bits.*ids\.unique"):
        html(document(torch.tensor([2**60, 2**60 + 1])), 2)
    with pytest.raises(MaskValueError, match=r"reach is torch\.float64: pass reach\.float"):
        html(table(torch.ones(8, dtype=torch.float64), "reach")[q_idx] > kv_idx, 8)
    with pytest.raises(MaskTypeError, match="explore shows masks, biases and scores, got 3"):
        html(3, 64)  # type: ignore[arg-type]
    with pytest.raises(MaskTypeError, match=r"softcap.* is the same .*: mask \+ bias"):
        html(ma.softcap(3.0), 64)
    with pytest.raises(MaskValueError, match="heads"):
        html(where(head % 2 == 0, causal, sliding(3)), 64)
    with pytest.raises(MaskValueError, match="q_len"):
        html(causal, -1)


def test_a_mask_explores_itself(tmp_path: Path) -> None:
    written = ((q_idx - kv_idx) % 3 == 0).explore(64, 48, path=tmp_path / "a.html", batch=2)
    assert written == tmp_path / "a.html"
    page = Page(written.read_text())
    assert (page.data["q_len"], page.data["kv_len"]) == (64, 48)
    with pytest.raises(MaskValueError, match="cannot be written: "):
        explore(causal, 64, path=tmp_path)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "mask.html"
    assert main(["explore", "causal & sliding(16)", "--len", "512", "-o", str(target)]) == 0
    assert capsys.readouterr().out.startswith(f"{target}  ")
    assert Page(target.read_text()).data["q_len"] == 512
    assert Page(target.read_text()).data["bias"] is None
    assert main(["explore", "causal + alibi([0.5, 2.0])", "--len", "64", "-o", str(target)]) == 0
    capsys.readouterr()
    data = Page(target.read_text()).data
    assert (data["title"], data["heads"]) == ("causal + alibi(slopes[2])", 2)
    assert data["bias"]["adds"] and not data["bias"]["alone"]
    assert main(["explore", "causal", "-o", str(tmp_path / "no" / "mask.html")]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "cannot be written: No such file" in told
    assert main(["explore", "causal & slidng(16)"]) == 2
    assert "Did you mean sliding?" in capsys.readouterr().err


def test_limits_of_reads_at_computed_positions() -> None:
    """Entries before the first may be read where the pairs are dropped; past the last, nowhere."""
    flags = table(torch.ones(30).bool(), "flags")
    found = {
        "0": flags[20 - kv_idx],
        "-Infinity": flags[kv_idx].at(kv=20 - kv_idx),
    }
    for least, mask in found.items():
        text = payload(mask, Lengths(1, 20)).script
        assert f'name: "flags", slot: 0, axis: 0, least: {least}, range:' in text
