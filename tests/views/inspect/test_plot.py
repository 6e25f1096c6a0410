"""Figures: what stands on the axes is what the mask or the bias is."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import maskalg as ma
from maskalg import alibi, causal, document, prefix, sliding, softcap

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")
from matplotlib import pyplot  # noqa: E402

IDS = torch.arange(4).repeat_interleave(torch.tensor([30, 10, 24, 36]))


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    pyplot.close("all")


def drawn(axes: Any) -> np.ndarray[Any, Any]:
    (image,) = axes.images
    return np.ma.filled(np.ma.masked_invalid(image.get_array().astype(float)), np.nan)


def legend(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


@pytest.mark.parametrize(
    ("mask", "q_len", "kv_len", "block"),
    [
        (causal & sliding(20), 100, 100, 8),
        (causal & (sliding(20) | prefix(4)), 100, 60, 16),
        (document(IDS), 100, 90, 1),
        (~causal, 40, 100, None),
        (ma.nothing, 10, 10, None),
    ],
    ids=str,
)
def test_a_mask_is_its_blocks(mask: ma.Mask, q_len: int, kv_len: int, block: int | None) -> None:
    axes = mask.plot(q_len, kv_len, block=block)
    labels = mask.blocks(q_len, kv_len, block=block or 1).labels[0, 0]
    assert np.array_equal(drawn(axes), labels.numpy())
    assert axes.get_xlim() == (0, kv_len) and axes.get_ylim() == (q_len, 0)
    assert axes.get_title().replace("\n", " ") == str(mask)
    side = block or 1
    assert all(tick % side == 0 for tick in (*axes.get_xticks(), *axes.get_yticks()))
    assert len(axes.get_xticks()) <= 9


def test_the_legend_counts() -> None:
    axes = (causal & sliding(20)).plot(100, block=8)
    counts = (causal & sliding(20)).blocks(100, block=8).counts()
    names = ("empty", "partial", "full")
    assert legend(axes) == [f"{n} {c}" for n, c in zip(names, counts, strict=True)]
    assert legend(causal.plot(10)) == ["dropped 45", "kept 55"]
    assert causal.plot(10, legend=False).get_legend() is None


def test_colours_tell_the_labels_apart() -> None:
    (image,) = (causal & sliding(20)).plot(100, block=8).images
    seen = {tuple(image.to_rgba(np.array([[label]]))[0, 0]) for label in range(3)}
    assert len(seen) == 3


def test_a_bias_is_a_heat_map_of_what_it_adds() -> None:
    slopes = torch.tensor([0.5, 0.25])
    axes = alibi(slopes).plot(20, 30, head=1)
    distance = np.arange(30)[None, :] - np.arange(20)[:, None]
    assert np.allclose(drawn(axes), 0.25 * distance)
    (image,) = axes.images
    assert image.norm.vmin == -image.norm.vmax == -0.25 * 29
    # A colour bar explains the values.
    assert len(axes.figure.axes) == 2
    assert len(alibi(slopes).plot(20, legend=False).figure.axes) == 1


def test_a_score_leaves_out_what_its_mask_drops() -> None:
    score = causal & sliding(6) + alibi(torch.tensor([0.5]))
    values = drawn(score.plot(20))
    kept = (causal & sliding(6)).to_dense(20)[0, 0].numpy()
    assert np.array_equal(np.isfinite(values), kept)
    distance = np.arange(20)[None, :] - np.arange(20)[:, None]
    assert np.allclose(values[kept], 0.5 * distance[kept])
    blocks = drawn(score.plot(20, block=4))
    empty = (causal & sliding(6)).blocks(20, block=4).labels[0, 0].numpy() == 0
    assert np.array_equal(np.isnan(blocks), empty)


def test_a_bias_that_scales_shows_a_score_of_one() -> None:
    axes = ma.decay(torch.tensor([-0.5])).plot(8)
    distance = np.abs(np.arange(8)[None, :] - np.arange(8)[:, None])
    assert np.allclose(drawn(axes), np.exp(-0.5 * distance))
    assert "what a score of 1 becomes" in axes.get_xlabel().replace("\n", " ")


def test_a_bias_without_positions_is_a_curve() -> None:
    axes = softcap(30).plot(16)
    identity, curve = axes.lines
    x, y = curve.get_data()
    assert np.allclose(y, 30 * np.tanh(x / 30)) and np.allclose(*identity.get_data())
    assert x.max() == 90


def test_axes_title_batch_and_head() -> None:
    _, mine = pyplot.subplots()
    lengths = torch.tensor([10, 20])
    mask = ma.padding(lengths) & sliding(torch.tensor([2, 5, 9]))
    axes = mask.plot(24, ax=mine, entry=1, head=2, title="mine")
    assert axes is mine and axes.get_title() == "mine"
    assert np.array_equal(drawn(axes) == 2, mask.to_dense(24)[1, 2].numpy())
    note = axes.get_legend().get_title().get_text().replace("\n", " ")
    assert "batch entry 1 of 2. head 2 of 3" in note


def test_several_side_by_side() -> None:
    layers = [causal & sliding(8), causal, causal + alibi(torch.tensor([0.5]))]
    first, second, third = ma.plot(layers, 32)
    assert first.figure is second.figure is third.figure
    assert np.array_equal(drawn(first) == 2, layers[0].to_dense(32)[0, 0].numpy())
    assert np.array_equal(drawn(second) == 2, causal.to_dense(32)[0, 0].numpy())
    (shared,) = first.figure.legends
    assert [text.get_text() for text in shared.get_texts()] == ["dropped", "kept"]
    assert len(ma.plot(causal, 16)) == 1


def test_heads_share_a_scale() -> None:
    slopes = torch.tensor([0.5, 0.25, 0.125])
    axes = ma.plot(causal + alibi(slopes), 32, head=[0, 2])
    assert [one.get_title().replace("\n", " ")[-6:] for one in axes] == ["head 0", "head 2"]
    limits = {one.images[0].norm.vmax for one in axes}
    assert limits == {0.5 * 31}
    assert np.nanmin(drawn(axes[1])) == -0.125 * 31


def test_a_composition_is_shown_as_its_parts() -> None:
    mask = causal & (sliding(8) | prefix(2)) & document(IDS)
    axes = ma.plot(mask, 64, parts=True, columns=2)
    titles = [one.get_title().replace("\n", " ") for one in axes]
    assert titles == ["causal", "sliding(8) | prefix(2)", "document(ids[100])", str(mask)]
    parts = [causal, sliding(8) | prefix(2), document(IDS), mask]
    for one, part in zip(axes, parts, strict=True):
        assert np.array_equal(drawn(one) == 2, part.to_dense(64)[0, 0].numpy())
    assert [len(ma.plot(what, 16, parts=True)) for what in (causal, ~causal, alibi(
        torch.ones(1)), causal + alibi(torch.ones(1)))] == [1, 2, 1, 3]  # fmt: skip


def test_titles() -> None:
    axes = ma.plot([causal, ~causal], 16, titles=["past", "future"])
    assert [one.get_title() for one in axes] == ["past", "future"]


def test_a_million_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ma.Mask, "to_dense", None)
    mask = causal & (sliding(4096) | prefix(64)) & document(torch.arange(1 << 20) // 50_000)
    labels = drawn((mask + alibi(torch.tensor([0.5]))).plot(1 << 20))
    assert labels.shape == (256, 256)
    assert drawn(mask.plot(1 << 20)).shape == (256, 256)


@pytest.mark.parametrize(("q_len", "kv_len"), [(0, 0), (1, 1), (0, 8), (1, 2000)])
def test_extreme_lengths(q_len: int, kv_len: int) -> None:
    causal.plot(q_len, kv_len).figure.canvas.draw()
    (causal + alibi(torch.ones(1))).plot(q_len, kv_len).figure.canvas.draw()


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for call in (lambda: causal.plot(8), lambda: ma.plot(causal, 8)):
        with pytest.raises(ImportError, match=r"pip install 'maskalg\[plot\]'") as caught:
            call()
        assert isinstance(caught.value, ma.MaskalgError)


def test_errors() -> None:
    mask = sliding(torch.tensor([2, 5]))
    with pytest.raises(ValueError, match=r"plot: head must be below 2, .* got 2"):
        mask.plot(8, head=2)
    with pytest.raises(ValueError, match="plot: entry must be an integer >= 0, got -1"):
        mask.plot(8, entry=-1)
    with pytest.raises(TypeError, match=r"plot: head must be an integer >= 0, got 1.5"):
        mask.plot(8, head=1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="plot draws masks, biases and scores, got 3 of type int"):
        ma.plot([causal, 3], 8)  # type: ignore[list-item]
    with pytest.raises(TypeError, match="plot draws masks, biases and scores, got 3 of type int"):
        ma.plot(3, 8, parts=True)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nothing to draw"):
        ma.plot([], 8)
    with pytest.raises(ValueError, match="plot: 1 titles were given for 2 pictures"):
        ma.plot([causal, causal], 8, titles=["one"])
    with pytest.raises(ValueError, match="q_len"):
        causal.plot(-1)
    with pytest.raises(ValueError, match="ids"):
        document(IDS).plot(200)


def test_headings_and_captions_keep_to_their_pictures() -> None:
    """Long formulas and the notes of heat maps: inside the figure, beside each other."""
    from maskalg import document, global_tokens, head, where

    flags = torch.arange(2048) % 200 == 0
    long = where(head % 2 == 0, causal & sliding(64) | global_tokens(flags), causal)
    biased = causal & document(torch.arange(2048) // 300) + alibi(torch.tensor([0.5, 0.25]))
    for axes in (ma.plot([long, biased], 2048, head=[0, 1]), ma.plot(biased, 2048, parts=True)):
        figure = axes[0].figure
        figure.canvas.draw()
        for texts in ([ax.title for ax in axes], [ax.xaxis.label for ax in axes]):
            boxes = [text.get_window_extent() for text in texts if text.get_text()]
            for box in boxes:
                assert box.x0 >= 0 and box.x1 <= figure.bbox.x1
                assert box.y0 >= 0 and box.y1 <= figure.bbox.y1
            assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes))
