"""`maskalg show`: what is printed, and what is refused."""

from __future__ import annotations

import subprocess
import sys

import pytest

from maskalg import causal, prefix, sliding
from maskalg.cli import main


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    found = capsys.readouterr()
    assert found.err == "" and "\x1b" not in found.out
    return found.out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line of a command that cannot be run."""
    assert main(list(arguments)) == 2
    found = capsys.readouterr()
    assert found.out == "" and found.err.count("\n") == 1 and found.err.endswith("\n")
    return found.err


def test_a_mask(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "show", "causal & (sliding(3) | prefix(1))", "--len", "8", "--width=8")
    (causal & (sliding(3) | prefix(1))).show(8, width=8)
    assert text == capsys.readouterr().out and "│█·▒██▒··│\n" in text


def test_lengths_block_batch_and_head(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(
        capsys, "show", "sliding([[1, 2], [3, 4]]) + softcap(30)", "--len=64", "--kv-len=128",
        "--block=16", "--entry=1", "--head=0", "--width=16",
    )  # fmt: skip
    assert "lengths  64 queries, 128 keys\n" in text
    assert "blocks   32 of 16 x 16: 21 empty (65.6 %), 11 partial, 0 full\n" in text
    assert "note     batch entry 1 of 2\nnote     head 0 of 2\n" in text


@pytest.mark.parametrize(
    "expression",
    [
        "document(lengths([3000] * 349, total=1048576)) & causal",
        "document(arange(1048576) % 7919 * 31 % 113) & causal",
        "causal & dilated(7) & document(arange(1048576) // 3000)",
        "neighborhood((64, 128, 128), 7, (2, 1, 1))",
        "(sliding(1000) | prefix(70)) & ~chunked(999) | where(head % 2 == 0, causal, dilated(3))",
        "(q_idx * kv_idx) % 1000 < 400",
    ],
)
def test_a_million_tokens(capsys: pytest.CaptureFixture[str], expression: str) -> None:
    assert "lengths  1,048,576 queries" in printed(
        capsys, "show", expression, "--len", "1048576", "--width", "16"
    )


REFUSED = {
    ("causal & slidin(4)",): "maskalg show: 'causal & slidin(4)' column 10: no name 'slidin' is "
    "known here. Did you mean sliding?\n",
    ("causal", "--len", "-3"): "maskalg show: argument --len: expected an integer >= 0 below "
    "2**31, got '-3'\n",
    ("causal", "--width", "3"): "maskalg show: show: width must be an integer >= 8, got 3.\n",
    ("softcap(30)",): "maskalg show: softcap(30.0) is a bias, which keeps every pair: there is no "
    "mask to look at. Write a mask, or mask + bias.\n",
    (
        "document([0, 1])",
        "--len",
        "4096",
    ): "maskalg show: ids of shape [2] has 2 entries along dimension 0, but "
    "the call (q_len 4096, kv_len 4096) reads 4096. Pass ids with at least 4096 entries there, or "
    "shift less. Cumulative lengths go to document.from_cu_seqlens(tensor).\n",
    ("document(lengths(10, 20))",): "maskalg show: ids has 30 entries, one a position, and 4096 "
    "positions are the default. Write --len 30.\n",
    ("nowhere.py:mask",): "maskalg show: 'nowhere.py:mask': there is no file 'nowhere.py'. Write "
    "package.module:name or path/to/file.py:name.\n",
    (): "maskalg show: the following arguments are required: EXPR\n",
}


@pytest.mark.parametrize("arguments", REFUSED, ids=str)
def test_refuses(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    assert refused(capsys, "show", *arguments) == REFUSED[arguments]


def test_a_command_that_is_misspelt(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shw", "causal"]) == 2
    assert capsys.readouterr().err.endswith("Did you mean show?\n")


def test_as_a_module_into_a_closed_pipe() -> None:
    """`python -m maskalg show … | head -1` ends without a complaint."""
    command = [sys.executable, "-m", "maskalg", "show", "causal", "--len", "64"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 0
