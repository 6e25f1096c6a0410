"""`maskalg compare`: verdicts, exit status, and pictures of the difference."""

from __future__ import annotations

import subprocess
import sys

import pytest

from maskalg import causal
from maskalg.cli import main
from maskalg.questions.compare import Comparison, Side

VERDICTS = [
    ("causal & sliding(4)", "window(3, 0)", 0, "equivalent, over all positions"),
    ("document([0, 0, 1])", "document([0, 0, 1])", 0, "equivalent"),
    ("causal & sliding(4)", "causal", 1, "A implies B, and B does not imply A"),
    ("causal", "causal & sliding(4)", 1, "B implies A, and A does not imply B"),
    ("causal", "sliding(4)", 1, "different: neither implies the other"),
    ("document([0, 1, 0])", "document([0, 1, 1])", 1, "different: neither implies the other"),
    ("causal", "causal | ((q_idx * kv_idx) % 7919 == 7000)", 1, "A implies B"),
]


@pytest.mark.parametrize("a, b, status, says", VERDICTS)
def test_verdicts(capsys: pytest.CaptureFixture[str], a, b, status, says) -> None:
    assert main(["compare", a, b]) == status
    assert capsys.readouterr().out.splitlines()[3].startswith(says)


def test_among_the_heads_that_are_given(capsys: pytest.CaptureFixture[str]) -> None:
    heads = ["compare", "head < 2", "head < 3", "--heads"]
    for count, says in (("2", "equivalent"), ("3", "A implies B, and B does not imply A")):
        assert main([*heads, count]) == int(count) - 2
        line = f"{says}, over all positions of {count} heads"
        assert capsys.readouterr().out.splitlines()[3] == line


def test_one_direction_that_is_not_known() -> None:
    known, open_ = Side(causal, True, None), Side(causal, None, None)
    assert str(Comparison(known, open_)) == "A implies B; whether B implies A is not known"
    assert str(Comparison(open_, known)) == "B implies A; whether A implies B is not known"
    found = Side(causal, False, None)
    wanted = "different: A does not imply B; whether B implies A is not known"
    assert str(Comparison(found, open_)) == wanted


def test_what_is_not_compared_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "causal + alibi([1.0])", "causal"]) == 0
    assert capsys.readouterr().out.splitlines()[3:] == [
        "equivalent, over all positions",
        "Biases are not compared.",
    ]
    assert main(["compare", "causal & sliding([3, 5])", "causal & sliding([4, 5])"]) == 1
    assert "--len N asks about N positions alone" in capsys.readouterr().out.splitlines()[4]


def test_a_difference(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "causal & sliding(2)", "sliding(2)", "--len", "6"]) == 1
    assert capsys.readouterr().out == (
        "A  causal & sliding(2)\n"
        "B  sliding(2)\n"
        "\n"
        "A implies B, and B does not imply A, over 6 queries and 6 keys\n"
        "B keeps q_idx 0, kv_idx 1, A does not\n"
        "\n"
        "elements from query 0 and key 0 on\n"
        "==BB········\n"
        "====BB······\n"
        "··====BB····\n"
        "····====BB··\n"
        "······====BB\n"
        "········====\n"
        "· neither keeps   = both keep   B only B\n"
    )


def test_an_overview_of_long_sequences(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "causal", "causal & ~prefix(300)", "--len", "1000"]) == 1
    out = capsys.readouterr().out
    assert "blocks of 32 x 32: where the masks may differ\nAA··" in out
    rows = out.split("may differ\n")[1].splitlines()[:32]
    assert rows[-1] == "AA" * 10 + "==" * 22


def test_heads(capsys: pytest.CaptureFixture[str]) -> None:
    b = "where(head == 2, sliding(3), causal)"
    assert main(["compare", "causal", b, "--len", "16", "--heads", "4"]) == 1
    assert "head 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    "expression",
    ["neighborhood((1024, 1024), 13)", "causal & dilated(3)", "document(arange(1048576) % 113)"],
)
def test_a_million_tokens(capsys: pytest.CaptureFixture[str], expression: str) -> None:
    longer = f"({expression}) & prefix(1040000)"
    assert main(["compare", longer, expression, "--len", "1048576"]) == 1
    out = capsys.readouterr().out
    assert "A implies B, and B does not imply A, over 1,048,576 queries" in out


DOCUMENTS = "causal & sliding(64) & document(arange(100000) // 3000)"
RANKS = "table(arange(100000) * 7919 % 100003)"


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        # All positions there are, which the tensors tell.
        (DOCUMENTS, DOCUMENTS.replace("3000", "3001"), "different: neither implies the other"),
        (
            DOCUMENTS,
            DOCUMENTS.replace("3000", "3000 + (arange(100000) == 77777) * 999"),
            "B implies A, and A does not imply B",
        ),
        ("document(arange(90000) // 99)", "document(arange(90000) // 99 + 5)", "equivalent"),
        # One tensor, whatever it was called.
        (f"{RANKS}[q_idx] >= {RANKS}[kv_idx]", f"{RANKS}[q_idx] > {RANKS}[kv_idx]", "B implies A"),
        ("padding([1000]) & causal", "padding([999]) & causal", "B implies A, and A does not"),
        # Further than any number of the formulas, and far between.
        ("causal", "causal & ((q_idx // 7 * 5 + kv_idx // 11) % 997 != 3)", "B implies A, and A"),
    ],
)
def test_positions_are_told_by_tensors(
    capsys: pytest.CaptureFixture[str], a: str, b: str, says: str
) -> None:
    assert main(["compare", a, b]) == (0 if says == "equivalent" else 1)
    assert f"\n{says}" in capsys.readouterr().out


def test_a_place_where_tensors_differ(capsys: pytest.CaptureFixture[str]) -> None:
    ids = "arange(1048576) % 1009"
    a = f"causal & ((table({ids})[q_idx] + kv_idx) % 1009 == 5)"
    b = a.replace(ids, f"({ids} + (arange(1048576) == 777777))")
    assert main(["compare", a, b, "--len", "1048576"]) == 1
    out = capsys.readouterr().out
    assert "different: neither implies the other" in out and "q_idx 777777, kv_idx " in out


def test_unknown_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    # They are the same, and no proof looks at the entries of a tensor.
    arguments = ["compare", "document(arange(99000) % 113)", "(q_idx - kv_idx) % 113 == 0"]
    assert main([*arguments, "--len", "99000"]) == 1
    assert "not known: neither a proof nor a pair" in capsys.readouterr().out


@pytest.mark.parametrize("b, status", [("window(None, 0)", 0), ("sliding(8)", 1)])
def test_the_status_of_a_closed_pipe(b: str, status: int) -> None:
    """`maskalg compare … | head -1` has the status it has without a reader."""
    command = [sys.executable, "-m", "maskalg", "compare", "causal", b]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == status


def test_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, says in [
        (["causal", "caussal"], "Did you mean causal?"),
        (["causal"], "the following arguments are required: B"),
        (["causal", "causal", "--kv-len", "4"], "kv_len=4 was given without q_len"),
        (["document([1, 2])", "document([1, 2])", "--len", "3"], "has 2 entries"),
    ]:
        assert main(["compare", *arguments]) == 2
        assert says in capsys.readouterr().err
