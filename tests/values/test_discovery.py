"""Every entry of the catalogue has a second definition and is typed, in a file of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import maskalg as ma
from maskalg.testing import oracle
from maskalg.testing.catalogue import BIASES, CATALOGUE, WEIGHTS
from maskalg.values import biases, masks, weights
from maskalg.values.discovery import entries, rows

ROOMS = (masks, biases, weights)
CLASSES = {"FireParameters", "Weight"}


@pytest.mark.parametrize("name", sorted({n for room in ROOMS for n in room.__all__} - CLASSES))
def test_every_entry_is_public_and_written_twice(name: str) -> None:
    assert name in ma.__all__
    assert callable(getattr(oracle, name))


def test_rows_of_two_entries_have_two_names() -> None:
    for room, catalogue in zip(ROOMS, (CATALOGUE, BIASES, WEIGHTS), strict=True):
        each = [entry.rows() for entry in entries(room.__name__) if hasattr(entry, "rows")]
        assert sum(map(len, each)) == len(rows(room.__name__))
        assert set(rows(room.__name__)) <= set(catalogue)


def test_type_checkers_see_every_entry() -> None:
    script = Path(__file__).parents[2] / ".ci" / "stubs.py"
    subprocess.run([sys.executable, str(script), "--check"], check=True)
