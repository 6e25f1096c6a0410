"""The walk over tiles, proved; and wrong texts of it, refused at the step that fails."""

import itertools
from datetime import date

import pytest
import torch

from maskalg.schedule.tile_runs import marked_runs_of
from maskalg.verifier.claims import Claim
from maskalg.verifier.reading.triton import kernel_source
from maskalg.verifier.walk import claims as walk_of_kernels
from maskalg.verifier.walk.claims import walk_claims

from .refusals import refused

pytest.importorskip("z3")

WRONG = [
    # a missing tile at the end, or one too many
    ("runs", "high // BLOCK + 1", "high // BLOCK"),
    ("runs", "high // BLOCK + 1", "(high + 1) // BLOCK + 1"),
    ("runs", "where(start < b, start, NO_TILE)", "where(start <= b, start, NO_TILE)"),
    ("runs", "where(start < b, start, NO_TILE)", "where(start < b - 1, start, NO_TILE)"),
    # a start that is one off
    ("runs", "some, low // BLOCK, 0", "some, low // BLOCK + 1, 0"),
    ("runs", "start = tl.maximum(a, j)", "start = tl.maximum(a, j + 1)"),
    ("runs", "j = tl.zeros((), tl.int32)\n", "j = tl.zeros((), tl.int32) + 1\n"),
    ("runs", "tile += 1", "tile += 2"),
    ("runs", "first = tl.where(from_last == 1, count - b, a)",
     "first = tl.where(from_last == 1, count - b + 1, a)"),
    ("runs", "count = (kv_len + BLOCK - 1) // BLOCK\n    ragged",
     "count = kv_len // BLOCK\n    ragged"),
    # a masked run taken for a full one
    ("runs", "ragged = kv_len // BLOCK\n    cut_until",
     "ragged = kv_len // BLOCK + 1\n    cut_until"),
    ("runs", "(c <= first) & (first < d), d, first", "(c < first) & (first < d), d, first"),
    ("runs", "(first < c) & (c < d), c, NO_TILE", "(first < c) & (c < d), d, NO_TILE"),
    ("runs", "partial = cut_until > first\n", "partial = cut_until > first + 1\n"),
    ("runs", "tl.where(partial, cut_until, cut_from)", "cut_until"),
    ("runs", "last_full = tl.where(partial, first, end)", "last_full = end"),
    # tiles twice
    ("runs", "state = VISIT(state, of, place, last_full, end,",
     "state = VISIT(state, of, place, first, end,"),
    ("runs", "        j = end\n", "        j = end - 1\n"),
    ("runs", "        j = end\n", "        j = end + 1\n"),
    # parts that overlap, leave a gap, or take steps of the wrong size
    ("decode", "return split + (j - split + splits - 1)", "return split + (j - split + splits)"),
    ("decode", "return split + (j - split + splits - 1)", "return split + (j - split)"),
    ("decode", "j = _next_of_split(end, split, splits)", "j = end + splits"),
    ("decode", "        first = _next_of_split(first, split, splits)\n", ""),
    ("decode", "paged, unit, row_unit, splits)", "paged, unit, row_unit, 1)"),
    ("decode", "paged, unit, row_unit, splits)", "paged, unit, row_unit, splits + 1)"),
    ("decode", "    j = split\n", "    j = split + 1\n"),
    ("decode", "            True if PAGE > 0 else partial,\n", "            False,\n"),
]  # fmt: skip


def test_the_walk_is_proved():
    found = list(walk_claims())
    assert len(found) >= 10
    assert [claim for claim in found if claim.outcome != "proved"] == []


@pytest.mark.parametrize("file, old, new", WRONG)
def test_a_wrong_walk_is_refused(file, old, new):
    text = kernel_source(file)
    assert old in text
    refused({file: text.replace(old, new)}, lambda name: "mark" not in name)


