"""Which Gluon kernels are trusted: those of tested releases of Triton, and others once compared."""

import json
import subprocess
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton", reason="needs Triton")
from maskalg.backends.triton import trust
from maskalg.backends.triton.trust import Verdict, known, verdict
from maskalg.tiles.tuned.store import Machine

pytest.importorskip("maskalg_kernels.hopper_forward", reason="needs Gluon")


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.delenv(trust.SWITCH, raising=False)
    verdict.cache_clear()
    yield
    verdict.cache_clear()


@pytest.fixture
def unknown(monkeypatch, tmp_path):
    """A release that was not tested, on a Hopper GPU; the answers of comparisons, in order."""
    answers = []

    def run(command, **_):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(returncode=answer[0], stdout=answer[1], stderr=answer[2])

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(trust, "is_tested", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(trust, "architecture", lambda device: "sm_90")
    machine = Machine("NVIDIA H200", "sm_90", "9.9.9", "digest")
    monkeypatch.setattr(trust, "this_machine", lambda device: machine)
    monkeypatch.setattr(trust.subprocess, "run", run)
    return answers


def test_tested_releases_are_trusted():
    assert verdict().serves and "tested" in verdict().why


@pytest.mark.parametrize("switch", ["0", "1"])
def test_the_switch_decides(switch, monkeypatch, unknown):
    monkeypatch.setenv(trust.SWITCH, switch)
    assert verdict() == Verdict(switch == "1", f"MASKALG_GLUON={switch}")


@pytest.mark.parametrize(
    ("answer", "serves", "why"),
    [
        ((0, "warm\nwithin 1.0e-03\n", ""), True, "within 1.0e-03"),
        ((1, "dQ differs\n", ""), False, "dQ differs"),
        ((-11, "", "Traceback\nAttributeError: no tma\n"), False, "AttributeError: no tma"),
        ((-11, "", ""), False, "ended without a word"),
        (subprocess.TimeoutExpired("python", 600), False, "did not end in 600 s"),
    ],
)
def test_others_are_compared_once(answer, serves, why, unknown, tmp_path):
    assert known() is None
    unknown.append(answer)
    with pytest.warns(UserWarning, match="not tested with Triton .*MASKALG_GLUON=0 or 1"):
        found = verdict()
    assert found.serves == serves and why in found.why
    (file,) = (tmp_path / "maskalg" / "gluon").glob("nvidia-h200-sm_90-triton-9.9.9-*.json")
    assert json.loads(file.read_text()) == {"serves": serves, "why": found.why}
    verdict.cache_clear()  # another process
    assert verdict() == found == known()


def test_a_verdict_that_cannot_be_read_is_made_anew(unknown, tmp_path):
    folder = tmp_path / "maskalg" / "gluon"
    folder.mkdir(parents=True)
    (folder / "nvidia-h200-sm_90-triton-9.9.9-digest.json").write_text("[1")
    assert known() is None
