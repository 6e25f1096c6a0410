"""Places of bits, and rows that programs draw: proved, and wrong texts of them refused."""

import math

import pytest

from maskalg.backends.triton.bit_tiles import places_of
from maskalg.backends.triton.kept import bits_layout
from maskalg.engine.extents import Lengths, resolve
from maskalg.engine.normal_form import bound
from maskalg.testing.catalogue import CATALOGUE
from maskalg.verifier.reading.triton import kernel_source
from maskalg.verifier.walk.claims import walk_claims

from .refusals import refused

pytest.importorskip("z3")

BITS = [
    # the maker
    ("line = first + tl.arange(0, SIDE)", "line = first + 1 + tl.arange(0, SIDE)"),
    ("row = begin + line", "row = line"),
    ("first = tl.program_id(0) // across * SIDE", "first = tl.program_id(0) % across * SIDE"),
    ("batch, head = member // heads, member % heads",
     "batch, head = member % heads, member // heads"),
    ("tl.minimum(first + SIDE, rows) - 1", "tl.minimum(first + SIDE, rows)"),  # asks for more
    ("NEXT_RUN(column, begin", "NEXT_RUN(column + 1, begin"),
    ("NEXT_RUN(column, begin + first,", "NEXT_RUN(column, first,"),  # likewise
    ("last = begin +", "last ="),
    ("if tile == column:", "if tile == column + 1:"),
    ("        found = ~found\n", ""),
    ("if partial:", "if OF_KEYS:"),
    ("index = column * SIDE +", "index = first +"),
    ("index[None, :], row[:, None]", "row[:, None], index[None, :]"),
    ("row[:, None], index[None, :], kv_len", "index[None, :], row[:, None], kv_len"),
    ("% WORD)[None, :]", "// SIDE)[None, :]"),
    ("(SIDE, SIDE // WORD, WORD)), 2)", "(SIDE, WORD, SIDE // WORD)), 2)"),
    ("(member * rows + line)[:, None] * words", "(member + line * heads)[:, None] * words"),
    ("column * (SIDE // WORD)\n", "column * SIDE // WORD + 1\n"),
    ("mask=(line < rows)", "mask=(line < columns)"),
    ("mask=(line < rows)", "mask=(row < rows)"),
    # the reader
    ("first, place = index // WORD, index % WORD", "first, place = index // WORD, index % SIZE"),
    ("first, place = index // SIZE * (SIZE // WORD)", "first, place = index // WORD"),
    ("place < i * WORD, word", "place <= i * WORD, word"),
    ("tl.load(at + i)", "tl.load(at + i - 1)"),
    ("tl.static_range(1, SIZE // WORD)", "tl.static_range(1, SIZE // WORD - 1)"),
    ("word >> (place & 6)", "word >> (place & 7)"),
    ("1 << (place & 25)", "1 << (place & 24)"),
    # the reader of tiles
    ("tl.reduce(index // COLUMNS,", "tl.reduce(index // WORD,"),
    ("(member + row // LINES * step", "(member + row * step"),
    ("* step + column)", "* step)"),
    ("place + row % LINES *", "place + row *"),
    ("(COLUMNS // WORD)\n    return", "COLUMNS\n    return"),
    ("_bits_at(table, line, index % COLUMNS", "_bits_at(table, line, index"),
]  # fmt: skip


@pytest.mark.parametrize("old, new", BITS)
def test_wrong_places_of_bits_are_refused(old, new):
    text = kernel_source("kept_bits")
    assert old in text
    refused({"kept_bits": text.replace(old, new)})


@pytest.mark.parametrize("name", ["causal sliding", "strided", "prefix LM per batch"])
def test_readers_numbers_are_those_of_the_maker(name):
    form = bound(CATALOGUE[name].mask)
    batch = 2 if form.structure.depends_on("batch") else 1
    extents = resolve(form, Lengths(300, 700, batch, 3))
    for rows, along, across in (("queries", 300, 700), ("keys", 700, 300)):
        tiles = bits_layout(form, extents, rows, tiled=True)
        layout = bits_layout(form, extents, rows, tiled=False)
        batches, heads = layout.members
        assert (layout.rows, layout.columns) == (along, across)
        assert layout.words * 32 >= across and layout.words % 8 == 0
        of_head = layout.rows * layout.words
        assert layout.of_head == (of_head if heads > 1 else 0)
        assert layout.of_batch == (of_head * heads if batches > 1 else 0)
        of_head = math.prod(places_of(along, across))
        assert (tiles.step, tiles.of_head) == (-(-across // 256), of_head if heads > 1 else 0)
        assert tiles.of_batch == (of_head * heads if batches > 1 else 0)


ROWS = [
    ("hopper_rows", "_PLACES = gl.constexpr(4)", "_PLACES = gl.constexpr(2)"),
    ("hopper_rows", "(done // _PLACES) & 1", "done & 1"),
    ("hopper_common", "w = draw_row(done, total,", "w = draw_row(done + 1, total,"),
    ("hopper_keys", "            w = row_drawn(done, program.drawn)\n            done += 1\n",
     "            done += 1\n            w = row_drawn(done, program.drawn)\n"),
    ("hopper_forward", "while w < program.call.rows", "while w <= program.call.rows"),
    ("hopper_queries", "            done += 1\n", "            done += 2\n"),
    ("hopper_rows", "total - 1],", "total],"),
    ("hopper_rows", "gl.num_programs(0) + _drawn", "_drawn"),
    ("hopper_rows", "gl.num_programs(0) + _drawn", "gl.num_programs(0) + 1 + _drawn"),
    ("hopper_rows", "@p atom", "atom"),
    ("hopper_rows", "setp.eq.u32 p, v, 0", "setp.eq.u32 p, v, 1"),
    ("hopper_rows", "shfl.sync.idx.b32 $0, v, 0,", "shfl.sync.idx.b32 $0, v, 1,"),
]  # fmt: skip


def test_each_row_is_drawn_once():
    functions = ("hopper_rows.", "produce_keys", "produce_queries", "_consume_queries")
    found = list(walk_claims(only=lambda name: any(part in name for part in functions)))
    assert len(found) >= 5
    assert all(claim.outcome == "proved" for claim in found), found


@pytest.mark.parametrize("file, old, new", ROWS)
def test_wrong_draws_are_refused(file, old, new):
    text = kernel_source(file)
    assert old in text
    refused({file: text.replace(old, new)})
