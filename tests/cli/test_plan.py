"""`maskalg plan`: the table and the picture, JSON, and what is refused."""

from __future__ import annotations

import json

import pytest

from maskalg.cli import main


def test_table_and_picture(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["plan", "causal & sliding(4)", "--len=32", "--ranks=2", "--chunk=4", "--width=8"]
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines() == [
        "causal & sliding(4)",
        "32 tokens on 2 ranks, chunks of 4; the most work is 6.67 % above the mean",
        "rank     tokens          tiles       keys   received",
        "   0         16              7         16          0",
        "   1         16              8         20          4",
        "",
        "   0 ████····",
        "   1 ···▒████",
        "     █ queries of the rank   ▒ keys it needs   · neither",
    ]


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "causal", "--len", "1024", "--ranks", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "ranks": [
            {"queries": [[0, 256], [768, 1024]], "keys": [[0, 1024]]},
            {"queries": [[256, 768]], "keys": [[0, 768]]},
        ]
    }


def test_layers(capsys: pytest.CaptureFixture[str]) -> None:
    masks = ["causal & sliding(8)", "causal"]
    assert main(["plan", *masks, "--layers=5,1", "--len=256", "--ranks=2"]) == 0
    assert capsys.readouterr().out.startswith("causal & sliding(8), 5 layers\ncausal, 1 layers\n")


REFUSED = {
    ("causal", "--len=4", "--ranks=8"): "maskalg plan: plan: 4 tokens in chunks of 1 are 4 chunks, "
    "and 8 ranks would leave some without one. Take fewer ranks, or a smaller chunk.\n",
    (
        "causal",
        "--len=64",
        "--ranks=2",
        "--layers=1,2",
    ): "maskalg plan: --layers 1,2: must be numbers of layers, one for each expression and commas "
    "between, such as --layers 4.\n",
    ("head < 2", "--len=64", "--ranks=2"): "maskalg plan: the expression depends on `head`, and no "
    "table tells how many: pass --heads N.\n",
    ("causal", "--ranks=2"): "maskalg plan: the following arguments are required: --len\n",
}


@pytest.mark.parametrize("arguments", REFUSED)
def test_refused(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    assert main(["plan", *arguments]) == 2
    assert capsys.readouterr().err == REFUSED[arguments]
