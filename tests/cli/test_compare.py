"""`maskalg compare`: verdicts, exit status, and pictures of the difference."""

from __future__ import annotations

import pytest

from maskalg.cli import main

VERDICTS = [
    ("causal & sliding(4)", "window(3, 0)", 0, "equivalent, at every position"),
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


def test_a_difference(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "causal & sliding(2)", "sliding(2)", "--len", "6"]) == 1
    assert capsys.readouterr().out == (
        "A  causal & sliding(2)\n"
        "B  sliding(2)\n"
        "\n"
        "A implies B, and B does not imply A, at 6 queries and 6 keys\n"
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
    assert "A implies B, and B does not imply A, at 1,048,576 queries" in out


def test_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, says in [
        (["causal", "caussal"], "Did you mean causal?"),
        (["causal"], "the following arguments are required: B"),
        (["causal", "causal", "--kv-len", "4"], "kv_len=4 was given without q_len"),
        (["document([1, 2])", "document([1, 2])", "--len", "3"], "has 2 entries"),
    ]:
        assert main(["compare", *arguments]) == 2
        assert says in capsys.readouterr().err
