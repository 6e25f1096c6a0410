"""The intervals of the C++ loop, in every order that their ends can have.

`united` and `meets` compare ends and copy them, nothing else. So what they do with a table depends
on the order of its ends alone, and tables whose ends are 0, 1, 2, … without a gap stand for all.
"""

import ctypes
import re
from pathlib import Path

import pytest

import maskalg
from maskalg.backends.cpu.native.compile import compiler, library

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")

NAMES = ("united", "meets")
SKELETON = Path(maskalg.__file__).parent / "backends" / "cpu" / "native" / "skeleton.cpp"
DRIVER = """
static bool holds(const I* at, I count, I t) {
  for (I i = 0; i < count; i++)
    if (at[2 * i] <= t && t < at[2 * i + 1]) return true;
  return false;
}

// Whether the intervals are those of the table, disjoint and in order.
static bool right(const I* table, I count) {
  I at[64], kept, most_end = 2 * count;
  memcpy(at, table, 2 * count * sizeof(I));
  kept = united(at, count);
  for (I i = 0; i < kept; i++)
    if (at[2 * i] >= at[2 * i + 1] || (i && at[2 * i - 1] >= at[2 * i])) return false;
  for (I t = 0; t <= most_end; t++)
    if (holds(at, kept, t) != holds(table, count, t)) return false;
  for (I first = 0; first < most_end; first++) {
    bool any = false;
    for (I end = first + 1; end <= most_end; end++) {
      any |= holds(table, count, end - 1);
      if (meets(at, kept, first, end) != any) return false;
    }
  }
  return true;
}

static I tables, wrong;

static void every(I* table, I count, I place) {
  if (place < 2 * count) {
    for (I end = 0; end < 2 * count; end++) table[place] = end, every(table, count, place + 1);
    return;
  }
  unsigned used = 0;
  for (I i = 0; i < 2 * count; i++) used |= 1u << table[i];
  if (used & (used + 1)) return;  // another table has the same order without a gap
  tables++, wrong += !right(table, count);
}

extern "C" void count_tables(I count, I* found) {
  I table[64];
  tables = wrong = 0;
  every(table, count, 0);
  found[0] = tables, found[1] = wrong;
}
"""


def driver(change=("", "")):
    text = SKELETON.read_text()
    parts = [
        re.search(rf"^static [^\n]*\b{name}\(.*?^}}\n", text, re.M | re.S)[0] for name in NAMES
    ]
    least, most = (
        re.search(rf"^static inline I {name}\(.*\n", text, re.M)[0] for name in ("least", "most")
    )
    body = "".join(parts)
    assert change[0] in body
    body = body.replace(*change) if change[0] else body
    head = "#include <stdint.h>\n#include <string.h>\ntypedef int64_t I;\n"
    return library(head + least + most + body + DRIVER)


def counted(change, count):
    found = (ctypes.c_int64 * 2)()
    driver(change).count_tables(ctypes.c_int64(count), found)
    return tuple(found)


@pytest.mark.parametrize(("count", "orders"), [(0, 1), (1, 3), (2, 75), (3, 4683), (4, 545835)])
def test_every_order_of_ends(count, orders):
    """As many as there are weak orders of so many ends."""
    assert counted(("", ""), count) == (orders, 0)


@pytest.mark.parametrize(
    "change",
    [
        ("at[2 * j] < at[2 * j - 2]", "at[2 * j] > at[2 * j - 2]"),
        ("at[2 * i] >= at[2 * i + 1]", "at[2 * i] > at[2 * i + 1]"),
        ("at[2 * i] <= at[2 * kept - 1]", "at[2 * i] < at[2 * kept - 1]"),
        ("most(at[2 * kept - 1], at[2 * i + 1])", "at[2 * i + 1]"),
        ("I i = 1; i < count", "I i = 2; i < count"),
        ("at[2 * i] < end &&", "at[2 * i] <= end &&"),
        ("first < at[2 * i + 1]", "first <= at[2 * i + 1]"),
        ("I s = 0; s < 2", "I s = 0; s < 1"),
    ],
)
def test_a_wrong_text_is_found(change):
    assert counted(change, 3)[1] > 0
