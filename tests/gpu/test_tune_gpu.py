"""`maskalg tune` on a GPU: what it keeps computes the same, and is used by what follows."""

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from maskalg.cli import main

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

SCORE = causal & sliding(100)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache folder of its own; what was looked up before is looked up again after."""
    from maskalg.backends.triton import tuned

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("MASKALG_TUNED", raising=False)
    tuned.look_again()
    yield tmp_path / "maskalg"
    tuned.look_again()


def inputs(dim):
    torch.manual_seed(0)
    return [
        torch.randn(2, 4, 600, dim, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    ]


def computed(tensors):
    out = ma.attention(*tensors, SCORE)
    torch.manual_seed(1)
    return [out.detach(), *torch.autograd.grad(out, tensors, torch.randn_like(out))]


def trial_of(tensors):
    from maskalg.attention import checked_call
    from maskalg.backends.triton.trial import Trial

    return Trial(checked_call(*(t.detach() for t in tensors), SCORE))


def favouring(tile):
    """A clock by which this tile is twice as fast as any other; nothing is timed."""
    from maskalg.tiles.tuned.choices import text

    return lambda runs, rounds: {
        name: [0.5 if name == text(tile) else 1.0] * rounds for name in runs
    }


@pytest.mark.parametrize("dim", [64, 128])
def test_every_candidate_computes_the_same_or_says_why_not(dim):
    from maskalg.bench.tuning import search
    from maskalg.tiles.tuned.choices import KERNELS

    trial = trial_of(inputs(dim))
    for kernel in KERNELS:
        key = trial.key(kernel)
        found = search(key, [trial], lambda runs, rounds: {n: [1.0] * rounds for n in runs}, 2)
        assert found.tried >= 3 and not found.kept
        assert not [why for why in found.left_out.values() if why.startswith("its result")]


@pytest.mark.parametrize("dim", [64, 128])
def test_what_is_kept_is_used(dim, cache):
    from maskalg.backends.triton import tuned
    from maskalg.backends.triton.plan import backward_plan_of, plan_of
    from maskalg.bench.tuning import search
    from maskalg.bench.tuning_session import store
    from maskalg.tiles.shapes import Tile
    from maskalg.tiles.tuned.candidates import first_candidates
    from maskalg.tiles.tuned.choices import KERNELS
    from maskalg.tiles.tuned.store import files

    tensors = inputs(dim)
    before = computed(tensors)
    trial, machine = trial_of(tensors), tuned.this_machine(tensors[0].device)
    chosen = {}
    for kernel in KERNELS:
        key = trial.key(kernel)
        plain = [t for t in first_candidates(trial.architecture, key) if isinstance(t, Tile)]
        chosen[kernel] = next(t for t in plain if t != trial.table(kernel)[0])
        found = search(key, [trial], favouring(chosen[kernel]), 2)
        assert found.kept and found.best == chosen[kernel]
        store(found, machine)
    tuned.look_again()
    assert len(files()) == 1

    plan = plan_of(trial._call)
    steps = backward_plan_of(trial._call, plan)
    assert (plan.hopper, plan.candidates[0]) == (None, chosen["forward"])
    assert (steps.sides["queries"].hopper, steps.sides["queries"].tiles[0]) == (
        None,
        chosen["queries"],
    )
    assert (steps.sides["keys"].hopper, steps.sides["keys"].tiles[0]) == (None, chosen["keys"])
    assert ma.explain(*tensors, SCORE).tile.endswith(", tuned")
    after = computed(tensors)
    for one, other in zip(before, after, strict=True):
        assert (one - other).abs().max() <= 2e-2 * one.abs().max()
    assert all(torch.equal(a, b) for a, b in zip(after, computed(tensors), strict=True))

    assert main(["tune", "--forget"]) == 0
    tuned.look_again()
    assert all(torch.equal(a, b) for a, b in zip(before, computed(tensors), strict=True))


def test_the_command(cache, capsys):
    """A search by the clock; whatever it finds, results are what they were."""
    tensors = inputs(64)
    before = computed(tensors)
    arguments = ["tune", "--cases", "softcap", "--dim", "64", "--forward", "--rounds", "3"]
    assert main([*arguments, "--dry-run"]) == 0
    assert not cache.exists() or not list(cache.glob("tiles/*.json"))
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "forward D64 16 bits dense, biased" in printed and "tiles  " in printed
    assert "its result is" not in printed
    assert len(list(cache.glob("tiles/*.json"))) == 1
    assert main(["doctor"]) == 0
    assert "tuned     " in capsys.readouterr().out
    for one, other in zip(before, computed(tensors), strict=True):
        assert (one - other).abs().max() <= 2e-2 * one.abs().max()
