"""Masks on canvases: pictures, the oracle's loops, and every tile decided by the rung of digits."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

import maskalg as ma
from maskalg import (
    causal,
    head,
    kv_idx,
    morton_neighborhood,
    neighborhood,
    padding,
    prefix,
    q_idx,
    sliding_tile,
    spatial,
    temporal,
    tiled_neighborhood,
)
from maskalg.engine.extents import Lengths, resolve
from maskalg.engine.normal_form import bound
from maskalg.formula import nodes
from maskalg.formula.nodes import SCORE
from maskalg.proof.proof import proofs_made
from maskalg.schedule.rung import rung_of
from maskalg.schedule.tiling import Tiling
from maskalg.testing import (
    assert_closed_forms_sound,
    assert_labels_exact,
    assert_same_mask,
    oracle,
)


def rows(mask: ma.Mask, *queries: int, length: int) -> list[str]:
    dense = mask.to_dense(length)[0, 0]
    return ["".join("#" if kept else "." for kept in dense[q]) for q in queries]


# --- the masks -----------------------------------------------------------------------------------


def test_neighborhood_on_a_line() -> None:
    assert rows(neighborhood(6, 3), 0, 1, 3, 5, length=6) == [
        "###...",
        "###...",
        "..###.",
        "...###",
    ]
    # An even window reaches one further back than ahead.
    assert rows(neighborhood(6, 4), 1, 2, 3, 4, length=6) == [
        "####..",
        "####..",
        ".####.",
        "..####",
    ]
    assert rows(neighborhood(6, 3, 1, True), 0, 1, 2, 5, length=6) == [
        "#.....",
        "##....",
        "###...",
        "...###",
    ]


def test_dilated_neighborhood() -> None:
    # Seven positions hold four even ones and three odd ones.
    assert rows(neighborhood(7, 3, 2), 0, 1, 4, 5, 6, length=7) == [
        "#.#.#..",
        ".#.#.#.",
        "..#.#.#",
        ".#.#.#.",
        "..#.#.#",
    ]


def test_neighborhood_on_an_image_that_is_not_square() -> None:
    mask = neighborhood((3, 5), (3, 3))
    assert rows(mask, 0, 7, 14, length=15) == [
        "###..###..###..",
        ".###..###..###.",
        "..###..###..###",
    ]


def test_positions_past_the_canvas_keep_nothing() -> None:
    mask = neighborhood((2, 3), (1, 1))
    assert int(mask.to_dense(20).sum()) == 6
    assert int(mask.shift(q=-4).to_dense(20, 20).sum()) == 6


def test_sliding_tiles_and_text() -> None:
    mask = sliding_tile(4, 2, 1, 1)
    assert rows(mask, 0, 3, 4, 5, length=6) == ["##..#.", "..###.", "#####.", "......"]


def test_morton_order() -> None:
    mask = morton_neighborhood((2, 4), (1, 1))
    assert torch.equal(mask.to_dense(8)[0, 0], torch.eye(8, dtype=torch.bool))
    found = morton_neighborhood((4, 6), (3, 2)).to_dense(24)
    wanted = oracle.morton_neighborhood((4, 6), (3, 2), q_len=24, kv_len=24)
    assert np.array_equal(found.numpy(), wanted)


def test_labels_and_parameters() -> None:
    mask = neighborhood((4, 6), (3, 2), (1, 2), (True, False))
    assert repr(mask) == "neighborhood((4, 6), (3, 2), (1, 2), causal=(True, False))"
    assert repr(mask.bind(window_width=3)) == (
        "neighborhood((4, 6), (3, 3), (1, 2), causal=(True, False))"
    )
    assert (
        repr(sliding_tile((4, 6), (2, 3), 1, 5))
        == "sliding_tile((2 * 2, 2 * 3), (2, 3), (1, 1), 5)"
    )
    assert repr(spatial(6, 1)) == "spatial(6, 1)"


def test_a_new_canvas_is_no_new_proof() -> None:
    neighborhood((4, 6), (3, 2)).prove()
    before = proofs_made()
    neighborhood((12, 5), 4).prove()
    assert proofs_made() == before


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: neighborhood((1, 2, 3, 4), 1), "shape must be one to three integers"),
        (lambda: neighborhood((), 1), "shape must be one to three integers"),
        (lambda: neighborhood("ab", 1), "height must be an integer >= 1, got 'a'"),
        (lambda: neighborhood((4, 0), 1), "width must be an integer >= 1, got 0"),
        (lambda: neighborhood((4, 4), (1, 2, 3)), "window must be one value, or 2 of them"),
        (
            lambda: neighborhood((4, 4), 5),
            "window_height is 5 keys, the axis holds 4. Take at most 4",
        ),
        (
            lambda: neighborhood((4, 9), 2, (1, 5)),
            "is 2 keys 5 apart, the axis holds 9. Take at most 1",
        ),
        (lambda: neighborhood((4, 4), 1, 0), "dilation_height must be an integer >= 1"),
        (lambda: neighborhood((4, 4), 1, 1, (True, 1)), "causal must be one value, or 2 of them"),
        (
            lambda: sliding_tile((4, 6), (2, 4), 1),
            "the width 6 of the canvas is no multiple of the tile's 4",
        ),
        (lambda: sliding_tile((4, 6), (2, 3), 3), "window_height is 3 keys, the axis holds 2"),
        (lambda: sliding_tile(4, 2, 1, -1), "text must be an integer >= 0"),
        (lambda: spatial(0), "frame must be an integer >= 1"),
        (lambda: temporal(3, -1), "reach must be an integer >= 0"),
    ],
)
def test_errors(build: Callable[[], ma.Mask], text: str) -> None:
    with pytest.raises((ma.MaskTypeError, ma.MaskValueError)) as error:
        build()
    assert text in str(error.value)


# --- the rung of digits --------------------------------------------------------------------------


def transposed(mask: ma.Mask) -> ma.Mask:
    swapped = {"q_idx": nodes.K, "kv_idx": nodes.Q}
    node = nodes.substitute(
        mask.mask_node, lambda n: swapped.get(str(n.data)) if n.op == "index" else None
    )
    return ma.Mask(node, SCORE, mask.label)


@st.composite
def grids(draw: DrawFn) -> tuple[ma.Mask, Any, int]:
    """A mask on a canvas, the oracle's function of it, and how many tokens there are."""
    rank = draw(st.integers(1, 3))
    longest = (60, 12, 6)[rank - 1]
    shape = tuple(draw(st.integers(1, longest)) for _ in range(rank))
    kind = draw(st.sampled_from(("rows", "dilated", "tiles", "sliding")))
    tokens = int(np.prod(shape))
    if kind in ("rows", "dilated"):
        steps = tuple(draw(st.integers(1, min(e, 3))) for e in shape) if kind == "dilated" else 1
        each = steps if isinstance(steps, tuple) else (1,) * rank
        window = tuple(draw(st.integers(1, e // d)) for e, d in zip(shape, each, strict=True))
        one_way = tuple(draw(st.booleans()) for _ in shape)
        args = (shape, window, steps, one_way)
        return neighborhood(*args), lambda **k: oracle.neighborhood(*args, **k), tokens
    tile = tuple(draw(st.sampled_from([t for t in range(1, e + 1) if e % t == 0])) for e in shape)
    if kind == "tiles":
        window = tuple(draw(st.integers(1, e)) for e in shape)
        by_tile = (shape, tile, window)
        mask = tiled_neighborhood(*by_tile)
        return mask, lambda **k: oracle.tiled_neighborhood(*by_tile, **k), tokens
    window = tuple(draw(st.integers(1, e // t)) for e, t in zip(shape, tile, strict=True))
    text = draw(st.integers(0, 9))
    mask = sliding_tile(shape, tile, window, text)
    wanted = lambda **k: oracle.sliding_tile(shape, tile, window, text, **k)  # noqa: E731
    return mask, wanted, tokens + text


def check(mask: ma.Mask, lengths: tuple[int, int], block: tuple[int, int]) -> None:
    sizes: dict[str, Any] = {"batch": 2, "heads": 2}
    assert_labels_exact(mask, *lengths, block, **sizes)
    assert_closed_forms_sound(mask, *lengths, block[0], **sizes)
    form = bound(mask)
    rung = rung_of(form.structure)
    table = rung.runs(Tiling(form, resolve(form, Lengths(*lengths, 2, 2)), block))
    labels = mask.blocks(*lengths, block=block, **sizes).labels
    for b, h, r in np.ndindex(*labels.shape[:3]):
        row = torch.zeros(labels.shape[3], dtype=torch.uint8)
        for run in table.row(b, h, r):
            row[run.first : run.end] = run.label
        if mask.prove().exact and mask.prove().rung == "digits":
            assert torch.equal(row, labels[b, h, r])


@given(grids(), st.data())
@settings(max_examples=120, deadline=None)
def test_every_tile_is_decided(grid: tuple[ma.Mask, Any, int], data: st.DataObject) -> None:
    mask, wanted, tokens = grid
    draw = data.draw
    q_len = draw(st.integers(1, tokens + 5))
    kv_len = draw(st.one_of(st.just(q_len), st.integers(1, tokens + 5)))
    assert_same_mask(mask, wanted(q_len=q_len, kv_len=kv_len), q_len, kv_len)
    variant = draw(st.integers(0, 5))
    if variant == 1:
        mask = ~mask
    elif variant == 2:
        mask = transposed(mask)
    elif variant == 3:
        mask = mask | prefix(draw(st.integers(0, 5)))
    elif variant == 4:
        mask = mask.shift(q=draw(st.integers(-3, 4)), kv=draw(st.integers(-3, 4)))
    elif variant == 5:
        mask = cast(ma.Mask, mask & padding(torch.tensor([tokens // 2, tokens])))
    check(mask, (q_len, kv_len), (draw(st.integers(1, 24)), draw(st.integers(1, 24))))


@pytest.mark.parametrize("seed", range(6))
def test_large_blocks_that_divide_nothing(seed: int) -> None:
    choose = random.Random(seed)
    shape = (choose.randint(15, 40), choose.randint(15, 40))
    window = tuple(choose.randint(1, extent // 2) for extent in shape)
    mask = neighborhood(shape, window, choose.choice((1, 2)))
    tokens = shape[0] * shape[1]
    lengths = (choose.randint(tokens // 2, tokens), choose.randint(tokens // 2, tokens))
    assert mask.prove().rung == "digits"
    check(mask, lengths, (choose.choice((16, 48, 128)), choose.choice((16, 100, 256))))


def test_other_formulas_of_digits() -> None:
    by_head = ma.where(head % 2 == 0, spatial(5, 1), temporal(5))
    each = ma.table(torch.tensor([0, 2]), "reach", low=0)[head]
    band = (q_idx % 7 - kv_idx % 7 <= each) & (q_idx // 7 >= kv_idx // 7)
    lexicographic = neighborhood((6, 7), 3) & causal
    letters = ma.scalar(7, "width", low=1)
    one_sided = (kv_idx % letters == 2) | (q_idx // letters == kv_idx // letters)
    for mask in (by_head, by_head & causal, band, lexicographic, ~lexicographic, one_sided):
        assert isinstance(mask, ma.Mask)
        assert mask.prove().rung == "digits" and mask.prove().exact
        for lengths, block in (((42, 42), (5, 8)), ((37, 50), (16, 3)), ((1, 42), (4, 4))):
            check(mask, lengths, block)


def test_batch_and_head_move_positions_before_they_are_digits() -> None:
    moved = (q_idx + head) % 4 == kv_idx % 4
    assert moved.prove().rung == "digits"
    by_both = (q_idx + ma.batch + head) % 4 >= (kv_idx + 2 * ma.batch) % 4
    for mask in (moved, ((kv_idx + head) % 8 < 3) & causal, by_both):
        assert_labels_exact(mask, 19, block=(3, 4), batch=2, heads=3)
        assert mask.cost(19, batch=2, heads=3, block=4).kept == kept(mask, 19)


def kept(mask: ma.Mask, length: int) -> int:
    dense = mask.to_dense(length, batch=2, heads=3)
    return int(dense.expand(2, 3, length, length).sum())


def test_formulas_that_are_not_of_digits_are_left_to_the_other_rungs() -> None:
    two = ((q_idx % 3) == (kv_idx % 3)) & ((q_idx % 4) == (kv_idx % 4))
    crossed = q_idx % 3 >= kv_idx // 3
    for mask in (two, crossed, neighborhood((4, 5), 3) & ma.sliding(4)):
        assert mask.prove().forms.digits is None
        check(cast(ma.Mask, mask), (20, 20), (3, 4))


def test_a_million_tokens() -> None:
    mask = neighborhood((1024, 1024), 13)
    form = bound(mask)
    extents = resolve(form, Lengths(1 << 20, None, 1, 1))
    table = rung_of(form.structure).runs(Tiling(form, extents, (128, 128)))
    # 13 rows of the canvas, of two tiles where the window is at a border and of three elsewhere.
    assert table.shape == (1, 1, 8192) and int(table.row_start.diff().max()) == 13
    assert int((table.end - table.first).sum()) == 1024 * 13 * (2 * 2 + 6 * 3)
    rows = table.row(0, 0, 8 * 500 + 3)
    assert [(run.first, run.end) for run in rows] == [
        (8 * y + 2, 8 * y + 5) for y in range(494, 507)
    ]


def test_a_full_row_of_tiles_is_found_full() -> None:
    mask = sliding_tile((8, 16), (4, 4), (1, 2))
    labels = mask.blocks(128, block=16).labels
    assert int((labels == 1).sum()) == 0 and int((labels == 2).sum()) == 8 * 2


@pytest.mark.parametrize("off", [1, -1])
def test_a_wrong_search_is_noticed(off: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from maskalg.schedule.digits import tiles

    right = tiles.next_in

    def wrong(*args: Any) -> torch.Tensor:
        return right(*args) + off

    monkeypatch.setattr(tiles, "next_in", wrong)
    with pytest.raises(AssertionError):
        for width in range(3, 9):
            mask = neighborhood((5, width), 3)
            dense = mask.to_dense(5 * width).numpy()
            found = mask.blocks(5 * width, block=(3, 2)).labels.numpy()
            assert np.array_equal(found, oracle.labels(dense, 3, 2))
