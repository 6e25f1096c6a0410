"""`maskalg bench` without a GPU: its cases, its report, and its errors."""

import pytest
import torch

from maskalg.bench.cases import cases, documents
from maskalg.bench.measure import Row, kept_pairs
from maskalg.bench.report import line, markdown, summary
from maskalg.cli import main


def test_needs_a_gpu(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["bench"]) == 2
    found = capsys.readouterr()
    assert found.out == "" and found.err.startswith("maskalg bench: no CUDA device was found")


def test_a_case_that_is_not_there(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert main(["bench", "--cases", "causl"]) == 2
    assert "--cases causl names no case. The cases: D128 full" in capsys.readouterr().err


@pytest.mark.parametrize("rounds", ["0", "x"])
def test_rounds(rounds, capsys):
    assert main(["bench", "--rounds", rounds]) == 2
    assert "expected a positive integer" in capsys.readouterr().err


def test_functions_for_the_peers_keep_the_same():
    length = 700
    at = torch.arange(length)
    for name, case in cases("cpu").items():
        if not name.startswith("D128") or case.mask_mod is None:
            continue
        ours = case.expression if hasattr(case.expression, "to_dense") else case.expression.mask
        theirs = case.mask_mod(0, 0, at[:, None], at[None, :])
        assert torch.equal(ours.to_dense(length, heads=1)[0, 0], theirs), name


def test_kept_pairs():
    found = cases("cpu")
    assert kept_pairs(found["D128 causal"]) == 8192 * 8193 // 2
    assert kept_pairs(found["D128 window"]) == 1024 * 1025 // 2 + (8192 - 1024) * 1024
    sizes = documents(8192, 256, "cpu").unique(return_counts=True)[1]
    assert kept_pairs(found["D128 documents of 256"]) == int((sizes * (sizes + 1) // 2).sum())


def test_report():
    times = {"maskalg": [1.0, 2.0, 1.5], "FlexAttention": [3.0, 3.0, 3.0]}
    row = Row("D64 causal", times, 1.5e12, 1e-3, {"cuDNN": "RuntimeError: no"})
    assert "maskalg 1.500 [1.000-2.000] 1000T" in line(row)
    assert "FlexAttention 3.000 [3.000-3.000] 500T x2.00" in line(row)
    assert "cuDNN failed (RuntimeError: no)" in line(row)
    assert markdown([row]).splitlines()[-1] == (
        "| D64 causal | 1.500 [1.000-2.000] 1000T | 3.000 x2.00 |"
    )
    assert summary([row]) == "times faster than  FlexAttention 2.00 (2.00-2.00)"
