"""Whether kernels would be launched on another device than that of the inputs."""

import pytest
import torch

pytest.importorskip("triton", reason="needs Triton")
from maskalg.backends.triton.launching.launch import elsewhere


@pytest.mark.parametrize("current", [0, 1])
def test_the_current_device_is_asked_for(current, monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    assert elsewhere(torch.device("cuda", 1 - current))
    assert not elsewhere(torch.device("cuda", current))


def test_other_devices_have_no_current_one(monkeypatch):
    monkeypatch.delattr(torch.cuda, "current_device")
    assert not elsewhere(torch.device("cpu"))
