"""`maskalg explain`: what a call would choose on this machine."""

from __future__ import annotations

import pytest
import torch

import maskalg as ma
from maskalg.cli import main


def test_it_prints_what_explain_says(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--len=70", "--kv-len=90", "--heads=4", "--kv-heads=2", "--head-dim=16"]
    assert main(["explain", "causal + alibi([0.5] * 4)", "--device=cpu", *arguments]) == 0
    q, k = torch.empty(1, 4, 70, 16), torch.empty(1, 2, 90, 16)
    wanted = ma.explain(q, k, k, ma.causal + ma.alibi([0.5] * 4))
    assert capsys.readouterr().out == f"{wanted}\n"


def test_dtypes_choose_other_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "causal", "--device=cpu", "--dtype=fp64"]) == 0
    assert "tiles by torch's operations" in capsys.readouterr().out


def test_what_does_not_fit_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "causal + alibi([0.5] * 4)", "--device=cpu"]) == 2
    found = capsys.readouterr()
    assert found.out == "" and found.err.startswith("maskalg explain: slopes of shape [4]")


@pytest.mark.parametrize("device", ["tpu", "cuda:x", "cuda:99"])
def test_a_device_that_is_not_here_is_one_line(
    device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "causal", "--device", device]) == 2
    found = capsys.readouterr().err
    assert found.startswith("maskalg explain: argument --device: ") and device in found
    assert found.count("\n") == 1 and "cpu" in found