WRONG_MARKS = [
    # one row of labels
    ("_marked_run", "low = tl.minimum(code >> 1, columns)",
     "low = tl.minimum(code >> 1, columns - 1)"),
    ("_marked_run", "(code % 2 == 0) & (low <= first * BLOCK)", "(code % 2 == 0)"),
    ("_marked_run", "(code % 2 == 0) & (low", "(code % 2 == 1) & (low"),
    ("_marked_run", "whole, high // BLOCK, first)", "whole, (high + BLOCK - 1) // BLOCK, first)"),
    ("_marked_run", "(high + BLOCK - 1) // BLOCK, first + 1)", "high // BLOCK, first + 1)"),
    ("_marked_run", "first = tl.maximum(low, start) // BLOCK", "first = low // BLOCK"),
    ("_marked_run", "inside = column < columns", "inside = column <= columns"),
    ("_marked_run", "(row * columns + column) * 2", "(row * columns + column) * 2 + 2"),
    ("_marked_run", "tl.load(entry + 1", "tl.load(entry"),
    # rows together
    ("run_of_marks", "tl.where(first == found, tl.minimum(full, whole), tl.minimum(first, found))",
     "tl.where(first == found, full, tl.minimum(first, found))"),
    ("run_of_marks", "tl.where(first == found, tl.minimum(full, whole), tl.minimum(first, found))",
     "tl.minimum(full, whole)"),
    ("run_of_marks", "row = tl.minimum(row + 1, last)", "row = tl.minimum(row + 2, last)"),
    ("run_of_marks", "        row += 1\n", "        row += 2\n"),
    ("run_of_marks", "(q1 >> grain_bits)", "(q1 >> grain_bits) - 1"),
    ("run_of_marks", "tl.where(masked, partial, full), masked", "full, masked"),
    # from the last column
    ("run_of_marks_either_way", "* 2 + from_last", "* 2"),
    ("run_of_marks_either_way", "(kv_len + BLOCK - 1) // BLOCK)\n    length",
     "kv_len // BLOCK)\n    length"),
    ("run_of_marks_either_way", "tl.where(none, end, end - skipped)", "end"),
    # with intervals
    ("run_of_spans_and_marks", "while (found >= end) &", "while (found > end) &"),
    ("run_of_spans_and_marks", "tl.minimum(end, until)", "until"),
]  # fmt: skip


@pytest.mark.parametrize("function, old, new", WRONG_MARKS)
def test_wrong_runs_of_labels_are_refused(function, old, new):
    text = kernel_source("runs")
    assert old in text
    refused({"runs": text.replace(old, new)}, lambda name: name == f"runs.{function}")


def test_stored_runs_are_what_the_proof_assumes_of_them():
    """Of every row of up to six labels: the run at or after each cell, and what it says."""
    for columns in range(1, 7):
        every = torch.tensor(list(itertools.product((0, 1, 2), repeat=columns)), dtype=torch.uint8)
        for labels, row in zip(every.tolist(), marked_runs_of(every).tolist(), strict=True):
            for column, (code, past) in enumerate(row):
                first, partial = code >> 1, code & 1
                assert not any(labels[column:first])
                if first >= columns:
                    assert past == columns
                    continue
                assert column <= first < past <= columns
                assert set(labels[first:past]) == ({1} if partial else {2})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("range(j, end, 128)", "range(j + 1, end, 128)"),
        ("range(j, end, 128)", "range(j, end, 129)"),
        ("mask=at < end)", "mask=at <= end)"),
        ("NEXT_RUN(end, 0,", "NEXT_RUN(end + 1, 0,"),
        ("range(0, tiles, 128)", "range(0, tiles - 1, 128)"),
        ("tl.full([128], 1,", "tl.full([128], 2,"),
        ("at = first + tl.arange(0, 128)", "at = first + 2 * tl.arange(0, 128)"),
    ],
)
def test_wrong_visits_are_refused(old, new):
    text = kernel_source("gradient_sums")
    assert old in text
    (claim,) = refused({"gradient_sums": text.replace(old, new)})
    assert claim.text.startswith("gradient_sums.visits: ")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tl.cumsum(visited, 0) - visited\n", "tl.cumsum(visited, 0)\n"),
        ("tl.store(at + rows * tiles, before", "tl.store(at + tiles, before"),
        ("tl.store(at + rows * tiles, before", "tl.store(at, before"),
        ("        earlier += tl.sum(visited, 0)\n", ""),
        (
            "range(0, rows, ROWS):\n        row = first +",
            "range(ROWS, rows, ROWS):\n        row = first +",
        ),
        (
            "range(0, rows, ROWS):\n        row = rows",
            "range(0, rows - ROWS, ROWS):\n        row = rows",
        ),
        ("row = rows - 1 - first - tl", "row = rows - first - tl"),
        ("(row >= 0)[:, None]", "(row > 0)[:, None]"),
        ("(row < rows)[:, None]", "(row <= rows)[:, None]"),
        ("later[None, :] + tl.cumsum", "earlier[None, :] + tl.cumsum"),
    ],
)
def test_wrong_turns_are_refused(old, new):
    text = kernel_source("gradient_sums")
    assert old in text
    (claim,) = refused({"gradient_sums": text.replace(old, new)})
    assert claim.text.startswith("gradient_sums.turns: ")


