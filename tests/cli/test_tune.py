"""`maskalg tune` without a GPU: its errors, what it prints, keeps and forgets."""

import sys

import pytest
import torch

from maskalg.cli import doctor, machine, main
from maskalg.cli.machine import Gpu, Triton
from maskalg.tiles.patterns import PATTERNS
from maskalg.tiles.shapes import Tile
from maskalg.tiles.tuned import store
from maskalg.tiles.tuned.choices import Choice, Choices, Key

H200 = store.Machine("NVIDIA H200", "sm_90", "3.6.0", "0123456789ab")
GPU, TRITON = Gpu("NVIDIA H200", "sm_90", 140), Triton("3.6.0", "3.6.0", True, "yes")
KEY = Key("forward", 64, 2, "banded", False)
CHOICE = Choice(Tile(64, 128, 4, 2), "64x64", 1.05, (1.03, 1.08), "2026-01-02T03:04:05+00:00")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.delenv(store.SWITCH, raising=False)
    monkeypatch.setattr(store, "kernels_digest", lambda: H200.kernels)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return tmp_path / "maskalg"


@pytest.fixture
def session(monkeypatch):
    """A GPU that is not here: the searches that were asked for, and what they find."""
    pytest.importorskip("triton", reason="needs Triton")
    from maskalg.backends.triton import tuned
    from maskalg.bench import tuning_session
    from maskalg.bench.tuning import Finding

    asked = []
    default = Tile(64, 64, 4, 2)
    wrong = {Tile(32, 32, 4, 2): "its result is 3.0e-01 from the table's", Tile(16, 16, 4, 1): "no"}

    def findings(wanted):
        asked.append(wanted)
        spread = (1.03, 1.08)
        yield Finding(KEY, default, CHOICE.tile, 1.05, spread, 0.004, True, 12, wrong)
        other = Key("keys", 64, 2, "dense", False)
        yield Finding(other, default, default, 1.0, (1.0, 1.0), 0.01, False, 9, {})

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(tuned, "this_machine", lambda device: H200)
    monkeypatch.setattr(tuning_session, "findings", findings)
    return asked


def test_needs_a_gpu(capsys):
    assert main(["tune"]) == 2
    found = capsys.readouterr()
    assert found.out == "" and found.err.startswith("maskalg tune: no GPU was found")
    assert found.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--dim", "100"], "invalid choice: 100"),
        (["--dtype", "int8"], "invalid choice: 'int8'"),
        (["--rounds", "0"], "expected a positive integer"),
        (["--cases", "causl"], "--cases causl names no case. The cases: full, causal, window"),
    ],
)
def test_mistakes(arguments, says, session, capsys):
    assert main(["tune", *arguments]) == 2
    found = capsys.readouterr().err
    assert found.startswith("maskalg tune: ") and says in found and not session


def test_the_interpreter_measures_nothing(session, capsys, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert main(["tune"]) == 2
    assert "TRITON_INTERPRET=1: unset it" in capsys.readouterr().err


def test_a_cache_that_cannot_be_written(session, cache, capsys):
    cache.write_text("a file")
    assert main(["tune"]) == 2
    assert "cannot be written" in capsys.readouterr().err and not session
    assert main(["tune", "--dry-run"]) == 0


def test_what_is_asked_for(session):
    everything = ["full", "causal", "window", "document", "documents of 256", "document & window"]
    assert main(["tune", "--dry-run"]) == 0
    assert list(session[0].cases[:6]) == everything and len(session[0].cases) == 18
    assert (session[0].dims, session[0].dtype) == ((64, 128), torch.bfloat16)
    assert session[0].kernels == ("forward", "queries", "keys")
    kinds = session[0].kinds("forward", 128)
    assert set(kinds) == {(pattern, biased) for pattern in PATTERNS for biased in (False, True)}
    of_64 = session[0].kinds("forward", 64)
    assert of_64["long documents", False] == ["long documents"]
    assert kinds["dense", True] == ["alibi", "softcap"]
    of_gradients = session[0].kinds("keys", 128)
    assert set(kinds) - set(of_gradients) == {
        ("long documents", False), ("long documents", True), ("pairs", False),
        ("long paths", False), ("long paths", True),
    }  # fmt: skip
    assert of_gradients["reading", True] == [
        "document + alibi", "long documents + alibi", "rollouts + alibi",
    ]  # fmt: skip
    some = ["tune", "--dry-run", "--dim", "128", "--dtype", "float32", "--cases", "causal,alibi"]
    assert main([*some, "--forward"]) == main([*some, "--backward"]) == 0
    assert session[1].cases[:2] == ("causal", "alibi") and session[1].dims == (128,)
    assert [wanted.kernels for wanted in session[1:]] == [("forward",), ("queries", "keys")]
    assert session[1].dtype == torch.float32


def test_what_is_found_is_printed_and_kept(session, capsys):
    old = Key("keys", 64, 2, "dense", False)
    store.write(Choices({old: CHOICE, Key("keys", 128, 2, "dense", False): CHOICE}), H200)
    assert main(["tune"]) == 0
    printed = capsys.readouterr().out
    assert "x1.050 [1.030-1.080]  noise 0.4 %  12 tiles  faster: kept" in printed
    assert "best   64x128, 4 warps, 2 stages" in printed
    assert "left out: 32x32, 4 warps, 2 stages: its result is 3.0e-01" in printed
    assert "16x16" not in printed
    assert f"1 of 76 kept in {store.path_of(H200)}" in printed
    kept = store.read(store.path_of(H200), H200).by_key
    # What was measured again and not faster is the table's again; the rest is as it was.
    assert set(kept) == {KEY, Key("keys", 128, 2, "dense", False)}
    assert kept[KEY].tile == CHOICE.tile and kept[KEY].instead_of == "64x64, 4 warps, 2 stages"


def test_an_interrupted_run_keeps_what_it_found(session, capsys, monkeypatch):
    from maskalg.bench import tuning_session

    findings = tuning_session.findings

    def interrupted(wanted):
        yield next(findings(wanted))
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning_session, "findings", interrupted)
    assert main(["tune"]) == 130
    assert "interrupted\n1 of 76 kept in" in capsys.readouterr().out
    assert set(store.read(store.path_of(H200), H200).by_key) == {KEY}


