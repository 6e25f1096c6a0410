"""The kernel library's runs of tiles, against their definition."""

import os
import random

import pytest
import torch

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs TRITON_INTERPRET=1", allow_module_level=True)

import triton
import triton.language as tl
from maskalg_kernels.runs import (
    run_of_marks,
    run_of_marks_either_way,
    run_of_spans,
    run_of_spans_and_marks,
    run_of_spans_either_way,
)

from maskalg import everything
from maskalg.engine.extents import Extents
from maskalg.engine.normal_form import bound
from maskalg.schedule.tile_runs import marked_runs_of, marks_of
from maskalg.schedule.tiling import Tiling

ONE_WAY = 2
WAYS = pytest.mark.parametrize("way", [ONE_WAY, 0, 1])


@triton.jit
def walk(out, T0, T1, U0, U1, U2, kv_len, BLOCK: tl.constexpr, WAY: tl.constexpr):
    touched = (
        (tl.load(T0), tl.load(T0 + 1)),
        (tl.load(T1), tl.load(T1 + 1)),
    )
    unfull = (
        (tl.load(U0), tl.load(U0 + 1)),
        (tl.load(U1), tl.load(U1 + 1)),
        (tl.load(U2), tl.load(U2 + 1)),
    )
    j = tl.zeros((), tl.int32)
    for i in range(12):
        if WAY == 2:
            first, end, partial = run_of_spans(j, touched, unfull, kv_len, BLOCK)
        else:
            first, end, partial = run_of_spans_either_way(j, WAY, touched, unfull, kv_len, BLOCK)
        tl.store(out + 3 * i, first)
        tl.store(out + 3 * i + 1, end)
        tl.store(out + 3 * i + 2, partial.to(tl.int32))
        j = tl.minimum(end, 1 << 30)


def _runs(touched, unfull, kv_len, block, way):
    out = torch.zeros(12, 3, dtype=torch.int32)
    pairs = [torch.tensor(pair, dtype=torch.int32) for pair in (*touched, *unfull)]
    walk[(1,)](out, *pairs, kv_len, block, way)
    return [(a, b, bool(p)) for a, b, p in out.tolist() if a < 1 << 30]


@WAYS
def test_runs_are_disjoint_ordered_and_labelled(way):
    rng = random.Random(0)

    def interval(tiles):
        a, b = sorted((rng.randint(0, tiles), rng.randint(0, tiles)))
        return (a, b) if rng.random() < 0.85 else (0, 0)

    for _ in range(60):
        tiles, block = rng.randint(1, 9), 4
        kv_len = tiles * block - rng.randint(0, 3)
        touched = [interval(tiles) for _ in range(2)]
        unfull = [interval(tiles) for _ in range(3)]
        want = {}
        for j in range(tiles):
            if any(a <= j < b for a, b in touched):
                ragged = j == tiles - 1 and kv_len % block != 0
                want[j] = ragged or any(c <= j < d for c, d in unfull)
        got, last = {}, 0
        for first, end, partial in _runs(touched, unfull, kv_len, block, way):
            assert last <= first < end
            last = end
            for j in range(first, end):
                got[tiles - 1 - j if way == 1 else j] = partial
        assert got == want, (touched, unfull, kv_len)


@triton.jit
def walk_marks(out, q0, q1, T0, T1, U0, U1, marks, first_row, bits, kv_len, BLOCK: tl.constexpr):
    touched = ((tl.load(T0), tl.load(T0 + 1)), (tl.load(T1), tl.load(T1 + 1)))
    unfull = ((tl.load(U0), tl.load(U0 + 1)), (tl.load(U1), tl.load(U1 + 1)))
    j = tl.zeros((), tl.int32)
    for i in range(16):
        first, end, partial = run_of_spans_and_marks(
            j, touched, unfull, tl.load(q0), tl.load(q1), marks, first_row, bits, kv_len, BLOCK
        )
        tl.store(out + 3 * i, first)
        tl.store(out + 3 * i + 1, end)
        tl.store(out + 3 * i + 2, partial.to(tl.int32))
        j = tl.minimum(end, 1 << 30)


def _interval(rng, tiles):
    a, b = sorted((rng.randint(0, tiles), rng.randint(0, tiles)))
    return (a, b) if rng.random() < 0.8 else (0, tiles)


