"""Trials of tiles in Triton's interpreter: every tile computes what the table's computes."""

import os

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)


@pytest.fixture(scope="module")
def trial():
    from maskalg.attention import checked_call
    from maskalg.backends.triton.trial import Trial

    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, 20, 16) for _ in range(3))
    score = causal & sliding(9) + ma.alibi(torch.tensor([0.5]))
    return Trial(checked_call(q, k, v, score))


@pytest.mark.parametrize("kernel", ["forward", "queries", "keys"])
def test_tiles_agree(trial, kernel):
    from maskalg.bench.agreement import TOLERANCE, distance
    from maskalg.tiles.shapes import Tile

    (table,) = trial.table(kernel)
    wanted = trial.attempt(trial.run(kernel, table))
    assert len(wanted) == {"forward": 2, "queries": 1, "keys": 2}[kernel]
    for tile in (Tile(16, 16, 4, 1), Tile(16, 32, 4, 1, one_loop=True)):
        found = trial.attempt(trial.run(kernel, tile))
        assert not any(tensor.isnan().any() for tensor in found)
        assert distance(found, wanted) <= TOLERANCE[torch.float32]


def test_key(trial):
    from maskalg.tiles.tuned.choices import Key

    assert trial.key("keys") == Key("keys", 16, 4, "banded", True)
    assert trial.architecture == "interpreter"


def test_what_does_not_run_says_why(trial):
    def run():
        raise RuntimeError("PassManager::run failed\nmore")

    assert trial.attempt(run) == "RuntimeError: PassManager::run failed"


def test_a_tier_this_machine_lacks(trial):
    from maskalg.tiles.shapes import HopperBackwardTile

    assert not trial.serves(HopperBackwardTile(64, 2))


def test_a_search_by_a_clock_that_is_given(trial):
    """One tile is twice as fast as the others; each is launched once, and compared."""
    from maskalg.bench.tuning import search
    from maskalg.tiles.shapes import Tile
    from maskalg.tiles.tuned.choices import text

    fast = Tile(32, 16, 4, 2)

    def clock(runs, rounds):
        return {name: [0.5 if name == text(fast) else 1.0] * rounds for name in runs}

    found = search(trial.key("forward"), [trial], clock, 3)
    assert (found.default, found.best, found.ratio) == (Tile(32, 16, 4, 1), fast, 2.0)
    assert found.kept and found.tried >= 3 and not found.left_out