FIRST = "run = first_tile(span, NEXT_RUN, options.BLOCK)\n"
NEXT = "run = next_tile(run, span, options.hooks.NEXT_RUN, BLOCK)\n"
NEXT_OF_ALL = "run = next_tile(run, span, NEXT_RUN, options.BLOCK)\n"
WRONG_ON_HOPPER = [
    ("hopper_forward", "i += 1\n                run", "i += 2\n                run"),
    ("hopper_forward", "i += 1\n            run", "run"),
    ("hopper_common", FIRST, f"{FIRST}    {NEXT_OF_ALL}"),
    ("hopper_keys", NEXT, f"{NEXT}            {NEXT}"),
    ("hopper_wide_keys", "            i += 1\n", ""),
    ("hopper_common", "return i % STAGES, (i // STAGES) & 1", "return i % STAGES, i & 1"),
    ("hopper_common", "return i % STAGES, (i // STAGES) & 1", "return i & 1, (i // STAGES) & 1"),
    ("hopper_common", "return 2 * i + 1", "return 2 * i"),
    ("hopper_order", "(q_len - 1) // BLOCK", "q_len // BLOCK"),
]


@pytest.mark.parametrize("file, old, new", WRONG_ON_HOPPER)
def test_a_wrong_walk_of_hopper_is_refused(file, old, new):
    text = kernel_source(file)
    assert old in text
    refused({file: text.replace(old, new)})


def test_another_text_of_the_same_loop_is_proved():
    """A run ends before NO_TILE, or is none."""
    text = kernel_source("hopper_queries")
    old = "while run.tile < NO_TILE:"
    assert old in text
    found = list(walk_claims({"hopper_queries": text.replace(old, "while run.tile < run.end:")}))
    assert found and all(claim.holds for claim in found), found


def test_what_was_proved_of_this_text_is_kept_and_said(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked, outcome = [], ["proved"]

    def walk(only):
        asked.append(only("skeleton.joined"))
        yield Claim("walk", "f: a loop", outcome[0], "z3, in 2 steps", 3.0)

    monkeypatch.setattr(walk_of_kernels, "walk_claims", walk)
    monkeypatch.setattr(walk_of_kernels, "_listed", lambda only: [("f", "a loop", None)])
    once = walk_of_kernels.of_installed_kernels.__wrapped__
    assert [once(True)[0].by, once(True)[0].by, once(True, kept=False)[0].by] == [
        "z3, in 2 steps",
        f"proved before, on {date.today().isoformat()}: z3, in 2 steps",
        "z3, in 2 steps",
    ]
    assert asked == [True, True]
    (file,) = (tmp_path / "maskalg" / "verified").iterdir()
    for text in ("", "[]", '{"date": "x", "claims": []}', '{"date": "x", "claims": [["g", "h"]]}'):
        file.write_text(text)
        assert once(True)[0].by == "z3, in 2 steps"
    del asked[2:]
    monkeypatch.setattr(walk_of_kernels, "_digest", lambda: "another text")
    outcome[0] = "not proved"
    assert [once(True)[0].outcome for _ in range(2)] == ["not proved"] * 2
    assert len(asked) == 4


def test_another_text_has_another_digest(tmp_path):
    digests = set()
    for text in ("a > b", "a < b"):
        (tmp_path / "runs.py").write_text(text)
        digests.add(walk_of_kernels._digest([tmp_path]))
    assert len(digests) == 2 and walk_of_kernels._digest() not in digests
