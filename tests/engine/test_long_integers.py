"""Integers past 64 bits against Python's, at sizes where carries, signs and quotients go wrong."""

import random

import pytest
import torch

import maskalg as ma
from maskalg.engine import evaluate
from maskalg.engine import long_integers as longs

COUNT = 4000
NEAR = (0, 1, 2, 31, 32, 33, 62, 63, 64, 65, 95, 127, 128, 129, 190)


def numbers(bits, seed):
    rng = random.Random(seed)
    found = []
    for _ in range(COUNT):
        size = min(rng.choice((*NEAR, bits - 1, bits)), bits)
        most = 2**size - 1
        number = rng.choice(
            (rng.randint(0, most), most, 2**size // 2, max(most - rng.randrange(9), 0))
        )
        found.append(rng.choice((number, -number)))
    return found


def packed(values, limbs):
    parts = [longs.of_number(value, limbs, torch.device("cpu")) for value in values]
    return tuple(torch.stack([part[i] for part in parts]) for i in range(limbs))


def unpacked(long):
    *low, high = [limb.tolist() for limb in long]
    rows = zip(*low, high, strict=True)
    return [
        sum((part % 2**64 if i < len(row) - 1 else part) << 64 * i for i, part in enumerate(row))
        for row in rows
    ]


@pytest.mark.parametrize("limbs", [2, 3, 14])
def test_operations_are_those_of_unbounded_integers(limbs):
    bits = 64 * limbs - 2
    assert longs.limbs_for(bits) == limbs == longs.limbs_for(bits + 1) - 1
    a, b = numbers(bits, 0), numbers(bits, 1)
    x, y = packed(a, limbs), packed(b, limbs)
    assert unpacked(x) == a
    half = 2 ** (64 * limbs - 1)

    def wrapped(values):
        return [(value + half) % (2 * half) - half for value in values]

    pairs = list(zip(a, b, strict=True))
    assert unpacked(longs.add(x, y)) == wrapped(m + n for m, n in pairs)
    assert unpacked(longs.multiply(x, y)) == wrapped(m * n for m, n in pairs)
    assert unpacked(longs.negate(x)) == [-m for m in a]
    assert unpacked(longs.computed("min", [x, y])) == [min(pair) for pair in pairs]
    assert unpacked(longs.computed("bitxor", [x, y])) == [m ^ n for m, n in pairs]
    assert longs.at_least(x, y).tolist() == [m >= n for m, n in pairs]
    assert longs.equal(x, longs.maximum(x, y)).tolist() == [m >= n for m, n in pairs]
    assert unpacked(longs.computed("floordiv", [x, y])) == [m // max(n, 1) for m, n in pairs]
    assert unpacked(longs.computed("mod", [x, y])) == [m % max(n, 1) for m, n in pairs]
    assert longs.clamped(x).tolist() == [max(-(2**63), min(m, 2**63 - 1)) for m in a]
    assert all(
        abs(found - m) <= abs(m) * 2.0**-50
        for found, m in zip(longs.real(x).tolist(), a, strict=True)
    )


def test_integers_that_positions_and_entries_keep_within_64_bits_take_no_limbs(monkeypatch):
    """Positions and 64-bit entries might be larger; those that are read here are not."""
    places = torch.arange(40)
    mask = ((ma.q_idx * ma.kv_idx) % 7 < 3) | ((ma.table(places)[ma.kv_idx] + ma.q_idx) % 5 < 2)
    want = ((places[:, None] * places) % 7 < 3) | ((places + places[:, None]) % 5 < 2)
    with monkeypatch.context() as patched:
        patched.setattr(evaluate.longs, "of", None)
        assert torch.equal(mask.to_dense(40)[0, 0], want)
    places[39] = 2**63 - 1
    want[:, 39] = torch.tensor([(q * 39) % 7 < 3 or (2**63 - 1 + q) % 5 < 2 for q in range(40)])
    assert torch.equal(mask.to_dense(40)[0, 0], want)


def test_the_length_of_a_table_is_not_limited_by_its_entries():
    flags = torch.arange(4096) % 3 // 2

    def mod(b, h, q, k):
        return (q * flags.shape[0] * 1_000_003 * 998_244_353 + flags[k]) % 1000 < 300

    want = [
        [(q * 4096 * 1_000_003 * 998_244_353 + int(flags[k])) % 1000 < 300 for k in range(8)]
        for q in range(64)
    ]
    assert torch.equal(ma.mask(mod).to_dense(64, 8)[0, 0], torch.tensor(want))
