"""Runs of tiles in compressed rows: they hold what they were made of, and nothing twice."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from maskalg.schedule.tile_runs import EMPTY, FULL, PARTIAL, TileRuns, label_of

pieces = st.tuples(st.integers(0, 2), st.sampled_from((EMPTY, PARTIAL, FULL)))


@given(st.lists(st.lists(pieces, max_size=5), max_size=4))
def test_compressed_rows_hold_what_the_runs_hold(rows: list[list[tuple[int, int]]]) -> None:
    runs, wanted = [], []
    for row, parts in enumerate(rows):
        place, labels = 0, []
        for size, label in parts:
            runs.append((row, place, place + size, label))
            labels += [label] * size
            place += size
        wanted.append(labels)
    columns = [torch.tensor([run[i] for run in runs], dtype=torch.int64) for i in range(4)]
    found = TileRuns.of(*columns, (1, 1, len(rows)))
    for row, labels in enumerate(wanted):
        held = [EMPTY] * len(labels)
        own = range(int(found.row_start[row]), int(found.row_start[row + 1]))
        for i in own:
            first, end = int(found.first[i]), int(found.end[i])
            held[first:end] = [int(found.label[i])] * (end - first)
            touches = i > own.start and found.end[i - 1] == first
            assert not (touches and found.label[i] == found.label[i - 1])
        assert held == labels


@given(st.data())
def test_labels_and_runs_say_the_same(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 4), min_size=4, max_size=4)))
    count = shape[0] * shape[1] * shape[2] * shape[3]
    entries = data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    labels = torch.tensor(entries, dtype=torch.uint8).view(shape)
    runs = TileRuns.of_labels(labels)
    assert runs.shape == shape[:3]
    assert torch.equal(runs.labels(shape[3]), labels)
    columns = (runs.places, runs.first, runs.end, runs.label)
    for place, first, end, label in zip(*(each.tolist() for each in columns), strict=True):
        assert set(labels[tuple(place)][first:end].tolist()) == {label}


def test_labels_follow_from_what_is_kept_and_dropped() -> None:
    kept, dropped = torch.tensor([False, True, True]), torch.tensor([True, True, False])
    assert label_of(kept, dropped).tolist() == [EMPTY, PARTIAL, FULL]