@pytest.mark.parametrize("block", [16, 64, 128])
@pytest.mark.parametrize("rows", [1, 3])
def test_marked_runs_within_spans(block, rows):
    rng = random.Random(block + rows)
    grain = 64
    for _ in range(8):
        columns = rng.randint(1, 4)
        kv_len = columns * grain - rng.randint(0, 63)
        tiles = -(-kv_len // block)
        labels = torch.tensor(
            [[rng.choice((0, 0, 1, 2, 2)) for _ in range(columns)] for _ in range(rows + 2)],
            dtype=torch.uint8,
        )

        touched, unfull = ([_interval(rng, tiles) for _ in range(2)] for _ in range(2))
        out = torch.zeros(16, 3, dtype=torch.int32)
        q0, q1 = grain, grain * (1 + rows) - 1 - rng.randint(0, 63)
        pairs = [torch.tensor(pair).int() for pair in ((q0,), (q1,), *touched, *unfull)]
        # Of a batch entry or head that has one row before these.
        marks = marked_runs_of(labels[1:])
        walk_marks[(1,)](out, *pairs, marks, -1, 6, kv_len, block)
        found, last = {}, 0
        for first, end, partial in out.tolist():
            if first < 1 << 30:
                assert last <= first < end <= tiles
                last = end
                found |= dict.fromkeys(range(first, end), bool(partial))
        for j in range(tiles):
            under = labels[
                1 : 1 + rows, j * block // grain : -(-min(kv_len, (j + 1) * block) // grain)
            ]
            spanned = any(a <= j < b for a, b in touched)
            assert (j in found) == bool(spanned and under.any())
            if j in found:
                ragged = (j + 1) * block > kv_len
                cut = ragged or any(a <= j < b for a, b in unfull)
                full = bool((under == 2).all()) and not ragged
                assert found[j] or full or not cut
                # Of one row nothing is masked that need not be.
                assert rows > 1 or found[j] == (cut and not full)


@triton.jit
def walk_marks_alone(out, marks, last_query, kv_len, BLOCK: tl.constexpr):
    zero = tl.zeros((), tl.int32)
    j = zero
    for i in range(8):
        rows = (zero, zero + last_query, marks, zero, zero + 6)
        first, end, partial = run_of_marks(j, *rows, kv_len, BLOCK)
        tl.store(out + 3 * i, first)
        tl.store(out + 3 * i + 1, end)
        tl.store(out + 3 * i + 2, partial.to(tl.int32))
        j = end


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_marked_runs_end(rows):
    """Where none is left, a run has no tiles."""
    labels = torch.tensor([[2, 2, 0, 1, 0], [2, 1, 0, 0, 0], [2, 2, 0, 1, 0]], dtype=torch.uint8)
    out = torch.zeros(8, 3, dtype=torch.int32)
    walk_marks_alone[(1,)](out, marked_runs_of(labels[:rows]), 64 * rows - 1, 5 * 64 - 3, 64)
    found = out.tolist()
    none = [1 << 30, 1 << 30, 0]
    want = {
        1: [[0, 2, 0], [3, 4, 1]],
        2: [[0, 1, 0], [1, 2, 1], [3, 4, 1]],
        3: [[0, 1, 0], [1, 2, 1], [3, 4, 1]],
    }[rows]
    assert found == want + [none] * (8 - len(want))


@triton.jit
def walk_marks_either_way(out, ends, marks, first_row, kv_len, BLOCK: tl.constexpr):
    q0, q1 = tl.load(ends), tl.load(ends + 1)
    j = tl.zeros((), tl.int32)
    for i in range(24):
        first, end, partial = run_of_marks_either_way(
            j, tl.load(ends + 2), q0, q1, marks, first_row, 6, kv_len, BLOCK
        )
        tl.store(out + 3 * i, first)
        tl.store(out + 3 * i + 1, end)
        tl.store(out + 3 * i + 2, partial.to(tl.int32))
        j = tl.minimum(end, 1 << 30)


@pytest.mark.parametrize("block", [64, 128, 256])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_marked_runs_either_way(block, rows):
    """Of rows of 128, from labels of 64; the last may be half a row."""
    rng = random.Random(block + rows)
    grain = 64
    for trial in range(12):
        columns = rng.randint(1, 7)
        kv_len = columns * grain - rng.choice((0, rng.randint(1, 63)))
        tiles = -(-kv_len // block)
        labels = torch.tensor(
            [[rng.choice((0, 0, 1, 2, 2)) for _ in range(columns)] for _ in range(rows)],
            dtype=torch.uint8,
        )
        before = labels.clone()
        extents = Extents(kv_len, rows * grain, 1, 1)
        tiling = Tiling(bound(everything), extents, (grain, grain))
        marks = marks_of(labels.mT, "keys, either way", tiling)
        assert torch.equal(labels, before)
        from_last, row = trial % 2, rng.randrange(-(-rows // 2))
        own = labels[2 * row : 2 * row + 2]
        first_row = rng.randrange(row + 1)  # of a batch entry or head behind others
        q0 = 128 * (row - first_row)
        ends = torch.tensor([q0, q0 + grain * len(own) - 1, from_last]).int()
        out = torch.zeros(24, 3, dtype=torch.int32)
        walk_marks_either_way[(1,)](out, ends, marks, first_row, kv_len, block)
        found, last = {}, 0
        for first, end, partial in out.tolist():
            if first < 1 << 30:
                assert last <= first < end <= tiles
                last = end
                for j in range(first, end):
                    found[tiles - 1 - j if from_last else j] = bool(partial)
        for j in range(tiles):
            under = own[:, j * block // grain : -(-min(kv_len, (j + 1) * block) // grain)]
            assert (j in found) == bool(under.any())
            if j in found:
                ragged = (j + 1) * block > kv_len
                assert found[j] == (ragged or not bool((under == 2).all()))
