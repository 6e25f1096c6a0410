"""The pattern that tiles are chosen by, from the structure of an expression alone."""

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from maskalg.codegen.hooks import Style
from maskalg.engine.extents import Extents
from maskalg.engine.normal_form import bound
from maskalg.formula.derived import note_documents
from maskalg.schedule.intervals.rung import (
    tiles_of_columns,
    tiles_of_documents,
    tiles_of_intervals,
)
from maskalg.testing.catalogue import CATALOGUE
from maskalg.tiles.backward import one_pass_for
from maskalg.tiles.pattern import Rows, tiles_of_counts

pytest.importorskip("triton", reason="needs Triton")
from maskalg.backends.triton.plan import (
    Inputs,
    Told,
    backward_plan,
    documents_are_long,
    structure_plan,
)
from maskalg.tiles.patterns import PATTERNS, pattern_of

BIAS = ma.dense_bias(torch.zeros(8, 8))
MASK = ma.dense(torch.ones(8, 8, dtype=torch.bool))
IDS = torch.zeros(8, dtype=torch.int32)

# Of the forward pass and of gradients.
CASES = {
    "full": (ma.everything, "full", "full"),
    "causal": (causal, "dense", "dense"),
    "window": (causal & sliding(3), "banded", "banded"),
    "documents": (causal & ma.document(IDS), "reading", "reading"),
    "documents & window": (causal & sliding(3) & ma.document(IDS), "reading band", "reading band"),
    "bias of keys": (causal + ma.key_bias(torch.zeros(8)), "reading", "dense"),
    "mask of pairs": (MASK, "pairs", "reading"),
    "bias of pairs": (BIAS, "pairs", "pairs"),
    "causal, bias of pairs": (causal + BIAS, "pairs", "pairs"),
    "both of pairs": (MASK + BIAS, "pairs", "reading"),
    "window, bias of pairs": (causal & sliding(3) + BIAS, "reading", "banded"),
}


@pytest.mark.parametrize("name", CASES)
def test_patterns(name):
    expression, forward, gradients = CASES[name]
    structure = bound(expression).structure
    found = (pattern_of(structure), pattern_of(structure, gradients=True))
    assert found == (forward, gradients)


@pytest.mark.parametrize(
    "pattern, dims",
    [
        ("dense", {64, 128}),
        ("banded", {64, 128}),
        ("reading", {64, 128}),
        ("reading band", {}),
        ("pairs", {128}),
    ],
)
def test_which_gradients_are_made_in_one_pass(pattern, dims):
    served = {d for d in (64, 128, 256) if one_pass_for("sm_90", d, 2, pattern, additive=True)}
    assert served == set(dims)


@pytest.mark.parametrize(
    "mask, keys",
    [
        # Of the document of a token, the mean over tokens: most may be of one that is long.
        (ma.document.from_lengths([320, 320]), 320),
        (causal & ma.document.from_cu_seqlens([0, 160, 480, 640]), 240),
        (ma.document.from_lengths([4] * 40 + [480]), 361),
        (ma.document.from_lengths([[640], [320, 320]]), 480),
        (ma.document.from_cu_seqlens(torch.tensor([0, 600]), total=640) & (ma.kv_idx < 9), 600),
        (ma.document(IDS), 0),
        (ma.document.from_lengths([300, 340]) | (ma.table(IDS)[ma.kv_idx] > 0), 0),
        (causal, 0),
    ],
)
def test_tiles_of_documents(mask, keys):
    assert tiles_of_documents(bound(mask), Extents(640, 640, 1, 1), 128) == keys / 128


