"""`maskalg doctor`: what it says of machines we have and of machines we do not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import maskalg as ma
from maskalg.cli import doctor, machine, main
from maskalg.cli.machine import Gpu, Triton

TESTED = Triton("3.6.0", "3.6.0", True, "yes")
OTHER = Triton("9.9.0", "9.9.0", False, "compared with the plain kernels at the first call")
ABSENT = Triton(None, "does not import", False, "needs Triton")
H200, A100, MI300 = (Gpu(n, a, 80) for n, a in (("H", "sm_90"), ("A", "sm_80"), ("M", "gfx942")))


def test_report_is_printed_and_status_is_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    for name in (f"maskalg   {ma.__version__}", f"torch     {torch.__version__}", "cache     "):
        assert name in printed
    for name in ("triton", "cpu", "reference"):
        assert f"backend   {name}" in printed
    assert "extra     transformers" in printed
    assert "extra     dev" not in printed


def test_json_holds_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["maskalg"] == ma.__version__
    runs = {backend["name"]: backend["runs"] for backend in report["backends"]}
    usable = torch.cuda.is_available() and report["triton"]["version"] is not None
    assert runs == {"triton": usable, "cpu": True, "reference": True}
    assert report["cache"]["path"] == str(ma.cache_dir())


@pytest.mark.parametrize(
    ("triton", "gpus", "plain", "hopper", "why"),
    [
        (TESTED, (H200,), True, True, "half precision"),
        (TESTED, (A100, H200), True, True, "half precision"),
        (TESTED, (A100,), True, False, "needs sm_90, found sm_80"),
        (TESTED, (MI300,), True, False, "needs sm_90, found gfx942"),
        (OTHER, (H200,), True, False, "at the first call"),
        (TESTED, (), False, False, "no GPU"),
        (ABSENT, (H200,), False, False, "does not import"),
    ],
)
def test_tiers_and_why_not(
    triton: Triton, gpus: tuple[Gpu, ...], plain: bool, hopper: bool, why: str
) -> None:
    tiers = doctor.tiers(triton, gpus)
    assert [tier.used for tier in tiers] == [plain, hopper]
    assert why in tiers[1].note
    assert doctor.backends(triton, gpus)[0].runs == plain


def test_missing_extra_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    version = machine.metadata.version

    def without_matplotlib(name: str) -> str:
        if name == "matplotlib":
            raise machine.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(machine.metadata, "version", without_matplotlib)
    assert machine.extras()["plot"] == "no: matplotlib is missing: pip install 'maskalg[plot]'"


def test_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert machine.cache() == machine.Cache(str(tmp_path / "maskalg"), 0, 0, True)
    assert not (tmp_path / "maskalg").exists()
    (tmp_path / "maskalg").write_text("a file")
    assert not machine.cache().writable
    assert "stay in memory" in machine.cache().note


def test_without_triton() -> None:
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "from maskalg.cli import main; sys.exit(main(['doctor']))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "does not import" in result.stdout


def test_a_gpu_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that is not here: torch's answers, and a driver that answers."""
    properties = SimpleNamespace(name="NVIDIA H200", major=9, minor=0, total_memory=150 * 10**9)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: properties)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    driver = tmp_path / "nvidia-smi"
    driver.write_text("#!/bin/sh\necho 580.95\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    report = doctor.examine()
    assert report.gpus == (Gpu("NVIDIA H200", "sm_90", 140),)
    assert report.torch.endswith("CUDA 13.0, driver 580.95")
    assert "GPU       NVIDIA H200, sm_90, 140 GiB" in str(report)
    driver.write_text("#!/bin/sh\nexit 9\n")
    assert machine.torch_build().endswith("driver unknown")


def test_why_torch_has_no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "is built without CUDA and ROCm" in machine.why_no_gpu()
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert machine.why_no_gpu() == "torch finds no device, and there is no nvidia-smi"