def test_without_triton(session, capsys, monkeypatch):
    from maskalg import bench

    monkeypatch.delattr(bench, "tuning_session")
    monkeypatch.setitem(sys.modules, "maskalg.bench.tuning_session", None)
    assert main(["tune"]) == 2
    assert "Triton does not import" in capsys.readouterr().err


def test_a_dry_run_keeps_nothing(session, cache, capsys):
    assert main(["tune", "--dry-run"]) == 0
    assert "1 of 76 would be kept; nothing was (--dry-run)" in capsys.readouterr().out
    assert not cache.exists()


def test_a_broken_file_is_written_over(session):
    path = store.write(Choices(), H200)
    path.write_text("{")
    assert main(["tune"]) == 0
    assert set(store.read(path, H200).by_key) == {KEY}


def test_the_switch_is_named(session, capsys, monkeypatch):
    monkeypatch.setenv(store.SWITCH, "0")
    assert main(["tune"]) == 0
    assert "MASKALG_TUNED=0 is set: nothing of it is used" in capsys.readouterr().out


def test_forget(capsys):
    path = store.write(Choices({KEY: CHOICE}), H200)
    assert main(["tune", "--forget"]) == 0
    assert capsys.readouterr().out == f"deleted {path}\n" and not path.exists()
    assert main(["tune", "--forget"]) == 0
    assert capsys.readouterr().out == f"nothing was kept in {path.parent}\n"


def noted(triton=TRITON, gpus=(GPU,)):
    return [(found.used, found.note) for found in machine.tuned(triton, gpus)]


def test_doctor_says_what_is_used(monkeypatch):
    assert noted() == []
    path = store.write(Choices({KEY: CHOICE}), H200)
    held = f"NVIDIA H200: 1 tile, 2026-01-02; remove with maskalg tune --forget: {path}"
    assert noted() == [(True, held)]
    monkeypatch.setenv(store.SWITCH, "0")
    used, note = noted()[0]
    assert not used and note.startswith("set aside by MASKALG_TUNED=0: NVIDIA H200: 1 tile")


def test_doctor_says_what_is_ignored_and_why(monkeypatch):
    path = store.write(Choices({KEY: CHOICE}), H200)
    for triton, gpus, why in [
        (TRITON, (), "no GPU of this machine could use it"),
        (Triton(None, "does not import", False, ""), (GPU,), "no GPU of this machine could use it"),
        (Triton("3.7.0", "3.7.0", False, "no"), (GPU,), "measured with triton 3.6.0"),
        (TRITON, (Gpu("NVIDIA A100", "sm_80", 80),), "measured with device NVIDIA H200"),
    ]:
        assert noted(triton, gpus) == [(False, f"ignored, {why}: {path}")]
    monkeypatch.setattr(store, "kernels_digest", lambda: "another")
    assert noted() == [(False, f"ignored, measured with other kernels: {path}")]
    monkeypatch.setattr(store, "kernels_digest", lambda: H200.kernels)
    path.write_text("[" * 100_000)
    assert noted() == [(False, f"ignored, not JSON: {path}")]


def test_doctor_prints_it(monkeypatch, capsys):
    assert main(["doctor"]) == 0
    assert "tuned     nothing: tiles are those of the package's tables" in capsys.readouterr().out
    path = store.write(Choices({KEY: CHOICE}), H200)
    monkeypatch.setattr(machine, "gpus", lambda: (GPU,))
    monkeypatch.setattr(machine, "triton", lambda: TRITON)
    assert "tuned     NVIDIA H200: 1 tile, 2026-01-02; " in str(doctor.examine())
    path.write_text("")
    assert f"tuned     ignored, not JSON: {path}" in str(doctor.examine())