@pytest.mark.parametrize(
    "mask, most, mean",
    [
        (ma.everything, 5, 5),
        (ma.causal, 5, 3),
        (ma.causal & ma.sliding(100), 2, 9 / 5),
        (ma.causal & (ma.sliding(100) | ma.prefix(4)), 7, 14 / 5),  # the first overlap
        (ma.causal & ma.document(torch.arange(640) // 100), 0, 0),
        # A tile more, as documents lie in the middle of tiles.
        (
            ma.document.from_lengths([128] * 4 + [64] * 2),
            2,
            1 + (4 * 128**2 + 2 * 64**2) / 640 / 128,
        ),
        (
            ma.causal & ma.document.from_lengths([512, 128]),
            5,
            0.6 * (1 + (512**2 + 128**2) / 640 / 128),
        ),
        (ma.causal & ma.sliding(100) & ma.document.from_lengths([512, 128]), 2, 9 / 5),
        (ma.shared_prefix.from_cu_seqlens([0, 128, 384, 640], [-1, 0, 0]), 5, 0.6 * (1 + 3.4)),
        # Of two packings, the shorter documents.
        (ma.document.from_lengths([512, 128]) & ma.document.from_lengths([128] * 5), 2, 2),
        (ma.document.from_lengths([128] * 5) & ma.document.from_lengths([512, 128]), 2, 2),
        (ma.causal & (ma.prefix(4) | ma.document.from_lengths([512, 128])), 0, 0),
    ],
)
def test_tiles_of_columns(mask, most, mean):
    found = tiles_of_columns(bound(mask), Extents(640, 640, 1, 1), 128)
    assert found == pytest.approx((most, mean))


@pytest.mark.parametrize("q_len, kv_len", [(5, 0), (0, 5)])
def test_without_queries_or_keys_there_are_no_tiles(q_len, kv_len):
    extents = Extents(q_len, kv_len, 1, 1)
    assert tiles_of_columns(bound(ma.causal), extents, 128) == (0, 0)
    assert tiles_of_intervals(bound(ma.causal), extents, 128) == 0


def test_columns_of_fewer_keys_than_queries():
    found = tiles_of_columns(bound(ma.causal), Extents(640, 256, 1, 1), 128)
    assert found == (5, 4.5)


def test_tiles_of_documents_on_a_device_are_told_by_their_number():
    """Nobody waits for lengths there; the number of documents is a shape."""
    ids = ma.document.from_lengths([4] * 40 + [480]).parameters["ids"]
    note_documents(ids, 41)
    mask = ma.document(ids)
    assert tiles_of_documents(bound(mask), Extents(640, 640, 1, 1), 128) == 640 / 41 / 128


def test_long_documents_take_the_tiles_of_long_rows():
    inputs = Inputs(128, 128, torch.bfloat16, "sm_90")

    def plans(mask):
        told, structure = Told(Style(ptx=True)), bound(mask).structure
        either = (told, told._replace(long_documents=True))
        return [structure_plan(structure, each, inputs) for each in either]

    short, long = plans(causal & ma.document(IDS))
    assert (short.pattern, long.pattern) == ("reading", "long documents")
    assert (short.hopper.consumers, long.hopper.consumers) == (1, 2)
    paths = ma.shared_prefix.from_cu_seqlens([0, 500, 700], [-1, 0])
    short, long = plans(paths)
    assert (short.pattern, long.pattern) == ("reading", "long paths")
    assert (short.hopper.consumers, long.hopper.consumers) == (1, 2)


@pytest.mark.parametrize("prompt, long", [(300, False), (2000, True)])
def test_paths_are_long_where_prompts_are(prompt, long):
    mask = ma.shared_prefix.from_cu_seqlens([0, prompt, prompt + 100, prompt + 200], [-1, 0, 0])
    extents = Extents(prompt + 200, prompt + 200, 1, 1)
    assert documents_are_long(bound(mask), extents, 128) == long


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", [*CATALOGUE, *CASES])
def test_one_pattern_holds_of_any_structure(name, gradients):
    mask = CATALOGUE[name].mask if name in CATALOGUE else CASES[name][0]
    rows = Rows(bound(mask).structure, gradients=gradients)
    assert [pattern.name for pattern in PATTERNS.values() if pattern.holds(rows)] == [
        pattern_of(bound(mask).structure, gradients=gradients)
    ]


def test_patterns_that_lengths_choose_are_those_of_others():
    named = {name for found in PATTERNS.values() for name in (found.short, found.long_documents)}
    named |= {found.long_paths for found in PATTERNS.values()}
    assert named - {None} <= set(PATTERNS)
    chosen = {case[place] for case in CASES.values() for place in (1, 2)}
    assert chosen | (named - {None}) == set(PATTERNS)


@pytest.mark.parametrize(
    "counts, tiles",
    [
        ((128, 64, 64), "large, in long runs"),  # a permutation: every tile of either size
        ((59.8, 32.8, 10.2), "large"),  # modality, whose rows have gaps
        ((14.4, 7.9, 7.9), "large"),  # documents
        ((17.7, 11.8, 11.8), "small"),  # a causal neighborhood: a third more pairs in large tiles
        ((45, 27, 5.4), None),  # a window in space
        ((33.5, 32.5, 32.5), "small"),  # strides
        ((0, 0, 0), "large"),
    ],
)
def test_tiles_of_counts(counts, tiles):
    assert tiles_of_counts(*counts) == tiles


@pytest.mark.parametrize("gradients", [False, True])
def test_counted_rows_take_their_pattern(gradients):
    made = backward_plan if gradients else structure_plan

    def pattern(score, counted, weighted=False, dim=128):
        told = Told(Style(ptx=True, bits="rows"), counted=counted)
        inputs = Inputs(dim, dim, torch.bfloat16, "sm_90", weighted)
        return made(bound(score).structure, told, inputs).pattern

    counts = (None, "small", "large", "large, in long runs")
    reads, window = ma.permutation(IDS), causal & sliding(64) & ma.dilated(3)
    found = [pattern(reads, counted) for counted in counts]
    assert found == ["reading", "reading", "reading" if gradients else "dense", "dense"]
    assert [pattern(window, c) for c in counts] == ["banded", "reading", "banded", "banded"]
    for score, weighted in ((reads, True), (reads + ma.alibi([0.5]), False)):
        assert pattern(score, "large, in long runs", weighted) == "reading"
    assert [pattern(ma.dilated(3), "small", dim=dim) for dim in (64, 256)] == ["reading", "dense"]
    assert pattern(reads, "large, in long runs", dim=64) == "reading"


@pytest.mark.parametrize(
    "length, dim, long", [(2048, 128, True), (5000, 64, False), (6000, 64, True)]
)
def test_documents_are_long_for_the_dimensions_of_heads(length, dim, long):
    form = bound(causal & ma.document.from_lengths([length, length]))
    assert documents_are_long(form, Extents(2 * length, 2 * length, 1, 1), dim) == long
