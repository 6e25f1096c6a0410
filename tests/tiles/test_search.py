"""The search with a launcher and a clock that are given: no device, no time."""

from dataclasses import dataclass, field, replace

import pytest
import torch

from maskalg import errors
from maskalg.bench.tuning import LEAST_GAIN, search
from maskalg.tiles.shapes import HopperBackwardTile, Tile
from maskalg.tiles.tuned.candidates import first_candidates, table_tiles
from maskalg.tiles.tuned.choices import Key, text

KEY = Key("keys", 64, 2, "banded", False)
DEFAULT = table_tiles("sm_90", KEY)[0]
ROUNDS = 5
RIGHT = torch.ones(1, 2, 8, 4, dtype=torch.bfloat16)


@dataclass
class Fake:
    """A case in which a tile takes so many milliseconds: 10 where nothing is said."""

    times: dict = field(default_factory=dict)
    problems: dict = field(default_factory=dict)
    wrong: tuple = ()
    architecture: str = "sm_90"
    missing: type = int

    def table(self, kernel):
        assert kernel == KEY.kernel
        return table_tiles(self.architecture, KEY)

    def serves(self, tile):
        return not isinstance(tile, self.missing)

    def run(self, kernel, tile):
        def run():
            if tile in self.problems:
                raise RuntimeError(self.problems[tile])
            return (RIGHT + 0.2 if tile in self.wrong else RIGHT, RIGHT)

        run.tile, run.case = tile, self
        return run

    def attempt(self, run):
        try:
            return run()
        except RuntimeError as problem:
            return str(problem)


def clock(functions, rounds, drift=(1.0,)):
    """Times of a fake's tiles; `drift` multiplies the last function's, round by round."""
    times = {}
    for name, run in functions.items():
        last = name == list(functions)[-1]
        times[name] = [
            run.case.times.get(run.tile, 10.0) * (drift[i % len(drift)] if last else 1.0)
            for i in range(rounds)
        ]
    return times


def test_the_tables_tile_stays_where_nothing_is_faster():
    found = search(KEY, [Fake()], clock, ROUNDS)
    assert (found.default, found.best, found.kept, found.ratio) == (DEFAULT, DEFAULT, False, 1.0)
    assert found.tried >= len(first_candidates("sm_90", KEY)) - 1 and not found.left_out


def test_the_fastest_is_found_several_steps_away():
    # A path of tiles, each faster than the one before; only the first is tried at first.
    first = Tile(128, 64, 4, 2, one_loop=True)
    steps = [first, *(replace(first, warps=8, stages=stages) for stages in (2, 3, 4))]
    assert set(steps) & set(first_candidates("sm_90", KEY)) == {first}
    times = {tile: 9.0 - i for i, tile in enumerate(steps)}
    found = search(KEY, [Fake(times)], clock, ROUNDS)
    assert found.best == steps[-1] and found.kept
    assert found.ratio == pytest.approx(10 / 6) and found.spread == pytest.approx((10 / 6, 10 / 6))


def test_less_than_the_least_gain_is_not_kept():
    tile = first_candidates("sm_90", KEY)[1]
    found = search(KEY, [Fake({tile: 10 / (1 + LEAST_GAIN - 0.001)})], clock, ROUNDS)
    assert found.best == tile and not found.kept
    assert search(KEY, [Fake({tile: 10 / (1 + LEAST_GAIN + 0.001)})], clock, ROUNDS).kept


def test_less_than_the_noise_is_not_kept():
    """The table's tile against itself is 5 % off: then 4 % say nothing."""
    tile = first_candidates("sm_90", KEY)[1]

    def noisy(functions, rounds):
        return clock(functions, rounds, drift=(1.05,))

    found = search(KEY, [Fake({tile: 10 / 1.04})], noisy, ROUNDS)
    assert found.best == tile and not found.kept
    assert found.noise == pytest.approx(1 - 1 / 1.05)
    assert search(KEY, [Fake({tile: 10 / 1.07})], noisy, ROUNDS).kept


def test_one_slow_round_does_not_decide():
    tile = first_candidates("sm_90", KEY)[1]

    def disturbed(functions, rounds):
        times = clock(functions, rounds)
        if text(tile) in times:
            times[text(tile)][0] = 100.0
        return times

    found = search(KEY, [Fake({tile: 8.0})], disturbed, ROUNDS)
    assert found.kept and found.ratio == pytest.approx(1.25)
    assert found.spread == pytest.approx((0.1, 1.25))


def test_what_computes_something_else_is_left_out():
    tile = first_candidates("sm_90", KEY)[1]
    found = search(KEY, [Fake({tile: 1.0}, wrong=(tile,))], clock, ROUNDS)
    assert found.best == DEFAULT and "from the table's" in found.left_out[tile]


def test_what_does_not_fit_is_left_out():
    tile = first_candidates("sm_90", KEY)[1]
    found = search(KEY, [Fake({tile: 1.0}, {tile: "out of resource: shared memory"})], clock, 5)
    assert found.best == DEFAULT and found.left_out == {tile: "out of resource: shared memory"}


def test_the_tables_tile_is_the_first_that_fits():
    first, second = table_tiles("sm_90", KEY)[:2]
    found = search(KEY, [Fake(problems={first: "out of resource"})], clock, ROUNDS)
    assert found.default == second
    with pytest.raises(errors.BackendError, match="no tile of the table runs here for keys D64"):
        search(KEY, [Fake(problems=dict.fromkeys(table_tiles("sm_90", KEY), "no"))], clock, ROUNDS)


def test_a_tier_that_is_not_here_is_not_tried():
    class Plain(Fake):
        def table(self, kernel):
            return tuple(t for t in super().table(kernel) if self.serves(t))

    found = search(KEY, [Plain(missing=HopperBackwardTile)], clock, ROUNDS)
    assert isinstance(found.default, Tile) and isinstance(found.best, Tile)


def test_all_cases_of_a_key_count():
    fast, even = first_candidates("sm_90", KEY)[1:3]
    one, other = Fake({fast: 5.0, even: 8.0}), Fake({fast: 12.0, even: 9.0})
    found = search(KEY, [one, other], clock, ROUNDS)
    assert found.best == even and found.kept  # the other loses by the faster
    assert found.ratio == pytest.approx((10 / 8 * 10 / 9) ** 0.5)
    assert found.spread == pytest.approx((10 / 9, 10 / 8))
    wrong = Fake({even: 9.0}, {fast: "no"}, wrong=(even,))
    found = search(KEY, [one, wrong], clock, ROUNDS)
    assert not found.kept and set(found.left_out) == {fast, even}


def test_the_same_search_finds_the_same():
    case = Fake(dict.fromkeys(first_candidates("sm_90", KEY)[1:6], 9.0))
    assert search(KEY, [case], clock, ROUNDS) == search(KEY, [case], clock, ROUNDS)
