"""The program that compares the Gluon kernels with the plain ones tells where they differ."""

import pytest
import torch

pytest.importorskip("triton", reason="needs Triton")
from maskalg.bench import gluon
from maskalg.bench.agreement import TOLERANCE


@pytest.mark.parametrize("far", [0.0, 1e-3, 0.5, float("nan")])
def test_results_that_differ_are_told(far, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)

    def computed(switch, kind, dim, heads, length):
        results = [torch.ones(1, 1, 8, 4) for _ in range(4)]
        if switch == "1" and dim == 128 and kind == "soft-capped":
            results[2][0, 0, 3] *= 1 + far
        return results

    monkeypatch.setattr(gluon, "computed", computed)
    differs = not far < TOLERANCE[torch.bfloat16]
    assert gluon.main(0) == int(differs)
    printed = capsys.readouterr().out
    assert ("dK of soft-capped rows of 128 dimensions differs" in printed) == differs
