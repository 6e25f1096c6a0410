"""The terminal picture: literal pictures, and every character against the blocks it stands for."""

from __future__ import annotations

import io
import re

import pytest
import torch
from rich.console import Console

import maskalg as ma
from maskalg import causal, chunked, dense, dilated, document, everything, padding, prefix, sliding
from maskalg.engine.extents import Lengths
from maskalg.views.inspect import picture as picture_module
from maskalg.views.inspect import tally as tally_module
from maskalg.views.inspect.picture import fitting_block, picture
from maskalg.views.inspect.tally import tally
from maskalg.views.inspect.terminal import percent, show

CASES = [
    (causal, 1000, None, 16),
    (causal & sliding(300), 1000, None, 20),
    (causal & (sliding(100) | prefix(4)), 777, 1200, 33),
    (~(causal & sliding(5)), 40, 90, 24),
    (document(torch.arange(900) // 120) & causal, 900, None, 64),
    (chunked(64) | prefix(9), 5, 300, 12),
    (causal & dilated(4), 130, 70, 10),
    (everything, 1, 1, 8),
]


def shown(mask: ma.Mask, q_len: int, kv_len: int | None = None, *, width: int = 64) -> str:
    out = io.StringIO()
    show(mask, q_len, kv_len, width=width, console=Console(file=out))
    return out.getvalue()


def coloured(mask: ma.Mask, q_len: int, kv_len: int | None = None, *, width: int = 64) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="truecolor", width=100)
    show(mask, q_len, kv_len, width=width, console=console)
    return out.getvalue()


def inside(text: str, side: str = "│") -> list[str]:
    """The rows of characters between the sides of the frame."""
    return [line.split(side)[1] for line in text.splitlines() if line.count(side) == 2]


def test_small_masks_as_plain_text() -> None:
    assert shown(causal & (sliding(3) | prefix(1)), 8, width=8) == (
        "causal & (sliding(3) | prefix(1))\n"
        "formula  (q_idx >= kv_idx) & ((q_idx + 3 - kv_idx - 1 >= 0) & "
        "(3 - 1 >= q_idx - kv_idx) | (kv_idx < 1))\n"
        "lengths  8 queries, 8 keys\n"
        "kept     26 of 64 elements (40.6 %)\n"
        "┌─ keys ─┐\n"
        "│█▒······│ queries\n"
        "│███▒····│\n"
        "│█·▒██▒··│\n"
        "│█···▒██▒│\n"
        "└────────┘\n"
        "· empty   ▒ partial   █ full   8 x 8 blocks of 1 x 1\n"
    )


def test_few_blocks_are_drawn_larger() -> None:
    assert inside(shown(causal, 4, width=16)) == [
        "████············",
        "████············",
        "████████········",
        "████████········",
        "████████████····",
        "████████████····",
        "████████████████",
        "████████████████",
    ]


def test_header_counts_the_blocks_of_a_kernel() -> None:
    assert shown(causal, 4096).splitlines()[:6] == [
        "causal",
        "formula  q_idx >= kv_idx",
        "lengths  4,096 queries, 4,096 keys",
        "blocks   1,024 of 128 x 128: 496 empty (48.4 %), 32 partial, 496 full",
        "kept     8,390,656 of 16,777,216 elements (50.0 %)",
        "FLOPs    48.4 % of dense attention's saved",
    ]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("block", [7, 128])
def test_tallies_are_those_of_dense_evaluation(case, block) -> None:
    mask, q_len, kv_len, _ = case
    found = tally(mask, Lengths(q_len, kv_len), block)
    assert found.exact
    labels = mask.blocks(q_len, kv_len, block=block)
    assert (found.empty, found.partial, found.full) == labels.counts()
    kept = int(mask.to_dense(q_len, kv_len).sum())
    assert found.kept == (kept, kept)
    assert kept <= found.visited <= found.total


def test_tallies_that_would_take_too_long_are_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_MOST_BLOCKS", "_MOST_ELEMENTS", "_MOST_ROWS"):
        monkeypatch.setattr(tally_module, name, 0)
    mask = causal & document(torch.arange(900) % 7 // 3)
    found = tally(mask, Lengths(900), 16)
    empty, _, full = mask.blocks(900, block=16).counts()
    assert not found.exact and found.empty <= empty and found.full <= full
    assert found.kept[0] <= int(mask.to_dense(900).sum()) <= found.kept[1] == found.visited
    assert "at least" in shown(mask, 900) and "kept     between" in shown(mask, 900)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_plain_characters_are_unions_of_blocks(case: tuple[ma.Mask, int, int | None, int]) -> None:
    mask, q_len, kv_len, width = case
    rows = inside(shown(mask, q_len, kv_len, width=width))
    block = picture(mask, q_len, kv_len, cells=width).block
    zoom = len(rows[0]) // -(-(kv_len or q_len) // block)
    if zoom > 1:
        wanted = mask.blocks(q_len, kv_len, block=block).labels[0, 0]
        wanted = wanted.repeat_interleave(zoom // 2, 0).repeat_interleave(zoom, 1)
    else:
        wanted = mask.blocks(q_len, kv_len, block=(2 * block, block)).labels[0, 0]
    assert rows == ["".join("·▒█"[label] for label in row) for row in wanted.tolist()]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_half_blocks_are_the_labels(case: tuple[ma.Mask, int, int | None, int]) -> None:
    mask, q_len, kv_len, width = case
    found = _decoded(coloured(mask, q_len, kv_len, width=width))
    labels = picture(mask, q_len, kv_len, cells=width).labels
    zoom = found.shape[1] // labels.shape[1]
    wanted = labels.repeat_interleave(zoom, 0).repeat_interleave(zoom, 1)
    assert found[: len(wanted)].equal(wanted)
    assert not found[len(wanted) :].any()
    block = fitting_block(q_len, kv_len or 0, width)
    assert labels.equal(mask.blocks(q_len, kv_len, block=block).labels[0, 0])


def _decoded(text: str) -> torch.Tensor:
    """Labels read back from escape codes: half blocks in orange (1) and blue (2)."""
    colours = {"224;138;30": 1, "59;120;231": 2}
    rows: list[list[int]] = []
    for line in text.splitlines():
        if line.count("│") != 2:
            continue
        upper, lower = [], []
        front = back = 0
        for code, character in re.findall(r"\x1b\[([0-9;]*)m|(.)", line):
            if not character:
                parts = re.search(r"38;2;(\d+;\d+;\d+)(?:;48;2;(\d+;\d+;\d+))?", code)
                front = colours[parts[1]] if parts else 0
                back = colours[parts[2]] if parts and parts[2] else 0
            elif character in "▀▄█":
                upper.append(back if character == "▄" else front)
                lower.append(back if character == "▀" else front)
            elif character == " ":
                upper.append(0)
                lower.append(0)
            elif upper:
                break
        rows += [upper, lower]
    return torch.tensor(rows, dtype=torch.uint8)


def test_piped_output_has_no_escape_codes() -> None:
    assert "\x1b" not in shown(causal & sliding(64), 1024)
    assert "\x1b" in coloured(causal & sliding(64), 1024)


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "▒" in coloured(causal & sliding(64), 1024)


def test_ascii_only_output() -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    show(causal, 32, width=8, console=Console(file=file))
    file.flush()
    text = raw.getvalue().decode("ascii")
    assert text.isascii()
    assert inside(text, "|") == ["++......", "##++....", "####++..", "######++"]


def test_a_narrow_terminal_narrows_the_picture() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system=None, width=34)
    show(causal, 4096, console=console)
    assert {len(row) for row in inside(re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()))} == {32}


def test_first_batch_entry_and_head_are_named() -> None:
    lengths = torch.tensor([8, 2, 5])
    text = shown(padding(lengths), 16, width=8)
    assert "note     batch entry 0 of 3\n" in text
    assert inside(text) == ["████····"] * 4
    per_head = ma.q_idx - ma.kv_idx < ma.table(torch.tensor([1, 9]))[ma.head]
    assert "note     head 0 of 2\n" in shown(causal & per_head, 16)
    bare = ma.q_idx - ma.kv_idx < ma.head + 1
    text = shown(causal & bare, 8, width=8)
    assert "note     head 0\n" in text
    assert inside(text) == inside(shown(causal & sliding(1), 8, width=8))


def test_another_batch_entry_and_head(capsys: pytest.CaptureFixture[str]) -> None:
    windows = torch.tensor([[1, 2], [9, 64]])
    for batch, head in ((0, 1), (1, 0)):
        (causal & sliding(windows)).show(16, width=16, entry=batch, head=head)
        text = capsys.readouterr().out
        assert f"note     batch entry {batch} of 2\nnote     head {head} of 2\n" in text
        assert inside(text) == inside(
            shown(causal & sliding(int(windows[batch, head])), 16, width=16)
        )
    with pytest.raises(ValueError, match="show: head must be below 2"):
        (causal & sliding(windows)).show(16, head=2)
    with pytest.raises(ValueError, match="show: entry must be an integer >= 0, got -1"):
        causal.show(16, entry=-1)


def test_no_queries() -> None:
    text = shown(causal, 0, 16)
    assert "0 queries, 16 keys" in text
    assert text.endswith("no blocks\n")


@pytest.mark.parametrize(
    "mask",
    [
        causal & (sliding(1000) | prefix(4)),
        causal & dilated(7),
        document(torch.arange(1 << 20) // 3000) & causal,
        document(torch.arange(1 << 20) % 50) & causal,
    ],
    ids=["window", "dilated", "documents", "scattered"],
)
def test_a_million_positions_are_shown(mask: ma.Mask) -> None:
    # Evaluated element by element, this would take hours and terabytes.
    assert "1,048,576 queries" in shown(mask, 1 << 20)


def test_pictures_too_long_to_evaluate_are_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(picture_module, "_MOST_ELEMENTS", 0)
    for mask in [
        causal & document(torch.randint(0, 3, (200,))),
        causal & sliding(40) & dense(torch.rand(200, 200) < 0.5),
        ma.q_idx * ma.kv_idx >= 5000,
    ]:
        found = picture(mask, 200, None, cells=25)
        exact = mask.blocks(200, block=8).labels[0, 0]
        assert "may be empty or full" in found.notes[0]
        decided = found.labels != 1
        assert found.labels[decided].equal(exact[decided])


def test_kept_share_holds_the_truth() -> None:
    for mask, q_len, kv_len, width in CASES:
        least, most = picture(mask, q_len, kv_len, cells=width).kept_share()
        true = float(mask.to_dense(q_len, kv_len).float().mean())
        assert least - 1e-6 <= true <= most + 1e-6


def test_percent() -> None:
    assert [percent(share) for share in (0, 1e-6, 0.5, 0.12345, 1 - 1e-6, 1)] == [
        "0 %",
        "< 0.1 %",
        "50.0 %",
        "12.3 %",
        "> 99.9 %",
        "100 %",
    ]


def test_errors() -> None:
    with pytest.raises(ValueError, match="show: width must be an integer >= 8, got 3"):
        causal.show(16, width=3)
    with pytest.raises(TypeError, match="width must be an integer >= 8, got 'wide' of type str"):
        causal.show(16, width="wide")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="q_len must be an integer >= 0, got -1"):
        causal.show(-1)


def test_show_prints(capsys: pytest.CaptureFixture[str]) -> None:
    causal.show(4)
    assert capsys.readouterr().out.startswith("causal\nformula  q_idx >= kv_idx\n")


def test_long_sequences_are_counted_in_larger_blocks(capsys):
    """Runs are found row by row: two thousand million positions have no more than 65,536 rows."""
    ma.causal.show(2**31 - 1, width=16)
    text = capsys.readouterr().out
    assert f"{65536**2:,} of 32768 x 32768" in text and "50.0 %" in text
