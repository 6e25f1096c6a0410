"""The C++ loop over blocks, proved; wrong texts of it refused at the step that fails."""

import ctypes
import re

import pytest

from maskalg.backends.cpu.native.compile import compiler, library
from maskalg.verifier.walk.blocks import skeleton
from maskalg.verifier.walk.claims import walk_claims

from .refusals import refused

WRONG = [
    ("clip", "most(at[2 * i], 0)", "at[2 * i]"),
    ("clip", "least(at[2 * i + 1] + 1, kv_len)", "least(at[2 * i + 1], kv_len)"),
    ("clip", "least(at[2 * i + 1] + 1, kv_len)", "at[2 * i + 1] + 1"),
    ("listed", "least(end[i] * keys, kv_len)", "end[i] * keys"),
    ("listed", "label[i] != 0 ? stop", "label[i] == 1 ? stop"),
    ("listed", "label[i] == 1 ? stop", "label[i] == 2 ? stop"),
    ("in_order", "at[2 * j] < at[2 * j - 2]", "at[2 * j] > at[2 * j - 2]"),
    ("in_order", "at[2 * j + 1] = at[2 * j - 1]", "at[2 * j + 1] = end"),
    ("in_order", "I i = 1; i < count", "I i = 2; i < count"),
    # no key tells of these two, nor of `k0 <= …`: they cost time
    ("joined", "if (first >= end) continue;", "if (first > end) continue;"),
    ("joined", "first <= at[2 * kept - 1]", "first < at[2 * kept - 1]"),
    ("joined", "most(at[2 * kept - 1], end)", "end"),
    ("joined", "kept++;", "kept += 2;"),
    ("meets", "&& first < at[2 * i + 1]", "&& first + 1 < at[2 * i + 1]"),
    ("holds", "found |= at[2 * i] <= first", "found |= at[2 * i] <= end"),
    ("may_drop", "!holds(s.at, s.touched, first, end) ||", "holds(s.at, s.touched, first, end) ||"),
    (
        "may_drop",
        "|| meets(s.masked, s.unfull, first, end)",
        "&& meets(s.masked, s.unfull, first, end)",
    ),
    ("over_blocks", "k0 < s.at[2 * i + 1]; k0 += BLOCK", "k0 <= s.at[2 * i + 1]; k0 += BLOCK"),
    ("over_blocks", "k0 < s.at[2 * i + 1]; k0 += BLOCK", "k0 < s.at[2 * i + 1]; k0 += nk - 1"),
    ("over_blocks", "least(BLOCK, s.at[2 * i + 1] - k0)", "BLOCK"),
    ("over_blocks", "s.unfull, k0, k0 + nk)", "s.unfull, k0, k0 + nk - 1)"),
    ("over_blocks", "for (I i = 0; i < s.touched; i++)", "for (I i = 0; i < s.touched - 1; i++)"),
]


def test_the_loop_is_proved():
    pytest.importorskip("z3")
    found = list(walk_claims(only=lambda function: function.startswith("skeleton.")))
    assert len(found) == 9
    assert [claim for claim in found if claim.outcome != "proved"] == []


@pytest.mark.parametrize(("name", "old", "new"), WRONG)
def test_a_wrong_text_is_refused(name, old, new):
    pytest.importorskip("z3")
    text = skeleton()
    assert text.count(old) == 1
    refused({"skeleton": text.replace(old, new)}, lambda function: function == f"skeleton.{name}")


def test_an_interval_that_meets_more_blocks_is_proved():
    """It costs time: no claim says that a key of the block lies in the interval."""
    pytest.importorskip("z3")
    old, text = "found |= at[2 * i] < end &&", skeleton()
    assert text.count(old) == 1
    changed = {"skeleton": text.replace(old, "found |= at[2 * i] <= end &&")}
    found = list(walk_claims(changed, only=lambda function: function == "skeleton.meets"))
    assert found and all(claim.holds for claim in found), found


DRIVER = """
static bool lies(const I* at, I count, I t) {
  for (I i = 0; i < count; i++)
    if (at[2 * i] <= t && t < at[2 * i + 1]) return true;
  return false;
}

// Whether the intervals are those of the table, apart and in order.
static bool right(const I* table, I count) {
  I at[64], kept, most_end = 2 * count;
  memcpy(at, table, 2 * count * sizeof(I));
  kept = united(at, count);
  for (I i = 0; i < kept; i++)
    if (at[2 * i] >= at[2 * i + 1] || (i && at[2 * i - 1] >= at[2 * i])) return false;
  for (I t = 0; t <= most_end; t++)
    if (lies(at, kept, t) != lies(table, count, t)) return false;
  for (I first = 0; first < most_end; first++) {
    bool any = false, all = true;
    for (I end = first + 1; end <= most_end; end++) {
      any |= lies(table, count, end - 1), all &= lies(table, count, end - 1);
      if (meets(at, kept, first, end) != any || holds(at, kept, first, end) != all) return false;
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


def counted(count, change=("", "")):
    """How many orders the ends of so many intervals have, and of how many the compiled functions
    say something wrong."""
    text = skeleton()
    parts = [
        re.search(rf"^static inline I {name}\(.*\n", text, re.M)[0] for name in ("least", "most")
    ]
    parts += [
        re.search(rf"^static [^\n]*\b{name}\(.*?^}}\n", text, re.M | re.S)[0]
        for name in ("in_order", "joined", "united", "meets", "holds")
    ]
    head = "#include <stdint.h>\n#include <string.h>\ntypedef int64_t I;\n"
    found = (ctypes.c_int64 * 2)()
    body = "".join(parts)
    built = library(head + (body.replace(*change) if change[0] else body) + DRIVER)
    built.count_tables(ctypes.c_int64(count), found)
    return tuple(found)


@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
def test_the_compiled_functions_at_every_order_of_ends():
    """What a compiler makes of them, too: as many tables as there are weak orders of the ends."""
    assert [counted(count) for count in range(4)] == [(1, 0), (3, 0), (75, 0), (4683, 0)]
    assert counted(3, ("most(at[2 * kept - 1], end)", "end"))[1] > 0
