"""Choices in the cache folder: what is written is read, and what is anything else is left alone."""

import json
from dataclasses import replace
from itertools import product

import pytest

from maskalg.tiles.patterns import PATTERNS
from maskalg.tiles.shapes import HopperTile, Tile
from maskalg.tiles.tuned import store
from maskalg.tiles.tuned.candidates import table_tiles
from maskalg.tiles.tuned.choices import KERNELS, Choice, Choices, Key

H200 = store.Machine("NVIDIA H200", "sm_90", "3.6.0", "0123456789ab")
KEY = Key("forward", 128, 2, "dense", False)
CHOICE = Choice(Tile(64, 128, 8, 3), "64x64", 1.05, (1.03, 1.08), "2026-01-02T03:04:05+00:00")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(store.SWITCH, raising=False)
    monkeypatch.setattr(store, "kernels_digest", lambda: H200.kernels)
    return tmp_path / "maskalg"


def looked_up(machine=H200):
    return store.choices_on(machine.device, machine.architecture, machine.triton)


def test_written_and_read(cache):
    choices = {}
    for kernel, pad, size in product(KERNELS, (64, 128, 256), (2, 4)):
        for pattern, biased in product(PATTERNS, (False, True)):
            key = Key(kernel, pad, size, pattern, biased)
            choices[key] = replace(CHOICE, tile=table_tiles("sm_90", key)[0])
    path = store.write(Choices(choices), H200)
    assert path.parent == cache / "tiles" and path.name.startswith("nvidia-h200-sm_90-triton-3.6.0")
    assert store.read(path, H200).by_key == choices == looked_up().by_key
    assert [p.name for p in path.parent.iterdir()] == [path.name]  # no half-written file is left
    assert json.loads(path.read_text())["device"] == "NVIDIA H200"


def test_written_over():
    store.write(Choices({KEY: CHOICE}), H200)
    store.write(Choices(), H200)
    assert looked_up().tile(KEY) is None and len(store.files()) == 1


def test_nothing_stored():
    assert looked_up().tile(KEY) is None
    assert store.files() == [] and store.forget() == []


@pytest.mark.parametrize(
    "other",
    [
        replace(H200, device="NVIDIA A100"),
        replace(H200, architecture="sm_80"),
        replace(H200, triton="3.7.0"),
        replace(H200, kernels="ba9876543210"),
    ],
    ids=lambda machine: machine.device + machine.triton,
)
def test_of_another_machine_is_not_used(other, monkeypatch):
    path = store.write(Choices({KEY: CHOICE}), H200)
    monkeypatch.setattr(store, "kernels_digest", lambda: other.kernels)
    assert looked_up(other).tile(KEY) is None
    path.rename(store.path_of(other))  # not even under its name
    assert looked_up(other).tile(KEY) is None
    with pytest.raises(store.Unusable, match="measured with"):
        store.read(store.path_of(other), other)


def broken(data):
    """Contents of a file that are not what was written, by what is wrong."""
    entry = data["choices"][0]

    def with_entry(**changes):
        return json.dumps({**data, "choices": [{**entry, **changes}]})

    hopper = {**entry["tile"], "consumer_registers": 248}
    return {
        "nothing": "",
        "half": json.dumps(data)[:100],
        "deep": "[" * 100_000,
        "a number": "3",
        "a list": "[]",
        "no choices": json.dumps({**data, "choices": None}),
        "choices of numbers": json.dumps({**data, "choices": [3]}),
        "kernel": with_entry(kernel="sideways"),
        "size": with_entry(size=100),
        "size of another type": with_entry(size=128.0),
        "biased": with_entry(biased=0),
        "tier": with_entry(tier="x"),
        "tier of another type": with_entry(tier=["plain"]),
        "fields": with_entry(tile={"block_q": 64}),
        "field of another type": with_entry(tile={**entry["tile"], "stages": True}),
        "more registers than there are": with_entry(tile=hopper),
        "ratio": with_entry(ratio="1.1"),
        "spread": with_entry(spread=[1.0]),
        "no date": with_entry(measured=None),
    }


BASE = HopperTile(2, 128, 2, 168, 240, 24, True, False)
NAMES = list(broken({"choices": [{"tile": {}}]}))


@pytest.mark.parametrize("what", NAMES)
def test_a_broken_file_is_not_used(what):
    path = store.write(Choices({KEY: replace(CHOICE, tile=BASE)}), H200)
    assert looked_up().tile(KEY) == BASE
    path.write_text(broken(json.loads(path.read_text()))[what])
    assert looked_up().tile(KEY) is None
    with pytest.raises(store.Unusable):
        store.read(path, H200)


def test_a_file_that_cannot_be_read():
    path = store.write(Choices({KEY: CHOICE}), H200)
    path.write_bytes(b"\xff\xfe\x00")
    assert looked_up().tile(KEY) is None
    path.unlink()
    path.mkdir()
    assert looked_up().tile(KEY) is None


def test_the_switch(monkeypatch):
    store.write(Choices({KEY: CHOICE}), H200)
    monkeypatch.setenv(store.SWITCH, "1")
    assert looked_up().tile(KEY) == CHOICE.tile
    monkeypatch.setenv(store.SWITCH, "0")
    assert looked_up().tile(KEY) is None


def test_forget(cache):
    paths = [store.write(Choices(), m) for m in (H200, replace(H200, device="Other GPU / 2"))]
    (cache / "hooks").mkdir()
    assert store.forget() == sorted(paths)
    assert not store.files() and (cache / "hooks").is_dir()


def test_the_digest_is_of_the_kernels(monkeypatch):
    monkeypatch.undo()
    assert len(store.kernels_digest()) == 12
    assert store.kernels_digest() == store.kernels_digest.__wrapped__()
